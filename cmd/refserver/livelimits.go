package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

const maxLimitsBody = 64 << 10 // bytes of a POST to /admin/limits

// liveLimits changes the limits of a server that runs (overload.md §16).
type liveLimits struct {
	server *stack.Server
	reload func() (*config, error) // reads all settings again
	log    *slog.Logger

	mu      sync.Mutex
	inForce config
}

// changeable are the sections that may change; of some not all.
type changeable struct {
	Limits     limitsConfig     `yaml:"limits"`
	RateLimits rateLimitsConfig `yaml:"rateLimits"`
	Retry      retryConfig      `yaml:"retry"`
	Budget     budgetConfig     `yaml:"budget"`
	Shadow     bool             `yaml:"shadow"`
	Isolation  isolationConfig  `yaml:"isolation"`
	HTTP       httpConfig       `yaml:"http"`
	Governors  governorsConfig  `yaml:"governors"`
}

// limitsView says what a change has done, or would do.
type limitsView struct {
	DryRun  bool            `json:"dryRun"`
	Changed []string        `json:"changed"` // keys of the configuration file
	Over    []stack.Overrun `json:"over"`    // what of the present load would no longer fit
	Plan    planView        `json:"plan"`
}

// change puts next in force, or with dryRun says what that would mean.
func (l *liveLimits) change(next config, dryRun bool) (limitsView, error) {
	if key := firstFixed(&l.inForce, &next); key != "" {
		return limitsView{}, fmt.Errorf("%s: a change needs a restart", key)
	}
	if err := next.check(); err != nil {
		return limitsView{}, err
	}
	o := stack.Options{
		Limits: next.Limits.stack(), RateLimits: next.RateLimits.stack(),
		Retry: next.Retry.stack(), Budget: next.Budget.stack(), Shadow: next.Shadow,
		HTTP: next.HTTP.stack(), Governors: next.Governors.stack(),
	}
	if err := next.Isolation.stack(&o, next.Listen); err != nil {
		return limitsView{}, err
	}
	r, err := l.server.ApplyLimits(o, dryRun)
	if err != nil {
		return limitsView{}, settingError(err)
	}
	if !dryRun {
		l.inForce = next
	}
	v := limitsView{DryRun: dryRun, Changed: []string{}, Over: []stack.Overrun{}, Plan: viewPlan(r.Plan)}
	for _, field := range r.Changed {
		v.Changed = append(v.Changed, settingName(field))
	}
	for _, over := range r.Over {
		if strings.Contains(over.What, ".") {
			over.What = settingName(over.What)
		}
		v.Over = append(v.Over, over)
	}
	return v, nil
}

// firstFixed returns the key of a setting that differs and that the stack, which
// judges the limits, does not know of.
func firstFixed(have, want *config) string {
	a, b := *have, *want
	a.Limits, a.RateLimits, a.Retry, a.Budget, a.Shadow = b.Limits, b.RateLimits, b.Retry, b.Budget, b.Shadow
	for _, c := range []*config{&a, &b} {
		c.Governors = governorsConfig{ // on or off is for a start
			HTTP:     httpGovernorConfig{Enabled: c.Governors.HTTP.Enabled},
			Commands: commandGovernorConfig{Enabled: c.Governors.Commands.Enabled},
		}
		c.HTTP.MaxSessionless, c.HTTP.RequestsPerSecond, c.HTTP.RequestBurst = 0, 0, 0
		c.Isolation = isolationConfig{TrustedIngress: c.Isolation.TrustedIngress} // the stack's classifier
	}
	return firstDifference(reflect.ValueOf(a), reflect.ValueOf(b), "")
}

func firstDifference(a, b reflect.Value, prefix string) string {
	for i := range a.NumField() {
		key := prefix + a.Type().Field(i).Tag.Get("yaml")
		if a.Field(i).Kind() == reflect.Struct {
			if inside := firstDifference(a.Field(i), b.Field(i), key+"."); inside != "" {
				return inside
			}
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return key
		}
	}
	return ""
}

// patch reads settings over those in force. Lists and the stages are replaced,
// not merged.
func (l *liveLimits) patch(text []byte) (config, error) {
	next := l.inForce
	part := changeable{next.Limits, next.RateLimits, next.Retry, next.Budget, next.Shadow, next.Isolation, next.HTTP, next.Governors}
	part.Isolation.Stages = nil // or it would be merged, into the map that is in force
	if err := decodeOver(&part, text); err != nil {
		return next, err
	}
	if part.Isolation.Stages == nil {
		part.Isolation.Stages = l.inForce.Isolation.Stages
	}
	next.Limits, next.RateLimits, next.Isolation = part.Limits, part.RateLimits, part.Isolation
	next.Retry, next.Budget, next.Shadow = part.Retry, part.Budget, part.Shadow
	next.HTTP, next.Governors = part.HTTP, part.Governors
	return next, nil
}

