package reconnect

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

func TestParseHint(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"RetryAfterMs=1500":                       1500 * time.Millisecond,
		"server too busy; RetryAfterMs=20 please": 20 * time.Millisecond,
		"RetryAfterMs=0":                          0,
		"RetryAfterMs=":                           0,
		"RetryAfterMs=-5":                         0,
		"RetryAfterMs=٣":                          0, // only ASCII digits
		"retryafterms=5":                          0,
		"":                                        0,
		"RetryAfterMs=86400000":                   24 * time.Hour,
		"RetryAfterMs=86400001":                   24 * time.Hour,
		"RetryAfterMs=99999999999999999999999999": 24 * time.Hour,
	} {
		if got := ParseHint(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func parameters(key string, ns uint16, v any) *ua.ExtensionObject {
	return ua.NewExtensionObject(&ua.AdditionalParametersType{Parameters: []*ua.KeyValuePair{
		nil, {Key: &ua.QualifiedName{Name: "Other"}, Value: ua.MustVariant("x")},
		{Key: &ua.QualifiedName{NamespaceIndex: ns, Name: key}, Value: ua.MustVariant(v)},
	}})
}

func TestHeaderHint(t *testing.T) {
	info := func(s string, inner *ua.DiagnosticInfo, code ua.StatusCode) *ua.DiagnosticInfo {
		return &ua.DiagnosticInfo{AdditionalInfo: s, InnerDiagnosticInfo: inner, InnerStatusCode: code}
	}
	endless := &ua.DiagnosticInfo{}
	endless.InnerDiagnosticInfo = endless
	for _, c := range []struct {
		name string
		h    *ua.ResponseHeader
		want time.Duration
	}{
		{"nothing", nil, 0},
		{"parameter", &ua.ResponseHeader{ServiceResult: busy, AdditionalHeader: parameters("RetryAfterMs", 0, int64(250))}, 250 * time.Millisecond},
		{"parameter before diagnostics", &ua.ResponseHeader{ServiceResult: busy, AdditionalHeader: parameters("RetryAfterMs", 0, int64(250)), ServiceDiagnostics: info("RetryAfterMs=900", nil, 0)}, 250 * time.Millisecond},
		{"a negative parameter", &ua.ResponseHeader{ServiceResult: busy, AdditionalHeader: parameters("RetryAfterMs", 0, int64(-1))}, 0},
		{"another namespace", &ua.ResponseHeader{ServiceResult: busy, AdditionalHeader: parameters("RetryAfterMs", 2, int64(250))}, 0},
		{"a text parameter", &ua.ResponseHeader{ServiceResult: busy, AdditionalHeader: parameters("RetryAfterMs", 0, "250")}, 0},
		{"not busy", &ua.ResponseHeader{ServiceResult: ua.StatusBadTooManySessions, AdditionalHeader: parameters("RetryAfterMs", 0, int64(250))}, 0},
		{"AdditionalInfo", &ua.ResponseHeader{ServiceResult: busy, ServiceDiagnostics: info("RetryAfterMs=70", nil, 0)}, 70 * time.Millisecond},
		{"inner result", &ua.ResponseHeader{ServiceResult: ua.StatusBadUnexpectedError, ServiceDiagnostics: info("", info("RetryAfterMs=80", nil, 0), busy)}, 80 * time.Millisecond},
		{"inner result that is not busy", &ua.ResponseHeader{ServiceResult: ua.StatusBadUnexpectedError, ServiceDiagnostics: info("", info("RetryAfterMs=80", nil, 0), ua.StatusBadTimeout)}, 0},
		{"a circle of diagnostics", &ua.ResponseHeader{ServiceResult: busy, ServiceDiagnostics: endless}, 0},
	} {
		if got := HeaderHint(c.h); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestHTTPError(t *testing.T) {
	now := time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		value  string
		want   time.Duration
		busy   bool
	}{
		{429, "3", 3 * time.Second, true},
		{503, "120", 2 * time.Minute, true},
		{503, now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, true},
		{503, now.Add(-time.Hour).Format(http.TimeFormat), 0, true},
		{503, "soon", 0, true},
		{503, "", 0, true},
		{503, "4000000000", 24 * time.Hour, true},
		{500, "3", 0, false},
		{200, "3", 0, false},
	} {
		err := HTTPError(&http.Response{StatusCode: c.status, Status: fmt.Sprint(c.status), Header: http.Header{"Retry-After": {c.value}}}, now)
		code, hint := Signal(err)
		if (err != nil) != c.busy || hint != c.want || (c.busy && !errors.Is(err, busy)) {
			t.Errorf("%d %q: %v, %v, %v", c.status, c.value, err, code, hint)
		}
	}
}

func TestSignal(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code ua.StatusCode
		hint time.Duration
	}{
		{"nil", nil, good, 0},
		{"ours", fmt.Errorf("connect: %w", &Error{Status: busy, After: time.Second}), busy, time.Second},
		{"a bare code", fmt.Errorf("x: %w", ua.StatusBadTooManySessions), ua.StatusBadTooManySessions, 0},
		{"an ERR with a reason", fmt.Errorf("opcua: %w RetryAfterMs=40", ua.StatusBadTCPServerTooBusy), ua.StatusBadTCPServerTooBusy, 40 * time.Millisecond},
		{"a reason beside another code", fmt.Errorf("%w RetryAfterMs=40", ua.StatusBadTooManySessions), ua.StatusBadTooManySessions, 0},
		{"flattened to text", errors.New("the server said BadTcpServerTooBusy RetryAfterMs=40"), ua.StatusBadTCPServerTooBusy, 40 * time.Millisecond},
		{"not a server's word", errors.New("connection refused"), good, 0},
	} {
		if code, hint := Signal(c.err); code != c.code || hint != c.hint {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, code, hint, c.code, c.hint)
		}
	}
}
