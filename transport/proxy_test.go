package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"testing/iotest"
)

// proxyHeader makes a header; body's length is what length says.
func proxyHeader(command, family byte, length int, body []byte) []byte {
	b := append([]byte(proxySignature), command, family)
	return append(binary.BigEndian.AppendUint16(b, uint16(length)), body...)
}

func tcp4Body() []byte {
	return []byte{203, 0, 113, 7, 10, 0, 0, 1, 0xC3, 0x50, 0x12, 0xE8} // 203.0.113.7:50000 to 10.0.0.1:4840
}

func tcp6Body(source string) []byte {
	s, d := netip.MustParseAddr(source).As16(), netip.MustParseAddr("2001:db8::1").As16()
	return append(append(s[:], d[:]...), 0xC3, 0x50, 0x12, 0xE8)
}

// PROXY protocol 2.2, binary header format; overload.md §3.
func TestReadProxyHeader(t *testing.T) {
	tlvs := bytes.Repeat([]byte{0x04, 0, 1, 0}, 125) // 500 bytes of NOOP
	for _, tc := range []struct {
		name string
		b    []byte
		want string // remote; "" = none, "!" = error
	}{
		{"TCP over IPv4", proxyHeader(0x21, 0x11, 12, tcp4Body()), "203.0.113.7:50000"},
		{"TCP over IPv6", proxyHeader(0x21, 0x21, 36, tcp6Body("2001:db8::7")), "[2001:db8::7]:50000"},
		{"IPv4-mapped is IPv4", proxyHeader(0x21, 0x21, 36, tcp6Body("::ffff:203.0.113.7")), "203.0.113.7:50000"},
		{"TLVs are skipped", proxyHeader(0x21, 0x11, 12+500, append(tcp4Body(), tlvs...)), "203.0.113.7:50000"},
		{"TLVs that are none, too", proxyHeader(0x21, 0x11, 12+3, append(tcp4Body(), 0xFF, 0xFF, 0xFF)), "203.0.113.7:50000"},
		{"536 bytes", proxyHeader(0x21, 0x11, 520, append(tcp4Body(), make([]byte, 508)...)), "203.0.113.7:50000"},
		{"LOCAL", proxyHeader(0x20, 0, 0, nil), ""},
		{"LOCAL with an address", proxyHeader(0x20, 0x11, 12, tcp4Body()), ""},
		{"LOCAL of an unknown family", proxyHeader(0x20, 0x77, 5, make([]byte, 5)), ""},
		{"537 bytes", proxyHeader(0x21, 0x11, 521, append(tcp4Body(), make([]byte, 509)...)), "!"},
		{"64 KiB claimed", proxyHeader(0x20, 0, 65535, nil), "!"},
		{"no address", proxyHeader(0x21, 0x11, 0, nil), "!"},
		{"half an address", proxyHeader(0x21, 0x11, 11, tcp4Body()[:11]), "!"},
		{"IPv6 with the length of IPv4", proxyHeader(0x21, 0x21, 12, tcp4Body()), "!"},
		{"UNSPEC", proxyHeader(0x21, 0, 0, nil), "!"},
		{"UDP", proxyHeader(0x21, 0x12, 12, tcp4Body()), "!"},
		{"UNIX", proxyHeader(0x21, 0x31, 216, make([]byte, 216)), "!"},
		{"version 1", proxyHeader(0x11, 0x11, 12, tcp4Body()), "!"},
		{"unknown command", proxyHeader(0x22, 0x11, 12, tcp4Body()), "!"},
		{"the text form", []byte("PROXY TCP4 203.0.113.7 10.0.0.1 50000 4840\r\n"), "!"},
		{"a Hello", append([]byte("HELF"), make([]byte, 60)...), "!"},
		{"nothing", nil, "!"},
		{"cut in the signature", []byte(proxySignature[:7]), "!"},
		{"cut in the address", proxyHeader(0x21, 0x11, 12, tcp4Body()[:5]), "!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
				r := bytes.NewReader(append(bytes.Clone(tc.b), "HELF"...))
				if tc.name == "nothing" || len(tc.b) < proxyPrefix || tc.name == "cut in the address" {
					r = bytes.NewReader(tc.b)
				}
				remote, err := ReadProxyHeader(wrap(r))
				switch {
				case tc.want == "!":
					if err == nil {
						t.Error("taken as", remote)
					}
				case err != nil:
					t.Error(err)
				case tc.want == "" && remote.IsValid() || tc.want != "" && remote.String() != tc.want:
					t.Error(remote)
				case r.Len() != 4:
					t.Errorf("%d bytes left of the 4 behind the header", r.Len())
				}
			}
		})
	}
}

// Whatever comes: no more than MaxProxyHeader bytes are read, and what is taken
// is a header that says so.
func FuzzProxyHeader(f *testing.F) {
	f.Add(proxyHeader(0x21, 0x11, 12, tcp4Body()))
	f.Add(proxyHeader(0x21, 0x21, 36, tcp6Body("2001:db8::7")))
	f.Add(proxyHeader(0x20, 0, 0, nil))
	f.Add(proxyHeader(0x21, 0x11, 15, append(tcp4Body(), 4, 0, 0)))
	f.Add([]byte("HELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		remote, err := ReadProxyHeader(r)
		used := len(b) - r.Len()
		if used > MaxProxyHeader {
			t.Fatal("read", used)
		}
		if err != nil {
			return
		}
		if used != proxyPrefix+int(binary.BigEndian.Uint16(b[14:])) || string(b[:12]) != proxySignature || b[12]>>4 != 2 {
			t.Fatal("taken:", used, b[:16])
		}
		if remote.IsValid() != (b[12] == 0x21) || remote.Addr().Is4In6() {
			t.Fatal(remote)
		}
	})
}
