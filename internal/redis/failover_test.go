package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// write sends numbered writes one after the other until one fails, and returns a
// function that waits for that and tells how many were acknowledged.
func write(t *testing.T, s *redistest.Server) (acknowledged func() int) {
	t.Helper()
	c := client(t, s, "")
	started, done := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		for c.Set(context.Background(), "key"+strconv.Itoa(n), n, 0).Err() == nil {
			if n++; n == 100 {
				close(started)
			}
		}
		done <- n
	}()
	select {
	case <-started:
	case n := <-done:
		t.Fatalf("the writer stopped after %d writes", n)
	}
	return func() int { return <-done }
}

func TestGracefulFailoverLosesNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 1)
		primary, replica := members[0], members[1]
		before := primary.state(t)
		acknowledged := write(t, primary.Server)
		ok(t, replica.Failover(t.Context(), redis.Graceful))
		after := replica.await(t, "promoted", func(s redis.State) bool { return s.Role == redis.Primary && len(s.Slots) > 0 })
		// The old primary redirects the writer once it has stepped down.
		n := acknowledged()
		if after.ConfigEpoch <= before.ConfigEpoch || !slices.Equal(after.Slots, before.Slots) || after.PrimaryID != "" {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		primary.await(t, "a replica in step", func(s redis.State) bool {
			return s.Role == redis.Replica && s.PrimaryID == replica.id && s.Slots == nil && s.Replication.LinkUp
		})
		c := client(t, replica.Server, "")
		for i := range n {
			if got, err := c.Get(t.Context(), "key"+strconv.Itoa(i)).Int(); err != nil || got != i {
				t.Fatalf("write %d of %d: %d, %v", i, n, got, err)
			}
		}
		t.Logf("%d acknowledged writes are all there", n)
	})
}

func TestForcedFailover(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		// Far above the test's duration: nobody but the forced replica acts.
		members := form(t, v, 3, 1, "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no")
		primary, replica, voters := members[0], members[3], members[1:3]
		testPromotion(t, primary, replica, redis.Force)
		for _, m := range voters {
			m.await(t, "seeing the new owner", func(s redis.State) bool { return owns(s, replica.id, primary.id) })
		}
	})
}

// One shard has no majority once its primary is dead: only TAKEOVER is left.
func TestTakeover(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 2, "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no")
		primary, replica, other := members[0], members[1], members[2]
		testPromotion(t, primary, replica, redis.Takeover)
		other.await(t, "following the new primary", func(s redis.State) bool {
			return s.PrimaryID == replica.id && owns(s, replica.id, primary.id) && s.Replication.LinkUp && s.Keys == 100
		})
	})
}

// testPromotion kills a primary and promotes its replica, which must have all of
// the data.
func testPromotion(t *testing.T, primary, replica member, mode redis.FailoverMode) {
	t.Helper()
	before := primary.state(t)
	c := client(t, primary.Server, "")
	for i := range 100 {
		// {06S} is in slot 0, which the first primary has in every shape.
		ok(t, c.Set(t.Context(), fmt.Sprintf("{06S}%d", i), i, 0).Err())
	}
	replica.await(t, "caught up", func(s redis.State) bool { return s.Keys == 100 })
	primary.Kill()
	lost := replica.await(t, "cut off", func(s redis.State) bool { return s.Replication.LinkLost })
	if !lost.HoldsCopy() || lost.Replication.LinkLostFor > time.Minute {
		t.Fatalf("no candidate: %+v", lost)
	}
	if r := redis.Reach(t.Context(), primary.Addr()); r != redis.Refused {
		t.Fatalf("the dead primary's port is %s, want refused", r)
	}
	begin := time.Now()
	ok(t, replica.Failover(t.Context(), mode))
	after := replica.await(t, "promoted", func(s redis.State) bool { return s.Role == redis.Primary })
	t.Logf("%s: a primary after %s", mode, time.Since(begin).Round(time.Millisecond))
	if after.ConfigEpoch <= before.ConfigEpoch || !slices.Equal(after.Slots, before.Slots) || after.Keys != 100 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

// owns tells whether a table gives the slots of a dead primary to its successor,
// with the higher epoch.
func owns(s redis.State, successor, dead string) bool {
	var epoch, old uint64
	slots := 0
	for _, p := range s.Peers {
		switch p.ID {
		case successor:
			epoch, slots = p.ConfigEpoch, len(p.Slots)
		case dead:
			old = p.ConfigEpoch
		}
	}
	return slots > 0 && epoch > old
}
