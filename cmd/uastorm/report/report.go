package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"sync"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

//go:embed page.html.tmpl
var pageText string

//go:embed plot.svg.tmpl
var plotText string

//go:embed storm.svg.tmpl
var stormText string

//go:embed page.css
var pageStyle string

//go:embed plot.css
var plotStyle string

//go:embed hover.js
var script string

var pageTemplate = sync.OnceValue(func() *template.Template {
	t := template.Must(template.New("page").Parse(pageText))
	template.Must(t.New("plot").Parse(plotText))
	return t
})

// page is what the page's template takes.
type page struct {
	*measure.Result
	Policy          string
	Style           template.CSS
	Script          template.JS
	Date            string
	Duration        string
	Passed          bool
	Saturated       bool
	SaturatedReason string
	Tiles           []tile
	PhaseRows       []phaseRow
	Operations      []operationRow
	Figures         []*plot
	Generator       []*plot
	Metrics         []*plot
	Steady          []steady
	HintBars        []bar
}

// Write writes a result as an HTML page. A page is some hundred KB; its size
// does not grow with the length of the run.
func Write(w io.Writer, res *measure.Result) error {
	shown := cleaned(res)
	r := newRun(shown)
	style := plotStyle + pageStyle
	p := page{Result: shown, Style: template.CSS(style), Script: template.JS(script),
		Policy: fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hash(style), hash(script)),
		Date:   shown.Begun.Format("2006-01-02 15:04:05 MST"), Duration: measure.Clock(shown.Seconds), Passed: shown.Passed()}
	p.Saturated, p.SaturatedReason = shown.Saturated()
	p.Tiles, p.PhaseRows, p.Operations, p.HintBars = r.tiles(), r.phaseRows(), r.operationRows(), r.hintBars()
	figures := append([]figure{r.sessions(), r.attempts(), r.refusals(), r.hints()}, r.latencies()...)
	for _, f := range append(figures, r.throughput(), r.values(), r.losses(), r.failures()) {
		p.Figures = appendPlot(p.Figures, f.draw(r))
	}
	for _, f := range r.generator() {
		p.Generator = appendPlot(p.Generator, f.draw(r))
	}
	changed, still := r.metrics()
	for _, f := range changed {
		p.Metrics = appendPlot(p.Metrics, f.draw(r))
	}
	p.Steady = still
	var b bytes.Buffer
	if err := pageTemplate().Execute(&b, p); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func appendPlot(all []*plot, p *plot) []*plot {
	if p == nil {
		return all
	}
	return append(all, p)
}

// hash is a source of a Content-Security-Policy that allows one text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// cleaned is a result whose texts are fit to be shown.
func cleaned(res *measure.Result) *measure.Result {
	r := *res
	for _, s := range []*string{&r.Title, &r.Target, &r.Server, &r.Command} {
		*s = clean(*s)
	}
	r.Verdicts = make([]measure.Verdict, len(res.Verdicts))
	for i, v := range res.Verdicts {
		for _, s := range []*string{&v.Phase, &v.What, &v.Limit, &v.Measured} {
			*s = clean(*s)
		}
		r.Verdicts[i] = v
	}
	r.Phases = make([]measure.Phase, len(res.Phases))
	for i, p := range res.Phases {
		p.Name, p.Saturation.Reason = clean(p.Name), clean(p.Saturation.Reason)
		r.Phases[i] = p
	}
	r.Events = make([]measure.Event, len(res.Events))
	for i, e := range res.Events {
		e.Text = clean(e.Text)
		r.Events[i] = e
	}
	return &r
}
