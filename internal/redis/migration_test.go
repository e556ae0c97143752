package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// migration moves slots from the first to the second of some primaries.
func migration(members []member, slots ...redis.SlotRange) *redis.Migration {
	from, to := members[0], members[1]
	m := &redis.Migration{Source: from.Node, SourceID: from.id, Target: to.Node, TargetID: to.id, TargetAddr: to.AddrPort(), Slots: slots}
	for _, other := range members[2:] {
		m.Others = append(m.Others, other.Node)
	}
	return m
}

// finish steps until nothing is left, and nothing may be refused.
func finish(t *testing.T, m *redis.Migration) {
	t.Helper()
	ok(t, complete(t.Context(), m))
}

// complete does so from any goroutine.
func complete(ctx context.Context, m *redis.Migration) error {
	for end := time.Now().Add(patience); ; {
		left, err := m.Step(ctx, time.Second)
		switch {
		case err != nil || left == 0:
			return err
		case time.Now().After(end):
			return fmt.Errorf("%d slots are left", left)
		}
	}
}

// persist steps until nothing is left, as the operator's passes do: what a server
// refuses is tried again.
func persist(t *testing.T, m *redis.Migration) {
	t.Helper()
	redistest.Eventually(t, patience, func() error {
		left, err := m.Step(t.Context(), time.Second)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d slots are left", left)
		}
		return err
	})
}

// setKeys writes n keys, and checkKeys reads them.
func setKeys(t *testing.T, c *goredis.ClusterClient, n int) {
	t.Helper()
	for i := range n {
		ok(t, c.Set(t.Context(), fmt.Sprintf("key-%d", i), i, 0).Err())
	}
}

func checkKeys(t *testing.T, c *goredis.ClusterClient, n int) {
	t.Helper()
	for i := range n {
		if got, err := c.Get(t.Context(), fmt.Sprintf("key-%d", i)).Int(); err != nil || got != i {
			t.Fatalf("key-%d is %d, %v", i, got, err)
		}
	}
}

// clusterOf is a client of the whole cluster, as users have it.
func clusterOf(t *testing.T, members []member) *goredis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs, MaxRedirects: 16})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// writers write numbers to keys of their own all the time, and remember the last
// one that was acknowledged.
type writers struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	last map[string]int
}

func startWriters(t *testing.T, c *goredis.ClusterClient, n int) *writers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writers{stop: stop, last: map[string]int{}}
	for i := range n {
		w.wg.Go(func() {
			for round := 1; ctx.Err() == nil; round++ {
				key := fmt.Sprintf("writer-%d-%d", i, round%50)
				if c.Set(ctx, key, round, 0).Err() == nil {
					w.mu.Lock()
					w.last[key] = round
					w.mu.Unlock()
				}
			}
		})
	}
	return w
}

func (w *writers) check(t *testing.T, c *goredis.ClusterClient) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	if len(w.last) == 0 {
		t.Fatal("nothing was written")
	}
	for key, want := range w.last {
		got, err := c.Get(t.Context(), key).Int()
		if err != nil || got < want {
			t.Errorf("%s is %d, %v; %d was acknowledged", key, got, err, want)
		}
	}
}

func TestMigration(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 3, 0)
		c := clusterOf(t, members)
		ctx := t.Context()
		slots := members[0].state(t).Slots
		setKeys(t, c, 3000)
		for i := range 200 {
			ok(t, c.Set(ctx, fmt.Sprintf("lasting-%d", i), i, time.Hour).Err())
			ok(t, c.Set(ctx, fmt.Sprintf("passing-%d", i), i, time.Millisecond).Err())
			ok(t, c.XAdd(ctx, &goredis.XAddArgs{Stream: fmt.Sprintf("stream-%d", i), Values: []any{"a", i}}).Err())
			ok(t, c.RPush(ctx, fmt.Sprintf("{tag-%d}", i), 1, 2, 3).Err())
		}
		w := startWriters(t, c, 4)
		finish(t, migration(members, slots...))
		w.check(t, c)

		if s := members[0].state(t); len(s.Slots) != 0 || s.Keys != 0 || len(s.Migrating) != 0 {
			t.Errorf("the source still has slots %v, %d keys, open %v", s.Slots, s.Keys, s.Migrating)
		}
		for _, m := range members {
			m.await(t, "seeing the new owner", func(s redis.State) bool { return s.SlotsAssigned == redis.SlotCount && len(s.Importing) == 0 })
		}
		checkKeys(t, c, 3000)
		for i := range 200 {
			if ttl := c.TTL(ctx, fmt.Sprintf("lasting-%d", i)).Val(); ttl <= 50*time.Minute || ttl > time.Hour {
				t.Errorf("lasting-%d lives for %s", i, ttl)
			}
			if n := c.XLen(ctx, fmt.Sprintf("stream-%d", i)).Val(); n != 1 {
				t.Errorf("stream-%d has %d entries", i, n)
			}
			if n := c.LLen(ctx, fmt.Sprintf("{tag-%d}", i)).Val(); n != 3 {
				t.Errorf("the list has %d elements", n)
			}
		}
	})
}

