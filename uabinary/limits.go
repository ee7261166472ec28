package uabinary

// Defaults of [Limits].
const (
	DefaultMaxMessageSize      = 4 << 20
	DefaultMaxStringLength     = 1 << 20
	DefaultMaxByteStringLength = 4 << 20
	DefaultMaxArrayLength      = 1_000_000
	DefaultMaxNestingLevel     = 100
	DefaultMaxDecodedBytes     = 64 << 20
)

// maxNestingLevel is the most that Limits.MaxNestingLevel can be, and what the methods of views go down to.
const maxNestingLevel = 1000

// Limits bound what a [Decoder] accepts; going over one of them is BadEncodingLimitsExceeded. A field that is zero or
// negative means its default, and a nil *Limits means all defaults.
type Limits struct {
	// MaxMessageSize is the largest number of bytes given to Reset. Default 4 MiB. It stops work on what an earlier
	// layer should have refused.
	MaxMessageSize int
	// MaxStringLength bounds each String and XmlElement, in bytes. Default 1 MiB.
	MaxStringLength int
	// MaxByteStringLength bounds each ByteString and each body of an ExtensionObject, in bytes. Default 4 MiB.
	MaxByteStringLength int
	// MaxArrayLength bounds the elements of each array. Default 1,000,000.
	MaxArrayLength int
	// MaxNestingLevel bounds how deep Variants, DataValues in Variants, ExtensionObject bodies and DiagnosticInfos are
	// nested, all counted together, for one message. Default 100, what OPC 10000-6 §5.2.2.16 (Variant) asks for at
	// least, and never more than 1000. It bounds the stack.
	MaxNestingLevel int
	// MaxDecodedBytes bounds the memory of the arrays of `ua` structures one message decodes into: a null Variant is one
	// byte on the wire and 72 as Go value. Default 64 MiB. Value views do not count, they alias the message.
	MaxDecodedBytes int
}

func orDefault(v, def int) int {
	if v <= 0 {
		return def
	}
	return v
}
