package client

import (
	"fmt"
	"strings"
)

// responseID is the type id (DefaultBinary encoding) of the response to a
// request. The ids come in blocks: DataType, XML and Binary of the request, then
// of the response; services that were added later have no such order (OPC
// 10000-6 Annex A, Constants).
func responseID(request uint32) uint32 {
	switch request {
	case 12208, 12211: // FindServersOnNetwork, RegisterServer2
		return request + 1
	}
	return request + 3
}

// service is the service's name, for errors.
func service(rq any) string {
	s := fmt.Sprintf("%T", rq)
	s = s[strings.LastIndexByte(s, '.')+1:]
	return strings.TrimSuffix(s, "Request")
}
