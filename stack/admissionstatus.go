package stack

import (
	"context"
	"encoding/json"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"github.com/prometheus/client_golang/prometheus"
)

// AdmissionStatusMethod is the NodeId of the method under the Server object that
// returns [Server.AdmissionStatus] as JSON, one String. Only administrators may
// call it; others get BadUserAccessDenied.
const AdmissionStatusMethod = "ns=1;s=" + admissionStatusID

const admissionStatusID = "Server.AdmissionStatus"

func (s *Server) addAdmissionStatus() error {
	out := []ua.Argument{{Name: "Status", DataType: ua.NewNumericNodeID(0, id.String), ValueRank: -1,
		Description: ua.NewLocalizedText("limits and use of the governors, as JSON")}}
	admin := func(c *addressspace.Caller) bool { return c.Admin }
	_, err := s.space.Namespace(s.opts.ApplicationURI).AddMethod("AdmissionStatus", nil, out,
		func(_ context.Context, c *addressspace.Call) ([]any, error) {
			if !c.Caller.Admin {
				return nil, uastatus.New(ua.StatusBadUserAccessDenied, "AdmissionStatus", nil)
			}
			b, err := json.Marshal(s.AdmissionStatus())
			if err != nil {
				return nil, uastatus.New(ua.StatusBadInternalError, "AdmissionStatus", err)
			}
			return []any{string(b)}, nil
		},
		addressspace.NodeID(uabinary.StringID(1, admissionStatusID)), addressspace.Parent(uabinary.NumericID(0, id.Server)),
		addressspace.UserExecutable(admin))
	return err
}

// admissionMetrics are those of the governors' lanes.
type admissionMetrics struct{ count, bytes, refused *prometheus.Desc }

func newAdmissionMetrics(desc func(name, help string, labels ...string) *prometheus.Desc) admissionMetrics {
	return admissionMetrics{
		count:   desc("admission_count", "Requests or commands that a lane of a governor holds.", "governor", "lane"),
		bytes:   desc("admission_bytes", "Bytes that they are charged.", "governor", "lane"),
		refused: desc("admission_rejections_total", "Requests or commands that a lane refused.", "governor", "lane", "reason"),
	}
}

func (c *collector) collectAdmission(gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	lane := func(governor, name string, l admission.LaneStatus) {
		gauge(c.admission.count, float64(l.Count), governor, name)
		gauge(c.admission.bytes, float64(l.Bytes), governor, name)
		for reason, n := range l.Refused {
			counter(c.admission.refused, float64(n), governor, name, reason)
		}
	}
	st := c.srv.AdmissionStatus()
	if st.HTTP != nil {
		lane("http", "data", st.HTTP.Node.Data)
		lane("http", "control", st.HTTP.Node.Control)
	}
	if st.Commands != nil {
		lane("commands", "data", st.Commands.Node.Data)
		lane("commands", "control", st.Commands.Node.Control)
	}
}
