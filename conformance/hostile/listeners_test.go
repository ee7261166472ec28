package hostile

import "github.com/breakwater-ua/breakwater/conformance/probe"

// listeners are those that a row is sent to. Their names stand in the calls of
// each and inTurn, where TestEveryRowOnEveryListener reads them.
type listeners []probe.Transport

var (
	all = listeners{probe.TCP, probe.WSS, probe.WSSJSON, probe.HTTPSBinary, probe.HTTPSJSON}
	tcp = listeners{probe.TCP}
	// chunked are those with chunks and SecureChannels.
	chunked = listeners{probe.TCP, probe.WSS}
	// messages are those where messages come whole.
	messages = listeners{probe.WSSJSON, probe.HTTPSBinary, probe.HTTPSJSON}
	// policies are those where clients prove to own an application certificate.
	policies = listeners{probe.TCP, probe.WSS, probe.HTTPSBinary, probe.HTTPSJSON}
	// lasting are those where a session belongs to one connection.
	lasting = listeners{probe.TCP, probe.WSS, probe.WSSJSON}
)

// byName are the sets by the names above.
var byName = map[string]listeners{"all": all, "tcp": tcp, "chunked": chunked, "messages": messages, "policies": policies, "lasting": lasting}
