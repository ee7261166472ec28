package uabinary

import "github.com/gopcua/opcua/ua"

// RequestHeader is a view of a RequestHeader (OPC 10000-4 §7.33, RequestHeader).
type RequestHeader struct {
	AuthenticationToken NodeID
	Timestamp           DateTime
	RequestHandle       uint32
	ReturnDiagnostics   uint32 // bits as ua.ServiceLevelSymbolicID etc.
	AuditEntryID        []byte
	TimeoutHint         uint32 // milliseconds; 0 is no timeout
	AdditionalHeader    ExtensionObject
}

// RequestHeader reads a RequestHeader.
func (d *Decoder) RequestHeader() (h RequestHeader) {
	h.AuthenticationToken = d.NodeID()
	h.Timestamp = d.DateTime()
	h.RequestHandle = d.UInt32()
	h.ReturnDiagnostics = d.UInt32()
	h.AuditEntryID = d.StringBytes()
	h.TimeoutHint = d.UInt32()
	h.AdditionalHeader = d.ExtensionObject()
	return h
}

// AppendRequestHeader appends a RequestHeader.
func AppendRequestHeader(b []byte, h *RequestHeader) []byte {
	b = AppendNodeID(b, h.AuthenticationToken)
	b = AppendDateTime(b, h.Timestamp)
	b = AppendUint32(b, h.RequestHandle)
	b = AppendUint32(b, h.ReturnDiagnostics)
	b = AppendByteString(b, h.AuditEntryID)
	b = AppendUint32(b, h.TimeoutHint)
	return AppendExtensionObject(b, h.AdditionalHeader)
}

// ResponseHeader is a view of a ResponseHeader (OPC 10000-4 §7.34, ResponseHeader).
type ResponseHeader struct {
	Timestamp        DateTime
	RequestHandle    uint32
	ServiceResult    ua.StatusCode
	Diagnostics      []byte   // one encoded DiagnosticInfo; nil is none
	StringTable      []string // nil is a null array
	AdditionalHeader ExtensionObject
}

// AppendResponseHeader appends a ResponseHeader.
func AppendResponseHeader(b []byte, h *ResponseHeader) []byte {
	b = AppendDateTime(b, h.Timestamp)
	b = AppendUint32(b, h.RequestHandle)
	b = AppendStatusCode(b, h.ServiceResult)
	if len(h.Diagnostics) == 0 {
		b = append(b, 0)
	} else {
		b = append(b, h.Diagnostics...)
	}
	if h.StringTable == nil {
		b = AppendUint32(b, null)
	} else {
		b = AppendUint32(b, uint32(len(h.StringTable)))
		for _, s := range h.StringTable {
			b = AppendString(b, s)
		}
	}
	return AppendExtensionObject(b, h.AdditionalHeader)
}

// ResponseHeader reads a ResponseHeader. The strings of the table are copies.
func (d *Decoder) ResponseHeader() (h ResponseHeader) {
	h.Timestamp = d.DateTime()
	h.RequestHandle = d.UInt32()
	h.ServiceResult = d.StatusCode()
	start := d.pos
	d.SkipDiagnosticInfo()
	if d.err == nil && d.pos > start+1 {
		h.Diagnostics = d.b[start:d.pos:d.pos]
	}
	h.StringTable = d.strings()
	h.AdditionalHeader = d.ExtensionObject()
	return h
}
