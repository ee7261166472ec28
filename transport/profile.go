package transport

// TransportProfileUris (OPC 10000-7, Transport facets).
const (
	profiles           = "http://opcfoundation.org/UA-Profile/Transport/"
	ProfileTCPBinary   = profiles + "uatcp-uasc-uabinary"
	ProfileWSSBinary   = profiles + "wss-uasc-uabinary"
	ProfileWSSJSON     = profiles + "wss-uajson"
	ProfileHTTPSBinary = profiles + "https-uabinary"
	ProfileHTTPSJSON   = profiles + "https-uajson"
)
