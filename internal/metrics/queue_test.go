package metrics

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheQueueIsMeasured: why an object wakes, how long it was due, what one pass
// serves at once.
func TestTheQueueIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue("redisbackup")
		causes := map[Cause]func() (float64, uint64){}
		for _, c := range []Cause{SpecChanged, ChildChanged, Timer, Retry} {
			causes[c] = since(t, "queue_wakeups_total", "controller=redisbackup", "cause="+string(c))
		}
		waited := since(t, "queue_duration_seconds", "controller=redisbackup")
		merged := since(t, "queue_coalesced_total", "controller=redisbackup")
		delays := since(t, "queue_backoff_seconds", "controller=redisbackup")
		depth := func() float64 {
			t.Helper()
			v, _, _ := sample(t, "queue_depth", "controller=redisbackup")
			return v
		}
		q.Added("shop", "later", Timer, 10*time.Second)
		q.SpecChanged("shop", "now")
		q.Added("shop", "now", ChildChanged, 0) // the handler of the object itself
		spend(time.Second)
		q.Added("shop", "now", ChildChanged, 0)
		if depth() != 1 {
			t.Errorf("%g objects are due, want 1", depth())
		}
		spend(time.Second)
		q.Got("shop", "now")
		spend(9 * time.Second)
		if depth() != 1 {
			t.Errorf("%g objects are due, want 1", depth())
		}
		q.Got("shop", "later")
		q.Got("shop", "unknown")
		q.Added("shop", "now", Retry, 3*time.Second)
		q.Added("shop", "now", ChildChanged, 0) // does not wait for the retry
		q.Got("shop", "now")
		q.Added("shop", "now", ChildChanged, 0) // while the pass goes on
		spend(7 * time.Second)
		q.Done("shop", "now")
		spend(4 * time.Second)
		q.Got("shop", "now")
		q.Done("shop", "now")
		if depth() != 0 {
			t.Errorf("%g objects are due, want none", depth())
		}
		for cause, want := range map[Cause]float64{SpecChanged: 1, ChildChanged: 3, Timer: 1, Retry: 1} {
			grew(t, string(cause), causes[cause], want)
		}
		grew(t, "time in the queue", waited, 2+1+0+4)
		grew(t, "coalesced", merged, 1)
		grew(t, "delays", delays, 3)
	})
}

// TestWatchLag from the answer to a write until its version is delivered.
func TestWatchLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag := since(t, "watch_lag_seconds", "resource=configmaps")
		measured := func(want float64, n uint64) {
			t.Helper()
			grew(t, "lag", lag, want)
			if _, got := lag(); got != n {
				t.Errorf("%d writes are measured, want %d", got, n)
			}
		}
		gauges := func(wantAge, wantOldest float64) {
			t.Helper()
			age, _, _ := sample(t, "watch_cache_age_seconds", "resource=configmaps")
			oldest, _, _ := sample(t, "watch_oldest_pending_seconds", "resource=configmaps")
			if age != wantAge || oldest != wantOldest {
				t.Errorf("age %g, oldest pending %g; want %g and %g", age, oldest, wantAge, wantOldest)
			}
		}
		Wrote("c", "jobs", "shop", "unwatched", "5")
		Watching("configmaps")
		Delivered("configmaps", "shop", "a", "99")
		Wrote("c", "configmaps", "shop", "a", "100")
		spend(2 * time.Second)
		Wrote("c", "configmaps", "shop", "a", "101") // the first of two is measured
		gauges(2, 2)
		Delivered("configmaps", "shop", "a", "100")
		measured(2, 1)
		gauges(0, 0)
		Delivered("configmaps", "shop", "a", "102")
		Wrote("c", "configmaps", "shop", "a", "102") // the answer came after the event
		measured(2, 2)
		Wrote("c", "configmaps", "shop", "b", "104") // deleted by somebody before it is shown
		spend(3 * time.Second)
		Removed("configmaps", "shop", "b")
		measured(2, 2)
		Wrote("c", "configmaps", "shop", "b", "105") // the answer came after the end
		gauges(0, 0)
		Delivered("configmaps", "shop", "b", "200") // made again
		Wrote("c", "configmaps", "shop", "b", "201")
		spend(time.Second)
		gauges(1, 1)
		Delivered("configmaps", "shop", "b", "201")
		measured(3, 3)
		Wrote("c", "configmaps", "shop", "b", "not a number")
		for i := range 300 { // what is gone is not remembered for ever
			Removed("configmaps", "shop", fmt.Sprint(i))
			spend(time.Second)
		}
		if n := len(informers.gone); n > 61 {
			t.Errorf("%d objects that are gone are remembered", n)
		}
	})
}
