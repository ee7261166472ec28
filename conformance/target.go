package conformance

import (
	"context"
	"net"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
)

// Target is the server under test and what the suite may use of it. Empty
// fields make the cases that need them not applicable.
type Target struct {
	// URL is the endpoint URL: opc.tcp, opc.wss or opc.https.
	URL string `json:"url"`
	// JSON tests OPC UA JSON over opc.wss or opc.https.
	JSON bool `json:"json"`
	// User and Password of a user that may log in.
	User     string `json:"user"`
	Password string `json:"password"`
	// Nodes are the nodes to test with.
	Nodes Nodes `json:"nodes"`

	// Key is the client's application certificate, trusted by the server; nil: one is made.
	Key *security.Key `json:"-"`
	// Dial replaces the TCP dialer of opc.tcp and opc.https.
	Dial func(ctx context.Context) (net.Conn, error) `json:"-"`
}

// Nodes name nodes of the server's address space by their NodeId in text form
// ("ns=2;s=Scalar.Double").
type Nodes struct {
	// Scalars, Arrays and Matrices are readable and writable variables by the
	// name of their built-in type ("Double"). Arrays have at least three
	// elements, matrices two dimensions.
	Scalars  map[string]string `json:"scalars"`
	Arrays   map[string]string `json:"arrays"`
	Matrices map[string]string `json:"matrices"`
	// ReadOnly and WriteOnly are variables with just that access.
	ReadOnly  string `json:"readOnly"`
	WriteOnly string `json:"writeOnly"`
	// Analog is a writable Double or Float with an EURange property.
	Analog string `json:"analog"`
	// Changing is a variable whose value changes at least once a second by itself.
	Changing string `json:"changing"`
	// WideFolder has at least 100 children by Organizes or HasComponent.
	WideFolder string `json:"wideFolder"`
	// MethodObject has the methods below.
	MethodObject string `json:"methodObject"`
	// MethodNone has no arguments.
	MethodNone string `json:"methodNone"`
	// MethodArgs takes and returns arguments; MethodArgsCount says how many it takes.
	MethodArgs      string `json:"methodArgs"`
	MethodArgsCount int    `json:"methodArgsCount"`
	// MethodFailing answers with a bad code.
	MethodFailing string `json:"methodFailing"`
}

func (t *Target) options() probe.Options {
	return probe.Options{URL: t.URL, JSON: t.JSON, Dial: t.Dial, Key: t.Key}
}

// Transport is the one under test.
func (t *Target) Transport() probe.Transport {
	o := t.options()
	return o.Transport()
}
