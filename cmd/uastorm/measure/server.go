package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// SeriesPerFamily is how many series of one family are told apart.
	SeriesPerFamily = 12
	// maxFamilies and maxSeries bound what is kept of a scrape.
	maxFamilies = 200
	maxSeries   = 1000
	// maxScrape is the size in bytes of an answer at most.
	maxScrape = 4 << 20
	// scrapeTimeout bounds a scrape, its body included.
	scrapeTimeout = 2 * time.Second
	// fresh is how old a scrape may be to stand in a sample.
	fresh = 2500 * time.Millisecond
)

// DefaultMetricPrefixes are those of the families that Options.MetricPrefixes
// keeps by default: OPC UA servers' own, processor time, memory, goroutines.
func DefaultMetricPrefixes() []string {
	return []string{"opcua_", "ua_", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
		"go_goroutines", "go_memstats_heap_inuse_bytes"}
}

// A scraper reads a server's metrics, one scrape at a time.
type scraper struct {
	url      string
	prefixes []string
	client   *http.Client
	want     chan struct{}
	remark   func(string) // told when scraping begins to fail or to work again

	mu       sync.Mutex
	at       time.Time
	values   map[string]float64
	families map[string]Metric
}

func newScraper(url string, prefixes []string, client *http.Client, remark func(string)) *scraper {
	if prefixes == nil {
		prefixes = DefaultMetricPrefixes()
	}
	if client == nil {
		client = &http.Client{}
	}
	if client.CheckRedirect == nil {
		own := *client
		own.CheckRedirect = sameHost
		client = &own
	}
	return &scraper{url: url, prefixes: prefixes, client: client, want: make(chan struct{}, 1), remark: remark,
		families: map[string]Metric{}}
}

// sameHost follows at most three redirects, none to another host.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > 3 || req.URL.Host != via[0].URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// next asks for a scrape; while one is under way that is enough.
func (s *scraper) next() {
	select {
	case s.want <- struct{}{}:
	default:
	}
}

// latest is what the last good scrape read; nil when it is too old.
func (s *scraper) latest(now time.Time) map[string]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil || now.Sub(s.at) > fresh {
		return nil
	}
	return s.values
}

// described is what is known of the families, by name.
func (s *scraper) described() []Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.families), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

// run scrapes at once and then whenever next was called, until ctx ends.
func (s *scraper) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	failing := false
	for {
		values, families, err := s.read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			s.take(values, families)
			if failing {
				s.remark("server metrics can be read again")
			}
		case !failing:
			s.remark("server metrics cannot be read: " + err.Error())
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-s.want:
		}
	}
}

func (s *scraper) take(values map[string]float64, families map[string]Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.values = time.Now(), values
	for name, m := range families {
		if _, known := s.families[name]; known || len(s.families) < maxFamilies {
			s.families[name] = m
		}
	}
}

// read scrapes once.
func (s *scraper) read(ctx context.Context) (map[string]float64, map[string]Metric, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("measure: %s answers %s", s.url, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxScrape+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxScrape {
		return nil, nil, errors.New("measure: the server's metrics are longer than 4 MiB")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	values, families := s.pick(all)
	return values, families, nil
}

// pick keeps the families that are wanted, in order of name until the bounds.
func (s *scraper) pick(all map[string]*dto.MetricFamily) (map[string]float64, map[string]Metric) {
	values, families := map[string]float64{}, map[string]Metric{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		if len(families) == maxFamilies || len(values) >= maxSeries {
			break
		}
		f := all[name]
		families[name] = Metric{Name: clip(name), Type: strings.ToLower(f.GetType().String()), Help: clip(f.GetHelp())}
		together := len(f.Metric) > SeriesPerFamily
		for _, m := range f.Metric {
			labels := ""
			if !together {
				labels = labelText(m.Label)
			}
			for suffix, v := range seriesOf(m) {
				if !math.IsNaN(v) && !math.IsInf(v, 0) { // JSON has neither
					values[clip(name+suffix+labels)] += v
				}
			}
		}
	}
	return values, families
}

// seriesOf gives the values of a series, by the suffix of their names.
func seriesOf(m *dto.Metric) map[string]float64 {
	switch {
	case m.Gauge != nil:
		return map[string]float64{"": m.Gauge.GetValue()}
	case m.Counter != nil:
		return map[string]float64{"": m.Counter.GetValue()}
	case m.Untyped != nil:
		return map[string]float64{"": m.Untyped.GetValue()}
	case m.Histogram != nil:
		return map[string]float64{"_count": float64(m.Histogram.GetSampleCount()), "_sum": m.Histogram.GetSampleSum()}
	case m.Summary != nil:
		return map[string]float64{"_count": float64(m.Summary.GetSampleCount()), "_sum": m.Summary.GetSampleSum()}
	}
	return nil
}

func labelText(labels []*dto.LabelPair) string {
	if len(labels) == 0 {
		return ""
	}
	parts := make([]string, len(labels))
	for i, l := range labels {
		parts[i] = l.GetName() + "=" + strconv.Quote(l.GetValue())
	}
	return "{" + strings.Join(parts, ",") + "}"
}
