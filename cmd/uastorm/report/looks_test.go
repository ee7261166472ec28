package report

import (
	"bytes"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// measurement is what the page tells about itself.
const measurement = `(() => {
  const wide = document.documentElement.clientWidth;
  const out = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg") !== e && e.closest("svg")) continue;
    const b = e.getBoundingClientRect();
    if (b.width > 1 && (b.right > wide + 0.5 || b.left < -0.5)) out.push(e.tagName + "." + e.className + " " + Math.round(b.left) + "–" + Math.round(b.right));
  }
  const labels = [];
  for (const e of document.querySelectorAll("svg.plot > text, svg.axis > text")) {
    const b = e.getBoundingClientRect(), s = e.closest("svg").getBoundingClientRect();
    if (b.left < s.left - 1 || b.right > s.right + 1) labels.push(e.textContent);
  }
  const plots = [...document.querySelectorAll("figure")].map(f => {
    const b = f.querySelector(".plot").getBoundingClientRect();
    return {ID: f.id, X: b.x + scrollX, Y: b.y + scrollY, W: b.width, H: b.height,
      Paths: [...f.querySelectorAll("path.curve")].map(p => p.getTotalLength() > 0 && p.getAttribute("d").length > 3),
      Title: f.querySelector("svg title").textContent, Desc: f.querySelector("svg desc").textContent,
      Rows: f.querySelectorAll("tbody tr").length};
  });
  const text = Math.min(...[...document.querySelectorAll("svg text, p, td, th, li")].filter(e => e.getBoundingClientRect().width > 1).map(e => parseFloat(getComputedStyle(e).fontSize)));
  return {Scroll: document.documentElement.scrollWidth, Width: wide, Height: document.documentElement.scrollHeight, Out: out, Labels: labels, Plots: plots,
    SmallestText: text, Ready: document.documentElement.dataset.ready || "", Ground: getComputedStyle(document.body).backgroundColor};
})()`

type looks struct {
	Scroll, Width, Height float64
	Out, Labels           []string
	Plots                 []struct {
		ID, Title, Desc string
		X, Y, W, H      float64
		Paths           []bool
		Rows            int
	}
	SmallestText  float64
	Ready, Ground string
}

// TestInChromium looks at a report as its readers do.
func TestInChromium(t *testing.T) {
	if raceEnabled {
		t.Skip("a page is not seen better by the race detector, and its pictures are decoded ten times as slowly")
	}
	c := browser(t)
	res := recorded(t)
	for name, look := range map[string]func(*testing.T, *chromium, *measure.Result){
		"the page looks right":                  pageLooksRight,
		"values are shown under the pointer":    valuesUnderThePointer,
		"the page prints":                       pagePrints,
		"a hostile server cannot inject":        hostileServer,
		"a saturated generator is warned about": saturatedWarning,
		"the picture looks right":               pictureLooksRight,
	} {
		t.Run(name, func(t *testing.T) {
			look(t, c.take(t), res)
			c.take(nil)
		})
	}
	c.take(t)
}

func pageLooksRight(t *testing.T, c *chromium, res *measure.Result) {
	page := file(t, "report.html", func(w io.Writer) error { return Write(w, res) })
	for _, screen := range []struct {
		name   string
		width  int
		dark   bool
		ground string
		pixels bool // decoding a picture of the whole page takes seconds
	}{
		{"phone", 360, false, "rgb(255, 255, 255)", true},
		{"tablet", 768, true, "rgb(20, 24, 28)", false},
		{"desktop", 1280, false, "rgb(255, 255, 255)", true},
	} {
		t.Run(screen.name, func(t *testing.T) {
			c.take(t)
			c.open(page, screen.width, screen.dark)
			var l looks
			c.eval(measurement, &l)
			if l.Scroll > float64(screen.width) || len(l.Out) > 0 {
				t.Errorf("the page is %v wide on a screen of %d; beyond it: %q", l.Scroll, screen.width, l.Out)
			}
			if len(l.Labels) > 0 {
				t.Errorf("labels %q are cut off", l.Labels)
			}
			if l.SmallestText < 11 {
				t.Errorf("text of %v px", l.SmallestText)
			}
			if l.Ground != screen.ground {
				t.Errorf("the ground is %s, not %s: the style sheet is not in force", l.Ground, screen.ground)
			}
			if l.Ready != fmt.Sprint(len(l.Plots)) {
				t.Errorf("the script is ready with %q plots of %d", l.Ready, len(l.Plots))
			}
			if len(c.complaints) > 0 {
				t.Errorf("the page complains: %s", c.complaints)
			}
			if len(c.asked) != 1 {
				t.Errorf("the page asks for %q", c.asked)
			}
			var picture image.Image
			if screen.pixels {
				b := c.screenshot()
				keep(t, screen.name+".png", b)
				var err error
				if picture, err = png.Decode(bytes.NewReader(b)); err != nil {
					t.Fatal(err)
				}
				if got := picture.Bounds().Dx(); got != screen.width {
					t.Errorf("the picture is %d wide", got)
				}
			}
			for _, p := range l.Plots {
				if len(p.Paths) == 0 || slices.Contains(p.Paths, false) {
					t.Errorf("plot %s has empty curves: %v", p.ID, p.Paths)
				}
				if p.Title == "" || p.Desc == "" || p.Rows < 10 {
					t.Errorf("plot %s says %q, %q in %d rows to those who do not see it", p.ID, p.Title, p.Desc, p.Rows)
				}
				if picture == nil {
					continue
				}
				if n := inked(picture, image.Rect(int(p.X), int(p.Y)+areaTop-2, int(p.X+p.W), int(p.Y+p.H)-areaBottom+2)); n < len(p.Paths) {
					t.Errorf("plot %s shows %d colours of curves, has %d", p.ID, n, len(p.Paths))
				}
			}
			if len(l.Plots) < 12 {
				t.Errorf("only %d plots", len(l.Plots))
			}
		})
	}
}

// inked is how many of the curves' colours, dark and light, are in a part of a
// picture.
func inked(m image.Image, part image.Rectangle) int {
	rgba := image.NewRGBA(part)
	draw.Draw(rgba, part, m, part.Min, draw.Src)
	palette := []uint32{0x0063a6, 0xc04a00, 0x00755a, 0x97407c, 0x7d6100, 0x4a4f55, 0x62b8f0, 0xff9b57, 0x45cda3, 0xe6a2cb, 0xecce55, 0xc9ced4}
	seen := map[uint32]bool{}
	for p := rgba.Pix; len(p) >= 4; p = p[4:] {
		if v := uint32(p[0])<<16 | uint32(p[1])<<8 | uint32(p[2]); slices.Contains(palette, v) {
			seen[v] = true
		}
	}
	return len(seen)
}

func valuesUnderThePointer(t *testing.T, c *chromium, res *measure.Result) {
	c.open(file(t, "report.html", func(w io.Writer) error { return Write(w, res) }), 1280, false)
	var at struct{ X, Y float64 }
	c.eval(`(() => { const b = document.querySelector("#sessions .plot").getBoundingClientRect(); return {X: b.x + b.width * 0.5, Y: b.y + 60}; })()`, &at)
	c.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at.X, "y": at.Y}, nil)
	var shown struct{ When, Sessions, Refused, X string }
	const read = `({When: document.querySelector("#sessions .when").textContent, Sessions: document.querySelector("#sessions .legend b").textContent,
	  Refused: document.querySelectorAll("#attempts .legend b")[2].textContent, X: document.querySelector("#latency-read .cursor").getAttribute("x1")})`
	c.eval(read, &shown)
	if shown.When != "0:45 storm" && shown.When != "0:46 storm" || shown.Sessions == "" || !strings.HasSuffix(shown.Refused, "/s") || shown.X == "-9" {
		t.Errorf("in the middle: %+v", shown)
	}
	c.eval(`(document.querySelector("#sessions .plot").focus(), 0)`, new(int))
	before := shown
	for _, kind := range []string{"keyDown", "keyUp"} {
		c.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "ArrowRight", "code": "ArrowRight", "windowsVirtualKeyCode": 39}, nil)
	}
	if c.eval(read, &shown); shown.When == before.When || shown.X == before.X {
		t.Errorf("a key moves nothing: %+v", shown)
	}
}

