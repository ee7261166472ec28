package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gopcua/opcua/ua"
)

// conn is the load generator's own opc.tcp client for SecurityPolicy None. It
// is deliberately not Breakwater's client half: requests are encoded once,
// before the clock starts, and answers are only framed and spot-checked, so
// that the generator does not become what is measured.
type conn struct {
	c       net.Conn
	r       *bufio.Reader
	channel uint32
	token   uint32
	seq     uint32
	request uint32
	auth    *ua.NodeID
	buf     []byte
}

const (
	msgHeader  = 24 // message header, token id and sequence header of a symmetric chunk
	ackTimeout = 30 * time.Second
)

// dial opens a connection and a SecureChannel with policy None.
func dial(addr string) (*conn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{c: nc, r: bufio.NewReaderSize(nc, 64<<10)}
	if err := c.hello("opc.tcp://" + addr); err != nil {
		nc.Close()
		return nil, fmt.Errorf("HEL: %w", err)
	}
	if err := c.open(); err != nil {
		nc.Close()
		return nil, fmt.Errorf("OPN: %w", err)
	}
	return c, nil
}

func (c *conn) hello(url string) error {
	b := append(c.buf[:0], "HELF\x00\x00\x00\x00"...)
	for _, v := range []uint32{0, 65535, 65535, 0, 0, uint32(len(url))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(b, url...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	if _, err := c.c.Write(b); err != nil {
		return err
	}
	f, err := c.frame()
	if err != nil {
		return err
	}
	if string(f[:3]) != "ACK" {
		return fmt.Errorf("got %q", f[:3])
	}
	return nil
}

func (c *conn) open() error {
	body, err := message(446, &ua.OpenSecureChannelRequest{
		RequestHeader: header(nil, 1),
		RequestType:   ua.SecurityTokenRequestTypeIssue, SecurityMode: ua.MessageSecurityModeNone,
		RequestedLifetime: 3600000,
	})
	if err != nil {
		return err
	}
	b := append(c.buf[:0], "OPNF\x00\x00\x00\x00\x00\x00\x00\x00"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ua.SecurityPolicyURINone)))
	b = append(b, ua.SecurityPolicyURINone...)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	c.seq, c.request = c.seq+1, c.request+1
	b = binary.LittleEndian.AppendUint32(b, c.seq)
	b = binary.LittleEndian.AppendUint32(b, c.request)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	c.buf = b
	if _, err := c.c.Write(b); err != nil {
		return err
	}
	f, err := c.frame()
	if err != nil {
		return err
	}
	if string(f[:3]) != "OPN" {
		return fmt.Errorf("got %q", f[:3])
	}
	at := 12
	for range 3 { // policy, sender certificate, receiver thumbprint
		n := int32(binary.LittleEndian.Uint32(f[at:]))
		at += 4 + max(0, int(n))
	}
	_, msg, err := ua.DecodeService(f[at+8:])
	if err != nil {
		return err
	}
	rs, ok := msg.(*ua.OpenSecureChannelResponse)
	if !ok {
		return fmt.Errorf("got %T", msg)
	}
	c.channel, c.token = rs.SecurityToken.ChannelID, rs.SecurityToken.TokenID
	return nil
}

// session creates and activates an anonymous session.
func (c *conn) session(url string) error {
	msg, err := c.call(461, &ua.CreateSessionRequest{
		RequestHeader: header(nil, 2),
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: "urn:breakwater:bench", ProductURI: "urn:breakwater:bench",
			ApplicationName: ua.NewLocalizedText("bench"), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: url, SessionName: "bench", ClientNonce: make([]byte, 32), RequestedSessionTimeout: 3600000,
	})
	if err != nil {
		return err
	}
	rs, ok := msg.(*ua.CreateSessionResponse)
	if !ok {
		return fmt.Errorf("CreateSession: got %T %v", msg, result(msg))
	}
	c.auth = rs.AuthenticationToken
	policy := "Anonymous"
	for _, e := range rs.ServerEndpoints {
		if e.SecurityPolicyURI != ua.SecurityPolicyURINone {
			continue
		}
		for _, t := range e.UserIdentityTokens {
			if t.TokenType == ua.UserTokenTypeAnonymous {
				policy = t.PolicyID
			}
		}
	}
	msg, err = c.call(467, &ua.ActivateSessionRequest{
		RequestHeader: header(c.auth, 3), ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: policy}),
	})
	if err != nil {
		return err
	}
	if rs, ok := msg.(*ua.ActivateSessionResponse); !ok || rs.ResponseHeader.ServiceResult != ua.StatusOK {
		return fmt.Errorf("ActivateSession: got %T %v", msg, result(msg))
	}
	return nil
}

