package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// probeTimeout bounds the look at one node. All nodes are looked at at once, so
// it bounds the whole look too.
const probeTimeout = 2 * time.Second

// kubeState is what the cache holds of a cluster's children.
type kubeState struct {
	// pods by name. All of them are members of the cluster, see isMember.
	pods map[string]*corev1.Pod
	// statefulSets by shard.
	statefulSets map[int]*appsv1.StatefulSet
	// claims are the members' PersistentVolumeClaims.
	claims map[member]*corev1.PersistentVolumeClaim
	// configMap is the nodes' configuration; nil while there is none.
	configMap *corev1.ConfigMap
}

// member is the place of a node.
type member struct{ shard, ordinal int }

// connection is an open connection to the node in a Pod.
type connection struct {
	node  *redis.Node
	state redis.State
	err   error
}

// observeKubernetes reads the children from the cache and makes one topology
// node for each Pod that exists, should exist, or left a volume behind.
func (p *pass) observeKubernetes(ctx context.Context) error {
	p.kube = kubeState{pods: map[string]*corev1.Pod{}, statefulSets: map[int]*appsv1.StatefulSet{}, claims: map[member]*corev1.PersistentVolumeClaim{}}
	in := []client.ListOption{client.InNamespace(p.cluster.Namespace), client.MatchingLabels(manifests.Selector(p.cluster))}

	var sets appsv1.StatefulSetList
	if err := p.r.Client.List(ctx, &sets, in...); err != nil {
		return fmt.Errorf("list StatefulSets: %w", err)
	}
	ours := map[types.UID]bool{}
	for i := range sets.Items {
		set := &sets.Items[i]
		shard, ok := p.shardOf(set.Name)
		if ours[set.UID] = ok && isControlledBy(set, p.cluster.UID); ours[set.UID] {
			p.kube.statefulSets[shard] = set
		}
	}
	var pods corev1.PodList
	if err := p.r.Client.List(ctx, &pods, in...); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		if p.isMember(&pods.Items[i], ours) {
			p.kube.pods[pods.Items[i].Name] = &pods.Items[i]
		}
	}
	if p.cluster.Spec.Storage != nil {
		var claims corev1.PersistentVolumeClaimList
		if err := p.r.Client.List(ctx, &claims, in...); err != nil {
			return fmt.Errorf("list PersistentVolumeClaims: %w", err)
		}
		for i := range claims.Items {
			if m, ok := p.memberOfClaim(claims.Items[i].Name); ok {
				p.kube.claims[m] = p.mem.latestClaim(&claims.Items[i])
			}
		}
	}
	configMap := &corev1.ConfigMap{}
	err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: manifests.ConfigMapName(p.cluster)}, configMap)
	switch {
	case err == nil && isControlledBy(configMap, p.cluster.UID):
		p.kube.configMap = configMap
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("get ConfigMap: %w", err)
	}
	p.facts.Observed.Volumes = p.cluster.Spec.Storage != nil
	p.facts.Pods = len(p.kube.pods)
	p.facts.Observed.Nodes = p.places()
	p.facts.Problems = append(p.facts.Problems, podProblems(p.kube.pods)...)
	return nil
}

