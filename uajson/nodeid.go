package uajson

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// appendBase64Decoded appends what a ByteString's text stands for: standard Base64 with padding (RFC 4648 §4).
func appendBase64Decoded(dst, s []byte) ([]byte, bool) {
	if bytes.ContainsAny(s, "\r\n") {
		return dst, false // the decoder would skip them
	}
	out, err := base64.StdEncoding.AppendDecode(dst, s)
	return out, err == nil
}

// parseGUID sets g to the 16 bytes on the wire of a Guid in text form (OPC 10000-6 §5.1.3, Guid).
func parseGUID(g *[16]byte, s []byte) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	// Where each byte of the wire is in the text: the first three numbers are little-endian.
	for i, at := range [16]int{6, 4, 2, 0, 11, 9, 16, 14, 19, 21, 24, 26, 28, 30, 32, 34} {
		high, ok1 := unhex(s[at])
		low, ok2 := unhex(s[at+1])
		if !ok1 || !ok2 {
			return false
		}
		g[i] = high<<4 | low
	}
	return true
}

func appendGUID(dst, g []byte) []byte {
	for n, i := range [16]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		if n == 4 || n == 6 || n == 8 || n == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[g[i]>>4], hexDigits[g[i]&15])
	}
	return dst
}

// appendURI appends a URI as the texts of ids have it: percent-encoded where it would end them, and escaped for JSON.
func appendURI(dst, uri []byte) []byte {
	for i := 0; i < len(uri); i++ {
		if c := uri[i]; c == ';' || c == '%' || c < 0x20 {
			dst = append(dst, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
			continue
		}
		start := i
		for i < len(uri) && uri[i] != ';' && uri[i] != '%' && uri[i] >= 0x20 {
			i++
		}
		dst = appendEscaped(dst, uri[start:i])
		i--
	}
	return dst
}

// cutURI takes the URI and the semicolon behind it off a text, and undoes the percent-encoding. The URI is valid until the
// next call.
func (r *reader) cutURI(s []byte) (uri, rest []byte, ok bool) {
	uri, rest, ok = bytes.Cut(s, []byte(";"))
	if !ok || bytes.IndexByte(uri, '%') < 0 {
		return uri, rest, ok
	}
	r.uri = r.uri[:0]
	for i := 0; i < len(uri); i++ {
		if uri[i] == '%' && i+2 < len(uri) {
			high, ok1 := unhex(uri[i+1])
			low, ok2 := unhex(uri[i+2])
			if ok1 && ok2 {
				r.uri = append(r.uri, high<<4|low)
				i += 2
				continue
			}
		}
		r.uri = append(r.uri, uri[i])
	}
	return r.uri, rest, true
}

// cutNumber takes a decimal number of that many bits and the character behind it off a text.
func cutNumber(s []byte, behind byte, bits uint) (n uint64, rest []byte, ok bool) {
	for i, c := range s {
		if c == behind && i > 0 {
			return n, s[i+1:], n < 1<<bits
		}
		if c < '0' || c > '9' || i > 10 {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return 0, s, false
}

// nodeID appends a NodeId or ExpandedNodeId: a text (OPC 10000-6 §5.4.2.10, NodeId, and §5.4.2.11, ExpandedNodeId), or an
// object of the older encoding (§H.2, §H.3).
func (r *reader) nodeID(v place, expanded bool) {
	x := r.parseNodeID(v, expanded)
	if r.err != nil {
		return
	}
	if expanded {
		r.out = uabinary.AppendExpandedNodeID(r.out, x)
	} else {
		r.out = uabinary.AppendNodeID(r.out, x.NodeID)
	}
}

// parseNodeID returns what nodeID appends, which is valid until the next call.
func (r *reader) parseNodeID(v place, expanded bool) (x uabinary.ExpandedNodeID) {
	switch r.char(v) {
	case 'n':
		return x
	case '{':
		return r.nodeIDObject(v, expanded)
	case '"':
	default:
		r.bad("NodeId")
		return x
	}
	text := r.chars(v)
	if len(text) > r.maxString {
		r.limit("NodeId length")
		return x
	}
	if len(text) == 0 {
		return x
	}
	// What a URI that is in no table leads to: "the decoder shall set the NamespaceIndex to 0, the IdType to String and the
	// Identifier to the JSON string".
	unresolved := uabinary.ExpandedNodeID{NodeID: uabinary.NodeID{Type: uabinary.IDString, Bytes: text}}
	rest, ok := text, true
	if expanded {
		if after, found := bytes.CutPrefix(rest, []byte("svr=")); found {
			var n uint64
			if n, rest, ok = cutNumber(after, ';', 32); !ok {
				r.bad("ServerIndex")
				return x
			}
			x.ServerIndex = uint32(n)
		} else if after, found := bytes.CutPrefix(rest, []byte("svu=")); found {
			var uri []byte
			if uri, rest, ok = r.cutURI(after); !ok {
				r.bad("ServerUri")
				return x
			}
			if x.ServerIndex, ok = r.ctx.server(uri); !ok {
				return unresolved
			}
		}
	}
	if after, found := bytes.CutPrefix(rest, []byte("nsu=")); found {
		var uri []byte
		if uri, rest, ok = r.cutURI(after); !ok {
			r.bad("NamespaceUri")
			return x
		}
		// The table is that of this server, so another server's URI stays.
		if x.ServerIndex == 0 {
			x.Namespace, ok = r.ctx.namespace(uri)
		} else {
			ok = false
		}
		switch {
		case ok:
		case expanded:
			x.NamespaceURI = uri
		default:
			return unresolved
		}
	} else if after, found := bytes.CutPrefix(rest, []byte("ns=")); found {
		var n uint64
		if n, rest, ok = cutNumber(after, ';', 16); !ok {
			r.bad("NamespaceIndex")
			return x
		}
		x.Namespace = uint16(n)
	}
	r.identifier(&x.NodeID, rest)
	return x
}

// identifier sets the identifier of x to that in a text as "i=85".
func (r *reader) identifier(x *uabinary.NodeID, s []byte) {
	if len(s) < 2 || s[1] != '=' {
		r.bad("NodeId")
		return
	}
	kind, s := s[0], s[2:]
	switch kind {
	case 'i':
		neg, n, ok := integer(s)
		if !ok || neg || n > 0xFFFFFFFF || bytes.ContainsAny(s, ".eE") {
			r.bad("numeric identifier")
		}
		x.Numeric = uint32(n)
	case 's':
		x.Type, x.Bytes = uabinary.IDString, s
	case 'g':
		if !parseGUID(&r.guid, s) {
			r.bad("Guid identifier")
		}
		x.Type, x.Bytes = uabinary.IDGUID, r.guid[:]
	case 'b':
		r.opaque(x, s)
	default:
		r.bad("type of identifier")
	}
}

// opaque sets the identifier of x to the ByteString that s stands for.
func (r *reader) opaque(x *uabinary.NodeID, s []byte) {
	// Behind the text, of which s may be a part.
	n := len(r.text)
	b, ok := appendBase64Decoded(r.text, s)
	if !ok {
		r.bad("opaque identifier")
		return
	}
	r.text = b
	x.Type, x.Bytes = uabinary.IDOpaque, b[n:]
}

// nodeIDObject returns the id in an object of the older encoding.
func (r *reader) nodeIDObject(v place, expanded bool) (x uabinary.ExpandedNodeID) {
	r.older = true
	var kind, id, namespace, server place
	for m := r.members(v); m.next(); {
		if r.isNull(m.val) {
			continue
		}
		switch string(m.name()) {
		case "IdType":
			kind = m.val
		case "Id":
			id = m.val
		case "Namespace":
			namespace = m.val
		case "ServerUri":
			server = m.val
		}
	}
	if server.p != 0 && expanded {
		if r.char(server) != '"' {
			x.ServerIndex = uint32(r.uint(server, 32))
		} else if i, ok := r.ctx.server(r.chars(server)); ok {
			x.ServerIndex = i
		} else {
			r.bad("ServerUri")
		}
	}
	if namespace.p != 0 {
		if r.char(namespace) != '"' {
			x.Namespace = uint16(r.uint(namespace, 16))
		} else {
			uri, ok := r.chars(namespace), false
			if x.ServerIndex == 0 {
				x.Namespace, ok = r.ctx.namespace(uri)
			}
			if !ok {
				if !expanded {
					r.bad("NamespaceUri")
				}
				r.uri = append(r.uri[:0], uri...)
				x.NamespaceURI = r.uri
			}
		}
	}
	var t uint64
	if kind.p != 0 {
		t = r.uint(kind, 8)
	}
	if t > 3 {
		r.bad("IdType")
	}
	x.Type = uabinary.IDType(t)
	if id.p == 0 {
		return x
	}
	if t == 0 {
		x.Numeric = uint32(r.uint(id, 32))
		return x
	}
	if r.char(id) != '"' {
		r.bad("identifier")
		return x
	}
	s := r.chars(id)
	if len(s) > r.maxString {
		r.limit("NodeId length")
	}
	switch x.Type {
	case uabinary.IDString:
		x.Bytes = s
	case uabinary.IDGUID:
		if !parseGUID(&r.guid, s) {
			r.bad("Guid identifier")
		}
		x.Bytes = r.guid[:]
	case uabinary.IDOpaque:
		r.opaque(&x.NodeID, s)
	}
	return x
}

// qualifiedName appends a QualifiedName: a text (OPC 10000-6 §5.4.2.14, QualifiedName, in the form of §5.1.12), or an object
// of the older encoding (§H.5).
func (r *reader) qualifiedName(v place) {
	if r.char(v) == '{' {
		r.qualifiedNameObject(v)
		return
	}
	if r.char(v) != '"' {
		r.bad("QualifiedName")
		return
	}
	name, namespace := r.chars(v), uint16(0)
	if n, rest, ok := cutNumber(name, ':', 16); ok {
		namespace, name = uint16(n), rest
	} else if after, found := bytes.CutPrefix(name, []byte("nsu=")); found {
		// A URI that is in no table leaves the text as the name, as with NodeIds.
		if uri, rest, ok := r.cutURI(after); ok {
			if n, ok := r.ctx.namespace(uri); ok {
				namespace, name = n, rest
			}
		}
	}
	r.appendQualifiedName(namespace, name)
}

func (r *reader) appendQualifiedName(namespace uint16, name []byte) {
	if len(name) > r.maxString {
		r.limit("QualifiedName length")
		return
	}
	r.out = uabinary.AppendQualifiedName(r.out, uabinary.QualifiedName{Namespace: namespace, Name: name})
}

func (r *reader) qualifiedNameObject(v place) {
	r.older = true
	var name, uri place
	for m := r.members(v); m.next(); {
		if r.isNull(m.val) {
			continue
		}
		switch string(m.name()) {
		case "Name":
			name = m.val
		case "Uri":
			uri = m.val
		}
	}
	var namespace uint16
	if uri.p != 0 {
		if r.char(uri) != '"' {
			namespace = uint16(r.uint(uri, 16))
		} else if n, ok := r.ctx.namespace(r.chars(uri)); ok {
			namespace = n
		} else {
			r.bad("NamespaceUri")
		}
	}
	if name.p == 0 {
		r.appendQualifiedName(namespace, nil)
		return
	}
	if r.char(name) != '"' {
		r.bad("QualifiedName")
		return
	}
	r.appendQualifiedName(namespace, r.chars(name))
}

// appendNodeID appends the text of x inside a string.
func (w *writer) appendNodeID(x *uabinary.ExpandedNodeID) {
	switch uri := w.ctx.serverURI(x.ServerIndex); {
	case x.ServerIndex == 0:
	case len(uri) > 0:
		w.out = append(appendURI(append(w.out, "svu="...), uri), ';')
	default:
		w.out = strconv.AppendUint(append(w.out, "svr="...), uint64(x.ServerIndex), 10)
		w.out = append(w.out, ';')
	}
	uri := x.NamespaceURI
	if uri == nil && x.ServerIndex == 0 {
		uri = w.ctx.namespaceURI(x.Namespace)
	}
	switch {
	case len(uri) > 0:
		w.out = append(appendURI(append(w.out, "nsu="...), uri), ';')
	case x.Namespace != 0:
		w.out = strconv.AppendUint(append(w.out, "ns="...), uint64(x.Namespace), 10)
		w.out = append(w.out, ';')
	}
	switch x.Type {
	case uabinary.IDString:
		w.out = appendEscaped(append(w.out, "s="...), x.Bytes)
	case uabinary.IDGUID:
		w.out = appendGUID(append(w.out, "g="...), x.Bytes)
	case uabinary.IDOpaque:
		w.out = base64.StdEncoding.AppendEncode(append(w.out, "b="...), x.Bytes)
	default:
		w.out = strconv.AppendUint(append(w.out, "i="...), uint64(x.Numeric), 10)
	}
}

// appendNodeIDObject appends the object of the older encoding.
func (w *writer) appendNodeIDObject(x *uabinary.ExpandedNodeID) {
	w.out = append(w.out, '{')
	if x.Type != uabinary.IDNumeric {
		w.name("IdType")
		w.out = strconv.AppendUint(w.out, uint64(x.Type), 10)
	}
	w.name("Id")
	switch x.Type {
	case uabinary.IDString:
		w.out = appendQuoted(w.out, x.Bytes)
	case uabinary.IDGUID:
		w.out = append(appendGUID(append(w.out, '"'), x.Bytes), '"')
	case uabinary.IDOpaque:
		w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), x.Bytes), '"')
	default:
		w.out = strconv.AppendUint(w.out, uint64(x.Numeric), 10)
	}
	switch {
	case len(x.NamespaceURI) > 0:
		w.name("Namespace")
		w.out = appendQuoted(w.out, x.NamespaceURI)
	case x.Namespace != 0:
		w.name("Namespace")
		w.out = strconv.AppendUint(w.out, uint64(x.Namespace), 10)
	}
	if x.ServerIndex != 0 {
		w.name("ServerUri")
		w.out = strconv.AppendUint(w.out, uint64(x.ServerIndex), 10)
	}
	w.out = append(w.out, '}')
}
