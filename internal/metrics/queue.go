package metrics

import (
	"sync"
	"time"
)

// Cause is why an object is put into the queue.
type Cause string

// The causes.
const (
	// SpecChanged: the object's own spec, or the object itself is new or gone.
	SpecChanged Cause = "spec_changed"
	// ChildChanged: an object that belongs to it, or a Redis node that broke off.
	ChildChanged Cause = "child_changed"
	// Timer: the time that a pass has set for the next one.
	Timer Cause = "timer"
	// Retry: the last pass failed.
	Retry Cause = "retry"
)

const controllerOfClusters = "rediscluster"

var (
	controllerLabel = label{name: "controller", values: []string{controllerOfClusters, "redisbackup", Other}}
	causeLabel      = label{name: "cause", values: values([]Cause{SpecChanged, ChildChanged, Timer, Retry})}

	wakeUps   = counter("queue_wakeups_total", "times that an object was put into the queue, by why", controllerLabel, causeLabel)
	coalesced = counter("queue_coalesced_total", "times that an object was due already when it was put into the queue, so that one pass serves both", controllerLabel)
	backoff   = histogram("queue_backoff_seconds", "delay before an object whose last pass failed is due again", quick, controllerLabel)
	queued    = histogram("queue_duration_seconds", "time that an object was due and no worker was free", quick, controllerLabel)
)

// queues are those of all controllers.
var queues struct {
	mu sync.Mutex
	m  map[string]*Queue
}

func init() {
	scraped("queue_depth", "objects that are due and wait for a worker", []label{controllerLabel}, func(set func(float64, ...string)) {
		queues.mu.Lock()
		defer queues.mu.Unlock()
		for controller, q := range queues.m {
			set(float64(q.depth()), controller)
		}
	})
}

// Queue measures one controller's queue. A nil one measures nothing. Its methods may
// be called from several goroutines.
type Queue struct {
	controller string
	mu         sync.Mutex
	due        map[objectKey]time.Time
	// changed are the objects whose next wake-up is by their own spec.
	changed map[objectKey]bool
}

// NewQueue measures the queue of a controller, instead of an earlier one of that
// name.
func NewQueue(controller string) *Queue {
	if off.Load() {
		return nil
	}
	q := &Queue{controller: controllerLabel.of(controller), due: map[objectKey]time.Time{}, changed: map[objectKey]bool{}}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if queues.m == nil {
		queues.m = map[string]*Queue{}
	}
	queues.m[q.controller] = q
	return q
}

// SpecChanged notes that the object's own change is what wakes it next.
func (q *Queue) SpecChanged(namespace, name string) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed[objectKey{namespace, name}] = true
}

// Added notes that an object is due after a time; zero is now. The earliest of
// several counts.
func (q *Queue) Added(namespace, name string, cause Cause, after time.Duration) {
	if q == nil {
		return
	}
	o := objectKey{namespace, name}
	now := time.Now()
	at := now.Add(after)
	q.mu.Lock()
	defer q.mu.Unlock()
	if cause == ChildChanged && q.changed[o] {
		cause = SpecChanged
		delete(q.changed, o)
	}
	wakeUps.WithLabelValues(q.controller, causeLabel.of(string(cause))).Inc()
	if cause == Retry {
		backoff.WithLabelValues(q.controller).Observe(after.Seconds())
	}
	old, waits := q.due[o]
	if waits && !old.After(now) {
		coalesced.WithLabelValues(q.controller).Inc()
	}
	if !waits || at.Before(old) {
		q.due[o] = at
		if q.controller == controllerOfClusters {
			tracks.due(o, at, cause == Retry, now)
		}
	}
}

// Got notes that a worker has taken an object.
func (q *Queue) Got(namespace, name string) {
	if q == nil {
		return
	}
	o := objectKey{namespace, name}
	q.mu.Lock()
	at, known := q.due[o]
	delete(q.due, o)
	q.mu.Unlock()
	if known {
		queued.WithLabelValues(q.controller).Observe(max(0, time.Since(at)).Seconds())
	}
}

// Done notes that the pass over an object has ended. One that became due meanwhile waits
// for a worker only from now on.
func (q *Queue) Done(namespace, name string) {
	if q == nil {
		return
	}
	o := objectKey{namespace, name}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, known := q.due[o]; known && at.Before(now) {
		q.due[o] = now
	}
}

func (q *Queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	now := time.Now()
	for _, at := range q.due {
		if !at.After(now) {
			n++
		}
	}
	return n
}