// places makes the topology nodes, without what Redis itself says.
func (p *pass) places() []topology.Node {
	all := map[member]bool{}
	for shard, members := range p.facts.Desired.Members {
		for ordinal := range members {
			all[member{shard, ordinal}] = true
		}
	}
	for m, claim := range p.kube.claims {
		if claim.DeletionTimestamp == nil {
			all[m] = true
		}
	}
	for name := range p.kube.pods {
		if m, ok := p.memberOf(name); ok {
			all[m] = true
		}
	}
	nodes := make([]topology.Node, 0, len(all))
	for m := range all {
		n := topology.Node{Pod: fmt.Sprintf("%s-%d-%d", p.cluster.Name, m.shard, m.ordinal), Shard: m.shard, Ordinal: m.ordinal}
		claim := p.kube.claims[m]
		n.Doomed = claim != nil && claim.DeletionTimestamp != nil
		n.Idle = true
		if pod := p.kube.pods[n.Pod]; pod != nil {
			n.IP, n.PodReady = pod.Status.PodIP, podReady(pod)
			n.Ending, n.Outdated, n.Idle = pod.DeletionTimestamp != nil, p.outdated(pod, m.shard), idle(pod)
			// Without a volume, a Pod none of whose containers ever started
			// holds nothing. With one, it may hold what an earlier Pod wrote.
			if p.cluster.Spec.Storage == nil && !everStarted(pod) {
				n.Knowledge = topology.Blank
			}
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b topology.Node) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return nodes
}

// observeRedis asks every node that has an address, all at once.
func (p *pass) observeRedis(ctx context.Context) error {
	p.nodes = map[string]*connection{}
	if len(p.kube.pods) == 0 {
		return nil
	}
	if p.mem.password == "" {
		return nil // the Secrets could not be made or read; that is reported already
	}
	dialer := redis.Dialer{Username: manifests.OperatorUser, Password: p.mem.password, Timeout: probeTimeout, Meter: p.meter()}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for name, pod := range p.kube.pods {
		if pod.Status.PodIP == "" || !running(pod) {
			continue
		}
		c := &connection{node: dialer.Open(net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(manifests.RedisPort)))}
		p.nodes[name] = c
		wg.Go(func() { c.state, c.err = c.node.Probe(ctx) })
	}
	wg.Wait()
	rejected := false
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		c := p.nodes[n.Pod]
		switch {
		case c == nil:
		case c.err != nil:
			// A running server that does not answer is unknown, not blank.
			n.Knowledge = topology.Unknown
			rejected = rejected || redis.IsAuth(c.err)
			n.Held = errors.Is(c.err, syscall.ECONNREFUSED) && heldBack(p.kube.pods[n.Pod], p.facts.Now.Time)
			log.FromContext(ctx).V(1).Info("node does not answer", "pod", n.Pod, "reason", c.err.Error())
		case c.state.Loading:
			n.Knowledge = topology.Unknown
		default:
			learn(n, &c.state)
			if n.Primary && n.ClusterOK && !n.Slots.Empty() && p.facts.Desired.Seeds == 0 {
				p.facts.ServedVersion = status.HigherVersion(p.facts.ServedVersion, c.state.Version)
			}
		}
	}
	p.mem.recall(p.facts.Observed, p.facts.Now.Time)
	if rejected {
		// The password may have been changed with the Secret: read it again.
		p.mem.password = ""
	}
	return nil
}

// learn copies what a node says of itself and of others into topology's terms.
func learn(n *topology.Node, s *redis.State) {
	n.Knowledge = topology.Answered
	n.ID, n.Primary, n.Follows = s.ID, s.Role == redis.Primary, s.PrimaryID
	n.LinkUp, n.Offset, n.Holder, n.Source = s.Replication.LinkUp, s.Replication.Offset, s.HoldsCopy(), s.Replication.PrimaryHost
	n.ConfigEpoch, n.Keys, n.Slots = s.ConfigEpoch, s.Keys, slotsOf(s.Slots)
	// Without full coverage cluster_state is ok before gossip has told the node
	// who owns the other slots.
	n.ClusterOK, n.Unrouted = s.ClusterOK, s.SlotsAssigned != redis.SlotCount
	n.Migrating, n.Importing = openSlots(s.Migrating), openSlots(s.Importing)
	for _, r := range s.Replication.Replicas {
		if r.State == "online" {
			n.Streams = append(n.Streams, r.Host)
		}
	}
	for _, peer := range s.Peers {
		n.Peers = append(n.Peers, topology.Peer{
			ID: peer.ID, IP: peer.Host, Handshake: peer.Handshake,
			Failed: peer.PFail || peer.Fail || peer.NoAddr, Epoch: peer.ConfigEpoch, Follows: peer.PrimaryID, Slots: slotsOf(peer.Slots),
		})
	}
}

