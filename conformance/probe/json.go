package probe

import (
	"encoding/json"
	"fmt"

	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/gopcua/opcua/ua"
)

// RequestJSON is the text of a request in OPC UA JSON (OPC 10000-6 §5.4.9,
// Messages) with the session's token: the members behind RequestHeader are given
// as text, right or wrong ("" for none).
func (s *Session) RequestJSON(typeID, handle uint32, members string) ([]byte, error) {
	h := Header(s.Token)
	h.RequestHandle = handle
	text, err := uajson.MarshalMessage(&ua.CancelRequest{RequestHeader: h}, uajson.Compact)
	if err != nil {
		return nil, err
	}
	var rq struct{ RequestHeader json.RawMessage }
	if err := json.Unmarshal(text, &rq); err != nil {
		return nil, err
	}
	if members != "" {
		members = "," + members
	}
	return fmt.Appendf(nil, `{"UaTypeId":"i=%d","RequestHeader":%s%s}`, typeID, rq.RequestHeader, members), nil
}
