package interop

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"time"
)

// writePcap writes recordings as IPv4 TCP connections to port 4840, which is
// where tshark expects OPC UA. Checksums are left out; tshark does not ask.
func writePcap(file string, flows []*flow) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriter(out)
	header := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	header = binary.LittleEndian.AppendUint16(header, 2) // version 2.4
	header = binary.LittleEndian.AppendUint16(header, 4)
	header = append(header, make([]byte, 8)...)              // time zone and accuracy
	header = binary.LittleEndian.AppendUint32(header, 1<<18) // snapshot length
	header = binary.LittleEndian.AppendUint32(header, 101)   // LINKTYPE_RAW
	if _, err := w.Write(header); err != nil {
		return err
	}
	for i, f := range flows {
		if err := writeFlow(w, uint16(20000+i), f); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
	}
	return w.Flush()
}

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpACK = 0x10
)

// writeFlow writes one connection from its SYN to its FIN.
func writeFlow(w *bufio.Writer, port uint16, f *flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.segments) == 0 {
		return nil
	}
	seq := map[bool]uint32{false: 1000, true: 5000}
	at := f.segments[0].at
	packet := func(fromServer bool, flags byte, data []byte) error {
		tcp := binary.BigEndian.AppendUint16(nil, port)
		tcp = binary.BigEndian.AppendUint16(tcp, 4840)
		src, dst := byte(1), byte(2)
		if fromServer {
			tcp = binary.BigEndian.AppendUint16(nil, 4840)
			tcp = binary.BigEndian.AppendUint16(tcp, port)
			src, dst = dst, src
		}
		tcp = binary.BigEndian.AppendUint32(tcp, seq[fromServer])
		ack := uint32(0)
		if flags&tcpACK != 0 {
			ack = seq[!fromServer]
		}
		tcp = binary.BigEndian.AppendUint32(tcp, ack)
		tcp = append(tcp, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0) // header length, flags, window, checksum, urgent
		tcp = append(tcp, data...)
		ip := []byte{0x45, 0}
		ip = binary.BigEndian.AppendUint16(ip, uint16(20+len(tcp)))
		ip = append(ip, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, src, 10, 0, 0, dst)
		rec := binary.LittleEndian.AppendUint32(nil, uint32(at.Unix()))
		rec = binary.LittleEndian.AppendUint32(rec, uint32(at.Nanosecond()/int(time.Microsecond)))
		rec = binary.LittleEndian.AppendUint32(rec, uint32(len(ip)+len(tcp)))
		rec = binary.LittleEndian.AppendUint32(rec, uint32(len(ip)+len(tcp)))
		seq[fromServer] += uint32(len(data))
		if flags&(tcpSYN|tcpFIN) != 0 {
			seq[fromServer]++
		}
		for _, b := range [][]byte{rec, ip, tcp} {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}
	steps := []struct {
		fromServer bool
		flags      byte
	}{{false, tcpSYN}, {true, tcpSYN | tcpACK}, {false, tcpACK}}
	for _, s := range steps {
		if err := packet(s.fromServer, s.flags, nil); err != nil {
			return err
		}
	}
	for _, s := range f.segments {
		at = s.at
		if err := packet(s.fromServer, tcpACK, s.data); err != nil {
			return err
		}
	}
	if err := packet(false, tcpFIN|tcpACK, nil); err != nil {
		return err
	}
	return packet(true, tcpFIN|tcpACK, nil)
}
