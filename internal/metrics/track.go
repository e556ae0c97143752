package metrics

import (
	"sync"
	"time"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// Change is what a cluster is on its way to.
type Change string

// The kinds of change.
const (
	// Create: it was never whole, or is filled from a backup.
	Create Change = "create"
	// Scale: its shape changes.
	Scale Change = "scale"
	// Roll: its Pods are replaced.
	Roll Change = "roll"
	// Recover: it has lost something.
	Recover Change = "recover"
)

var (
	changeLabel = label{name: "change", values: values([]Change{Create, Scale, Roll, Recover})}
	stepLabel   = label{name: "step", values: values(Steps)}

	converge = histogram("convergence_seconds",
		"time from the moment that a pass was due which saw a change, until the cluster was as it should be", slow, changeLabel)
	convergePasses = histogram("convergence_passes", "passes from a change until the cluster was as it should be", counts, changeLabel)
	convergeSteps  = counter("convergence_step_seconds_total",
		"time on the way from a change to a converged cluster by step; each moment belongs to one step, whatever the passes call it", changeLabel, stepLabel)
	waits = histogram("convergence_wait_seconds",
		"time between two passes over a cluster on its way in which the operator waited for Pods and Redis alone", quick)
)

func init() {
	scraped("redisclusters_not_converged", "number of clusters that are not as they should be", nil, func(set func(float64, ...string)) {
		n := 0
		tracks.each(func(_ objectKey, t *track) {
			if !t.since.IsZero() {
				n++
			}
		})
		set(float64(n))
	})
	scraped("rediscluster_last_change_step_seconds", "time by step on the way from the last change of the cluster, or the one under way",
		[]label{namespaceLabel, nameLabel, stepLabel}, func(set func(float64, ...string)) {
			tracks.each(func(o objectKey, t *track) {
				for i, step := range Steps {
					if t.seen {
						set(t.parts[i], o.namespace, o.name, string(step))
					}
				}
			})
		})
	scraped("rediscluster_last_change_passes", "passes from the last change of the cluster, or the one under way",
		[]label{namespaceLabel, nameLabel}, func(set func(float64, ...string)) {
			tracks.each(func(o objectKey, t *track) {
				if t.seen {
					set(float64(t.passes), o.namespace, o.name)
				}
			})
		})
}

// objectKey is an object of one kind.
type objectKey struct{ namespace, name string }

// track is the way of a cluster from a change to its end.
type track struct {
	generation int64
	// since the change was seen; zero while the cluster is converged.
	since  time.Time
	change Change
	passes int
	// parts is the time by step, of the last change once it has ended; told is how
	// much of it the counters have got. seen: there was one.
	parts, told spent
	seen        bool

	// mark is the moment up to which all time is in parts.
	mark   time.Time
	inPass bool
	// due is when the next pass is due, retry whether a failed one is repeated.
	due   time.Time
	retry bool
	// pending is the number of writes that the cache has not shown.
	pending int
	// early is what was spent since a pass has seen the cluster last.
	early spent
	// dueAt is when the pass under way was due, late how long that was before it began.
	dueAt time.Time
	late  time.Duration
	// shown is what the gauges show.
	shown *Cluster
}

// tracking holds the track of every cluster. An operator that starts anew sees each
// change that is under way as one that begins.
type tracking struct {
	mu sync.Mutex
	m  map[objectKey]*track
}

var tracks = &tracking{m: map[objectKey]*track{}}

// of is the track of a cluster, with all time up to now in it.
func (ts *tracking) of(o objectKey, now time.Time) *track {
	t := ts.m[o]
	if t == nil {
		t = &track{mark: now}
		ts.m[o] = t
	}
	if !t.inPass {
		t.idle(now)
	}
	return t
}

// idle gives the time since the mark, in which no pass ran, to the step that it is of.
func (t *track) idle(now time.Time) {
	from := t.mark
	t.mark = now
	until := now
	if !t.due.IsZero() && t.due.Before(now) {
		if until = t.due; until.Before(from) {
			until = from
		}
		t.early.add(Worker, now.Sub(until).Seconds())
	}
	step := Wait
	switch {
	case t.pending > 0:
		step = Watch
	case t.retry:
		step = Requeue
	}
	t.early.add(step, until.Sub(from).Seconds())
}

// due notes that the next pass over a cluster is due at a time.
func (ts *tracking) due(o objectKey, at time.Time, retry bool, now time.Time) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.of(o, now)
	t.due, t.retry = at, retry
}

