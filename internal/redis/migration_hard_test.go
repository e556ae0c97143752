package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// handsOver tells whether a version moves slots by itself.
func handsOver(v redistest.Version) bool { return v.Engine == "valkey" && v.Minor >= "9" }

// The way of the migration follows from what the servers offer.
func TestMigrationWay(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 500)
		finish(t, migration(members, redis.SlotRange{First: 0, Last: 1000}))
		stats := fmt.Sprint(members[0].Do("INFO", "commandstats"))
		if key := strings.Contains(stats, "cmdstat_migrate:"); key == handsOver(v) {
			t.Errorf("MIGRATE was sent: %v", key)
		}
		if job := strings.Contains(stats, "cmdstat_cluster|migrateslots:"); job != handsOver(v) {
			t.Errorf("MIGRATESLOTS was sent: %v", job)
		}
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
func TestExportFails(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		if !handsOver(v) {
			return
		}
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		setKeys(t, c, 2000)
		slots := redis.SlotRange{First: 0, Last: 1000}
		members[1].Freeze()
		members[0].Do("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slots.First, slots.Last, "NODE", members[1].id)
		members[0].Do("CLUSTER", "CANCELSLOTMIGRATIONS")
		members[1].Thaw()
		m := migration(members, slots)
		_, err := m.Step(t.Context(), time.Second)
		if err == nil || !redis.IsServer(err) || !strings.Contains(err.Error(), "cancelled") {
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