// post serves POST /admin/limits: JSON with the sections limits, rateLimits and
// isolation as in the configuration file; what is left out stays as it is.
func (l *liveLimits) post(w http.ResponseWriter, r *http.Request) {
	dry, err := dryRun(r.URL.RawQuery)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLimitsBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		answer(w, http.StatusRequestEntityTooLarge, "the body is too long")
		return
	case err != nil || !json.Valid(text):
		answer(w, http.StatusBadRequest, "the body is no JSON")
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := l.patch(text)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	v, err := l.change(next, dry)
	if err != nil {
		answer(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	if !v.DryRun {
		l.tell("POST /admin/limits", v)
	}
	answerJSON(w, v, l.log)
}

// dryRun reads the only parameter there is, dry-run, with or without a truth value.
// Another one is an error: it may be meant to be this one.
func dryRun(query string) (bool, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return false, err
	}
	for key := range q {
		if key != "dry-run" {
			return false, fmt.Errorf("unknown parameter %q; there is dry-run", key)
		}
	}
	v := q["dry-run"]
	switch {
	case len(v) > 1:
		return false, errors.New("dry-run is given twice")
	case len(v) == 0 || v[0] == "":
		return len(v) == 1, nil
	}
	dry, err := strconv.ParseBool(v[0])
	if err != nil {
		return false, fmt.Errorf("dry-run=%q is neither true nor false", v[0])
	}
	return dry, nil
}

// reread applies the settings as they are now in the file and the environment.
func (l *liveLimits) reread() {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := l.reload()
	if err != nil {
		l.log.Error("SIGHUP: nothing was changed", "error", err)
		return
	}
	v, err := l.change(*next, false)
	if err != nil {
		l.log.Error("SIGHUP: nothing was changed", "error", err)
		return
	}
	l.tell("SIGHUP", v)
}

func (l *liveLimits) tell(by string, v limitsView) {
	over := make([]string, len(v.Over))
	for i, o := range v.Over {
		over[i] = o.String()
	}
	l.log.Info("limits are in force", "by", by, "changed", v.Changed, "over", over)
}

// run rereads at each SIGHUP until ctx ends.
func (l *liveLimits) run(ctx context.Context, hups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hups:
			l.reread()
		}
	}
}

// hangups delivers SIGHUP, which would end the process otherwise.
func hangups() (ch chan os.Signal, stop func()) {
	ch = make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}

// isolationView is the answer of /admin/isolation. It holds no owner keys.
type isolationView struct {
	Mode     string      `json:"mode"`
	Owners   int         `json:"owners"` // that hold something now
	Most     int         `json:"maxTrackedOwners"`
	RunSlots useView     `json:"runSlots"`
	Stages   []stageLive `json:"stages"`
}

type useView struct {
	Used     int64 `json:"used"`
	Capacity int64 `json:"capacity"`
}

type stageLive struct {
	Stage    string `json:"stage"`
	Bytes    bool   `json:"bytes"`
	Used     int64  `json:"used"`
	Capacity int64  `json:"capacity"`
	// Shared is the part for everybody, Kept that of each class.
	Shared         useView            `json:"shared"`
	Kept           map[string]useView `json:"kept"`
	OwnerHardLimit int64              `json:"ownerHardLimit"`
	Refused        map[string]uint64  `json:"refused"` // by reason, since the start
	WhenFull       string             `json:"whenFull"`
}

func viewIsolation(p *isolation.Provider) isolationView {
	plan := p.Plan()
	usage, owners := p.Snapshot()
	v := isolationView{Mode: plan.Mode.String(), Owners: owners, Most: plan.MaxTrackedOwners}
	v.RunSlots.Used, v.RunSlots.Capacity = p.RunSlots()
	for i, u := range usage {
		s := plan.Stages[i]
		l := stageLive{
			Stage: u.Name, Bytes: inBytes(s.Stage), Used: u.Used, Capacity: u.Capacity, Shared: useView{u.Shared, s.Shared},
			Kept: map[string]useView{"bootstrap": {u.Bootstrap, s.Bootstrap}, "reconnect": {u.Reconnect, s.Reconnect},
				"control": {u.Control, s.Control}, "trusted": {u.Trusted, s.Trusted}},
			OwnerHardLimit: s.HardLimit, Refused: map[string]uint64{}, WhenFull: stack.WhenFull(s.Stage),
		}
		for r := isolation.Granted + 1; r < isolation.Reasons; r++ {
			if n := p.Refused(s.Stage, r); n > 0 {
				l.Refused[r.String()] = n
			}
		}
		v.Stages = append(v.Stages, l)
	}
	return v
}

func answerJSON(w http.ResponseWriter, v any, log *slog.Logger) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Debug("admin: answer", "error", err)
	}
}
