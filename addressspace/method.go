package addressspace

import (
	"context"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// MethodFunc is the code behind a Method. It returns the output arguments in
// order, as values that [Variable.Set] would take, or an error whose StatusCode
// the caller gets. It may block until ctx ends.
type MethodFunc func(ctx context.Context, c *Call) ([]any, error)

// Call is one call of a Method. Its arguments have been checked against the
// InputArguments.
type Call struct {
	Caller *Caller
	Object *Node
	Method *Node
	// Args alias the request: what is kept after the method returns must be
	// cloned.
	Args []uabinary.Variant

	results []ua.StatusCode
}

// Arg returns input argument i as a Go value (see [uabinary.Variant.Value]), nil
// for a null or missing one.
func (c *Call) Arg(i int) any {
	if i < 0 || i >= len(c.Args) {
		return nil
	}
	v, err := c.Args[i].Value()
	if err != nil {
		return nil
	}
	return v
}

// RefuseArg gives input argument i a status of its own; the method then returns
// an error with code BadInvalidArgument ([Call.Refused]).
func (c *Call) RefuseArg(i int, code ua.StatusCode) {
	if c.results == nil {
		c.results = make([]ua.StatusCode, len(c.Args))
	}
	if i >= 0 && i < len(c.results) {
		c.results[i] = code
	}
}

// Refused returns the error for a method that refused an argument.
func (c *Call) Refused() error {
	return uastatus.New(ua.StatusBadInvalidArgument, "addressspace.Call", nil)
}

// BindMethod puts code behind an existing Method node, that of a type (then
// instances of the type share it) or of an object; nil takes it away. It returns
// false when there is no such Method.
func (s *Space) BindMethod(id uabinary.NodeID, f MethodFunc) bool {
	n := s.Lookup(id)
	if n == nil || n.class != uint8(ua.NodeClassMethod) {
		return false
	}
	if f == nil {
		n.extend().method.Store(nil)
		return true
	}
	n.extend().method.Store(&f)
	return true
}

func (n *Node) handler() *MethodFunc {
	if e := n.ext.Load(); e != nil {
		return e.method.Load()
	}
	return nil
}

// Executable reports whether the Method can be called: the attribute allows it
// and there is code behind it, its own or that of the type of its object.
func (n *Node) Executable() bool {
	return n.attrs.Load().executable && n.resolve(n.Parent()) != nil
}

func (n *Node) userExecutable(c *Caller) bool {
	if e := n.ext.Load(); e != nil {
		if f := e.userCall.Load(); f != nil {
			if c == nil {
				c = &noCaller
			}
			return (*f)(c)
		}
	}
	return true
}

// resolve finds the code for calling method n on object: its own, else that of
// the method of the same name on the object's type or its supertypes.
func (n *Node) resolve(object *Node) *MethodFunc {
	if f := n.handler(); f != nil || object == nil {
		return f
	}
	t := object.above.Load()
	for i := 0; t != nil && i < maxTypeDepth; i++ {
		if m := t.method(n.BrowseName()); m != nil {
			if f := m.handler(); f != nil {
				return f
			}
		}
		t = t.above.Load()
	}
	return nil
}

// method returns the Method component with the given name.
func (n *Node) method(name uabinary.QualifiedName) *Node {
	refs := n.References()
	for i := range refs {
		r := &refs[i]
		if !r.Inverse && r.Target != nil && r.Target.class == uint8(ua.NodeClassMethod) &&
			equalNames(r.Target.BrowseName(), name) && SubtypeOf(r.Type, n.space.known.hasComponent) {
			return r.Target
		}
	}
	return nil
}

func (n *Node) hasMethod(m *Node) bool {
	refs := n.References()
	for i := range refs {
		if r := &refs[i]; !r.Inverse && r.Target == m && SubtypeOf(r.Type, n.space.known.hasComponent) {
			return true
		}
	}
	return false
}

// methodOn returns the Method node that is called when a client calls method on
// object: a component of the object, or a method of the object's type, which may
// have its own node on the object (OPC 10000-4 §5.11.2 Call).
func methodOn(object, method *Node) *Node {
	if object.hasMethod(method) {
		return method
	}
	t := object
	if !object.isType() {
		t = object.above.Load()
	}
	for i := 0; t != nil && i < maxTypeDepth; i++ {
		if t.hasMethod(method) {
			if own := object.method(method.BrowseName()); own != nil {
				return own
			}
			return method
		}
		t = t.above.Load()
	}
	return nil
}

// CallMethod calls a method for a client (OPC 10000-4 §5.11.2 Call). argResults
// is not nil only when an input argument is to blame (BadInvalidArgument).
func (s *Space) CallMethod(ctx context.Context, object, method uabinary.NodeID, args []uabinary.Variant, c *Caller) (out []uabinary.Variant, argResults []ua.StatusCode, code ua.StatusCode) {
	o := s.Lookup(object)
	if o == nil {
		return nil, nil, ua.StatusBadNodeIDUnknown
	}
	if o.class&uint8(ua.NodeClassObject|ua.NodeClassObjectType) == 0 {
		return nil, nil, ua.StatusBadNodeIDInvalid
	}
	m := s.Lookup(method)
	if m == nil || m.class != uint8(ua.NodeClassMethod) {
		return nil, nil, ua.StatusBadMethodInvalid
	}
	if m = methodOn(o, m); m == nil {
		return nil, nil, ua.StatusBadMethodInvalid
	}
	f := m.resolve(o)
	if f == nil || !m.attrs.Load().executable {
		return nil, nil, ua.StatusBadNotExecutable
	}
	if !m.userExecutable(c) {
		return nil, nil, ua.StatusBadUserAccessDenied
	}
	in := m.argumentList(0)
	switch {
	case len(args) < len(in.args):
		return nil, nil, ua.StatusBadArgumentsMissing
	case len(args) > len(in.args):
		return nil, nil, ua.StatusBadTooManyArguments
	}
	for i := range args {
		arg := &in.args[i]
		v, fits := s.checkType(args[i], arg.dataType, arg.builtin, arg.rank, arg.dims)
		if fits != ua.StatusOK {
			if argResults == nil {
				argResults = make([]ua.StatusCode, len(args))
			}
			argResults[i] = fits
			continue
		}
		args[i] = v
	}
	if argResults != nil {
		return nil, argResults, ua.StatusBadInvalidArgument
	}
	if c == nil {
		c = &noCaller
	}
	call := Call{Caller: c, Object: o, Method: m, Args: args}
	results, err := (*f)(ctx, &call)
	if err != nil {
		code = badOr(err)
		if code == ua.StatusBadInvalidArgument {
			argResults = call.results
		}
		return nil, argResults, code
	}
	return m.outputs(results)
}

// outputs turns what the method returned into variants of the declared types. A
// mismatch is the method's mistake: BadInternalError.
func (n *Node) outputs(results []any) ([]uabinary.Variant, []ua.StatusCode, ua.StatusCode) {
	declared := n.argumentList(1)
	if len(results) != len(declared.args) {
		return nil, nil, ua.StatusBadInternalError
	}
	out := make([]uabinary.Variant, len(results))
	for i, x := range results {
		v, err := toVariant(x)
		if err != nil {
			return nil, nil, ua.StatusBadInternalError
		}
		arg := &declared.args[i]
		if !v.IsNull() {
			var code ua.StatusCode
			if v, code = n.space.checkType(v, arg.dataType, arg.builtin, arg.rank, arg.dims); code != ua.StatusOK {
				return nil, nil, ua.StatusBadInternalError
			}
		}
		out[i] = v
	}
	return out, nil, ua.StatusOK
}

// argument is one element of InputArguments or OutputArguments, as far as
// checking needs it.
type argument struct {
	dataType *Node
	builtin  ua.TypeID
	rank     int32
	dims     string
}

type argumentList struct {
	from *uabinary.DataValue // the property's value this was made of
	args []argument
}

var argumentNames = [2]string{"InputArguments", "OutputArguments"}

// argumentList returns the declared arguments (which 0: input, 1: output). It is
// made anew only when the property's value has changed.
func (n *Node) argumentList(which int) *argumentList {
	var from *uabinary.DataValue
	if p := n.Property(argumentNames[which]); p != nil {
		from = p.value.Load()
	}
	e := n.extend()
	if l := e.arguments[which].Load(); l != nil && l.from == from {
		return l
	}
	l := &argumentList{from: from}
	if from != nil {
		for _, e := range from.Value.Elements() {
			x, _ := e.ExtensionObject()
			l.args = append(l.args, n.space.argumentOf(x.Body))
		}
	}
	e.arguments[which].Store(l)
	return l
}

// argumentOf reads the body of an Argument (OPC 10000-3 §8.6).
func (s *Space) argumentOf(body []byte) argument {
	var d uabinary.Decoder
	d.Reset(body, nil)
	d.StringBytes()
	a := argument{dataType: s.Lookup(d.NodeID()), rank: d.Int32()}
	var dims []byte
	for range max(0, d.ArrayLen(4)) {
		dims = uabinary.AppendUint32(dims, d.UInt32())
	}
	if d.Err() != nil {
		return argument{rank: -2}
	}
	a.dims = string(dims)
	a.builtin = s.builtinOf(a.dataType)
	return a
}

const idArgumentBinary = 298 // Argument_Encoding_DefaultBinary

// argumentsVariant encodes arguments as the value of InputArguments or
// OutputArguments.
func argumentsVariant(args []ua.Argument) (uabinary.Variant, error) {
	b := []byte{byte(ua.TypeIDExtensionObject) | variantArray}
	b = uabinary.AppendUint32(b, uint32(len(args)))
	for i := range args {
		a := &args[i]
		if a.DataType == nil {
			return uabinary.Variant{}, fmt.Errorf("argument %q has no DataType", a.Name)
		}
		body := uabinary.AppendString(nil, a.Name)
		body = uabinary.AppendNodeID(body, uabinary.NodeIDOf(a.DataType))
		body = uabinary.AppendUint32(body, uint32(a.ValueRank))
		if a.ArrayDimensions == nil {
			body = uabinary.AppendUint32(body, 0xFFFFFFFF)
		} else {
			body = uabinary.AppendUint32(body, uint32(len(a.ArrayDimensions)))
			for _, n := range a.ArrayDimensions {
				body = uabinary.AppendUint32(body, n)
			}
		}
		body = uabinary.AppendLocalizedText(body, uabinary.LocalizedTextOf(a.Description))
		b = uabinary.AppendExtensionObject(b, uabinary.ExtensionObject{
			TypeID:   uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, idArgumentBinary)},
			Encoding: ua.ExtensionObjectBinary,
			Body:     body,
		})
	}
	return variantFrom(b)
}

// variantFrom makes a Variant of bytes this package encoded. No limits apply: the
// value comes from the program or its files.
func variantFrom(b []byte) (uabinary.Variant, error) {
	var d uabinary.Decoder
	size := len(b) + 1
	d.Reset(b, &uabinary.Limits{MaxMessageSize: size, MaxStringLength: size, MaxByteStringLength: size, MaxArrayLength: size})
	v := d.Variant()
	return v, d.Err()
}