func pagePrints(t *testing.T, c *chromium, res *measure.Result) {
	c.open(file(t, "report.html", func(w io.Writer) error { return Write(w, res) }), 1280, true)
	pdf := c.print()
	keep(t, "report.pdf", pdf)
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) {
		t.Fatalf("no PDF: %.20q", pdf)
	}
	if n := bytes.Count(pdf, []byte("/Type /Page\n")); n < 2 || n > 9 {
		t.Errorf("%d pages", n)
	}
	c.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
	var l looks
	c.eval(measurement, &l)
	keep(t, "paper.png", c.screenshot())
	if l.Ground != "rgb(255, 255, 255)" || len(l.Out) > 0 {
		t.Errorf("on paper the ground is %s; beyond the edge: %q", l.Ground, l.Out)
	}
}

func hostileServer(t *testing.T, c *chromium, res *measure.Result) {
	res = poisoned(res)
	for name, write := range map[string]func(io.Writer) error{
		"report.html": func(w io.Writer) error { return Write(w, res) },
		"storm.svg":   func(w io.Writer) error { return SVG(w, res) },
	} {
		c.open(file(t, name, write), 360, false)
		var found struct {
			Images, Scripts, Handlers int
			Title, Text               string
			Scroll                    float64
		}
		c.eval(`({Images: document.querySelectorAll("img, image").length, Handlers: document.querySelectorAll("[onerror]").length,
		  Scripts: document.querySelectorAll("script:not([type])").length, Title: document.title, Text: document.documentElement.textContent, Scroll: document.documentElement.scrollWidth})`, &found)
		scripts := 1
		if name == "storm.svg" {
			scripts, found.Scroll = 0, 0
		}
		if found.Images != 0 || found.Handlers != 0 || found.Scripts != scripts || found.Title == "owned" || found.Scroll > 360 {
			t.Errorf("%s: %d images, %d handlers, %d scripts, title %q, %v wide", name, found.Images, found.Handlers, found.Scripts, found.Title, found.Scroll)
		}
		if !strings.Contains(found.Text, `<img src=x onerror="document.title='owned'">`) {
			t.Errorf("%s does not show the text as it is", name)
		}
		if strings.ContainsAny(found.Text, "\x1b\u202e") {
			t.Errorf("%s has control characters", name)
		}
		if len(c.complaints) > 0 || len(c.asked) != 1 {
			t.Errorf("%s complains %s, asks %q", name, c.complaints, c.asked)
		}
	}
}

