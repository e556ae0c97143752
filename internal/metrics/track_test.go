package metrics

import (
	"testing"
	"testing/synctest"
	"time"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// life plays what befalls one cluster.
type life struct {
	*testing.T
	name  string
	queue *Queue
}

// wake puts the cluster into the queue.
func (l *life) wake(cause Cause, after time.Duration) { l.queue.Added("shop", l.name, cause, after) }

// pass is one in which acting takes a time, some of it for the API server's answers.
func (l *life) pass(act, api time.Duration, c Cluster) {
	l.queue.Got("shop", l.name)
	_, p := StartPass(l.Context(), controllerOfClusters, "shop", l.name)
	p.At(Act)
	spend(act)
	p.begin(writing)
	spend(api)
	p.end(writing)
	c.Namespace, c.Name = "shop", l.name
	p.Saw(c)
	p.End()
}

// parts are the seconds by step of the cluster's last change.
func (l *life) parts() map[Step]float64 {
	l.Helper()
	out := map[Step]float64{}
	for _, s := range Steps {
		if v, _, _ := sample(l.T, "rediscluster_last_change_step_seconds", "name="+l.name, "step="+string(s)); v > 1e-9 {
			out[s] = v
		}
	}
	return out
}

func (l *life) took(want map[Step]float64) {
	l.Helper()
	got := l.parts()
	for _, s := range Steps {
		if d := got[s] - want[s]; d > 1e-6 || d < -1e-6 {
			l.Errorf("%s took %gs, want %gs", s, got[s], want[s])
		}
	}
}

// TestAChangeIsTakenApart: the steps of the way from a change to a converged cluster
// are its whole duration, each moment in one of them.
func TestAChangeIsTakenApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &life{T: t, name: "apart", queue: NewQueue(controllerOfClusters)}
		Watching("services")
		total, steps := since(t, "convergence_seconds", "change=create"), since(t, "convergence_step_seconds_total", "change=create")
		acts := since(t, "convergence_step_seconds_total", "change=create", "step=act")
		passes := since(t, "convergence_passes", "change=create")
		l.wake(SpecChanged, 0)
		spend(1 * time.Second) // no worker is free
		l.pass(2*time.Second, 3*time.Second, Cluster{Generation: 1, Phase: redisv1.PhaseCreating})
		Wrote("apart", "services", "shop", "apart", "10")
		l.wake(Timer, 5*time.Second)
		spend(4 * time.Second) // the cache has yet to show the Service
		Delivered("services", "shop", "apart", "9")
		Delivered("services", "shop", "apart", "10")
		spend(3 * time.Second) // one second of waiting, then due and no worker free
		l.pass(1*time.Second, 0, Cluster{Generation: 1, Phase: redisv1.PhaseCreating})
		l.wake(Retry, 8*time.Second)
		spend(8 * time.Second)
		l.pass(1*time.Second, 0, Cluster{Generation: 1, Phase: redisv1.PhaseRunning, Converged: true})
		grew(t, "whole", total, 1+5+4+3+1+8+1)
		grew(t, "steps", steps, 1+5+4+3+1+8+1)
		grew(t, "act", acts, 4)
		grew(t, "passes", passes, 3)
		want := map[Step]float64{Worker: 1 + 2, Act: 2 + 1 + 1, Store: 3, Watch: 4, Wait: 1, Requeue: 8}
		l.took(want)
		// At rest nothing is added to it.
		l.wake(Timer, 20*time.Second)
		spend(25 * time.Second)
		l.pass(2*time.Second, 0, Cluster{Generation: 1, Phase: redisv1.PhaseRunning, Converged: true})
		l.took(want)
		Forget("shop", "apart")
		if len(l.parts()) > 0 {
			t.Error("a cluster that is gone still has its last change")
		}
	})
}

// TestWhatAChangeIs: its first phase names it, a new spec that asks for nothing is
// none, and neither is what happens while the cluster is paused.
func TestWhatAChangeIs(t *testing.T) {
	running := Cluster{Generation: 1, Phase: redisv1.PhaseRunning, Converged: true}
	at := func(generation int64, phase redisv1.Phase) Cluster {
		return Cluster{Generation: generation, Phase: phase}
	}
	for name, c := range map[string]struct {
		passes []Cluster
		want   Change
	}{
		"created":  {[]Cluster{at(1, redisv1.PhasePending), at(1, redisv1.PhaseCreating), running}, Create},
		"restored": {[]Cluster{at(1, redisv1.PhaseRestoring), running}, Create},
		"scaled": {[]Cluster{running, at(2, redisv1.PhaseScaling), at(2, redisv1.PhaseRecovering),
			{Generation: 2, Phase: redisv1.PhaseRunning, Converged: true}}, Scale},
		"rolled":        {[]Cluster{running, at(2, redisv1.PhaseUpdating), {Generation: 2, Phase: redisv1.PhaseRunning, Converged: true}}, Roll},
		"lost":          {[]Cluster{running, at(1, redisv1.PhaseRecovering), running}, Recover},
		"unsafe":        {[]Cluster{running, at(1, redisv1.PhaseFailed), running}, Recover},
		"label changed": {[]Cluster{running, {Generation: 2, Phase: redisv1.PhaseRunning, Converged: true}}, ""},
		"paused":        {[]Cluster{running, at(2, redisv1.PhasePaused), {Generation: 3, Phase: redisv1.PhaseRunning, Converged: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &life{T: t, name: "is-" + name, queue: NewQueue(controllerOfClusters)}
				counts := map[Change]func() (float64, uint64){}
				for _, change := range []Change{Create, Scale, Roll, Recover} {
					counts[change] = since(t, "convergence_seconds", "change="+string(change))
				}
				for _, pass := range c.passes {
					l.wake(ChildChanged, 0)
					l.pass(time.Second, 0, pass)
				}
				for change, count := range counts {
					want := uint64(0)
					if change == c.want {
						want = 1
					}
					if _, n := count(); n != want {
						t.Errorf("%d changes are counted as %s, want %d", n, change, want)
					}
				}
				if v, _, found := sample(t, "rediscluster_not_converged_since_timestamp_seconds", "name="+l.name); !found || v != 0 {
					t.Errorf("not converged since %g, want 0", v)
				}
				Forget("shop", l.name)
			})
		})
	}
}

// TestAFailedPassIsPartOfTheWay: one that ends before it has looked sees nothing, and
// its time counts all the same.
func TestAFailedPassIsPartOfTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &life{T: t, name: "blind", queue: NewQueue(controllerOfClusters)}
		l.wake(SpecChanged, 0)
		l.pass(time.Second, 0, Cluster{Generation: 1, Phase: redisv1.PhaseCreating})
		l.wake(Retry, 2*time.Second)
		spend(2 * time.Second)
		l.queue.Got("shop", "blind")
		_, p := StartPass(t.Context(), controllerOfClusters, "shop", "blind")
		p.At(ObserveKubernetes)
		spend(4 * time.Second)
		p.End()
		l.wake(Retry, 8*time.Second)
		spend(8 * time.Second)
		l.pass(time.Second, 0, Cluster{Generation: 1, Phase: redisv1.PhaseRunning, Converged: true})
		l.took(map[Step]float64{Act: 2, Requeue: 10, ObserveKubernetes: 4})
		if n, _, _ := sample(t, "rediscluster_last_change_passes", "name=blind"); n != 3 {
			t.Errorf("%g passes, want 3", n)
		}
		Forget("shop", "blind")
	})
}
