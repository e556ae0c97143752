package topology

import (
	"maps"
	"slices"
)

// Kind is what an action does to one node. Every kind is safe to repeat.
type Kind string

// The kinds of actions.
const (
	// SetEpoch gives a fresh node its configuration epoch, before it meets
	// anybody: distinct epochs spare a new cluster its collisions.
	SetEpoch Kind = "SetEpoch"
	// Meet makes a node shake hands with the node at an address. Meeting a node
	// that is known under a stale address corrects the address.
	Meet Kind = "Meet"
	// BumpEpoch gives a primary a new configuration epoch, above all that it has
	// heard of (CLUSTER BUMPEPOCH; it answers STILL when it has the highest one).
	BumpEpoch Kind = "BumpEpoch"
	// DelSlots makes a node disregard the owner that it believes slots to have
	// (CLUSTER DELSLOTSRANGE). It changes that node's table alone.
	DelSlots Kind = "DelSlots"
	// AddSlots gives unowned slots to a node.
	AddSlots Kind = "AddSlots"
	// Replicate makes an empty node, or a replica, follow a primary.
	Replicate Kind = "Replicate"
	// Handover promotes a replica gracefully: its primary, which lives, pauses its
	// writes until the replica has all of them.
	Handover Kind = "Handover"
	// Force promotes a replica by an election that it asks for without waiting for
	// the others to mark its primary as failed.
	Force Kind = "Force"
	// Takeover promotes a replica without asking the other primaries.
	Takeover Kind = "Takeover"
	// Forget removes an id from a node's table.
	Forget Kind = "Forget"
	// MoveSlots moves slots with their keys from a primary to another one, or goes
	// on with that.
	MoveSlots Kind = "MoveSlots"
	// CloseSlots takes the marks of a migration off slots that are not moved.
	CloseSlots Kind = "CloseSlots"
	// Discard deletes the keys that a node which was succeeded has left of slots that
	// were on their way to it.
	Discard Kind = "Discard"
	// Remove takes a Pod that is not wanted any more away, with its volume.
	Remove Kind = "Remove"
	// Replace has a Pod made anew from its present template, with its volume.
	Replace Kind = "Replace"
	// Consent lets a Pod that waits for its data start without: it is made anew.
	Consent Kind = "Consent"
)

// Action is one command to one node.
type Action struct {
	Kind Kind
	// Pod is the node that gets the command, or that is replaced or removed. For
	// MoveSlots it is the one that has the slots.
	Pod string
	// ID is the other node: the primary to follow or to replace, the id to forget,
	// the one that gets the slots.
	ID string
	// Peer is the Pod that ID or IP belongs to; empty when it has none.
	Peer string
	// IP is the address to meet.
	IP string
	// Slots are those to add, to disregard, to move or to close.
	Slots Slots
	// Epoch is the one to set.
	Epoch uint64
	// Alone: the Pod to replace is all that its shard has, so that the shard does
	// not serve until the Pod is back. It is announced before.
	Alone bool
}

// Wait says what a plan without actions waits for.
type Wait int

const (
	// WaitNothing: the cluster is as it should be, or there are actions.
	WaitNothing Wait = iota
	// WaitRedis: the nodes are busy with each other; look again soon.
	WaitRedis
	// WaitPods: Pods have to start or to answer first.
	WaitPods
	// WaitPerson: going on could lose data; a person has to look.
	WaitPerson
)

// Plan is the answer of one pass: actions of one kind, or what is waited for.
type Plan struct {
	Actions []Action
	// Wait is WaitNothing when there are actions.
	Wait Wait
	// Why is one sentence for people. It holds no volatile value.
	Why string
}

// Empty tells whether the plan neither acts nor waits.
func (p Plan) Empty() bool { return len(p.Actions) == 0 && p.Wait == WaitNothing }

// mends are tried first, in this order. What brings data back comes before all
// and never waits for readiness; then the nodes must find each other, because
// everything later is decided by what they say of each other; slots come before
// replicas, because a replica needs a primary that owns some; forgetting comes
// last, because it is housekeeping.
var mends = []func(Desired, *Observed) Plan{
	recoverShards,
	consent,
	healAddresses,
	setEpochs,
	meet,
	assignSlots,
	discard,
	attachReplicas,
	spread,
	forget,
}

// changes are tried in a cluster that the mends have left nothing to do in. What
// was begun is finished first; slots are moved before anything is taken away.
var changes = []func(Desired, *Observed) Plan{
	closeSlots,
	rebalance,
	remove,
	roll,
	yield,
}

// awaits say what is missing when nothing is left to do.
var awaits = []func(Desired, *Observed) Plan{
	awaitForget,
	awaitPods,
}

// Next is the next step from what is observed towards what is desired: what the
// first rule does that has something to do, else what the first rule waits for
// that waits. A mend that waits does not hold up the later ones, because trouble
// in one shard must not stop the healing of another: an election that is waited
// for can need the addresses that a later rule corrects. So each of these rules
// is safe by itself, whatever the earlier ones wait for. Changes do wait for the
// mends, and for each other. An empty plan means that nothing is left to do.
func Next(d Desired, o *Observed) Plan {
	seen, wait := believed(o)
	if d.Seeds > 0 {
		return awaitSeeds(d, seen)
	}
	for _, rule := range mends {
		p := rule(d, seen)
		if len(p.Actions) > 0 {
			return p
		}
		if wait.Empty() {
			wait = p
		}
	}
	for _, rule := range slices.Concat(changes, awaits) {
		if !wait.Empty() {
			break
		}
		wait = rule(d, seen)
	}
	return wait
}

// believed is what the rules are shown: a node is believed to be who it says
// only if no other says the same. Two do when the address of a Pod that is known
// here is stale and another one answers there, or when a volume was copied.
func believed(o *Observed) (*Observed, Plan) {
	seen := *o
	seen.Nodes, seen.byIDs = slices.Clone(o.Nodes), map[string]*Node{}
	var doubles []string
	for i := range seen.Nodes {
		n := &seen.Nodes[i]
		if !n.answered() {
			continue
		}
		other, double := seen.byIDs[n.ID]
		switch {
		case n.ID == "":
			n.Knowledge = Unknown
		case !double:
			seen.byIDs[n.ID] = n
		default:
			n.Knowledge = Unknown
			doubles = append(doubles, n.Pod)
			if other.answered() {
				other.Knowledge = Unknown
				doubles = append(doubles, other.Pod)
			}
		}
	}
	maps.DeleteFunc(seen.byIDs, func(_ string, n *Node) bool { return !n.answered() })
	if len(doubles) == 0 {
		return &seen, Plan{}
	}
	slices.Sort(doubles)
	return &seen, Plan{Wait: WaitPods, Why: "more than one Pod answers with the same node id, so that none of them " +
		"is believed: " + join(doubles) + "; if that lasts, a volume was copied"}
}
