// Package topology decides what a Redis Cluster needs next. It is pure: facts
// in, a plan out, no I/O, no clock, nothing but the standard library. The facts
// about Redis that its rules rest on are in docs/redis-facts.md.
package topology

import (
	"cmp"
	"slices"
)

// Desired is the shape that the user asks for.
type Desired struct {
	// Members is the number of nodes of each shard, by index.
	Members []int
	// Seeds is the number of shards that are being filled from a backup: the first
	// member of each of the first shards is to start as a primary that has its slots
	// and keys. Until all of them have been seen nothing is done. 0: none.
	Seeds int
	// Backup names a backup that is being taken: no slot is moved meanwhile. Empty: none.
	Backup string
	// Yield is the Pod of a primary that is to hand over to one of its replicas. Empty,
	// or no primary's: none.
	Yield string
}

// Knowledge tells how much was learned about a node in this pass.
type Knowledge int

const (
	// Unknown: the node did not answer, or not for sure. Nothing may be
	// concluded about it, least of all that it is gone.
	Unknown Knowledge = iota
	// Blank: the node cannot hold anything, because its Pod has no persistent
	// volume and no container of it has ever started.
	Blank
	// Answered: the node itself answered over a connection that it accepted
	// with this cluster's own credentials.
	Answered
)

// Observed is everything that one pass learned.
type Observed struct {
	// Nodes has one entry for each Pod that exists or should exist, sorted by
	// shard and ordinal.
	Nodes []Node
	// Volumes: the nodes have persistent volumes.
	Volumes bool
	// Ended holds the ids whose process has provably ended. Absence proves nothing.
	Ended map[string]bool
	// Asked holds the promotions that were asked for a short while ago, by the id
	// of the replica. To forget them does no harm: they are asked for again.
	Asked map[string]Asked
	// Elected holds the ids that won an election a short while ago, or may have.
	// Redis 7 and 8 pause the writes of a shard for 5 seconds when such a node is
	// to be handed over to again (failover_auth_time, see docs/redis-facts.md).
	Elected map[string]bool

	// byIDs finds the answered nodes; Next makes it, nil means a plain search.
	byIDs map[string]*Node
}

// Asked is a promotion that the operator has asked for.
type Asked struct {
	// Kind is Handover or Force.
	Kind Kind
	// Due: it has had the time that it can take.
	Due bool
}

// Node is one Pod and the Redis server in it. The fields below Knowledge are
// facts only when it is Answered.
type Node struct {
	// Pod is the name of the Pod.
	Pod string
	// Shard and Ordinal are the Pod's place: <cluster>-<shard>-<ordinal>.
	Shard, Ordinal int
	// IP is the Pod's current address; empty when it has none.
	IP string
	// PodReady tells whether Kubernetes calls the Pod ready.
	PodReady bool
	// Outdated: the Pod was made from another template than the spec asks for now.
	Outdated bool
	// Ending: the Pod is being deleted; its process lives on until it ends.
	Ending bool
	// Doomed: the node's volume is being deleted. Nothing new is put there, and
	// the node is not wanted even if its place is, until another one has it.
	Doomed bool
	// Idle: no process runs in the Pod, or there is no Pod.
	Idle bool
	// Held: the Pod runs and its server has not listened for long: the start guard
	// keeps it from serving without its data.
	Held bool

	Knowledge Knowledge

	// ID is the node's own id in the cluster.
	ID string
	// Primary is the node's role by its own word; otherwise it is a replica.
	Primary bool
	// Follows is the id of the primary that a replica follows; empty for none.
	Follows string
	// Source is the address that a replica copies from, which can be stale while
	// every table is right; empty for a primary and when it is not known.
	Source string
	// LinkUp tells whether a replica's link to its primary is up and synced.
	LinkUp bool
	// Holder tells whether a replica whose link is down still holds a copy that
	// can be promoted: it has synced since its start and no sync is under way.
	Holder bool
	// Offset is the replication offset, to compare the copies of one primary.
	Offset int64
	// ConfigEpoch is the epoch of the node's claim to its slots; 0: never set.
	ConfigEpoch uint64
	// ClusterOK is the node's own cluster_state. It stays false for the first
	// two seconds of a primary's life (CLUSTER_WRITABLE_DELAY).
	ClusterOK bool
	// Unrouted: some slot has no owner in the node's eyes, so that it cannot
	// redirect clients there. Gossip takes a moment to tell it.
	Unrouted bool
	// Keys is the number of keys that the node holds.
	Keys int64
	// Slots are the slots that the node claims for itself; empty for a replica.
	Slots Slots
	// Stray are slots that a primary does not own and has keys of. They are looked
	// for only while some slot has no owner.
	Stray Slots
	// Migrating and Importing are the node's open slots, by the id of the node that
	// they are on their way to or from.
	Migrating, Importing map[string]Slots
	// Streams are the addresses of the replicas that the node streams to, in step.
	Streams []string
	// Peers is the node's table of other nodes, without itself.
	Peers []Peer
}

