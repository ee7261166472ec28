package addressspace

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Caller is who a read, a write or a call is done for.
type Caller struct {
	SessionID uabinary.NodeID
	User      string // empty for anonymous callers
	Anonymous bool
	Admin     bool
	Locales   []string
}

// Variable is the handle with which a program sets and binds the value of a
// Variable node. It is safe for concurrent use.
type Variable struct{ node *Node }

// Variable returns the handle of an existing Variable node of any namespace;
// nil when the node is missing or of another class. The server binds its live
// values in namespace 0 with it.
func (s *Space) Variable(id uabinary.NodeID) *Variable {
	n := s.Lookup(id)
	if n == nil || !n.isVariable() {
		return nil
	}
	return &Variable{node: n}
}

// Node returns the node.
func (v *Variable) Node() *Node { return v.node }

// Set stores a value with status Good and the current time. It accepts what
// ua.NewVariant accepts, ua and uabinary variants and data values. The type and
// the number of dimensions must fit the DataType and ValueRank of the node,
// otherwise the value stays and the error's code is BadTypeMismatch.
// Setting a scalar costs at most two allocations.
func (v *Variable) Set(value any) error {
	switch x := value.(type) {
	case uabinary.DataValue:
		return v.SetDataValue(x)
	case *ua.DataValue:
		dv, err := uabinary.DataValueOf(x)
		if err != nil {
			return err
		}
		return v.SetDataValue(dv)
	}
	if box := boxScalar(value); box != nil {
		if vt, code := v.node.checkValue(box.dv.Value); code == ua.StatusOK {
			box.dv.Value = vt
			v.node.store(&box.dv)
			return nil
		}
		return v.mismatch(value)
	}
	vt, err := toVariant(value)
	if err != nil {
		return err
	}
	vt, code := v.node.checkValue(vt)
	if code != ua.StatusOK {
		return v.mismatch(value)
	}
	v.node.store(&uabinary.DataValue{
		Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
		Value:           vt,
		SourceTimestamp: uabinary.Now(),
	})
	return nil
}

// scalarBox is a value and its encoding in one allocation.
type scalarBox struct {
	dv  uabinary.DataValue
	enc [9]byte
}

// boxScalar boxes the scalars whose encoding has a fixed size, nil for others.
func boxScalar(value any) *scalarBox {
	var t ua.TypeID
	var bits uint64
	size := 8
	switch x := value.(type) {
	case float64:
		t, bits = ua.TypeIDDouble, math.Float64bits(x)
	case float32:
		t, bits, size = ua.TypeIDFloat, uint64(math.Float32bits(x)), 4
	case bool:
		if x {
			bits = 1
		}
		t, size = ua.TypeIDBoolean, 1
	case int32:
		t, bits, size = ua.TypeIDInt32, uint64(uint32(x)), 4
	case uint32:
		t, bits, size = ua.TypeIDUint32, uint64(x), 4
	case int64:
		t, bits = ua.TypeIDInt64, uint64(x)
	case uint64:
		t, bits = ua.TypeIDUint64, x
	case int16:
		t, bits, size = ua.TypeIDInt16, uint64(uint16(x)), 2
	case uint16:
		t, bits, size = ua.TypeIDUint16, uint64(x), 2
	case int8:
		t, bits, size = ua.TypeIDSByte, uint64(uint8(x)), 1
	case uint8:
		t, bits, size = ua.TypeIDByte, uint64(x), 1
	default:
		return nil
	}
	box := new(scalarBox)
	box.enc[0] = byte(t)
	binary.LittleEndian.PutUint64(box.enc[1:], bits)
	var d uabinary.Decoder
	d.Reset(box.enc[:1+size], nil)
	box.dv.Value = d.Variant()
	box.dv.Mask = ua.DataValueValue | ua.DataValueSourceTimestamp
	box.dv.SourceTimestamp = uabinary.Now()
	return box
}

func (v *Variable) mismatch(value any) error {
	n := v.node
	return uastatus.New(ua.StatusBadTypeMismatch, "addressspace.Set",
		fmt.Errorf("%T does not fit %s: DataType %s, ValueRank %d", value, n.id, n.DataType().browse.Load().Name, n.ValueRank()))
}

// SetDataValue stores a value with its status and timestamps. A source
// timestamp that is not there is set to the current time. The value must not
// alias memory that changes later.
func (v *Variable) SetDataValue(dv uabinary.DataValue) error {
	if dv.Mask&ua.DataValueValue != 0 && !dv.Value.IsNull() {
		vt, code := v.node.checkValue(dv.Value)
		if code != ua.StatusOK {
			return v.mismatch(dv.Value)
		}
		dv.Value = vt
	}
	if dv.Mask&ua.DataValueSourceTimestamp == 0 {
		dv.Mask |= ua.DataValueSourceTimestamp
		dv.SourceTimestamp = uabinary.Now()
	}
	stored := dv // moves to the heap once, here
	v.node.store(&stored)
	return nil
}

