package backup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/example/redis-operator/internal/redis"
)

// shard is one shard of the cluster and the node to read it from.
type shard struct {
	slots  []redis.SlotRange
	source member
	// primary, and how far it had written when it was looked at.
	primary member
}

// slotMap names which slots belong together, and by which claim: a slot that went away
// and came back has raised an epoch.
func slotMap(shards []shard) string {
	var lines []string
	for _, s := range shards {
		lines = append(lines, fmt.Sprint(s.slots, s.primary.state.ConfigEpoch))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// dialer makes the Dialer of a Task.
func dialer(t *Task) (redis.Dialer, error) {
	d := redis.Dialer{Username: t.Username}
	if t.PasswordFile == "" {
		return d, nil
	}
	var err error
	d.Password, err = readPassword(t.PasswordFile)
	return d, err
}

// member is one node that has answered.
type member struct {
	addr  string
	state redis.State
}

// discover finds the cluster's shards, in the order of their first slots, and of
// each the node to read: a replica that is in step, else the primary.
func discover(ctx context.Context, d redis.Dialer, seeds []string) ([]shard, error) {
	first, err := anyMember(ctx, d, seeds)
	if err != nil {
		return nil, err
	}
	members := probeAll(ctx, d, first)
	var shards []shard
	var all []redis.SlotRange
	for _, m := range members {
		s := &m.state
		if s.Role != redis.Primary || len(s.Slots) == 0 {
			continue
		}
		if len(s.Migrating)+len(s.Importing) > 0 {
			return nil, fail(ReasonClusterNotReady, "slots are being moved at %s: the backup waits for their end", m.addr)
		}
		shards = append(shards, shard{slots: s.Slots, source: chooseSource(m, members), primary: m})
		all = append(all, s.Slots...)
	}
	if err := coverage(all); err != nil {
		return nil, fail(ReasonClusterNotReady, "the slots are not all served by nodes that answer: %w", err)
	}
	slices.SortFunc(shards, func(a, b shard) int { return a.slots[0].First - b.slots[0].First })
	return shards, nil
}

// chooseSource prefers the replica that has read furthest.
func chooseSource(primary member, members []member) member {
	best := primary
	for _, m := range members {
		s := &m.state
		r := &s.Replication
		if s.Role != redis.Replica || s.PrimaryID != primary.state.ID || s.Loading || r.Syncing || !r.LinkUp {
			continue
		}
		if best.state.Role == redis.Primary || r.Offset > best.state.Replication.Offset {
			best = m
		}
	}
	return best
}

// catchUp bounds the wait for a replica to have what its primary had.
const catchUp = 5 * time.Second

// settle makes sure that what is read holds all that had been written when the
// backup began: a replica is waited for until it has it, and where it does not get
// there the primary is read.
func (s *shard) settle(ctx context.Context, d redis.Dialer) {
	if s.source.addr == s.primary.addr {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for behind := s.source; ; {
		r := &behind.state.Replication
		if behind.state.PrimaryID == s.primary.state.ID && r.LinkUp && r.Offset >= s.primary.state.Replication.Offset {
			return
		}
		select {
		case <-ctx.Done():
			s.source = s.primary
			return
		case <-tick.C:
		}
		var err error
		if behind, err = probe(ctx, d, s.source.addr); err != nil {
			s.source = s.primary
			return
		}
	}
}

// anyMember finds a seed that answers and sees its cluster serve.
func anyMember(ctx context.Context, d redis.Dialer, seeds []string) (member, error) {
	var failures []error
	for _, seed := range seeds {
		addresses, err := resolve(ctx, seed)
		if err != nil {
			failures = append(failures, err)
		}
		for _, addr := range addresses {
			m, err := probe(ctx, d, addr)
			switch {
			case err != nil:
				failures = append(failures, err)
			case m.state.Loading:
				failures = append(failures, fmt.Errorf("%s: it is loading its data", addr))
			case !m.state.ClusterOK:
				failures = append(failures, fmt.Errorf("%s: its cluster_state is not ok", addr))
			default:
				return m, nil
			}
		}
	}
	if len(seeds) == 0 {
		return member{}, refuse(ReasonInvalid, "no node of the cluster is named")
	}
	return member{}, fail(ReasonClusterNotReady, "no node of the cluster can be asked: %w", errors.Join(failures...))
}

// resolve gives the addresses behind host:port.
func resolve(ctx context.Context, seed string) ([]string, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil, fmt.Errorf("%q is not host:port", seed)
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return ips, nil
}

func probe(ctx context.Context, d redis.Dialer, addr string) (member, error) {
	n := d.Open(addr)
	defer func() { _ = n.Close() }()
	s, err := n.Probe(ctx)
	return member{addr: addr, state: s}, err
}

// probeAll asks the nodes that the first one knows. One that does not answer is
// left out; whether it was needed shows in the slots.
func probeAll(ctx context.Context, d redis.Dialer, first member) []member {
	members := []member{first}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range first.state.Peers {
		if p.Handshake || p.NoAddr || p.Host == "" {
			continue
		}
		wg.Go(func() {
			m, err := probe(ctx, d, net.JoinHostPort(p.Host, strconv.Itoa(p.Port)))
			if err != nil || m.state.ID != p.ID {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			members = append(members, m)
		})
	}
	wg.Wait()
	return members
}