// Peer is one line of a node's table: what it believes of another node.
type Peer struct {
	ID, IP string
	// Handshake: the line is of a MEET under way and its id is not real yet.
	Handshake bool
	// Failed: the node cannot reach the peer ("fail?"), a majority of the
	// primaries agreed that nobody can ("fail"), or it has no address
	// ("noaddr"). "fail?" counts because one or two shards have no majority that
	// could ever agree on the loss of one.
	Failed bool
	// Follows is the id of the primary that the peer follows, in the eyes of this
	// node; empty for a primary.
	Follows string
	// Slots that the peer owns, in the eyes of this node.
	Slots Slots
	// Epoch is the configuration epoch of the peer's claim to its slots, in the
	// eyes of this node; for a replica it is its primary's.
	Epoch uint64
}

// Name is how a node is named to people: its Pod.
func (n *Node) Name() string { return n.Pod }

func (n *Node) answered() bool { return n.Knowledge == Answered }

// knows finds the line of an id in the node's table, handshakes left out.
func (n *Node) knows(id string) (Peer, bool) {
	for _, p := range n.Peers {
		if p.ID == id && id != "" && !p.Handshake {
			return p, true
		}
	}
	return Peer{}, false
}

// answeredNodes are the nodes about which everything is known.
func (o *Observed) answeredNodes() []*Node {
	var out []*Node
	for i := range o.Nodes {
		if o.Nodes[i].answered() {
			out = append(out, &o.Nodes[i])
		}
	}
	return out
}

// byID finds an answered node by its id, or nil.
func (o *Observed) byID(id string) *Node {
	if o.byIDs != nil {
		return o.byIDs[id]
	}
	for i := range o.Nodes {
		if o.Nodes[i].answered() && o.Nodes[i].ID == id {
			return &o.Nodes[i]
		}
	}
	return nil
}

// unknownNodes names the Pods about which nothing is known.
func (o *Observed) unknownNodes() []string {
	var out []string
	for i := range o.Nodes {
		if o.Nodes[i].Knowledge == Unknown {
			out = append(out, o.Nodes[i].Pod)
		}
	}
	return out
}

// Complete tells whether every node is known, so that what no node speaks of
// does not exist.
func (o *Observed) Complete() bool { return len(o.unknownNodes()) == 0 }

// Owned is the set of slots that some answered primary claims.
func (o *Observed) Owned() Slots {
	var s Slots
	for _, n := range o.answeredNodes() {
		s = s.Union(n.Slots)
	}
	return s
}

// Head is the primary of a shard: the answered member with the most slots, or
// nil when no member owns any. Of members that claim the same slots only the one
// with the higher epoch counts: the other one has yet to hear that it was
// replaced.
func (o *Observed) Head(shard int) *Node {
	var claimants []*Node
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.Shard == shard && n.answered() && !n.Slots.Empty() {
			claimants = append(claimants, n)
		}
	}
	return headOf(claimants)
}

// heads are the heads of all shards that have one.
func (o *Observed) heads() map[int]*Node {
	claimants := map[int][]*Node{}
	for _, n := range o.answeredNodes() {
		if !n.Slots.Empty() {
			claimants[n.Shard] = append(claimants[n.Shard], n)
		}
	}
	heads := map[int]*Node{}
	for shard, nodes := range claimants {
		heads[shard] = headOf(nodes)
	}
	return heads
}

func headOf(claimants []*Node) *Node {
	slices.SortStableFunc(claimants, func(a, b *Node) int { return cmp.Compare(b.ConfigEpoch, a.ConfigEpoch) })
	var head *Node
	var taken Slots
	most := 0
	for _, n := range claimants {
		if own := n.Slots.Minus(taken).Count(); own > most {
			head, most = n, own
		}
		taken = taken.Union(n.Slots)
	}
	return head
}

// HoldsRole tells whether a node does what it is there for: as its shard's
// primary it owns slots and finds the cluster in order, as a replica its link
// to that primary is up.
func (o *Observed) HoldsRole(n *Node) bool {
	head := o.Head(n.Shard)
	switch {
	case !n.answered() || head == nil || !n.ClusterOK:
		return false
	case n.ID == head.ID:
		return n.Primary
	default:
		return !n.Primary && n.Follows == head.ID && n.LinkUp
	}
}

// Converged tells whether every wanted node is there and no other, each made from
// the present template, ready and in its role, and all slots are owned, evenly.
func Converged(d Desired, o *Observed) bool {
	if len(o.Nodes) != d.nodes() || o.Owned().Count() != SlotCount || len(moves(d, o)) > 0 {
		return false
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !d.wants(n) || n.Outdated || n.open() || !o.inPlace(n) {
			return false
		}
	}
	return true
}

// inPlace tells whether a node is ready and does what it is there for.
func (o *Observed) inPlace(n *Node) bool {
	return n.PodReady && !n.Ending && !n.Unrouted && o.HoldsRole(n)
}

// nodes is the number of nodes that are wanted.
func (d Desired) nodes() int {
	sum := 0
	for _, m := range d.Members {
		sum += m
	}
	return sum
}

// wants tells whether a node is one of those that the user asks for.
func (d Desired) wants(n *Node) bool {
	return n.Shard < len(d.Members) && n.Ordinal < d.Members[n.Shard] && !n.Doomed
}

// open tells whether the node has slots that are on their way.
func (n *Node) open() bool { return len(n.Migrating)+len(n.Importing) > 0 }
