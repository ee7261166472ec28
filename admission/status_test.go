package admission

import (
	"encoding/json"
	"strings"
	"testing"
)

func wantJSON(t *testing.T, v any, want string) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if want = strings.TrimSpace(want); string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestCommandStatus(t *testing.T) {
	g := commands(t, CommandOptions{MaxPrincipalCommands: 1})
	reserve(g, Command{Principal: Principal{"b", "bob"}, PayloadBytes: 1}, 1)
	reserve(g, Command{Principal: alice}, 2)
	reserve(g, Command{Principal: alice, Control: true}, 1)
	wantJSON(t, g.Status(), `
{
 "limits": {
  "maxCommands": 256,
  "maxRetainedBytes": 134217728,
  "maxTenantCommands": 128,
  "maxPrincipalCommands": 1,
  "reservedControlCommands": 16,
  "reservedControlBytes": 2097152,
  "maxControlPayloadBytes": 65536,
  "maxTenantControlCommands": 8,
  "maxPrincipalControlCommands": 8
 },
 "node": {
  "data": {
   "count": 2,
   "bytes": 8194,
   "refused": {
    "principal": 1
   }
  },
  "control": {
   "count": 1,
   "bytes": 4096,
   "refused": {}
  }
 },
 "verifiedScopes": {
  "data": {
   "tenants": [
    {
     "tenant": "b",
     "count": 1,
     "bytes": 4098
    },
    {
     "tenant": "plant",
     "count": 1,
     "bytes": 4096
    }
   ],
   "principals": [
    {
     "tenant": "b",
     "principal": "bob",
     "count": 1,
     "bytes": 4098
    },
    {
     "tenant": "plant",
     "principal": "alice",
     "count": 1,
     "bytes": 4096
    }
   ]
  },
  "control": {
   "tenants": [
    {
     "tenant": "plant",
     "count": 1,
     "bytes": 4096
    }
   ],
   "principals": [
    {
     "tenant": "plant",
     "principal": "alice",
     "count": 1,
     "bytes": 4096
    }
   ]
  }
 }
}`)
}

func TestHTTPStatus(t *testing.T) {
	g := https(t, HTTPOptions{OtherReservedBytes: 1000, MaxControlBodyBytes: 500})
	enter(t, g, 0)
	enter(t, g, 1000)
	l := enter(t, g, 100)
	l.Reclassify(ControlRequest, 100)
	l.Bind(alice)
	wantJSON(t, g.Status(), `
{
 "limits": {
  "maxRequests": 32,
  "maxReservedBytes": 1073741824,
  "maxTenantRequests": 16,
  "maxPrincipalRequests": 8,
  "smallBodyRequests": 16,
  "reservedControlRequests": 16,
  "reservedControlBytes": 8388608,
  "maxTenantControlRequests": 8,
  "maxPrincipalControlRequests": 8,
  "maxBodyBytes": 8388608,
  "maxControlBodyBytes": 500,
  "heavyReadReservedBytes": 67108864,
  "otherReservedBytes": 1000
 },
 "node": {
  "data": {
   "count": 2,
   "bytes": 14192,
   "refused": {}
  },
  "control": {
   "count": 1,
   "bytes": 4496,
   "refused": {}
  }
 },
 "ingress": {
  "data": {
   "count": 2,
   "bytes": 14192
  },
  "control": {
   "count": 0,
   "bytes": 0
  },
  "largeBodies": {
   "count": 1,
   "bytes": 9096
  }
 },
 "verifiedScopes": {
  "data": {
   "tenants": [],
   "principals": []
  },
  "control": {
   "tenants": [
    {
     "tenant": "plant",
     "count": 1,
     "bytes": 4496
    }
   ],
   "principals": [
    {
     "tenant": "plant",
     "principal": "alice",
     "count": 1,
     "bytes": 4496
    }
   ]
  }
 }
}`)
}

func TestRefusedErrorNamesNobody(t *testing.T) {
	g := commands(t, CommandOptions{MaxPrincipalCommands: 1})
	_, err := reserve(g, Command{Principal: alice}, 2)
	if err == nil || err.Error() != "admission: resource exhausted: data lane: principal" {
		t.Error(err)
	}
}
