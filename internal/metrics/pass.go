package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/example/redis-operator/internal/topology"
)

var (
	passStepLabel = label{name: "step", values: values(ofPass[:])}
	waitedLabel   = label{name: "for", values: []string{"throttling", "api_write", "api_read", "redis"}}
	actionLabel   = label{name: "kind", values: values(actionKinds, Other)}
	resultLabel   = label{name: "result", values: []string{"ok", "failed"}}

	stepDuration = histogram("pass_step_duration_seconds",
		"time that a pass spent in a step, with all that it waited for in it", quick, controllerLabel, passStepLabel)
	stepWaits = counter("pass_waits_seconds_total",
		"time within the steps of passes in which an answer was waited for; while several are, the first of the list counts", controllerLabel, passStepLabel, waitedLabel)
	passDuration = histogram("pass_duration_seconds", "time of a whole pass", quick, controllerLabel)
	actions      = counter("actions_total", "planned actions that were carried out", actionLabel, resultLabel)
)

// actionKinds are all kinds of planned actions.
var actionKinds = []topology.Kind{
	topology.SetEpoch, topology.Meet, topology.BumpEpoch, topology.DelSlots, topology.AddSlots, topology.Replicate, topology.Handover, topology.Force,
	topology.Takeover, topology.Forget, topology.MoveSlots, topology.CloseSlots, topology.Discard, topology.Remove, topology.Replace, topology.Consent,
}

// Acted counts planned actions of one kind.
func Acted(kind topology.Kind, n int, err error) {
	if !off.Load() {
		actions.WithLabelValues(actionLabel.of(string(kind)), result(err)).Add(float64(n))
	}
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

// what a pass waits for. When several are under way the first one counts.
const (
	throttling = iota
	writing
	reading
	asking
	nothing
)

// Pass is the stopwatch of one pass: each moment belongs to the step that it is at. A
// nil one measures nothing. Its methods may be called from several goroutines.
type Pass struct {
	controller string
	object     objectKey
	start      time.Time

	mu        sync.Mutex
	step      int       // in the order of ofPass
	mark      time.Time // up to here all is counted
	underWay  [nothing]int
	heldUntil time.Time
	requests  int
	// times by step of a pass, in their order, and by what was waited for.
	times [len(ofPass)][nothing + 1]time.Duration
	saw   *Cluster
}

// StartPass starts the stopwatch at the step Read, as the worker takes an object. The
// returned context marks the requests of the pass.
func StartPass(ctx context.Context, controller, namespace, name string) (context.Context, *Pass) {
	if off.Load() {
		return ctx, nil
	}
	now := time.Now()
	p := &Pass{controller: controllerLabel.of(controller), object: objectKey{namespace, name}, start: now, mark: now}
	if p.controller == controllerOfClusters {
		tracks.begin(p.object, now)
	}
	return context.WithValue(ctx, passKey{}, p), p
}

// At ends the present step and begins another.
func (p *Pass) At(step Step) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(time.Now())
	p.step = step.ofPass()
}

// Saw notes what the pass has seen of its cluster. It is shown when the pass ends.
func (p *Pass) Saw(c Cluster) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw = &c
}

// End ends the pass.
func (p *Pass) End() {
	if p == nil {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
	passDuration.WithLabelValues(p.controller).Observe(now.Sub(p.start).Seconds())
	apiInPass.WithLabelValues(p.controller).Observe(float64(p.requests))
	var parts spent
	for i, step := range ofPass {
		var sum time.Duration
		for kind, took := range p.times[i] {
			if took == 0 {
				continue
			}
			sum += took
			parts.add(partOf(step, kind), took.Seconds())
			if kind != nothing {
				stepWaits.WithLabelValues(p.controller, string(step), waitedLabel.values[kind]).Add(took.Seconds())
			}
		}
		if sum > 0 {
			stepDuration.WithLabelValues(p.controller, string(step)).Observe(sum.Seconds())
		}
	}
	if p.controller == controllerOfClusters {
		tracks.end(p.object, &parts, p.saw, now)
	}
}

// partOf is the one of the eleven steps that a moment of a pass belongs to.
func partOf(step Step, kind int) Step {
	switch kind {
	case throttling:
		return Submit
	case writing:
		return Store
	case reading:
		return ObserveKubernetes
	}
	return step
}

// begin notes that something is waited for, end that its answer is there.
func (p *Pass) begin(kind int) { p.move(kind, 1) }

func (p *Pass) end(kind int) { p.move(kind, -1) }

func (p *Pass) move(kind, by int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(time.Now())
	p.underWay[kind] += by
}

// throttled notes that a request is sent again only after a wait.
func (p *Pass) throttled(wait time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.count(now)
	if until := now.Add(wait); until.After(p.heldUntil) {
		p.heldUntil = until
	}
}

// requested counts a request to the API server.
func (p *Pass) requested() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
}

// count gives the time since the last count to the step and to what is waited for.
func (p *Pass) count(now time.Time) {
	times := &p.times[p.step]
	from := p.mark
	p.mark = now
	for kind, n := range p.underWay {
		if n > 0 {
			times[kind] += now.Sub(from)
			return
		}
	}
	if held := earlier(p.heldUntil, now); held.After(from) {
		times[throttling] += held.Sub(from)
		from = held
	}
	times[nothing] += now.Sub(from)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
