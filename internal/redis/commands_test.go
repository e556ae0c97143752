package redis_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

func TestRefusalsInTheServersWords(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		m := start(t, v)
		ok(t, m.SetConfigEpoch(t.Context(), 7))
		ok(t, m.AddSlots(t.Context(), redis.SlotRange{First: 0, Last: 9}, redis.SlotRange{First: 20, Last: 20}))
		s := m.state(t)
		if s.ConfigEpoch != 7 || s.SlotsAssigned != 11 || fmt.Sprint(s.Slots) != "[0-9 20]" {
			t.Errorf("got %+v", s)
		}
		unknown := strings.Repeat("0", 40)
		cases := []struct {
			name string
			err  error
			want string
		}{
			{"CLUSTER SET-CONFIG-EPOCH", m.SetConfigEpoch(t.Context(), 8), "config epoch is already non-zero"},
			{"CLUSTER ADDSLOTSRANGE", m.AddSlots(t.Context(), redis.SlotRange{First: 9, Last: 10}), "Slot 9 is already busy"},
			{"CLUSTER FORGET", m.Forget(t.Context(), unknown), "Unknown node " + unknown},
			{"CLUSTER FORGET", m.Forget(t.Context(), m.id), "can't forget myself"},
			{"CLUSTER REPLICATE", m.Replicate(t.Context(), unknown), "Unknown node " + unknown},
			{"CLUSTER FAILOVER", m.Failover(t.Context(), redis.Force), "FAILOVER to a"},
			{"CLUSTER SETSLOT", m.SetSlotsOwner(t.Context(), unknown, redis.SlotRange{First: 0, Last: 0}), "nknown node " + unknown},
			{"CONFIG SET", m.ConfigSet(t.Context(), map[string]string{"maxmemory": "plenty-s3cret"}), "maxmemory"},
		}
		for _, c := range cases {
			refused(t, c.err, "ERR")
			var se redis.ServerError
			if !errors.As(c.err, &se) || !strings.Contains(se.Error(), c.want) || c.err.Error() != m.Addr()+": "+c.name+": "+se.Error() {
				t.Errorf("got %q, want %q in it", c.err, c.want)
			}
			if !redis.IsServer(c.err) || redis.IsAuth(c.err) || redis.IsLoading(c.err) {
				t.Errorf("%q is taken for something else", c.err)
			}
			if strings.Contains(c.err.Error(), "s3cret") {
				t.Errorf("a value is in the error %q", c.err)
			}
		}
		if after := m.state(t); after.SlotsAssigned != 11 {
			t.Errorf("a refused ADDSLOTSRANGE added slots: %v", after.Slots)
		}
	})
}

// Commands without arguments to work on send nothing.
func TestNothingToDo(t *testing.T) {
	n := redis.Dialer{}.Open(redistest.Address(t).String() + ":6379")
	counts, err := n.CountKeysInSlots(t.Context())
	for _, err := range []error{err, n.Meet(t.Context()), n.Forget(t.Context()), n.AddSlots(t.Context()), n.SetSlotsStable(t.Context()), n.ConfigSet(t.Context(), nil)} {
		if err != nil {
			t.Errorf("got %v", err)
		}
	}
	if len(counts) != 0 {
		t.Errorf("got %v", counts)
	}
}

func TestForget(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		gone := start(t, v)
		ok(t, members[0].Meet(t.Context(), gone.AddrPort()))
		for _, m := range members {
			m.await(t, "met", func(s redis.State) bool { return knowsAll(s, append(slices.Clone(members), gone)) })
		}
		gone.Kill()
		// On both within the minute that each of them bans the id for.
		for _, m := range members {
			if err := m.Forget(t.Context(), gone.id); err != nil {
				// Since 7.2 the first one has told the second already.
				if v.Minor == "7.0" || !strings.Contains(err.Error(), "Unknown node") {
					t.Fatal(err)
				}
			}
		}
		for _, m := range members {
			m.await(t, "rid of it", func(s redis.State) bool { return knowsAll(s, members) })
		}
	})
}

// A slot changes its owner in the order of an operator: target imports, source
// migrates, the keys move, the target claims, the source learns of it.
func TestSetSlots(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 1)
		source, target := members[0], members[1]
		slots := []redis.SlotRange{{First: 100, Last: 149}, {First: 8191, Last: 8191}}
		ok(t, target.SetSlotsImporting(t.Context(), source.id, slots...))
		ok(t, source.SetSlotsMigrating(t.Context(), target.id, slots...))
		s, d := source.state(t), target.state(t)
		if len(s.Migrating) != 51 || s.Migrating[100] != target.id || s.Migrating[8191] != target.id || s.Importing != nil {
			t.Errorf("source: migrating %v, importing %v", s.Migrating, s.Importing)
		}
		if len(d.Importing) != 51 || d.Importing[149] != source.id || d.Migrating != nil {
			t.Errorf("target: migrating %v, importing %v", d.Migrating, d.Importing)
		}
		// The last one is taken back.
		ok(t, source.SetSlotsStable(t.Context(), slots[1]))
		ok(t, target.SetSlotsStable(t.Context(), slots[1]))
		ok(t, target.SetSlotsOwner(t.Context(), target.id, slots[0]))
		ok(t, source.SetSlotsOwner(t.Context(), target.id, slots[0]))
		s, d = source.state(t), target.state(t)
		if fmt.Sprint(s.Slots) != "[0-99 150-8191]" || fmt.Sprint(d.Slots) != "[100-149 8192-16383]" {
			t.Errorf("source %v, target %v", s.Slots, d.Slots)
		}
		if s.Migrating != nil || d.Importing != nil || d.ConfigEpoch <= s.ConfigEpoch {
			t.Errorf("source %+v, target %+v", s, d)
		}
	})
}

