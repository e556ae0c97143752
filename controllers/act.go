package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/metrics"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/topology"
)

// roleOwner is the field owner of the role label, which changes with every
// failover and is therefore not part of the Pods' template.
const roleOwner = client.FieldOwner("redis-operator-role")

// act carries out the plan: nodes in parallel, the commands of one node in
// order. The first failure of each node is reported; the next pass decides anew
// from what the nodes then say.
func (p *pass) act(ctx context.Context) error {
	actions := p.facts.Plan.Actions
	if len(actions) == 0 {
		return nil
	}
	switch actions[0].Kind { // a plan has actions of one kind
	case topology.Remove:
		err := p.removeNodes(ctx, actions)
		metrics.Acted(topology.Remove, len(actions), err)
		return err
	case topology.MoveSlots:
		return p.moveSlots(ctx, actions)
	}
	byPod := map[string][]topology.Action{}
	for _, a := range actions {
		byPod[a.Pod] = append(byPod[a.Pod], a)
	}
	var steps []func() error
	for _, list := range byPod {
		steps = append(steps, func() error {
			for _, a := range list {
				err := p.do(ctx, a)
				metrics.Acted(a.Kind, 1, err)
				log.FromContext(ctx).Info("action", "kind", a.Kind, "pod", a.Pod, "peer", a.Peer, "id", a.ID,
					"slots", a.Slots.String(), "why", p.facts.Plan.Why, "failed", err != nil)
				if err != nil {
					return fmt.Errorf("%s on Pod %s: %w", a.Kind, a.Pod, err)
				}
			}
			return nil
		})
	}
	err := together(steps)
	p.noteLoss()
	p.notePromotions(err)
	return err
}

// notePromotions tells of promotions, and remembers those that take a while.
func (p *pass) notePromotions(err error) {
	for _, a := range p.facts.Plan.Actions {
		switch {
		case err != nil:
		case a.Kind == topology.Handover:
			p.events = append(p.events, news{corev1.EventTypeNormal, redisv1.EventHandedOver, "HandOver",
				fmt.Sprintf("%s takes the place of %s", a.Pod, a.Peer)})
		case a.Kind == topology.Force || a.Kind == topology.Takeover:
			p.events = append(p.events, news{corev1.EventTypeWarning, redisv1.EventFailedOver, "FailOver",
				fmt.Sprintf("%s takes the place of its primary: %s", a.Pod, p.facts.Plan.Why)})
		}
		if _, takesTime := patience[a.Kind]; takesTime && err == nil {
			p.mem.asked[p.nodes[a.Pod].state.ID] = asking{kind: a.Kind, at: time.Now()}
		}
	}
}

// do carries out one action.
func (p *pass) do(ctx context.Context, a topology.Action) error {
	switch a.Kind {
	case topology.Replace:
		return p.replace(ctx, a)
	case topology.Consent:
		return p.renew(ctx, a)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return command(ctx, p.nodes[a.Pod].node, a)
}

// command sends one action's command.
func command(ctx context.Context, n *redis.Node, a topology.Action) error {
	switch a.Kind {
	case topology.SetEpoch:
		return n.SetConfigEpoch(ctx, a.Epoch)
	case topology.Meet:
		ip, err := netip.ParseAddr(a.IP)
		if err != nil {
			return fmt.Errorf("address of Pod %s: %w", a.Peer, err)
		}
		return n.Meet(ctx, netip.AddrPortFrom(ip, manifests.RedisPort))
	case topology.AddSlots:
		return n.AddSlots(ctx, rangesOf(a.Slots)...)
	case topology.DelSlots:
		return n.DelSlots(ctx, rangesOf(a.Slots)...)
	case topology.BumpEpoch:
		return n.BumpEpoch(ctx)
	case topology.Replicate:
		return n.Replicate(ctx, a.ID)
	case topology.Handover:
		return n.Failover(ctx, redis.Graceful)
	case topology.Force:
		return n.Failover(ctx, redis.Force)
	case topology.Takeover:
		return n.Failover(ctx, redis.Takeover)
	case topology.Discard:
		if err := n.DropKeys(ctx, rangesOf(a.Slots)...); err != nil {
			return err
		}
		return n.SetSlotsStable(ctx, rangesOf(a.Slots)...)
	case topology.CloseSlots:
		return n.SetSlotsStable(ctx, rangesOf(a.Slots)...)
	case topology.Forget:
		return n.Forget(ctx, a.ID)
	default:
		return fmt.Errorf("no command for action %q", a.Kind)
	}
}

func rangesOf(slots topology.Slots) []redis.SlotRange {
	out := make([]redis.SlotRange, len(slots))
	for i, r := range slots {
		out[i] = redis.SlotRange{First: r.First, Last: r.Last}
	}
	return out
}

// noteLoss says so when slots that once held data are given out again: nobody
// holds a copy of what was in them.
func (p *pass) noteLoss() {
	if p.mem.latestStatus(p.cluster).Version == "" {
		return
	}
	var lost topology.Slots
	for _, a := range p.facts.Plan.Actions {
		if a.Kind == topology.AddSlots {
			lost = lost.Union(a.Slots)
		}
	}
	if lost.Empty() {
		return
	}
	message := fmt.Sprintf("no node has the data of slots %s any more; they are served again, empty", lost)
	if lost.Count() == topology.SlotCount {
		message = "all nodes came back empty: the cluster is formed anew, without the data that it had"
	}
	p.events = append(p.events, news{corev1.EventTypeWarning, redisv1.EventFormedAnew, "AddSlots", message})
}

// labelRoles shows on each Pod what Redis says that it is.
func (p *pass) labelRoles(ctx context.Context) error {
	var errs []error
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		pod := p.kube.pods[n.Pod]
		role := redisv1.RoleReplica
		if n.Primary {
			role = redisv1.RolePrimary
		}
		// A primary without slots is a node on its way to its real role.
		if pod == nil || n.Knowledge != topology.Answered || n.Primary && n.Slots.Empty() {
			continue
		}
		if pod.Labels[redisv1.LabelRole] == role {
			delete(p.mem.labelled, pod.UID)
			continue
		}
		if p.mem.labelled[pod.UID] == role {
			continue
		}
		intent := corev1ac.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithLabels(map[string]string{redisv1.LabelRole: role})
		if err := p.r.Client.Apply(ctx, intent, roleOwner, client.ForceOwnership); err != nil {
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				errs = append(errs, fmt.Errorf("label Pod %s with its role: %w", pod.Name, err))
			}
			continue
		}
		if intent.ResourceVersion != nil { // the answer is read into the intent
			metrics.Wrote(p.cluster.Name, "pods", pod.Namespace, pod.Name, *intent.ResourceVersion)
		}
		p.mem.labelled[pod.UID] = role
	}
	return errors.Join(errs...)
}
