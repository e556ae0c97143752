package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

func TestProbeFreshNode(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		m := start(t, v, "--appendonly", "yes")
		s := m.state(t)
		engine := map[string]redis.Engine{"redis": redis.Redis, "valkey": redis.Valkey}[v.Engine]
		if s.Engine != engine || s.Version != v.Release {
			t.Errorf("%s %s, want %s %s", s.Engine, s.Version, engine, v.Release)
		}
		if len(s.ID) != 40 || s.ID != m.id || len(s.RunID) != 40 || len(s.Replication.ID) != 40 {
			t.Errorf("id %q (MYID %q), run %q, history %q", s.ID, m.id, s.RunID, s.Replication.ID)
		}
		if s.Role != redis.Primary || s.ClusterOK || s.Loading || !s.AOFEnabled || s.Uptime > time.Minute {
			t.Errorf("got %+v", s)
		}
		if s.ConfigEpoch != 0 || s.SlotsAssigned != 0 || s.Slots != nil || s.Peers != nil || s.Keys != 0 {
			t.Errorf("a fresh node knows something: %+v", s)
		}
	})
}

// What one Probe costs the server: one connection, one login, three commands,
// and nothing that the client library adds by itself.
func TestProbeCost(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		s := redistest.Start(t, v, "--requirepass", "s3cret")
		observer := client(t, s, "s3cret")
		ok(t, observer.ConfigResetStat(t.Context()).Err())
		n := redis.Dialer{Password: "s3cret"}.Open(s.Addr())
		defer func() { _ = n.Close() }()
		if _, err := n.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		stats := observer.InfoMap(t.Context(), "stats", "commandstats").Val()
		if got := stats["Stats"]["total_connections_received"]; got != "1" {
			t.Errorf("%s connections, want 1", got)
		}
		var calls []string
		for name, line := range stats["Commandstats"] {
			count, _, _ := strings.Cut(line, ",")
			calls = append(calls, strings.TrimPrefix(name, "cmdstat_")+" "+count)
		}
		slices.Sort(calls)
		want := []string{"cluster|info calls=1", "cluster|nodes calls=1", "config|resetstat calls=1", "hello calls=1", "info calls=1"}
		if !slices.Equal(calls, want) {
			t.Errorf("commands %q, want %q", calls, want)
		}
	})
}

func TestProbeWhileLoading(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		m := start(t, v, "--cluster-node-timeout", "60000")
		m.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		ok(t, m.AddSlots(t.Context(), redis.SlotRange{First: 0, Last: redis.SlotCount - 1}))
		m.Do("DEBUG", "POPULATE", 10000)
		m.Do("SAVE")
		// Half a millisecond a key, and other clients are served now and then.
		m.restart(t, "--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
		s := m.state(t)
		if !s.Loading || s.HoldsCopy() || s.Version != v.Release || len(s.RunID) != 40 {
			t.Errorf("got %+v", s)
		}
		// Redis refuses CLUSTER while it loads, Valkey answers.
		id, err := m.MyID(t.Context())
		if v.Engine == "redis" {
			if !redis.IsLoading(err) || s.ID != "" || s.Role != redis.RoleUnknown {
				t.Errorf("MYID: %q, %v; state %+v", id, err, s)
			}
		} else if err != nil || id != m.id || s.ID != m.id || s.Role != redis.Primary {
			t.Errorf("MYID: %q, %v; state %+v", id, err, s)
		}
		m.Do("CONFIG", "SET", "key-load-delay", 0)
		m.await(t, "loaded", func(s redis.State) bool { return !s.Loading && s.Keys == 10000 && s.ID == m.id })
	})
}

func TestFormCluster(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 1)
		primary, replica := members[0], members[1]
		for i := range 100 {
			primary.Do("SET", fmt.Sprint("key", i), i)
		}
		p := primary.state(t)
		r := replica.await(t, "caught up", func(s redis.State) bool {
			return s.Replication.Offset == p.Replication.Offset && s.Keys == 100
		})
		if p.Role != redis.Primary || p.ConfigEpoch != 1 || p.CurrentEpoch < 2 || p.Keys != 100 || !slices.Equal(p.Slots, []redis.SlotRange{{First: 0, Last: 16383}}) {
			t.Errorf("primary %+v", p)
		}
		if r.Replication.ID != p.Replication.ID || r.Replication.PrimaryHost != primary.IP.String() || r.Replication.PrimaryPort != redistest.Port {
			t.Errorf("replica %+v of %+v", r.Replication, p.Replication)
		}
		if r.Slots != nil || r.ConfigEpoch != 1 || r.HoldsCopy() {
			t.Errorf("replica %+v", r)
		}
		peer := r.Peers[0]
		if peer.ID != primary.id || peer.Host != primary.IP.String() || peer.Port != redistest.Port || peer.BusPort != redistest.BusPort ||
			peer.Role != redis.Primary || !slices.Equal(peer.Slots, p.Slots) || peer.ConfigEpoch != 1 {
			t.Errorf("the replica's line of its primary is %+v", peer)
		}
		primary.await(t, "told that its replica has caught up", func(s redis.State) bool {
			return s.Replication.Replicas[0].Offset == s.Replication.Offset && s.Replication.Replicas[0].Lag <= time.Minute
		})
	})
}

