package reconnect

import (
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// IsBusy reports whether a status code says that the server has too much to do
// and that trying again at once would add to it. BadServerHalted is not among
// them: a server that restarts has nothing to do.
func IsBusy(code ua.StatusCode) bool {
	switch code {
	case uastatus.BadServerTooBusy, ua.StatusBadTCPServerTooBusy, ua.StatusBadTooManySessions,
		ua.StatusBadTooManyOperations, ua.StatusBadTooManyPublishRequests, ua.StatusBadTimeout, ua.StatusBadRequestTimeout:
		return true
	}
	return false
}

// IsFatal reports whether a status code names something that waiting does not
// heal: a certificate or an identity that the server refuses.
func IsFatal(code ua.StatusCode) bool {
	switch code {
	case ua.StatusBadCertificateInvalid, ua.StatusBadCertificateUntrusted, ua.StatusBadCertificateTimeInvalid,
		ua.StatusBadCertificateIssuerTimeInvalid, ua.StatusBadCertificateHostNameInvalid, ua.StatusBadCertificateURIInvalid,
		ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed, ua.StatusBadCertificateRevoked,
		ua.StatusBadCertificateIssuerRevoked, ua.StatusBadCertificateRevocationUnknown, ua.StatusBadCertificateIssuerRevocationUnknown,
		ua.StatusBadCertificateChainIncomplete, ua.StatusBadCertificatePolicyCheckFailed, ua.StatusBadSecurityChecksFailed,
		ua.StatusBadSecurityPolicyRejected, ua.StatusBadSecurityModeRejected,
		ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected, ua.StatusBadUserAccessDenied,
		ua.StatusBadUserSignatureInvalid, ua.StatusBadApplicationSignatureInvalid:
		return true
	}
	return false
}

// carriesHint reports whether hints count beside a code: a server that is not
// too busy has no line to stand in.
func carriesHint(code ua.StatusCode) bool {
	return code == uastatus.BadServerTooBusy || code == ua.StatusBadTCPServerTooBusy
}