// Valkey holds a SETSLOT back until the replicas have it, and gives up after two
// seconds with nothing done. Redis does not ask them.
func TestSetSlotsOfAHangingReplica(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 1)
		source, target, replica := members[0], members[1], members[2]
		replica.Freeze()
		defer replica.Thaw()
		n := redis.Dialer{Timeout: time.Second}.Open(source.Addr())
		defer func() { _ = n.Close() }()
		err := n.SetSlotsMigrating(t.Context(), target.id, redis.SlotRange{First: 7, Last: 7})
		s := source.state(t)
		if v.Engine == "redis" {
			if err != nil || s.Migrating[7] != target.id {
				t.Errorf("got %v, migrating %v", err, s.Migrating)
			}
			return
		}
		refused(t, err, "NOREPLICAS")
		if s.Migrating != nil {
			t.Errorf("refused, and done: %v", s.Migrating)
		}
	})
}

func TestKeysInSlots(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		m := form(t, v, 1, 0)[0]
		// CLUSTER KEYSLOT foo is 12182, of bar 5061.
		want := []string{"foo", "{foo}1", "{foo}2"}
		for _, key := range append([]string{"bar"}, want...) {
			m.Do("SET", key, 1)
		}
		if used, err := m.UsedMemory(t.Context()); err != nil || used < 100<<10 {
			t.Errorf("%d bytes of memory are used, %v", used, err)
		}
		counts, err := m.CountKeysInSlots(t.Context(), redis.SlotRange{First: 5061, Last: 5061}, redis.SlotRange{First: 12000, Last: 12999})
		ok(t, err)
		if !maps.Equal(counts, map[int]int64{5061: 1, 12182: 3}) {
			t.Errorf("got %v", counts)
		}
		keys, err := m.GetKeysInSlot(t.Context(), 12182, 10)
		ok(t, err)
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("got %q, want %q", keys, want)
		}
		if keys, err = m.GetKeysInSlot(t.Context(), 12182, 2); err != nil || len(keys) != 2 {
			t.Errorf("got %q, %v, want two keys", keys, err)
		}
		if keys, err = m.GetKeysInSlot(t.Context(), 0, 2); err != nil || len(keys) != 0 {
			t.Errorf("got %q, %v, want none", keys, err)
		}
	})
}

func TestConfig(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		m := start(t, v)
		ok(t, m.ConfigSet(t.Context(), map[string]string{"maxmemory": "100mb", "repl-backlog-size": "64mb", "save": ""}))
		got, err := m.ConfigGet(t.Context(), "maxmemory", "repl-backlog-size", "save", "no-such-directive")
		ok(t, err)
		if want := map[string]string{"maxmemory": "104857600", "repl-backlog-size": "67108864", "save": ""}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		refused(t, m.ConfigSet(t.Context(), map[string]string{"maxmemory": "1", "no-such-directive": "1"}), "ERR")
		if got, err = m.ConfigGet(t.Context(), "maxmemory"); err != nil || got["maxmemory"] != "104857600" {
			t.Errorf("half of a refused CONFIG SET was done: %v, %v", got, err)
		}
	})
}

// Keys in slots of another node are counted, whatever the server shows of them, and no mark
// is left.
func TestCountStrayKeys(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		members := form(t, v, 2, 0)
		c := clusterOf(t, members)
		ok(t, c.Set(t.Context(), "{stray}", 1, 0).Err())
		slot := int(c.ClusterKeySlot(t.Context(), "{stray}").Val())
		owner, other := members[0], members[1]
		if slot >= redis.SlotCount/2 {
			owner, other = other, owner
		}
		r := redis.SlotRange{First: slot, Last: slot}
		ok(t, other.SetSlotsImporting(t.Context(), owner.id, r))
		owner.Do("MIGRATE", other.IP.String(), redistest.Port, "{stray}", 0, 5000)
		for _, marked := range []bool{true, false} {
			if !marked {
				ok(t, other.SetSlotsStable(t.Context(), r))
			}
			s := other.state(t)
			counts, err := other.CountStrayKeys(t.Context(), &s, redis.SlotRange{First: 0, Last: redis.SlotCount - 1})
			ok(t, err)
			if len(counts) != 1 || counts[slot] != 1 {
				t.Errorf("marked %v: the counts are %v", marked, counts)
			}
			if after := other.state(t); (len(after.Importing) > 0) != marked {
				t.Errorf("marked %v: then %v", marked, after.Importing)
			}
		}
	})
}
