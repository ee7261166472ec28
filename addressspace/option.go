package addressspace

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Option sets what a new node has beside its name.
type Option func(*nodeSpec)

// nodeSpec gathers what a new node will be.
type nodeSpec struct {
	class       ua.NodeClass
	id          uabinary.NodeID
	hasID       bool
	name        uabinary.QualifiedName
	hasName     bool
	display     *uabinary.LocalizedText
	description *uabinary.LocalizedText
	inverse     *uabinary.LocalizedText
	definition  *uabinary.Variant

	parent     *Node
	parentID   *uabinary.NodeID
	reference  *uabinary.NodeID // ReferenceType from the parent
	definedBy  *uabinary.NodeID // type definition
	refs       []refSpec
	modelling  uint32 // modelling rule, numeric id in namespace 0
	properties []propertySpec

	dataType   *uabinary.NodeID
	rank       int32
	hasRank    bool
	dims       []uint32
	access     uint32
	sampling   float64
	hasSample  bool
	historize  bool
	writeMask  uint32
	notifier   byte
	abstract   bool
	userAccess func(*Caller) ua.AccessLevelType
	userCall   func(*Caller) bool
	value      *uabinary.DataValue
	property   bool
}

type refSpec struct {
	typ, target uabinary.NodeID
	inverse     bool
}

type propertySpec struct {
	name  string
	value any
	typ   uint32 // DataType, numeric id in namespace 0; 0: from the value
}

// Access levels for [AccessLevel].
const (
	AccessRead      = ua.AccessLevelTypeCurrentRead
	AccessWriteOnly = ua.AccessLevelTypeCurrentWrite
	// AccessReadWrite lets clients write status and source timestamp too; many
	// send a timestamp with every value.
	AccessReadWrite = ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite |
		ua.AccessLevelTypeStatusWrite | ua.AccessLevelTypeTimestampWrite
	AccessNone = ua.AccessLevelTypeNone
)

// NodeID gives the node an id of its own; without it the id is the path, as a
// string in the namespace.
func NodeID(id uabinary.NodeID) Option {
	return func(n *nodeSpec) { n.id, n.hasID = id.Clone(), true }
}

// NumericNodeID gives the node a numeric id in its namespace.
func NumericNodeID(id uint32) Option {
	return func(n *nodeSpec) {
		n.id, n.hasID = uabinary.NumericID(n.id.Namespace, id), true
	}
}

// BrowseName sets the BrowseName; without it it is the last part of the path.
func BrowseName(namespace uint16, name string) Option {
	return func(n *nodeSpec) {
		n.name, n.hasName = uabinary.QualifiedName{Namespace: namespace, Name: []byte(name)}, true
	}
}

// DisplayName sets the DisplayName; without it it is the BrowseName's text.
func DisplayName(text string) Option {
	t := uabinary.Text(text)
	return func(n *nodeSpec) { n.display = &t }
}

// Description sets the Description.
func Description(text string) Option {
	t := uabinary.Text(text)
	return func(n *nodeSpec) { n.description = &t }
}

// Parent hangs the node under an existing node instead of the one its path names.
func Parent(id uabinary.NodeID) Option {
	id = id.Clone()
	return func(n *nodeSpec) { n.parentID = &id }
}

// ParentReference sets the type of the reference from the parent. The default is
// Organizes under folders, HasSubtype under types of the same class, HasProperty
// for properties and HasComponent elsewhere.
func ParentReference(referenceType uabinary.NodeID) Option {
	id := referenceType.Clone()
	return func(n *nodeSpec) { n.reference = &id }
}

// TypeDefinition sets the type of an Object or Variable. The components and
// properties that the type declares Mandatory are made with it.
func TypeDefinition(id uabinary.NodeID) Option {
	id = id.Clone()
	return func(n *nodeSpec) { n.definedBy = &id }
}

// Refers adds a forward reference of the given type to an existing node.
func Refers(referenceType, target uabinary.NodeID) Option {
	r := refSpec{typ: referenceType.Clone(), target: target.Clone()}
	return func(n *nodeSpec) { n.refs = append(n.refs, r) }
}

// ReferredBy adds an inverse reference of the given type from an existing node.
func ReferredBy(referenceType, source uabinary.NodeID) Option {
	r := refSpec{typ: referenceType.Clone(), target: source.Clone(), inverse: true}
	return func(n *nodeSpec) { n.refs = append(n.refs, r) }
}

// Mandatory and Optional give an instance declaration of a type its modelling
// rule (OPC 10000-3 §6.4.4).
func Mandatory() Option { return func(n *nodeSpec) { n.modelling = idMandatory } }

// Optional: see [Mandatory].
func Optional() Option { return func(n *nodeSpec) { n.modelling = 80 } }

// DataType sets the DataType of a Variable or VariableType; without it it follows
// from the initial value.
func DataType(id uabinary.NodeID) Option {
	id = id.Clone()
	return func(n *nodeSpec) { n.dataType = &id }
}

// ValueRank sets the ValueRank (see [Node.ValueRank]); without it it follows from
// the initial value.
func ValueRank(rank int32) Option {
	return func(n *nodeSpec) { n.rank, n.hasRank = rank, true }
}

