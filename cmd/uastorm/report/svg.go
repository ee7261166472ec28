package report

import (
	"bytes"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

const (
	pictureWidth = 960
	pictureHead  = 84 // above the first panel
	panelHead    = 30 // above each plot: its title and its legend
	panelHeight  = 186
	pictureLeft  = 70
	pictureRight = 16
)

// pictureStyle completes plot.css for a picture of its own.
const pictureStyle = `.paper{fill:var(--bg)}svg .head{font-size:19px;font-weight:700;fill:var(--ink)}svg .sub{font-size:13px}` +
	`svg .name{font-size:14px;font-weight:600;fill:var(--ink)}svg .key{font-size:12px;fill:var(--ink)}`

var stormTemplate = sync.OnceValue(func() *template.Template {
	t := template.Must(template.New("storm").Parse(stormText))
	template.Must(t.New("plot").Parse(plotText))
	return t
})

// A picture is what the template of SVG takes.
type picture struct {
	Width, Height, Left, AxisX, Inner int
	Title, Subtitle, Summary          string
	Description                       string
	Style                             template.CSS
	Panels                            []panel
}

// A panel is a plot of a picture.
type panel struct {
	Y      int
	Title  string
	Legend []key
	Plot   *plot
}

// A key is an entry of a legend.
type key struct {
	X, X2, TextX, Y int
	Class, Name     string
}

// SVG writes the picture of a storm: sessions, attempts and refusals, and the
// latency of the steady load, one above the other on one time axis. It needs no
// other file, and takes the reader's colour scheme.
func SVG(w io.Writer, res *measure.Result) error {
	shown := cleaned(res)
	r := newRun(shown)
	figures := []figure{r.sessions(), r.attempts()}
	if all := r.latencies(); len(all) > 0 {
		figures = append(figures, all[0])
	}
	p := picture{Width: pictureWidth, Left: pictureLeft, AxisX: pictureLeft - 8, Inner: pictureWidth - pictureLeft - pictureRight,
		Title: shown.Title, Subtitle: subtitle(shown), Summary: r.summary(), Style: template.CSS(plotStyle + pictureStyle)}
	var said []string
	y := pictureHead
	for _, f := range figures {
		f.height = panelHeight
		drawn := f.draw(r)
		if drawn == nil {
			continue
		}
		y += panelHead
		p.Panels = append(p.Panels, panel{Y: y, Title: drawn.Title, Legend: legend(drawn, y-14), Plot: drawn})
		said = append(said, drawn.Title+": "+drawn.Description)
		y += panelHeight
	}
	p.Height, p.Description = y+8, strings.Join(said, " ")
	var b bytes.Buffer
	if err := stormTemplate().Execute(&b, p); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func subtitle(res *measure.Result) string {
	var parts []string
	for _, s := range []string{res.Server, res.Target, measure.Clock(res.Seconds)} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " · ")
}

// summary is the storm in one line.
func (r *run) summary() string {
	parts := make([]string, 0, 4)
	for _, t := range r.tiles() {
		if len(parts) < 4 {
			parts = append(parts, strings.ToLower(t.Name[:1])+t.Name[1:]+" "+t.Value)
		}
	}
	return strings.Join(parts, " · ")
}

// legend sets the keys of a plot from the right edge to the left.
func legend(p *plot, y int) []key {
	x := pictureWidth - pictureRight
	keys := make([]key, len(p.Series))
	for i := len(p.Series) - 1; i >= 0; i-- {
		s := p.Series[i]
		x -= 7*len([]rune(s.Name)) + 50 // text, line and room between
		keys[i] = key{X: x + 16, X2: x + 44, TextX: x + 50, Y: y, Class: s.Class, Name: s.Name}
	}
	return keys
}
