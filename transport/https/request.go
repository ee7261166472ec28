package https

import (
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// serve is the handler of every request.
func (l *Listener) serve(w http.ResponseWriter, r *http.Request) {
	l.wg.Add(1) // while the connection counts: it cannot be the first
	defer l.wg.Done()
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil {
		l.fail(w, "TLS only", http.StatusBadRequest)
		return
	}
	c.requests.Add(1)
	defer c.requests.Add(-1)
	upgrade := wss.Asked(r)
	first := !c.started.Load()
	if !c.begin(upgrade) {
		panic(http.ErrAbortHandler) // closed already
	}
	switch {
	case upgrade:
		l.upgrade(c, w, r, first)
	case !l.o.HTTPS:
		w.Header().Set("Upgrade", "websocket")
		l.fail(w, "WebSocket only", http.StatusUpgradeRequired)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		l.fail(w, "POST only", http.StatusMethodNotAllowed)
	default:
		l.post(c, w, r)
	}
}

// upgrade serves a WebSocket. The time to its Hello counts from the connection's
// admission when it is what the connection began with.
func (l *Listener) upgrade(c *conn, w http.ResponseWriter, r *http.Request, first bool) {
	if l.wss == nil {
		c.complete()
		l.fail(w, "no WebSockets", http.StatusBadRequest)
		return
	}
	a := c.a
	if !first {
		a.At = time.Now()
	}
	// Of an error; with the change of protocols net/http takes it off.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(l.limits.Load().WriteTimeout))
	l.wss.Serve(w, r, a, func() { c.upgraded.Store(true) })
	if !c.upgraded.Load() {
		c.complete()
	}
}

// media is what the Content-Type says of a body.
type media struct {
	name   string
	json   bool
	header []string // of the answer, in kind; shared and not to be changed
}

var medias = [...]media{
	{"application/octet-stream", false, []string{"application/octet-stream"}},
	{"application/opcua+uabinary", false, []string{"application/opcua+uabinary"}},
	{"application/json", true, []string{"application/json"}},
	{"application/opcua+uajson", true, []string{"application/opcua+uajson"}},
}

// mediaType reads a Content-Type (OPC 10000-6 §7.4.3 and §7.4.4, OPC UA HTTPS
// with binary and JSON bodies).
func mediaType(v string) (m media, ok bool) {
	if strings.IndexByte(v, ';') >= 0 {
		name, parameters, err := mime.ParseMediaType(v)
		if charset := parameters["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
			return m, false
		}
		v = name
	}
	for _, m := range medias {
		if strings.EqualFold(strings.TrimSpace(v), m.name) {
			return m, true
		}
	}
	return m, false
}

// refuse answers before the body was read. What is left of a small body the
// server reads, within a moment, so that the connection can go on: a new TLS
// handshake would cost an overloaded server more.
func (l *Listener) refuse(c *conn, w http.ResponseWriter, r *http.Request, code int, text string) {
	if r.ProtoMajor == 1 {
		if r.ContentLength < 0 || r.ContentLength > smallBody {
			w.Header().Set("Connection", "close")
			c.unread.Store(true)
		} else {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.limits.Load().LingerTimeout))
		}
	}
	l.fail(w, text, code)
}

// smallBody is the size in bytes of a body that is read although it was refused.
const smallBody = 64 << 10

func (l *Listener) busy(c *conn, w http.ResponseWriter, r *http.Request, now time.Time, text string) {
	w.Header().Set("Retry-After", l.retryAfter(now))
	l.refuse(c, w, r, http.StatusServiceUnavailable, text)
}

// retryAfter is the Retry-After of a 503.
func (l *Listener) retryAfter(now time.Time) string {
	if l.o.RetryAfter == nil {
		return seconds(time.Second)
	}
	return seconds(l.o.RetryAfter(now))
}

// fail answers with an error, which the client has WriteTimeout to take.
func (l *Listener) fail(w http.ResponseWriter, text string, code int) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(l.limits.Load().WriteTimeout))
	http.Error(w, text, code)
}

// seconds is a Retry-After: whole seconds, rounded up, at least one.
func seconds(d time.Duration) string { return strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))) }

