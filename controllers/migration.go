package controllers

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// migrationBudget is how long a pass moves slots before it looks at the cluster
// again.
const migrationBudget = time.Second

// moveSlots goes on with the migrations of the plan, all pairs of nodes at once,
// for the time that a pass has for it. What a server refuses is a problem that the
// status tells, in the server's words; the next pass tries again.
func (p *pass) moveSlots(ctx context.Context, actions []topology.Action) error {
	var steps []func() error
	for _, a := range actions {
		steps = append(steps, func() error {
			m, err := p.migration(a)
			if err != nil {
				return err
			}
			if to := p.node(a.Peer); to.Slots.Empty() {
				if err := redis.CopyFunctions(ctx, m.Source, m.Target); err != nil {
					return err
				}
			}
			left, err := m.Step(ctx, migrationBudget)
			metrics.Acted(a.Kind, 1, err)
			log.FromContext(ctx).Info("slots are moved", "from", a.Pod, "to", a.Peer, "slots", a.Slots.String(), "left", left, "failed", err != nil)
			return err
		})
	}
	var failed error
	for _, err := range atOnce(steps) {
		switch {
		case redis.IsServer(err):
			p.facts.Problems = append(p.facts.Problems, status.Problem{Reason: redisv1.ReasonMigrationFailed,
				Message: fmt.Sprintf("slots could not be moved, which is tried again: %v", err)})
		case err != nil && failed == nil:
			failed = fmt.Errorf("move slots: %w", err)
		}
	}
	return failed
}

func (p *pass) migration(a topology.Action) (*redis.Migration, error) {
	to := p.node(a.Peer)
	ip, err := netip.ParseAddr(to.IP)
	if err != nil {
		return nil, fmt.Errorf("address of Pod %s: %w", to.Pod, err)
	}
	m := &redis.Migration{
		Source: p.nodes[a.Pod].node, SourceID: p.nodes[a.Pod].state.ID,
		Target: p.nodes[a.Peer].node, TargetID: a.ID, TargetAddr: netip.AddrPortFrom(ip, manifests.RedisPort),
		Username: manifests.OperatorUser, Password: p.mem.password, Slots: rangesOf(a.Slots),
	}
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		if n.Knowledge == topology.Answered && n.Primary && n.Pod != a.Pod && n.Pod != a.Peer {
			m.Others = append(m.Others, p.nodes[n.Pod].node)
		}
	}
	return m, nil
}

// node is what was observed of a Pod.
func (p *pass) node(pod string) *topology.Node {
	for i := range p.facts.Observed.Nodes {
		if p.facts.Observed.Nodes[i].Pod == pod {
			return &p.facts.Observed.Nodes[i]
		}
	}
	return &topology.Node{Pod: pod}
}
