package uajson

// Form says how a message is written: one of [Compact], [Verbose] and [Reversible], and around it at most one of
// [InBody] and [InEnvelope]. [AppendBinary] tells the Form of what it read, which [AppendJSON] can answer in.
type Form uint8

const (
	// Compact leaves out fields with default values and has enumerations as numbers (OPC 10000-6 §5.4.1, General,
	// CompactEncoding). Services use it.
	Compact Form = 0
	// Verbose has every field, names beside the numbers of enumerations, and symbols beside StatusCodes (VerboseEncoding).
	Verbose Form = 1
	// Reversible is the older encoding that Compact replaced, with objects for NodeIds and QualifiedNames, and other names
	// in Variants and ExtensionObjects (OPC 10000-6 Annex H, Reversible and NonReversible Encoding). Its messages have
	// TypeId and Body.
	Reversible Form = 2

	// InBody puts the fields of a message into a Body beside its TypeId, as the older encoding does, but in the encoding
	// that goes with it. Some stacks do so.
	InBody Form = 4
	// InEnvelope puts the fields of a message into a Body beside its ServiceId (OPC 10000-6 §G.3, OpenAPI Mapping, OpenAPI
	// Message Envelope).
	InEnvelope Form = 8
)

const encodings Form = 3

// encoding returns f without what is around it.
func (f Form) encoding() Form {
	if f &= encodings; f <= Reversible {
		return f
	}
	return Compact
}

// String returns the names of the specification, as in "Compact" and "Verbose in Body".
func (f Form) String() string {
	s := [...]string{"Compact", "Verbose", "Reversible"}[f.encoding()]
	switch {
	case f&InEnvelope != 0:
		s += " in envelope"
	case f&InBody != 0 && f.encoding() != Reversible:
		s += " in Body"
	}
	return s
}
