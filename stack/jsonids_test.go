package stack_test

import (
	"fmt"
	"testing"
)

// OPC 10000-6 §5.4.2.10 and §5.4.2.14: in JSON the server writes ids and names of
// other namespaces than 0 with their NamespaceUri, and reads them with URI or
// index, those of a namespace that came late, too.
func TestIdsInJSON(t *testing.T) {
	o := everywhere()
	o.HTTP.AllowSessionless = true
	srv := start(t, o, level)
	c := browser(t)
	read := func(id string) map[string]any {
		t.Helper()
		return postJSON(t, c, srv, fmt.Sprintf(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":1},"NodesToRead":[{"NodeId":%q,"AttributeId":1},{"NodeId":%q,"AttributeId":3}]}`, id, id))
	}
	check := func(uri, name string, index uint16) {
		t.Helper()
		for _, id := range []string{fmt.Sprintf("nsu=%s;s=%s", uri, name), fmt.Sprintf("ns=%d;s=%s", index, name)} {
			results := read(id)["Results"].([]any)
			if got := results[0].(map[string]any)["Value"]; got != "nsu="+uri+";s="+name {
				t.Errorf("%s: NodeId %v", id, got)
			}
			if got := results[1].(map[string]any)["Value"]; got != "nsu="+uri+";"+name {
				t.Errorf("%s: BrowseName %v", id, got)
			}
		}
	}
	plant := srv.AddressSpace().Namespace("urn:plant")
	check("urn:plant", "Level", plant.Index())
	late := srv.AddressSpace().Namespace("urn:late")
	late.Variable("Flow", 1.5)
	check("urn:late", "Flow", late.Index())

	// A NamespaceUri that is in no table is that of no node.
	if code := read("nsu=urn:nowhere;s=Level")["Results"].([]any)[0].(map[string]any)["Status"].(map[string]any)["Code"]; code != float64(0x80340000) {
		t.Errorf("an unknown NamespaceUri: %v", code)
	}
}