// post answers a request. The order of what can go wrong is the contract
// (overload.md §10):
//
//	connection's requests, memory, governor   503 with Retry-After
//	Content-Type or OPCUA-SecurityPolicy twice 400
//	Content-Type, Content-Encoding            415
//	Content-Length, or the body, over the limit 413
//	body shorter than Content-Length          400 (408 when it did not come in time)
//	undecodable                               200 with a ServiceFault
//	rate of requests                          429 with Retry-After
//
// The rate comes last because requests of live sessions do not count, and what
// the session is only the body says.
func (l *Listener) post(c *conn, w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	if int(c.waiting.Add(1)) > l.limits.Load().MaxOutstandingPerConnection {
		c.waiting.Add(-1)
		l.busy(c, w, r, now, "too many requests on this connection")
		return
	}
	q := &call{conn: c}
	handed := false
	defer func() {
		if !handed {
			q.end()
		}
	}()

	limit := int64(l.limits.Load().MaxMessageSize)
	declared := r.ContentLength
	if declared < 0 || declared > limit {
		declared = limit
	}
	if l.memory.Take(&q.Memory, c.a.Admission.Owner(), 2*declared+transport.MaxBufferSize) != nil {
		l.busy(c, w, r, now, "no room for the body")
		return
	}
	tooLarge := r.ContentLength > limit
	if g := l.o.Governor; g != nil {
		lease, err := g.Ingress(r.Context(), min(r.ContentLength, limit))
		var refused *admission.RefusedError
		switch {
		case err == nil:
			q.Lease = lease
		case errors.As(err, &refused) && refused.Reason == admission.TooLarge:
			tooLarge = true
		default:
			l.busy(c, w, r, now, "too many requests")
			return
		}
	}
	if len(r.Header["Content-Type"]) > 1 || len(r.Header[policyHeader]) > 1 {
		l.refuse(c, w, r, http.StatusBadRequest, "a header that can be there once is there twice")
		return
	}
	kind, ok := mediaType(r.Header.Get("Content-Type"))
	if !ok || slices.ContainsFunc(r.Header["Content-Encoding"], encoded) {
		l.refuse(c, w, r, http.StatusUnsupportedMediaType, "need OPC UA Binary or JSON")
		return
	}
	if tooLarge {
		l.refuse(c, w, r, http.StatusRequestEntityTooLarge, "body too large")
		return
	}
	q.media = kind
	in, status := l.read(w, r, limit)
	if status == 0 && r.ContentLength == 0 && strings.Trim(r.Header.Get("Content-Length"), "0") != "" {
		in.Release() // an HTTP/2 stream that ended with its header, in spite of the length there
		status = http.StatusBadRequest
	}
	if status != 0 {
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
			c.unread.Store(true)
		}
		l.fail(w, http.StatusText(status), status)
		return
	}
	handle, code := q.decode(in, l.o.Decoding, l.o.Tables)
	q.from(l, c, r, now)
	if q.Under == nil {
		code = ua.StatusBadSecurityPolicyRejected
		q.Under = security.None
	}
	if !l.rate.off() && !(code == ua.StatusGood && l.o.Live != nil && l.o.Live(q.Body())) {
		if wait, ok := l.rate.allow(now); !ok {
			w.Header().Set("Retry-After", seconds(wait))
			l.fail(w, "too many requests", http.StatusTooManyRequests)
			return
		}
	}
	handed = true
	if code != ua.StatusGood {
		_ = q.Respond(transport.AppendFault(nil, handle, code, now), code, 0)
	} else {
		l.o.Calls.Call(q)
		q.Decoded()
	}
	q.wait(w)
}

// encoded reports whether a Content-Encoding stands for one.
func encoded(v string) bool { return v != "" && !strings.EqualFold(v, "identity") }

// read reads a body into a buffer that grows with it.
func (l *Listener) read(w http.ResponseWriter, r *http.Request, limit int64) (*buffer.Buffer, int) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(l.limits.Load().AssemblyTimeout))
	size := int64(buffer.Size8K)
	if r.ContentLength >= 0 {
		size = min(r.ContentLength+1, buffer.Size64K)
	}
	b := buffer.Get(int(size))
	for {
		if len(b.B) == cap(b.B) {
			grown := buffer.Get(cap(b.B) + 1)
			grown.B = append(grown.B, b.B...)
			b.Release()
			b = grown
		}
		n, err := r.Body.Read(b.B[len(b.B):cap(b.B)])
		b.B = b.B[:len(b.B)+n]
		switch {
		case int64(len(b.B)) > limit:
			b.Release()
			return nil, http.StatusRequestEntityTooLarge
		case errors.Is(err, io.EOF):
			if r.ProtoMajor == 1 { // that of a stream of HTTP/2 ends with its body
				_ = rc.SetReadDeadline(time.Time{})
			}
			return b, 0
		case errors.Is(err, os.ErrDeadlineExceeded):
			b.Release()
			return nil, http.StatusRequestTimeout
		case err != nil:
			b.Release()
			return nil, http.StatusBadRequest
		}
	}
}

// policyHeader names the SecurityPolicy (OPC 10000-6 §7.4.1, OPC UA HTTPS).
const policyHeader = "Opcua-Securitypolicy"

// from fills in where a request came from.
func (q *call) from(l *Listener, c *conn, r *http.Request, now time.Time) {
	q.peer = transport.Peer{
		Profile: transport.ProfileHTTPSBinary, EndpointURL: c.endpointURL(r.Host, r.URL.Path),
		RemoteAddr: c.a.Remote, LocalAddr: c.a.Local, Ingress: c.a.Admission.Ingress(), Done: r.Context().Done(),
	}
	if q.media.json {
		q.peer.Profile = transport.ProfileHTTPSJSON
	}
	if len(r.TLS.VerifiedChains) > 0 {
		q.peer.Certificate = r.TLS.PeerCertificates[0]
	}
	q.From, q.At, q.Ctx, q.decoding = &q.peer, now, r.Context(), l.o.Decoding
	q.writeTimeout = l.limits.Load().WriteTimeout
	q.Under = security.None
	if v := r.Header[policyHeader]; len(v) > 0 && v[0] != "" {
		q.Under = security.PolicyByURI(v[0])
	}
}

// decode makes OPC UA Binary of a body, which it takes over. A code other than
// Good says that it cannot, and handle whom to tell.
func (q *call) decode(in *buffer.Buffer, limits *decodingLimits, tables func() *uajson.Context) (handle uint32, code ua.StatusCode) {
	q.Read = int64(len(in.B))
	if !q.media.json {
		q.object = stripObject(in)
		q.Binary = in
		return 0, ua.StatusGood
	}
	defer in.Release()
	q.Binary = buffer.Get(len(in.B))
	var err error
	q.tables = tables
	q.Binary.B, q.form, err = tables().AppendBinary(q.Binary.B, in.B, limits)
	if err != nil {
		handle, _ = uajson.RequestHandle(in.B)
		return handle, uastatus.Code(err)
	}
	return 0, ua.StatusGood
}
