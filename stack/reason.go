package stack

import (
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// outcomes is what a refused caller sees. An owner that isolation does not
// know, because a Classifier named a trusted key that is not provisioned, is
// refused like one that has used up its share: it is no free pass.
var outcomes = [isolation.Reasons]ua.StatusCode{
	isolation.Granted:        ua.StatusOK,
	isolation.InvalidOwner:   uastatus.BadServerTooBusy,
	isolation.OwnerLimit:     uastatus.BadServerTooBusy,
	isolation.Capacity:       uastatus.BadServerTooBusy,
	isolation.OwnerTableFull: uastatus.BadServerTooBusy,
	isolation.Closed:         ua.StatusBadServerHalted,
}

func statusOf(r isolation.Reason) ua.StatusCode { return outcomes[r] }
