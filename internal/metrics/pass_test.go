package metrics

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/example/redis-operator/internal/topology"
)

// spend lets a time of the bubble go by.
func spend(d time.Duration) { <-time.After(d) }

// TestEachMomentOfAPassBelongsToOneStep, and of those in which an answer is waited
// for it is told for which.
func TestEachMomentOfAPassBelongsToOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := since(t, "pass_duration_seconds", "controller=redisbackup")
		requests := since(t, "pass_api_requests", "controller=redisbackup")
		steps := map[Step]func() (float64, uint64){}
		for _, s := range ofPass {
			steps[s] = since(t, "pass_step_duration_seconds", "controller=redisbackup", "step="+string(s))
		}
		waited := map[string]func() (float64, uint64){}
		for _, what := range waitedLabel.values {
			waited[what] = since(t, "pass_waits_seconds_total", "controller=redisbackup", "step=act", "for="+what)
		}
		_, p := StartPass(t.Context(), "redisbackup", "shop", "orders")
		spend(time.Second)
		p.At(ObserveRedis)
		end := p.Exchange("INFO")
		spend(2 * time.Second)
		end()
		p.At(Act)
		spend(3 * time.Second) // nothing is waited for
		p.begin(writing)
		p.begin(writing) // two at once count once
		p.begin(asking)  // and count before Redis
		spend(4 * time.Second)
		p.end(writing)
		p.end(writing)
		spend(5 * time.Second)
		p.end(asking)
		p.throttled(6 * time.Second)
		p.throttled(5 * time.Second)
		p.requested()
		spend(7 * time.Second)
		p.At(Status)
		p.begin(reading)
		spend(8 * time.Second)
		p.end(reading)
		p.At(Act) // a step can come again
		spend(9 * time.Second)
		p.End()
		grew(t, "whole", whole, 1+2+3+4+5+7+8+9)
		grew(t, "requests", requests, 1)
		for step, want := range map[Step]float64{Read: 1, ObserveRedis: 2, Act: 3 + 4 + 5 + 7 + 9, Status: 8, Plan: 0, ObserveKubernetes: 0} {
			grew(t, string(step), steps[step], want)
		}
		if _, n := steps[Act](); n != 1 {
			t.Errorf("Act is counted %d times, want once with its sum", n)
		}
		for what, want := range map[string]float64{"api_write": 4, "redis": 5, "throttling": 6, "api_read": 0} {
			grew(t, what, waited[what], want)
		}
	})
}

// TestNothingIsMeasuredWithoutAPass: the stopwatch of nobody takes everything.
func TestNothingIsMeasuredWithoutAPass(t *testing.T) {
	var p *Pass
	p.At(Act)
	p.Exchange("INFO")()
	p.Command("INFO", nil)
	p.Saw(Cluster{})
	p.throttled(time.Second)
	p.End()
	Enable(false)
	defer Enable(true)
	if ctx, p := StartPass(t.Context(), "rediscluster", "shop", "orders"); p != nil || fromContext(ctx) != nil {
		t.Error("a pass is measured although measuring is off")
	}
	if q := NewQueue("rediscluster"); q != nil {
		t.Error("a queue is measured although measuring is off")
	}
	if next := http.DefaultTransport; Transport(next) != next {
		t.Error("requests are measured although measuring is off")
	}
	acted := since(t, "actions_total", "kind=Meet")
	Acted(topology.Meet, 1, nil)
	grew(t, "actions", acted, 0)
}

// TestActionsAndCommandsAreCountedByResult, and what is not in the sets as another.
func TestActionsAndCommandsAreCountedByResult(t *testing.T) {
	_, p := StartPass(context.Background(), "redisbackup", "shop", "orders")
	defer p.End()
	failed := since(t, "actions_total", "kind=Handover", "result=failed")
	done := since(t, "actions_total", "kind=Handover", "result=ok")
	Acted(topology.Handover, 1, errors.New("no"))
	Acted(topology.Handover, 2, nil)
	grew(t, "failed", failed, 1)
	grew(t, "done", done, 2)
	info := since(t, "redis_commands_total", "command=INFO", "result=ok")
	connects := since(t, "redis_commands_total", "command=connect", "result=failed")
	others := since(t, "redis_commands_total", "command=other", "result=ok")
	p.Command("INFO", nil)
	p.Command("connect", errors.New("refused"))
	p.Command("FLUSHALL", nil)
	grew(t, "INFO", info, 1)
	grew(t, "connect", connects, 1)
	grew(t, "other", others, 1)
}