func result(msg any) ua.StatusCode {
	if r, ok := msg.(ua.Response); ok && r.Header() != nil {
		return r.Header().ServiceResult
	}
	return ua.StatusOK
}

// call sends one request and decodes its answer with gopcua's codec.
func (c *conn) call(typeID uint16, rq any) (any, error) {
	body, err := message(typeID, rq)
	if err != nil {
		return nil, err
	}
	if _, err := c.c.Write(c.chunk(c.buf[:0], body)); err != nil {
		return nil, err
	}
	f, err := c.frame()
	if err != nil {
		return nil, err
	}
	if string(f[:4]) != "MSGF" {
		return nil, fmt.Errorf("got %q", f[:4])
	}
	_, msg, err := ua.DecodeService(bytes.Clone(f[msgHeader:])) // opaque NodeIds alias what they are decoded from
	return msg, err
}

// chunk appends body as one symmetric chunk.
func (c *conn) chunk(b, body []byte) []byte {
	c.seq, c.request = c.seq+1, c.request+1
	b = append(b, "MSGF"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(msgHeader+len(body)))
	b = binary.LittleEndian.AppendUint32(b, c.channel)
	b = binary.LittleEndian.AppendUint32(b, c.token)
	b = binary.LittleEndian.AppendUint32(b, c.seq)
	b = binary.LittleEndian.AppendUint32(b, c.request)
	return append(b, body...)
}

// close ends the SecureChannel and the connection without waiting.
func (c *conn) close() {
	if c.channel != 0 {
		if body, err := message(452, &ua.CloseSecureChannelRequest{RequestHeader: header(nil, 4)}); err == nil {
			b := c.chunk(c.buf[:0], body)
			copy(b, "CLO")
			c.c.Write(b)
		}
	}
	c.c.Close()
}

// frame reads one chunk; the slice is valid until the next call.
func (c *conn) frame() ([]byte, error) {
	c.c.SetReadDeadline(time.Now().Add(ackTimeout))
	return c.next()
}

func (c *conn) next() ([]byte, error) {
	h, err := c.r.Peek(8)
	if err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(h[4:]))
	if n < 8 || n > 1<<20 {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	f := c.buf[:n]
	if _, err := io.ReadFull(c.r, f); err != nil {
		return nil, err
	}
	if string(f[:3]) == "ERR" && n >= 12 {
		return nil, fmt.Errorf("ERR %v", ua.StatusCode(binary.LittleEndian.Uint32(f[8:])))
	}
	return f, nil
}

var errAnswer = errors.New("not the expected answer")

// pipeline keeps depth copies of body in flight until the deadline and
// returns how many were answered. Every answer must have the wanted response
// type and a good ServiceResult; the first answers' lengths must agree.
func (c *conn) pipeline(body []byte, responseType uint16, depth int, until time.Time) (n int, err error) {
	c.c.SetReadDeadline(until.Add(ackTimeout))
	out := make([]byte, 0, depth*(msgHeader+len(body)))
	for range depth {
		out = c.chunk(out, body)
	}
	if _, err := c.c.Write(out); err != nil {
		return 0, err
	}
	inFlight, stop := depth, false
	for inFlight > 0 {
		answered := 0
		for {
			f, err := c.next()
			if err != nil {
				return n, err
			}
			if len(f) < msgHeader+20 || string(f[:4]) != "MSGF" || binary.LittleEndian.Uint16(f[msgHeader+2:]) != responseType ||
				binary.LittleEndian.Uint32(f[msgHeader+16:]) != 0 {
				return n, fmt.Errorf("%w: % x", errAnswer, f[:min(len(f), 64)])
			}
			n, answered, inFlight = n+1, answered+1, inFlight-1
			if c.r.Buffered() < 8 || inFlight == 0 {
				break
			}
		}
		if !stop && time.Now().After(until) {
			stop = true
		}
		if stop {
			continue
		}
		out = out[:0]
		for range answered {
			out = c.chunk(out, body)
		}
		if _, err := c.c.Write(out); err != nil {
			return n, err
		}
		inFlight += answered
	}
	return n, nil
}

func header(auth *ua.NodeID, handle uint32) *ua.RequestHeader {
	if auth == nil {
		auth = ua.NewTwoByteNodeID(0)
	}
	return &ua.RequestHeader{AuthenticationToken: auth, Timestamp: time.Now(), RequestHandle: handle,
		TimeoutHint: 60000, AdditionalHeader: ua.NewExtensionObject(nil)}
}

// message encodes a type id and a service message with gopcua's codec.
func message(typeID uint16, v any) ([]byte, error) {
	id, err := ua.NewFourByteExpandedNodeID(0, typeID).Encode()
	if err != nil {
		return nil, err
	}
	b, err := ua.Encode(v)
	return append(id, b...), err
}
