package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

const (
	// plotPoints and tableRows are how many samples a plot and its table have
	// at most; beyond it neighbours are merged.
	plotPoints = 480
	tableRows  = 24
	// areaTop and areaBottom are the rows of a plot above and below its area:
	// the phases' names and the time axis.
	areaTop    = 18
	areaBottom = 20
	// curveWidth and curveHeight are the view box that the curves are drawn in.
	curveWidth  = 2000
	curveHeight = 1000
)

// A curve is one line of a plot to be.
type curve struct {
	name  string
	value func(i int) float64 // of the i-th sample; NaN: none
}

// A figure is a plot to be.
type figure struct {
	id, title, note string
	format          func(float64) string
	log             bool
	binary          bool    // the axis is divided by powers of 1024
	limit           float64 // 0: none
	limitName       string
	height          int
	curves          []curve
}

// A plot is a figure as the template takes it.
type plot struct {
	ID, Title, Note, Description string
	Height, Area, Bottom         int // pixels: all, the area's height, its lower edge
	Series                       []series
	Limit                        *mark
	YTicks                       []mark
	XTicks                       []mark
	Phases                       []band
	Events                       []mark
	Table                        table
	Data                         hover
}

// series is a curve, drawn.
type series struct {
	Name, Class, Path string
	values            []float64
}

// A mark is a place on an axis: percent across, or pixels down.
type mark struct {
	At     string
	Y      int
	Label  string
	Anchor string
}

// A band is a phase, in percent.
type band struct {
	X, Width, Name string
	Odd            bool
}

// hover is what the script shows: times and values, as text.
type hover struct {
	Times  []string   `json:"t"`
	Across []float64  `json:"x"` // per cent
	Values [][]string `json:"v"`
}

// A table is the same as a plot for those who do not see it.
type table struct {
	Head []string
	Rows [][]string
}

// draw makes the plot of a figure; nil when there is nothing to draw.
func (f figure) draw(run *run) *plot {
	p := &plot{ID: f.id, Title: f.title, Note: f.note, Height: f.height, Area: f.height - areaTop - areaBottom,
		Bottom: f.height - areaBottom, Phases: run.bands, Events: run.marks}
	low, high := math.Inf(1), math.Inf(-1)
	for i, c := range f.curves {
		s := series{Name: c.name, Class: "s" + strconv.Itoa(i%6+1), values: make([]float64, len(run.samples))}
		some := false
		for j := range run.samples {
			v := c.value(j)
			if math.IsInf(v, 0) || v < 0 {
				v = math.NaN()
			}
			s.values[j] = v
			if math.IsNaN(v) {
				continue
			}
			some = true
			high = math.Max(high, v)
			if v > 0 || !f.log {
				low = math.Min(low, v)
			}
		}
		if some {
			p.Series = append(p.Series, s)
		}
	}
	if len(p.Series) == 0 {
		return nil
	}
	if f.limit > 0 {
		low, high = math.Min(low, f.limit), math.Max(high, f.limit)
	}
	y := linear(high)
	switch {
	case f.log:
		y = logarithmic(low, high)
	case f.binary:
		y = binary(high)
	}
	down := func(v float64) int { return areaTop + int(math.Round((1-y.at(v))*float64(p.Area))) }
	for _, t := range y.ticks {
		p.YTicks = append(p.YTicks, mark{Y: down(t), Label: f.format(t)})
	}
	if f.limit > 0 {
		p.Limit = &mark{Y: down(f.limit), Label: f.limitName}
	}
	p.XTicks = run.ticks
	for i := range p.Series {
		p.Series[i].Path = run.path(p.Series[i].values, y)
		text := make([]string, len(p.Series[i].values))
		for j, v := range p.Series[i].values {
			text[j] = formatted(f.format, v)
		}
		p.Data.Values = append(p.Data.Values, text)
	}
	p.Data.Times, p.Data.Across = run.times, run.percents
	p.Table = run.table(p.Series, f.format)
	p.Description = describe(p.Series, run, f.format)
	return p
}

func formatted(format func(float64) string, v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return format(v)
}

// path draws values, in the view box of the curves. A missing value leaves a
// gap, a value between two gaps becomes a dot.
func (r *run) path(values []float64, y scale) string {
	var b strings.Builder
	pen := false
	for i, v := range values {
		if math.IsNaN(v) {
			pen = false
			continue
		}
		x := int(math.Round(r.across(i) * curveWidth))
		h := int(math.Round((1 - y.at(v)) * curveHeight))
		switch {
		case pen:
			fmt.Fprintf(&b, "L%d %d", x, h)
		case i+1 == len(values) || math.IsNaN(values[i+1]):
			fmt.Fprintf(&b, "M%d %dh.1", x, h)
		default:
			fmt.Fprintf(&b, "M%d %d", x, h)
		}
		pen = true
	}
	return b.String()
}

// table sums up a plot in a few rows: each has the highest values of its time.
func (r *run) table(all []series, format func(float64) string) table {
	t := table{Head: []string{"time"}}
	for _, s := range all {
		t.Head = append(t.Head, s.Name)
	}
	n := len(r.samples)
	rows := min(n, tableRows)
	for row := range rows {
		from, to := row*n/rows, (row+1)*n/rows
		cells := []string{r.times[to-1]}
		for _, s := range all {
			cells = append(cells, formatted(format, highest(s.values[from:to])))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// highest is the highest of values; NaN when there is none.
func highest(values []float64) float64 {
	high := math.NaN()
	for _, v := range values {
		if !math.IsNaN(v) && !(high >= v) {
			high = v
		}
	}
	return high
}

// describe says in words what a plot shows.
func describe(all []series, r *run, format func(float64) string) string {
	parts := make([]string, 0, len(all))
	for _, s := range all {
		low, high, at := math.NaN(), math.NaN(), 0
		for i, v := range s.values {
			if math.IsNaN(v) {
				continue
			}
			if !(high >= v) {
				high, at = v, i
			}
			if !(low <= v) {
				low = v
			}
		}
		parts = append(parts, fmt.Sprintf("%s: between %s and %s, highest at %s", s.Name, format(low), format(high), r.times[at]))
	}
	return strings.Join(parts, ". ") + "."
}

// percent writes a share for an attribute.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}

// perSecond writes a rate.
func perSecond(v float64) string { return measure.Number(v) + "/s" }
