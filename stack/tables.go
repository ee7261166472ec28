package stack

import (
	"sync/atomic"

	"github.com/gopcua/opcua/id"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
)

// tables are NamespaceArray and ServerArray as JSON needs them. A snapshot is
// made when the NamespaceArray has changed, so that requests cost nothing.
type tables struct {
	space  *addressspace.Space
	server []string
	last   atomic.Pointer[snapshot]
}

type snapshot struct {
	of      *uabinary.DataValue // the value of Server.NamespaceArray when it was made
	context uajson.Context
}

func newTables(space *addressspace.Space, applicationURI string) *tables {
	return &tables{space: space, server: []string{applicationURI}}
}

// current returns the tables of the moment. Indexes never change their URI, so
// what was made of an older NamespaceArray is not wrong, only shorter.
func (t *tables) current() *uajson.Context {
	var now *uabinary.DataValue
	if n := t.space.Lookup(uabinary.NumericID(0, id.Server_NamespaceArray)); n != nil {
		now = n.Value()
	}
	if s := t.last.Load(); s != nil && s.of == now {
		return &s.context
	}
	s := &snapshot{of: now, context: uajson.Context{NamespaceURIs: t.space.NamespaceArray(), ServerURIs: t.server}}
	t.last.Store(s)
	return &s.context
}
