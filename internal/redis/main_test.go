package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// patience bounds every wait for something that must happen; most take less than
// a second, also on a busy machine.
const patience = 30 * time.Second

// eachVersion runs a test against every server of this machine, side by side with
// other tests: most of the time goes by waiting for clusters to agree.
func eachVersion(t *testing.T, test func(t *testing.T, v redistest.Version)) {
	t.Helper()
	t.Parallel()
	for _, v := range redistest.Versions(t) {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// member is a server of a cluster and the node that a test speaks to it through.
type member struct {
	*redistest.Server
	*redis.Node
	id string
}

// start runs one server.
func start(t *testing.T, v redistest.Version, args ...string) member {
	t.Helper()
	return open(t, redistest.Start(t, v, args...))
}

func open(t *testing.T, s *redistest.Server) member {
	t.Helper()
	m := member{Server: s, Node: redis.Dialer{Timeout: 5 * time.Second}.Open(s.Addr())}
	t.Cleanup(func() { _ = m.Close() })
	id, err := m.MyID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.id = id
	return m
}

// restart ends the process as a crash does and starts it again. The connection
// died with it, so the node is opened anew.
func (m *member) restart(t *testing.T, args ...string) {
	t.Helper()
	m.Kill()
	m.Run(args...)
	m.Node = redis.Dialer{Timeout: 5 * time.Second}.Open(m.Addr())
	t.Cleanup(func() { _ = m.Close() })
}

// Addr is asked of the server; a Node has one, too.
func (m member) Addr() string { return m.Server.Addr() }

// state probes a member that must answer.
func (m member) state(t *testing.T) redis.State {
	t.Helper()
	s, err := m.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// await probes until a state is as wanted.
func (m member) await(t *testing.T, what string, is func(redis.State) bool) redis.State {
	t.Helper()
	var s redis.State
	redistest.Eventually(t, patience, func() error {
		var err error
		if s, err = m.Probe(context.Background()); err == nil && !is(s) {
			err = fmt.Errorf("%s: not %s: %+v", m.Addr(), what, s)
		}
		return err
	})
	return s
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// form makes a cluster in the order that the operator does: epochs, slots, MEET,
// replicas. The first members are the primaries; replica i follows primary i
// modulo their number.
func form(t *testing.T, v redistest.Version, primaries, replicas int, args ...string) []member {
	t.Helper()
	members := make([]member, primaries+replicas)
	var peers []netip.AddrPort
	for i := range members {
		members[i] = start(t, v, args...)
		ok(t, members[i].SetConfigEpoch(t.Context(), uint64(i+1)))
		if i > 0 {
			peers = append(peers, members[i].AddrPort())
		}
		if i < primaries {
			ok(t, members[i].AddSlots(t.Context(), share(i, primaries)))
		}
	}
	ok(t, members[0].Meet(t.Context(), peers...))
	for _, m := range members {
		m.await(t, "in a complete cluster", func(s redis.State) bool {
			return s.ClusterOK && s.SlotsAssigned == redis.SlotCount && knowsAll(s, members)
		})
	}
	for i, m := range members[primaries:] {
		attach(t, m, members[i%primaries], members...)
	}
	return members
}

// share is the part of the slots that the i-th of n primaries gets.
func share(i, n int) redis.SlotRange {
	return redis.SlotRange{First: i * redis.SlotCount / n, Last: (i+1)*redis.SlotCount/n - 1}
}

// knowsAll tells whether a node has links to all others and no other lines.
func knowsAll(s redis.State, members []member) bool {
	for _, m := range members {
		linked := func(p redis.Peer) bool { return p.ID == m.id && p.Connected && !p.Handshake }
		if m.id != s.ID && !slices.ContainsFunc(s.Peers, linked) {
			return false
		}
	}
	return len(s.Peers) == len(members)-1
}

// attach makes a replica of a primary and waits until both see the link and all
// the others see the replica.
func attach(t *testing.T, replica, primary member, others ...member) {
	t.Helper()
	ok(t, replica.Replicate(t.Context(), primary.id))
	replica.await(t, "in step", func(s redis.State) bool {
		return s.Role == redis.Replica && s.PrimaryID == primary.id && s.Replication.LinkUp
	})
	primary.await(t, "with its replica online", func(s redis.State) bool {
		return slices.ContainsFunc(s.Replication.Replicas, func(r redis.ReplicaLink) bool {
			return r.Host == replica.IP.String() && r.Port == redistest.Port && r.State == "online"
		})
	})
	for _, m := range others {
		if m.id == replica.id {
			continue
		}
		m.await(t, "with the replica in its table", func(s redis.State) bool {
			return slices.ContainsFunc(s.Peers, func(p redis.Peer) bool { return p.ID == replica.id && p.PrimaryID == primary.id })
		})
	}
}

// refused fails the test unless the server itself refused with a code.
func refused(t *testing.T, err error, code string) {
	t.Helper()
	var se redis.ServerError
	if !errors.As(err, &se) || se.Code() != code {
		t.Fatalf("got %v, want the server's %s", err, code)
	}
}

// client is an ordinary client that a test looks at a server through.
func client(t *testing.T, s *redistest.Server, password string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Password: password, Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
