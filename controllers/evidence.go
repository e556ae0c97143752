package controllers

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/topology"
)

// gatherEvidence looks for proof that the primaries that replicas have lost
// have ended. It is asked for only when a replica's link is down and its
// primary is no node that answers, so it costs nothing on other days.
func (p *pass) gatherEvidence(ctx context.Context) error {
	lost := map[string]string{} // id → last known address
	o := p.facts.Observed
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answered := map[string]bool{}
	for i := range o.Nodes {
		answered[o.Nodes[i].ID] = o.Nodes[i].Knowledge == topology.Answered
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n.Knowledge != topology.Answered || n.Primary || n.LinkUp || answered[n.Follows] {
			continue
		}
		for _, peer := range n.Peers {
			if peer.ID == n.Follows && peer.IP != "" {
				lost[peer.ID] = peer.IP
			}
		}
	}
	if len(lost) == 0 {
		return nil
	}
	pods, err := p.livePods(ctx)
	if err != nil {
		return err
	}
	o.Ended = map[string]bool{}
	for id, ip := range lost {
		o.Ended[id] = p.hasEnded(ctx, id, ip, pods[ip])
		log.FromContext(ctx).Info("looked for a lost primary", "id", id, "ip", ip, "ended", o.Ended[id])
	}
	return nil
}

// livePods are the cluster's Pods by address, read past the cache: a decision
// that cannot be taken back must not rest on a stale one.
func (p *pass) livePods(ctx context.Context) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := p.r.APIReader.List(ctx, &list, client.InNamespace(p.cluster.Namespace), client.MatchingLabels(manifests.Selector(p.cluster))); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	byIP := map[string]*corev1.Pod{}
	for i := range list.Items {
		if ip := list.Items[i].Status.PodIP; ip != "" {
			byIP[ip] = &list.Items[i]
		}
	}
	return byIP, nil
}

// hasEnded tells whether the process of an id, last seen at ip, has provably
// ended; pod is the Pod that has the address now, nil for none.
//
// While a Pod has the address, only the kubelet's word that the container has
// ended or a connection refused twice counts: a time-out proves nothing, and a
// Pod that is being deleted is alive until its process ends. When no Pod of the
// cluster has the address, the Pod is gone from the API, which for a
// StatefulSet means that its kubelet has ended it or that a person has vouched
// for it; then anything but that very node answering there will do.
func (p *pass) hasEnded(ctx context.Context, id, ip string, pod *corev1.Pod) bool {
	address := net.JoinHostPort(ip, strconv.Itoa(manifests.RedisPort))
	if pod != nil {
		if s := redisStatus(pod); s != nil && s.State.Terminated != nil {
			return true
		}
		return pod.DeletionTimestamp.IsZero() && redis.Reach(ctx, address) == redis.Refused
	}
	if redis.Reach(ctx, address) != redis.Listening {
		return true
	}
	node := redis.Dialer{Username: manifests.OperatorUser, Password: p.mem.password, Timeout: probeTimeout, Meter: p.meter()}.Open(address)
	defer func() { _ = node.Close() }() // nothing is pending on it
	state, err := node.Probe(ctx)
	return redis.IsAuth(err) || err == nil && state.ID != id
}