// SetStatus keeps the value and gives it another status and the current time:
// Bad for a sensor that is gone, Uncertain for one that is doubtful.
func (v *Variable) SetStatus(code ua.StatusCode) {
	n := v.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var dv uabinary.DataValue
	if old := n.value.Load(); old != nil {
		dv = *old
	}
	dv.Mask |= ua.DataValueStatusCode | ua.DataValueSourceTimestamp
	dv.Status, dv.SourceTimestamp = code, uabinary.Now()
	n.storeLocked(&dv)
}

// Value returns the stored value as a Go value, nil when there is none.
func (v *Variable) Value() any {
	dv := v.node.value.Load()
	if dv == nil || dv.Value.IsNull() {
		return nil
	}
	x, err := dv.Value.Value()
	if err != nil {
		return nil
	}
	return x
}

// readCallback is one of the two forms of a read callback.
type readCallback struct {
	value func(*Caller) (any, error)
	data  func(*Caller) uabinary.DataValue
}

// OnRead binds a callback that produces the value whenever it is read or
// sampled; nil unbinds. An error is answered with its StatusCode. The callback
// runs on the goroutine that serves the request, so it must return soon (memory,
// not a field bus: for slow sources, poll and [Variable.Set]), and may run
// concurrently with itself. c is never nil.
func (v *Variable) OnRead(f func(c *Caller) (any, error)) *Variable {
	if f == nil {
		v.node.extend().onRead.Store(nil)
		return v
	}
	v.node.extend().onRead.Store(&readCallback{value: f})
	return v
}

// OnReadDataValue is OnRead for callbacks that give status and timestamps
// themselves and build the value without garbage.
func (v *Variable) OnReadDataValue(f func(c *Caller) uabinary.DataValue) *Variable {
	if f == nil {
		v.node.extend().onRead.Store(nil)
		return v
	}
	v.node.extend().onRead.Store(&readCallback{data: f})
	return v
}

func (r *readCallback) call(c *Caller) uabinary.DataValue {
	if c == nil {
		c = &noCaller
	}
	if r.data != nil {
		return r.data(c)
	}
	x, err := r.value(c)
	if err != nil {
		return uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: badOr(err)}
	}
	switch x := x.(type) {
	case uabinary.DataValue:
		return x
	case *ua.DataValue:
		dv, err := uabinary.DataValueOf(x)
		if err != nil {
			return uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadInternalError}
		}
		return dv
	}
	vt, err := toVariant(x)
	if err != nil {
		return uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadInternalError}
	}
	return uabinary.DataValue{
		Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
		Value:           vt,
		SourceTimestamp: uabinary.Now(),
	}
}

// badOr returns the status of an error of a callback; an error must not read as
// Good.
func badOr(err error) ua.StatusCode {
	if code := uastatus.Code(err); code != ua.StatusOK {
		return code
	}
	return ua.StatusBadInternalError
}

// WriteCall is one client write of a value, as a write callback sees it.
type WriteCall struct {
	Caller *Caller
	Node   *Node
	// Value is the whole new value, an IndexRange already applied. The callback
	// may replace it by what is to be stored instead.
	Value uabinary.DataValue
}

// Any returns the new value as a Go value.
func (w *WriteCall) Any() any {
	x, err := w.Value.Value.Value()
	if err != nil {
		return nil
	}
	return x
}

// OnWrite binds a callback that is asked before a client's write is stored; nil
// unbinds. An error refuses the write with its StatusCode and leaves the value as
// it is. Writes to one node wait for each other; the callback may use
// [Variable.Set] on the node, but what it returns nil for is stored afterwards.
func (v *Variable) OnWrite(f func(*WriteCall) error) *Variable {
	if f == nil {
		v.node.extend().onWrite.Store(nil)
		return v
	}
	v.node.extend().onWrite.Store(&f)
	return v
}

// toVariant takes everything the API takes as a value.
func toVariant(value any) (uabinary.Variant, error) {
	switch x := value.(type) {
	case float64:
		return uabinary.Double(x), nil
	case uabinary.Variant:
		return x, nil
	case *ua.Variant:
		return uabinary.VariantOf(x)
	case int:
		// int is what untyped constants become; OPC UA has no such type.
		if int(int32(x)) == x {
			return uabinary.NewVariant(int32(x))
		}
		return uabinary.NewVariant(int64(x))
	case time.Duration:
		// Duration of OPC UA: a Double of milliseconds (OPC 10000-3 §8.13).
		return uabinary.Double(float64(x) / float64(time.Millisecond)), nil
	}
	return uabinary.NewVariant(value)
}
