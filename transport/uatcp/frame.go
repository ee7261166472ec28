// Package uatcp is the opc.tcp transport: OPC UA Connection Protocol,
// OPC 10000-6 §7.1 (OPC UA Connection Protocol) over §7.2 (OPC UA TCP).
package uatcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// HeaderSize is the size in bytes of the header of every message: three letters
// of type, the chunk type, the size with the header (OPC 10000-6 §7.1.2.2,
// Message Header).
const HeaderSize = 8

// Message types as the first three bytes in little-endian order.
const (
	typeHEL = 'H' | 'E'<<8 | 'L'<<16
	typeACK = 'A' | 'C'<<8 | 'K'<<16
	typeERR = 'E' | 'R'<<8 | 'R'<<16
	typeRHE = 'R' | 'H'<<8 | 'E'<<16
	typeOPN = 'O' | 'P'<<8 | 'N'<<16
	typeCLO = 'C' | 'L'<<8 | 'O'<<16
	typeMSG = 'M' | 'S'<<8 | 'G'<<16
)

const (
	maxHello  = HeaderSize + 20 + 4 + transport.MaxEndpointURLLength
	ackSize   = HeaderSize + 20
	maxError  = HeaderSize + 4 + 4 + maxReason
	maxReason = 4096 // bytes, OPC 10000-6 §7.1.2.5 (Error Message)
)

// Hello is the first message of a client (OPC 10000-6 §7.1.2.3, Hello Message).
type Hello struct {
	ProtocolVersion   uint32
	ReceiveBufferSize uint32 // bytes
	SendBufferSize    uint32 // bytes
	MaxMessageSize    uint32 // bytes of a response; 0 = no limit
	MaxChunkCount     uint32 // of a response; 0 = no limit
	EndpointURL       string
}

// Append appends the complete message.
func (h *Hello) Append(b []byte) []byte {
	b = appendHeader(b, "HELF", HeaderSize+24+len(h.EndpointURL))
	b = binary.LittleEndian.AppendUint32(b, h.ProtocolVersion)
	b = binary.LittleEndian.AppendUint32(b, h.ReceiveBufferSize)
	b = binary.LittleEndian.AppendUint32(b, h.SendBufferSize)
	b = binary.LittleEndian.AppendUint32(b, h.MaxMessageSize)
	b = binary.LittleEndian.AppendUint32(b, h.MaxChunkCount)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.EndpointURL)))
	return append(b, h.EndpointURL...)
}

// ParseHello reads a complete message whose header was checked.
func ParseHello(frame []byte) (h Hello, err error) {
	b := frame[HeaderSize:]
	if len(b) < 24 {
		return h, uastatus.New(ua.StatusBadDecodingError, "hello", errShort)
	}
	le := binary.LittleEndian
	h.ProtocolVersion = le.Uint32(b)
	h.ReceiveBufferSize = le.Uint32(b[4:])
	h.SendBufferSize = le.Uint32(b[8:])
	h.MaxMessageSize = le.Uint32(b[12:])
	h.MaxChunkCount = le.Uint32(b[16:])
	n, url := int32(le.Uint32(b[20:])), b[24:]
	if n > transport.MaxEndpointURLLength {
		return h, uastatus.New(ua.StatusBadTCPEndpointURLInvalid, "hello", fmt.Errorf("endpoint URL of %d bytes", n))
	}
	if n < -1 || int(max(n, 0)) != len(url) {
		return h, uastatus.New(ua.StatusBadDecodingError, "hello", fmt.Errorf("endpoint URL of %d bytes in %d", n, len(url)))
	}
	h.EndpointURL = string(url)
	return h, nil
}

// Acknowledge is the server's answer (OPC 10000-6 §7.1.2.4, Acknowledge Message).
type Acknowledge struct {
	ProtocolVersion   uint32
	ReceiveBufferSize uint32 // bytes
	SendBufferSize    uint32 // bytes
	MaxMessageSize    uint32 // bytes of a request; 0 = no limit
	MaxChunkCount     uint32 // of a request; 0 = no limit
}