// pending counts a write whose version the cache has not shown yet, or that it has.
func (ts *tracking) pending(cluster objectKey, by int, now time.Time) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.m[cluster] == nil {
		return // it is gone
	}
	t := ts.of(cluster, now)
	t.pending = max(0, t.pending+by)
}

// begin notes that a worker has taken a cluster.
func (ts *tracking) begin(o objectKey, now time.Time) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.of(o, now)
	t.inPass, t.dueAt = true, now
	if !t.due.IsZero() && t.due.Before(now) {
		t.dueAt = t.due
	}
	t.late = now.Sub(t.dueAt)
	t.due, t.retry = time.Time{}, false
}

// end notes what the steps of a pass have taken, and what it saw; nil is nothing.
func (ts *tracking) end(o objectKey, parts *spent, saw *Cluster, now time.Time) {
	ts.mu.Lock()
	t := ts.m[o]
	if t == nil {
		ts.mu.Unlock()
		return // forgotten meanwhile
	}
	t.inPass, t.mark = false, now
	if saw == nil {
		if !t.since.IsZero() {
			t.passes++
		}
		for i, seconds := range parts {
			t.early[i] += seconds
		}
		ts.mu.Unlock()
		return
	}
	before := t.since
	t.follow(saw, parts, now)
	since, shown := t.since, t.shown
	t.shown = saw
	ts.mu.Unlock()
	if before != since || !saw.same(shown) {
		saw.show(since)
	}
}

// follow goes on with a change, begins one or ends it.
func (t *track) follow(c *Cluster, parts *spent, now time.Time) {
	begins := t.since.IsZero() && !c.Converged || t.generation != 0 && t.generation != c.Generation
	t.generation = c.Generation
	early := t.early
	t.early = spent{}
	if begins {
		// Of the time before only that counts in which the pass was due.
		early = spent{}
		early.add(Worker, t.late.Seconds())
		t.since, t.change, t.passes, t.parts, t.told, t.seen = t.dueAt, "", 0, spent{}, spent{}, true
	}
	if t.since.IsZero() {
		return
	}
	if c.Phase == redisv1.PhasePaused {
		t.since = time.Time{}
		return
	}
	for i := range t.parts {
		t.parts[i] += early[i] + parts[i]
	}
	if !begins {
		waits.WithLabelValues().Observe(early[Wait.index()])
	}
	t.passes++
	// The first phase on the way names the change: a roll that loses a node for a
	// moment is still a roll.
	if t.change == "" {
		t.change = changeOf(c.Phase)
	}
	if t.change != "" {
		for i, step := range Steps {
			convergeSteps.WithLabelValues(string(t.change), string(step)).Add(max(0, t.parts[i]-t.told[i]))
		}
		t.told = t.parts
	}
	if c.Converged {
		if t.change != "" { // else the new spec asked for nothing
			converge.WithLabelValues(string(t.change)).Observe(now.Sub(t.since).Seconds())
			convergePasses.WithLabelValues(string(t.change)).Observe(float64(t.passes))
		}
		t.since = time.Time{}
	}
}

// forget drops a cluster.
func (ts *tracking) forget(o objectKey) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.m, o)
}

// each calls tell for every cluster.
func (ts *tracking) each(tell func(objectKey, *track)) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for o, t := range ts.m {
		tell(o, t)
	}
}

func changeOf(phase redisv1.Phase) Change {
	switch phase {
	case redisv1.PhasePending, redisv1.PhaseCreating, redisv1.PhaseRestoring:
		return Create
	case redisv1.PhaseScaling:
		return Scale
	case redisv1.PhaseUpdating:
		return Roll
	case redisv1.PhaseRecovering, redisv1.PhaseFailed:
		return Recover
	}
	return ""
}