// ArrayDimensions sets the largest length of each dimension, 0 meaning any.
func ArrayDimensions(dims ...uint32) Option {
	return func(n *nodeSpec) { n.dims = dims }
}

// AccessLevel sets the AccessLevel of a Variable; the default is [AccessRead].
func AccessLevel(level ua.AccessLevelType) Option {
	return func(n *nodeSpec) { n.access = uint32(level) }
}

// AccessLevelEx sets all bits of the AccessLevelEx of a Variable.
func AccessLevelEx(level ua.AccessLevelExType) Option {
	return func(n *nodeSpec) { n.access = uint32(level) }
}

// Writable lets clients write the value: [AccessReadWrite].
func Writable() Option { return AccessLevel(AccessReadWrite) }

// UserAccess narrows the AccessLevel for each caller: what f returns is and-ed
// with it. Reading or writing beyond is BadUserAccessDenied.
func UserAccess(f func(*Caller) ua.AccessLevelType) Option {
	return func(n *nodeSpec) { n.userAccess = f }
}

// UserExecutable decides for each caller whether a Method may be called.
func UserExecutable(f func(*Caller) bool) Option {
	return func(n *nodeSpec) { n.userCall = f }
}

// MinimumSamplingInterval sets the attribute, in milliseconds; -1 says
// "unknown". The default is 0: every change is seen.
func MinimumSamplingInterval(milliseconds float64) Option {
	return func(n *nodeSpec) { n.sampling, n.hasSample = milliseconds, true }
}

// Historizing sets the Historizing attribute.
func Historizing() Option { return func(n *nodeSpec) { n.historize = true } }

// EventNotifier sets the EventNotifier bits of an Object or View; bit 0 lets
// clients subscribe to its events.
func EventNotifier(bits byte) Option { return func(n *nodeSpec) { n.notifier = bits } }

// WriteMask names the attributes, beside the value, that clients may write.
// BrowseName, DisplayName, Description, InverseName, EventNotifier, AccessLevel,
// MinimumSamplingInterval, Historizing and Executable are supported.
func WriteMask(mask ua.AttributeWriteMask) Option {
	return func(n *nodeSpec) { n.writeMask = uint32(mask) & supportedWriteMask }
}

// Abstract makes a type abstract.
func Abstract() Option { return func(n *nodeSpec) { n.abstract = true } }

// InverseName sets the InverseName of a ReferenceType; one without is symmetric.
func InverseName(text string) Option {
	t := uabinary.Text(text)
	return func(n *nodeSpec) { n.inverse = &t }
}

// Definition sets the DataTypeDefinition of a DataType.
func Definition(d any) Option {
	return func(n *nodeSpec) {
		if v, err := uabinary.NewVariant(d); err == nil {
			n.definition = &v
		}
	}
}

// AsProperty makes a Variable a property: PropertyType, referred to by HasProperty.
func AsProperty() Option { return func(n *nodeSpec) { n.property = true } }

// Property adds a property of namespace 0 with the given name.
func Property(name string, value any) Option {
	return func(n *nodeSpec) { n.properties = append(n.properties, propertySpec{name: name, value: value}) }
}

const (
	idRange            = 884
	idRangeBinary      = 886
	idEUInformation    = 887
	idEUInformationBin = 889
	idAnalogItemType   = 2368
	unitsOfUNECE       = "http://www.opcfoundation.org/UA/units/un/cefact"
	idDuration         = 290
)

// EURange makes a Variable an AnalogItem with the given normal range
// (OPC 10000-8 §5.3.2.3); percent deadbands need it.
func EURange(low, high float64) Option {
	body := uabinary.AppendDouble(uabinary.AppendDouble(nil, low), high)
	v := uabinary.ExtensionObjectVariant(structure(idRangeBinary, body))
	return func(n *nodeSpec) {
		n.analog()
		n.properties = append(n.properties, propertySpec{name: "EURange", value: v, typ: idRange})
	}
}

// EngineeringUnits adds the unit of an AnalogItem: its UNECE common code as a
// number, its symbol and its name (OPC 10000-8 §5.6.4.3), e.g. 4408652, "°C",
// "degree Celsius".
func EngineeringUnits(unitID int32, symbol, name string) Option {
	body := uabinary.AppendString(nil, unitsOfUNECE)
	body = uabinary.AppendInt32(body, unitID)
	body = uabinary.AppendLocalizedText(body, uabinary.Text(symbol))
	body = uabinary.AppendLocalizedText(body, uabinary.Text(name))
	v := uabinary.ExtensionObjectVariant(structure(idEUInformationBin, body))
	return func(n *nodeSpec) {
		n.analog()
		n.properties = append(n.properties, propertySpec{name: "EngineeringUnits", value: v, typ: idEUInformation})
	}
}

func (n *nodeSpec) analog() {
	if n.definedBy == nil {
		id := uabinary.NumericID(0, idAnalogItemType)
		n.definedBy = &id
	}
}

// structure is an ExtensionObject of namespace 0 with a binary body.
func structure(encoding uint32, body []byte) uabinary.ExtensionObject {
	return uabinary.ExtensionObject{
		TypeID:   uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, encoding)},
		Encoding: ua.ExtensionObjectBinary,
		Body:     body,
	}
}