// openSlots turns slot → id into id → slots; nil for none.
func openSlots(open map[int]string) map[string]topology.Slots {
	if len(open) == 0 {
		return nil
	}
	ranges := map[string][]topology.Range{}
	for slot, id := range open {
		ranges[id] = append(ranges[id], topology.Range{First: slot, Last: slot})
	}
	out := map[string]topology.Slots{}
	for id, r := range ranges {
		out[id] = topology.SlotsOf(r...)
	}
	return out
}

// lookForStrayKeys finds out where the keys of slots are that have no owner. It
// costs nothing while all have one, and nothing on nodes without keys.
func (p *pass) lookForStrayKeys(ctx context.Context) error {
	free := topology.AllSlots.Minus(p.facts.Observed.Owned())
	if free.Empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		if n.Knowledge != topology.Answered || !n.Primary || n.Keys == 0 {
			continue
		}
		counts, err := p.nodes[n.Pod].node.CountStrayKeys(ctx, &p.nodes[n.Pod].state, rangesOf(free)...)
		if err != nil {
			return fmt.Errorf("count the keys of Pod %s in slots without an owner: %w", n.Pod, err)
		}
		var held []topology.Range
		for slot := range counts {
			held = append(held, topology.Range{First: slot, Last: slot})
		}
		n.Stray = topology.SlotsOf(held...)
	}
	return nil
}

func slotsOf(ranges []redis.SlotRange) topology.Slots {
	out := make([]topology.Range, len(ranges))
	for i, r := range ranges {
		out[i] = topology.Range{First: r.First, Last: r.Last}
	}
	return topology.SlotsOf(out...)
}

// close ends every connection of the pass.
func (p *pass) close() {
	for _, c := range p.nodes {
		_ = c.node.Close() // nothing is pending on it
	}
}

// shardOf reads the shard from the name of a StatefulSet.
func (p *pass) shardOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, p.cluster.Name+"-")
	shard, err := strconv.Atoi(rest)
	return shard, ok && err == nil && shard >= 0
}

// memberOf reads shard and ordinal from the name of a Pod.
func (p *pass) memberOf(name string) (member, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return member{}, false
	}
	shard, ok := p.shardOf(name[:i])
	ordinal, err := strconv.Atoi(name[i+1:])
	return member{shard, ordinal}, ok && err == nil && ordinal >= 0
}

// memberOfClaim reads shard and ordinal from the name of a claim.
func (p *pass) memberOfClaim(name string) (member, bool) {
	pod, ok := strings.CutPrefix(name, manifests.DataVolume+"-")
	if !ok {
		return member{}, false
	}
	return p.memberOf(pod)
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp.IsZero()
		}
	}
	return false
}

// redisStatus is the status of the Redis container; nil before the kubelet
// reported any.
func redisStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == manifests.RedisContainer {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// idle tells whether no process of a Pod runs, by the kubelet's word.
func idle(pod *corev1.Pod) bool {
	s := redisStatus(pod)
	return pod.Spec.NodeName == "" || s != nil && s.State.Running == nil
}

// heldAfter is how long a server may take to listen before its start guard must be
// the reason. With data the guard lets it go after less.
const heldAfter = 20 * time.Second

// heldBack tells whether a Pod runs and its server has never listened for long.
func heldBack(pod *corev1.Pod, now time.Time) bool {
	s := redisStatus(pod)
	return s != nil && s.State.Running != nil && (s.Started == nil || !*s.Started) && now.Sub(s.State.Running.StartedAt.Time) > heldAfter
}

func running(pod *corev1.Pod) bool {
	s := redisStatus(pod)
	return s != nil && s.State.Running != nil
}

// everStarted tells whether the Redis container may have run: only a report of
// the kubelet that it waits for its first start is proof that it has not.
func everStarted(pod *corev1.Pod) bool {
	if s := redisStatus(pod); s != nil {
		return s.State.Waiting == nil || s.RestartCount > 0 || s.LastTerminationState.Terminated != nil
	}
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodPending
}