func saturatedWarning(t *testing.T, c *chromium, res *measure.Result) {
	const read = `(() => { const w = document.querySelector(".warning"); return {Verdict: document.querySelector(".verdict").textContent,
	  Warning: w ? w.innerText : "", Seen: w !== null && w.checkVisibility() && w.getBoundingClientRect().bottom < 900}; })()`
	for _, saturated := range []bool{false, true} {
		again := *res
		again.Verdicts = nil
		again.Phases = slices.Clone(res.Phases)
		if saturated {
			again.Phases[2].Saturation.Saturated, again.Phases[2].Saturation.Reason = true, "one wake-up in a hundred was 48 ms late or more; the limit is 20 ms"
		}
		c.open(file(t, "report.html", func(w io.Writer) error { return Write(w, &again) }), 360, false)
		var shown struct {
			Verdict, Warning string
			Seen             bool
		}
		c.eval(read, &shown)
		if saturated != strings.Contains(shown.Warning, "phase storm: one wake-up in a hundred was 48 ms late") || saturated != shown.Seen ||
			saturated != strings.Contains(shown.Verdict, "Failed") {
			t.Errorf("saturated %v: %+v", saturated, shown)
		}
	}
	keep(t, "saturated.png", c.screenshot())
}

func pictureLooksRight(t *testing.T, c *chromium, res *measure.Result) {
	path := file(t, "storm.svg", func(w io.Writer) error { return SVG(w, res) })
	for name, dark := range map[string]bool{"storm.png": false, "storm-dark.png": true} {
		c.open(path, pictureWidth, dark)
		b := c.screenshot()
		keep(t, name, b)
		picture, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if n := inked(picture, picture.Bounds()); n < 4 {
			t.Errorf("%s shows %d colours of curves", name, n)
		}
		var cut []string
		c.eval(`[...document.querySelectorAll("text:not(.phase)")].filter(e => { const b = e.getBoundingClientRect(); return b.left < 0 || b.right > 960.5 }).map(e => e.textContent)`, &cut)
		if len(cut) > 0 || len(c.complaints) > 0 {
			t.Errorf("%s: texts %q are cut off; %s", name, cut, c.complaints)
		}
	}
}