// A migration that ends at any point is finished by another one.
func TestMigrationInterrupted(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		slots := redis.SlotRange{First: 0, Last: 700}
		setKeys(t, c, 4000)
		w := startWriters(t, c, 2)
		for delay := time.Millisecond; ; delay += delay / 2 {
			ctx, cancel := context.WithTimeout(t.Context(), delay)
			left, err := migration(members, slots).Step(ctx, time.Minute)
			cancel()
			if err == nil && left == 0 {
				break
			}
		}
		// And back.
		back := []member{members[1], members[0]}
		finish(t, migration(back, slots))
		w.check(t, c)
		checkKeys(t, c, 4000)
	})
}

// Empty slots need no MIGRATE.
// TestMigrationThereAndBack moves slots to a node and back with no pause. A target that
// does not know its source's epoch yet would claim them with a lower one, lose them to
// what the source had said before, and delete their keys.
func TestMigrationThereAndBack(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 3, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 500)
		slots := redis.SlotRange{First: 0, Last: 99}
		there, back := migration(members, slots), migration([]member{members[1], members[0], members[2]}, slots)
		for range 10 {
			finish(t, there)
			finish(t, back)
		}
		checkKeys(t, c, 500)
	})
}

func TestMigrationOfEmptySlots(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 4, 0)
		start := time.Now()
		finish(t, migration(members, redis.SlotRange{First: 0, Last: 3000}))
		t.Logf("3001 empty slots in %s", time.Since(start))
		stats := fmt.Sprint(members[0].Do("INFO", "commandstats"))
		if strings.Contains(stats, "cmdstat_migrate:") {
			t.Errorf("MIGRATE was sent: %s", stats)
		}
	})
}

// What a server refuses is said in its own words.
func TestMigrationRefused(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		members[1].Do("CONFIG", "SET", "requirepass", "another")
		c := client(t, members[0].Server, "")
		key := "a" // slot 15495
		for i := 0; c.Set(t.Context(), key, 1, 0).Err() != nil; i++ {
			key = fmt.Sprint(i)
		}
		slot := int(c.ClusterKeySlot(t.Context(), key).Val())
		m := migration(members, redis.SlotRange{First: slot, Last: slot})
		m.Username, m.Password = "default", "wrong"
		words := "WRONGPASS"
		switch {
		case exports(v):
			words = "NOAUTH" // the server logs in as it does for replication
		case imports(v):
			finish(t, m) // the servers have a secret of their own
			return
		}
		_, err := m.Step(t.Context(), time.Second)
		if err == nil || !redis.IsServer(err) || !strings.Contains(err.Error(), words) {
			t.Fatalf("the error is %v", err)
		}
		if got := c.Get(t.Context(), key).Val(); got != "1" {
			t.Errorf("the key is %q", got)
		}
		m.Password = "another"
		members[0].Do("CONFIG", "SET", "masterauth", "another")
		persist(t, m)
	})
}

func TestCopyFunctions(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		from, to := members[0], members[1]
		for _, name := range []string{"one", "two"} {
			from.Do("FUNCTION", "LOAD", "#!lua name="+name+"\nredis.register_function('"+name+"', function() return '"+name+"' end)")
		}
		to.Do("FUNCTION", "LOAD", "#!lua name=two\nredis.register_function('two', function() return 'its own' end)")
		ok(t, redis.CopyFunctions(t.Context(), from.Node, to.Node))
		if got := fmt.Sprint(to.Do("FCALL", "one", 0)); got != "one" {
			t.Errorf("one gives %s", got)
		}
		if got := fmt.Sprint(to.Do("FCALL", "two", 0)); got != "its own" {
			t.Errorf("two gives %s", got)
		}
	})
}