// The facts behind HoldsCopy, on servers that go through them.
func TestHoldsCopyOnServers(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 0)
		primary := members[0]
		primary.Do("SET", "before-the-replica", 1)
		replica := start(t, v)
		ok(t, primary.Meet(t.Context(), replica.AddrPort()))
		replica.await(t, "met", func(s redis.State) bool { return knowsAll(s, []member{primary, replica}) })
		attach(t, replica, primary, primary)

		// In step, and nothing has been sent since: at offset 0 in Redis.
		primary.Kill()
		s := replica.await(t, "cut off", func(s redis.State) bool { return s.Replication.LinkLost })
		if s.Replication.LinkUp || !s.HoldsCopy() || s.Keys != 1 {
			t.Errorf("after its primary died: %+v", s)
		}
		if v.Engine == "redis" && s.Replication.Offset != 0 {
			t.Errorf("offset %d, want 0", s.Replication.Offset)
		}

		// Restarted without its primary: whatever it has comes from its disk.
		replica.Kill()
		replica.Run()
		s = replica.await(t, "a replica without a link", func(s redis.State) bool { return s.Replication.PrimaryHost != "" })
		if s.Replication.LinkLost || s.Replication.LinkUp || s.HoldsCopy() {
			t.Errorf("after its restart: %+v", s)
		}

		// The primary comes back empty: the replica follows it, and is empty too.
		primary.Run()
		s = replica.await(t, "in step again", func(s redis.State) bool { return s.Replication.LinkUp })
		if s.Keys != 0 {
			t.Errorf("%d keys after the primary came back empty", s.Keys)
		}
	})
}

// A replica that synchronises anew keeps what it has until it has received
// everything: when the transfer breaks, it still holds its copy.
func TestBrokenTransferKeepsCopy(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 1, "--cluster-node-timeout", "60000")
		primary, replica := members[0], members[1]
		for i := range 100 {
			primary.Do("SET", fmt.Sprint("key", i), i)
		}
		replica.await(t, "filled", func(s redis.State) bool { return s.Keys == 100 })
		resync(t, primary, replica)
		s := replica.await(t, "synchronising", func(s redis.State) bool { return s.Replication.Syncing })
		if s.HoldsCopy() {
			t.Errorf("during the transfer: %+v", s)
		}
		primary.Kill()
		s = replica.await(t, "cut off", func(s redis.State) bool { return !s.Replication.Syncing && !s.Replication.LinkUp })
		if !s.HoldsCopy() || s.Keys != 100 || s.Replication.Offset < 100 {
			t.Errorf("after the transfer broke: %+v", s)
		}
	})
}

// A replica whose loading broke has given up what it had, and its position with
// it: it reports offset 1, although its link was up before.
func TestBrokenLoadLeavesNoPosition(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 1, 1, "--cluster-node-timeout", "60000", "--repl-diskless-load", "on-empty-db",
			"--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024")
		primary, replica := members[0], members[1]
		// Not replicated, so that the replica stays empty and loads while it receives.
		// With the RDB channel of Redis 8 the primary's child sends to the replica by
		// itself, and goes on when its parent has died.
		for _, m := range members {
			if len(m.Do("CONFIG", "GET", "repl-rdb-channel").([]any)) > 0 {
				m.Do("CONFIG", "SET", "repl-rdb-channel", "no")
			}
		}
		// Keys larger than the buffers on the way, so that they arrive one by one and
		// the replica answers in between.
		primary.Do("DEBUG", "POPULATE", 100, "key", 200000)
		resync(t, primary, replica)
		replica.await(t, "loading", func(s redis.State) bool { return s.Loading })
		primary.Kill()
		s := replica.await(t, "cut off", func(s redis.State) bool { return !s.Loading && !s.Replication.Syncing })
		if !s.Replication.LinkLost || s.Replication.Offset != 1 || s.HoldsCopy() {
			t.Errorf("after the loading broke: %+v", s)
		}
	})
}

// resync makes a replica synchronise in full, slowly enough to be caught at it:
// the primary writes one key in 50 ms, and its history is a new one.
func resync(t *testing.T, primary, replica member) {
	t.Helper()
	primary.Do("CONFIG", "SET", "rdb-key-save-delay", 50000)
	primary.Do("DEBUG", "CHANGE-REPL-ID")
	replica.Do("CLIENT", "KILL", "TYPE", "master")
}
