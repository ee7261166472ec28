package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// AdmissionStatus is what a Breakwater server's governors of requests allow and
// hold (overload.md §17); nil stands for one that is off.
type AdmissionStatus struct {
	HTTP     *admission.HTTPStatus    `json:"http"`
	Commands *admission.CommandStatus `json:"commands"`
}

// admissionStatusMethod is a method of the Server object. Namespace 1 is the
// server's own (OPC 10000-3 §8.2.2, NamespaceIndex).
const admissionStatusMethod = "Server.AdmissionStatus"

// AdmissionStatus asks the server for its AdmissionStatus. It is for
// administrators; others get BadUserAccessDenied. A server without it answers
// BadMethodInvalid or BadNodeIdUnknown; an answer that is not one is BadDecodingError.
func (s *Session) AdmissionStatus(ctx context.Context) (*AdmissionStatus, error) {
	method := ua.NewStringNodeID(1, admissionStatusMethod)
	out, err := s.Call(ctx, ua.NewNumericNodeID(0, id.Server), method)
	if err != nil {
		return nil, err
	}
	if len(out) != 1 {
		return nil, fmt.Errorf("client: call %v: %w", method, broken(ua.StatusBadDecodingError, "%d output arguments", len(out)))
	}
	text, ok := out[0].(string)
	if !ok {
		return nil, fmt.Errorf("client: call %v: %w", method, broken(ua.StatusBadDecodingError, "the output is a %T", out[0]))
	}
	var st *AdmissionStatus
	err = json.Unmarshal([]byte(text), &st)
	if err == nil && st == nil {
		err = broken(ua.StatusBadDecodingError, "null")
	}
	if err != nil {
		return nil, fmt.Errorf("client: call %v: %w", method, broken(ua.StatusBadDecodingError, "%w", err))
	}
	return st, nil
}
