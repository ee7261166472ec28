package session

import (
	"context"
	"log/slog"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// securityCodes are the refusals that count as security rejections.
func securityCode(c ua.StatusCode) bool {
	switch c {
	case ua.StatusBadNonceInvalid, ua.StatusBadCertificateInvalid, ua.StatusBadCertificateURIInvalid,
		ua.StatusBadApplicationSignatureInvalid, ua.StatusBadUserSignatureInvalid,
		ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected, ua.StatusBadUserAccessDenied,
		ua.StatusBadIdentityChangeNotSupported, ua.StatusBadSecurityChecksFailed,
		ua.StatusBadSecurityModeInsufficient, ua.StatusBadSecurityPolicyRejected:
		return true
	}
	return false
}

// overload tells the refusals that a storm repeats thousands of times a second.
func overloadCode(c ua.StatusCode) bool {
	return c == uastatus.BadServerTooBusy || c == ua.StatusBadTooManySessions || c == ua.StatusBadServerHalted
}

// refused counts a refused service call and writes its audit line: the precise
// cause for the operator, no secret and no user name. It returns the code for
// the wire.
func (st *Store) refused(ch Channel, service string, s *Session, err error) ua.StatusCode {
	code := uastatus.Code(err)
	if service != "CloseSession" {
		st.summary.rejected.Add(1)
		if securityCode(code) {
			st.summary.securityRejected.Add(1)
		}
	}
	level := slog.LevelWarn
	if overloadCode(code) {
		level = slog.LevelDebug // counted, not told: a log line each would feed the overload
	}
	ctx := context.Background()
	if !st.log.Enabled(ctx, level) {
		return code
	}
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("service", service),
		slog.String("code", uastatus.Name(code)),
		slog.Any("cause", err))
	if s != nil {
		attrs = append(attrs, slog.String("session", s.id.String()))
	}
	st.log.LogAttrs(ctx, level, "session refused", append(attrs, channelAttrs(ch)...)...)
	return code
}

func channelAttrs(ch Channel) []slog.Attr {
	return []slog.Attr{
		slog.Uint64("channel", uint64(ch.ID())),
		slog.String("remote", ch.RemoteAddr().String()),
		slog.String("policy", ch.SecurityPolicy().Name),
		slog.Int("mode", int(ch.SecurityMode())),
	}
}

func (st *Store) auditCreated(ch Channel, s *Session) {
	ctx := context.Background()
	if !st.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 8),
		slog.String("session", s.id.String()),
		slog.Duration("timeout", s.timeout),
		slog.String("application", s.client.ApplicationURI))
	st.log.LogAttrs(ctx, slog.LevelInfo, "session created", append(attrs, channelAttrs(ch)...)...)
}

func (st *Store) auditActivated(ch Channel, s *Session, id *Identity, first, moved bool) {
	ctx := context.Background()
	if !st.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("session", s.id.String()),
		slog.String("identity", kindName(id.Kind)),
		slog.Bool("first", first),
		slog.Bool("moved", moved))
	st.log.LogAttrs(ctx, slog.LevelInfo, "session activated", append(attrs, channelAttrs(ch)...)...)
	// User names are for those who ask for them.
	st.log.LogAttrs(ctx, slog.LevelDebug, "session user",
		slog.String("session", s.id.String()), slog.String("user", id.User))
}

func kindName(k ua.UserTokenType) string {
	switch k {
	case ua.UserTokenTypeAnonymous:
		return "anonymous"
	case ua.UserTokenTypeUserName:
		return "username"
	case ua.UserTokenTypeCertificate:
		return "certificate"
	}
	return "issued"
}