// Append appends the complete message.
func (a *Acknowledge) Append(b []byte) []byte {
	b = appendHeader(b, "ACKF", ackSize)
	b = binary.LittleEndian.AppendUint32(b, a.ProtocolVersion)
	b = binary.LittleEndian.AppendUint32(b, a.ReceiveBufferSize)
	b = binary.LittleEndian.AppendUint32(b, a.SendBufferSize)
	b = binary.LittleEndian.AppendUint32(b, a.MaxMessageSize)
	return binary.LittleEndian.AppendUint32(b, a.MaxChunkCount)
}

// ParseAcknowledge reads a complete message whose header was checked.
func ParseAcknowledge(frame []byte) (a Acknowledge, err error) {
	b := frame[HeaderSize:]
	if len(b) != ackSize-HeaderSize {
		return a, uastatus.New(ua.StatusBadDecodingError, "acknowledge", errShort)
	}
	le := binary.LittleEndian
	return Acknowledge{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])}, nil
}

// Error is the last message before a close (OPC 10000-6 §7.1.2.5, Error
// Message). As an error it is what the peer sent.
type Error struct {
	Code   ua.StatusCode
	Reason string // ≤ 4,096 bytes
}

// Error is the code's name and the reason.
func (e *Error) Error() string {
	return "peer sent ERR " + uastatus.Name(e.Code) + " " + fmt.Sprintf("%q", e.Reason)
}

// Unwrap is the code, for errors.Is.
func (e *Error) Unwrap() error { return e.Code }

// Append appends the complete message.
func (e *Error) Append(b []byte) []byte {
	reason := e.Reason[:min(len(e.Reason), maxReason)]
	b = appendHeader(b, "ERRF", HeaderSize+8+len(reason))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Code))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(reason)))
	return append(b, reason...)
}

// ParseError reads a complete message whose header was checked.
func ParseError(frame []byte) (*Error, error) {
	b := frame[HeaderSize:]
	if len(b) < 8 {
		return nil, uastatus.New(ua.StatusBadDecodingError, "error message", errShort)
	}
	e := &Error{Code: ua.StatusCode(binary.LittleEndian.Uint32(b))}
	n, text := int32(binary.LittleEndian.Uint32(b[4:])), b[8:]
	if n < -1 || n > maxReason || int(n) > len(text) {
		return nil, uastatus.New(ua.StatusBadDecodingError, "error message", errShort)
	}
	e.Reason = string(text[:max(n, 0)])
	return e, nil
}

func appendHeader(b []byte, kind string, size int) []byte {
	b = append(b, kind...)
	return binary.LittleEndian.AppendUint32(b, uint32(size))
}

var errShort = errors.New("message too short")

// frameSize checks a message header and returns the size of the message.
// limit is the largest accepted one. Hostile sizes of 0 to 7 end here at once
// (hostile.md A7), and so does whatever is no OPC UA at all.
func frameSize(h []byte, limit int) (int, error) {
	kind := uint32(h[0]) | uint32(h[1])<<8 | uint32(h[2])<<16
	final := false
	switch kind {
	case typeMSG:
		final = h[3] == 'F' || h[3] == 'C' || h[3] == 'A'
	case typeHEL, typeACK, typeERR, typeRHE, typeOPN, typeCLO:
		// IsFinal is always 'F' but for MSG (OPC 10000-6 §6.7.2.2, Message
		// Header): nothing but service messages is ever assembled.
		final = h[3] == 'F'
	}
	if !final {
		return 0, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "message header", fmt.Errorf("type %q", h[:4]))
	}
	size := binary.LittleEndian.Uint32(h[4:])
	if size < HeaderSize {
		return 0, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "message header", fmt.Errorf("size %d", size))
	}
	if int64(size) > int64(limit) {
		return 0, uastatus.New(ua.StatusBadTCPMessageTooLarge, "message header", fmt.Errorf("size %d, limit %d", size, limit))
	}
	return int(size), nil
}

func kindOf(frame []byte) uint32 {
	return uint32(frame[0]) | uint32(frame[1])<<8 | uint32(frame[2])<<16
}
