package addressspace

import (
	"bytes"
	"unicode/utf8"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// writableAttributes maps the attributes a client may write, where the WriteMask
// of the node says so, to their bit of the WriteMask (OPC 10000-3 §8.60).
var writableAttributes = map[ua.AttributeID]ua.AttributeWriteMask{
	ua.AttributeIDBrowseName:              ua.AttributeWriteMaskBrowseName,
	ua.AttributeIDDisplayName:             ua.AttributeWriteMaskDisplayName,
	ua.AttributeIDDescription:             ua.AttributeWriteMaskDescription,
	ua.AttributeIDInverseName:             ua.AttributeWriteMaskInverseName,
	ua.AttributeIDEventNotifier:           ua.AttributeWriteMaskEventNotifier,
	ua.AttributeIDAccessLevel:             ua.AttributeWriteMaskAccessLevel,
	ua.AttributeIDMinimumSamplingInterval: ua.AttributeWriteMaskMinimumSamplingInterval,
	ua.AttributeIDHistorizing:             ua.AttributeWriteMaskHistorizing,
	ua.AttributeIDExecutable:              ua.AttributeWriteMaskExecutable,
}

// supportedWriteMask has the bits of writableAttributes; a node never announces
// others.
const supportedWriteMask = uint32(ua.AttributeWriteMaskBrowseName | ua.AttributeWriteMaskDisplayName |
	ua.AttributeWriteMaskDescription | ua.AttributeWriteMaskInverseName | ua.AttributeWriteMaskEventNotifier |
	ua.AttributeWriteMaskAccessLevel | ua.AttributeWriteMaskMinimumSamplingInterval |
	ua.AttributeWriteMaskHistorizing | ua.AttributeWriteMaskExecutable)

func (n *Node) writeAttribute(id ua.AttributeID, indexRange []byte, dv *uabinary.DataValue, c *Caller) ua.StatusCode {
	if _, code := n.appendAttribute(nil, id, c); code != ua.StatusOK {
		return code
	}
	bit := writableAttributes[id]
	switch {
	case bit == 0 || n.attrs.Load().writeMask&uint32(bit) == 0:
		return ua.StatusBadNotWritable
	case len(indexRange) > 0:
		return ua.StatusBadIndexRangeInvalid // none of them is an array
	case dv.Mask&ua.DataValueStatusCode != 0 && dv.Status != ua.StatusOK,
		dv.Mask&ua.DataValueSourceTimestamp != 0 && dv.SourceTimestamp != 0,
		dv.Mask&ua.DataValueServerTimestamp != 0 && dv.ServerTimestamp != 0:
		return ua.StatusBadWriteNotSupported
	}
	v := dv.Value
	n.mu.Lock()
	defer n.mu.Unlock()
	switch id {
	case ua.AttributeIDBrowseName:
		name, ok := v.QualifiedName()
		if !ok {
			return ua.StatusBadTypeMismatch
		}
		if !n.space.browseNameValid(name.Name) {
			return ua.StatusBadBrowseNameInvalid
		}
		if d := n.DisplayName(); n.attrs.Load().display == nil {
			n.change(func(a *attributes) { a.display = &d })
		}
		name = name.Clone()
		n.browse.Store(&name)
		return ua.StatusOK
	case ua.AttributeIDDisplayName, ua.AttributeIDDescription, ua.AttributeIDInverseName:
		text, ok := v.LocalizedText()
		if !ok {
			return ua.StatusBadTypeMismatch
		}
		text = text.Clone()
		n.change(func(a *attributes) {
			switch id {
			case ua.AttributeIDDisplayName:
				a.display = &text
			case ua.AttributeIDDescription:
				a.description = &text
			default:
				a.inverseName = &text
			}
		})
		return ua.StatusOK
	case ua.AttributeIDEventNotifier, ua.AttributeIDAccessLevel:
		x, ok := v.Uint64()
		if !ok || v.Type() != ua.TypeIDByte {
			return ua.StatusBadTypeMismatch
		}
		n.change(func(a *attributes) {
			if id == ua.AttributeIDEventNotifier {
				a.eventNotifier = byte(x)
			} else {
				a.accessLevel = a.accessLevel&^0xFF | uint32(x)
			}
		})
		return ua.StatusOK
	case ua.AttributeIDMinimumSamplingInterval:
		x, ok := v.Float64()
		if !ok || v.Type() != ua.TypeIDDouble {
			return ua.StatusBadTypeMismatch
		}
		n.change(func(a *attributes) { a.minSampling, a.hasSampling = x, true })
		return ua.StatusOK
	}
	x, ok := v.Bool()
	if !ok {
		return ua.StatusBadTypeMismatch
	}
	n.change(func(a *attributes) {
		if id == ua.AttributeIDHistorizing {
			a.historizing = x
		} else {
			a.executable = x
		}
	})
	return ua.StatusOK
}

// browseNameValid applies the cap of Options.MaxBrowseNameLength.
func (s *Space) browseNameValid(name []byte) bool {
	return len(name) > 0 && (s.maxBrowseName < 0 || len(name) <= s.maxBrowseName) && utf8.Valid(name)
}

// SetDisplayName changes the DisplayName.
func (n *Node) SetDisplayName(text string) {
	t := uabinary.Text(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(a *attributes) { a.display = &t })
}

// SetDescription changes the Description.
func (n *Node) SetDescription(text string) {
	t := uabinary.Text(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(a *attributes) { a.description = &t })
}

// SetAccessLevel changes the AccessLevel of a Variable.
func (n *Node) SetAccessLevel(level ua.AccessLevelType) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(a *attributes) { a.accessLevel = a.accessLevel&^0xFF | uint32(level) })
}

// SetEventNotifier changes the EventNotifier of an Object or View.
func (n *Node) SetEventNotifier(bits byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change(func(a *attributes) { a.eventNotifier = bits })
}

// equalNames reports whether two BrowseNames are the same.
func equalNames(a, b uabinary.QualifiedName) bool {
	return a.Namespace == b.Namespace && bytes.Equal(a.Name, b.Name)
}
