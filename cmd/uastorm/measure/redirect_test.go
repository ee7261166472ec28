package measure

import (
	"net/http"
	"testing"
)

// A client of the caller's follows no redirects to other hosts either, unless it
// says so itself.
func TestRedirectsOfAGivenClient(t *testing.T) {
	given := &http.Client{}
	s := newScraper("http://server.test/metrics", nil, given, func(string) {})
	if given.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
	from, _ := http.NewRequest(http.MethodGet, "http://server.test/metrics", nil)
	to, _ := http.NewRequest(http.MethodGet, "http://elsewhere.test/", nil)
	if s.client.CheckRedirect == nil || s.client.CheckRedirect(to, []*http.Request{from}) != http.ErrUseLastResponse {
		t.Error("a redirect to another host is followed")
	}
}
