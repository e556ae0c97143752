package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// exports and imports tell whether a version moves slots by itself, and which side is
// asked to.
func exports(v redistest.Version) bool { return v.Engine == "valkey" && atLeast(v, 9, 0) }
func imports(v redistest.Version) bool { return v.Engine == "redis" && atLeast(v, 8, 4) }

func atLeast(v redistest.Version, major, minor int) bool {
	var is, point int
	_, err := fmt.Sscanf(v.Minor, "%d.%d", &is, &point)
	return err == nil && (is > major || is == major && point >= minor)
}

// The way of the migration follows from what the servers offer.
func TestMigrationWay(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 500)
		finish(t, migration(members, redis.SlotRange{First: 0, Last: 1000}))
		source, target := fmt.Sprint(members[0].Do("INFO", "commandstats")), fmt.Sprint(members[1].Do("INFO", "commandstats"))
		if key := strings.Contains(source, "cmdstat_migrate:"); key == (exports(v) || imports(v)) {
			t.Errorf("MIGRATE was sent: %v", key)
		}
		if job := strings.Contains(source, "cmdstat_cluster|migrateslots:"); job != exports(v) {
			t.Errorf("MIGRATESLOTS was sent: %v", job)
		}
		if job := strings.Contains(target, "cmdstat_cluster|migration:"); job != imports(v) {
			t.Errorf("MIGRATION was sent: %v", job)
		}
	})
}

// Two sources of one target, and two targets of one source, side by side: where a node
// can take part in one job only, one waits for the other, and that is no failure.
func TestMigrationsSideBySide(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 4, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 3000)
		w := startWriters(t, c, 2)
		a, b, x, y := members[0], members[1], members[2], members[3]
		var moves errgroup.Group
		for _, pair := range [][]member{{a, x, b, y}, {b, x, a, y}, {a, y, b, x}} {
			s := pair[0].state(t).Slots[0]
			if pair[1].id == y.id {
				s.First = s.Last - 499
			} else {
				s.Last = s.First + 499
			}
			m := migration(pair, s)
			moves.Go(func() error { return complete(t.Context(), m) })
		}
		ok(t, moves.Wait())
		w.check(t, c)
		checkKeys(t, c, 3000)
	})
}

// Keys that have come to the target one by one are the only ones of their name, also when
// failovers of both sides have taken the marks off their slots.
func TestMigrationKeepsWhatHasArrived(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 2000)
		slots := redis.SlotRange{First: 0, Last: 200}
		var arrived int
		for slot := slots.First; slot <= slots.Last; slot += 20 {
			r := redis.SlotRange{First: slot, Last: slot}
			ok(t, members[1].SetSlotsImporting(t.Context(), members[0].id, r))
			ok(t, members[0].SetSlotsMigrating(t.Context(), members[1].id, r))
			keys, err := members[0].GetKeysInSlot(t.Context(), slot, 100)
			ok(t, err)
			for _, key := range keys {
				members[0].Do("MIGRATE", members[1].IP.String(), redistest.Port, key, 0, 5000)
				arrived++
			}
			for _, m := range members {
				m.Do("CLUSTER", "SETSLOT", slot, "STABLE")
			}
		}
		if arrived == 0 {
			t.Fatal("no key was moved")
		}
		finish(t, migration(members, slots))
		checkKeys(t, c, 2000)
	})
}

// A list of 200 MB in one key, of many elements and of few large ones.
func TestMigrationOfALargeKey(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		slot := int(c.ClusterKeySlot(t.Context(), "{large}").Val())
		if slot > redis.SlotCount/2 {
			members[0], members[1] = members[1], members[0]
		}
		const elements = 200
		element := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		for range elements {
			ok(t, c.RPush(t.Context(), "{large}-list", element).Err())
		}
		finish(t, migration(members, redis.SlotRange{First: slot, Last: slot}))
		if n := c.LLen(t.Context(), "{large}-list").Val(); n != elements {
			t.Errorf("the list has %d elements", n)
		}
		if last := c.LIndex(t.Context(), "{large}-list", -1).Val(); last != element {
			t.Errorf("the last element has %d bytes", len(last))
		}
		if s := members[0].state(t); s.Keys != 0 {
			t.Errorf("the source still has %d keys", s.Keys)
		}
	})
}

// A failover of either side in the middle: the migration goes on between those
// that lead then, and no acknowledged write is lost.
func TestMigrationAcrossFailovers(t *testing.T) {
	for side, name := range []string{"source", "target"} {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, v redistest.Version) {
				members := form(t, v, 3, 3, "--cluster-node-timeout", "2000")
				c := clusterOf(t, members)
				setKeys(t, c, 20000)
				slots := redis.SlotRange{First: 0, Last: 2000}
				w := startWriters(t, c, 2)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				_, _ = migration(members, slots).Step(ctx, time.Minute)
				cancel()
				heir := members[3+side]
				ok(t, heir.Failover(t.Context(), redis.Graceful))
				heir.await(t, "promoted", func(s redis.State) bool { return s.Role == redis.Primary && len(s.Slots) > 0 })
				members[side].await(t, "a replica", func(s redis.State) bool { return s.Role == redis.Replica })
				members[side], members[3+side] = heir, members[side]

				// As the operator's passes do: what a server refuses is tried again.
				m := migration(members[:3], slots)
				persist(t, m)
				w.check(t, c)
				checkKeys(t, c, 20000)
				for _, n := range members[:3] {
					n.await(t, "without open slots", func(s redis.State) bool {
						return s.SlotsAssigned == redis.SlotCount && len(s.Importing)+len(s.Migrating) == 0
					})
				}
			})
		})
	}
}

// A job of the server's that ends otherwise leaves the slots where they were, and
// its message is told: in the Step that waits for it and, when it ended between two,
// in the next.
func TestMigrationJobFails(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		if !exports(v) && !imports(v) {
			return
		}
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 2000)
		slots := redis.SlotRange{First: 0, Last: 1000}
		if exports(v) {
			members[1].Freeze()
			members[0].Do("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slots.First, slots.Last, "NODE", members[1].id)
			members[0].Do("CLUSTER", "CANCELSLOTMIGRATIONS")
			members[1].Thaw()
		} else {
			members[0].Freeze()
			members[1].Do("CLUSTER", "MIGRATION", "IMPORT", slots.First, slots.Last)
			members[1].Do("CLUSTER", "MIGRATION", "CANCEL", "ALL")
			members[0].Thaw()
		}
		m := migration(members, slots)
		_, err := m.Step(t.Context(), time.Second)
		if err == nil || !redis.IsServer(err) || !strings.Contains(strings.ToLower(err.Error()), "cancelled") {
			t.Fatalf("the error is %v", err)
		}
		if s := members[0].state(t); len(s.Slots) != 1 || s.Slots[0].First != 0 {
			t.Errorf("the source has slots %v", s.Slots)
		}
		persist(t, m)
		checkKeys(t, c, 2000)
	})
}

// Slots that were opened in the old way get there in the old way.
func TestMigrationOfOpenSlots(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 2000)
		opened := redis.SlotRange{First: 10, Last: 12}
		ok(t, members[1].SetSlotsImporting(t.Context(), members[0].id, opened))
		ok(t, members[0].SetSlotsMigrating(t.Context(), members[1].id, opened))
		finish(t, migration(members, redis.SlotRange{First: 0, Last: 500}))
		for _, m := range members {
			m.await(t, "without open slots", func(s redis.State) bool {
				return s.SlotsAssigned == redis.SlotCount && len(s.Importing)+len(s.Migrating) == 0
			})
		}
		checkKeys(t, c, 2000)
	})
}
