package topology

import "fmt"

// hubs is the number of nodes that meet every other node directly. Up to that
// size all nodes meet at once, without waiting for gossip; beyond it gossip
// spreads the word, and the number of handshakes stays linear.
const hubs = 8

// healMost is the size up to which every node is told every new address. In a
// larger cluster only the hubs and the members of one shard are told each
// other's: gossip corrects the address of a node that cannot be reached. It does
// not give one to a node that has none ("noaddr", which it gets when another
// node answers at its old one), because nobody tries to reach that
// (clusterProcessGossipSection, clusterCron): up to noAddrMost of those are told
// in a pass.
const (
	healMost   = 32
	noAddrMost = 1024
)

// healAddresses corrects stale addresses: a node that knows a member under an
// address that it no longer has is made to meet it at the present one. Redis
// then updates the entry in place, with its id and slots, and a replica follows
// its primary there. No id is forgotten for it.
func healAddresses(_ Desired, o *Observed) Plan {
	var g, noAddr greetings
	nodes := o.answeredNodes()
	hub := map[*Node]bool{}
	for _, n := range nodes[:min(hubs, len(nodes))] {
		hub[n] = true
	}
	for _, n := range nodes {
		for _, peer := range n.Peers {
			m := o.byID(peer.ID)
			if m == nil || m == n || peer.Handshake || peer.IP == m.IP {
				continue
			}
			switch {
			case len(nodes) <= healMost || hub[n] || hub[m] || n.Shard == m.Shard:
				g.add(n, m)
			case peer.IP == "" && len(noAddr.actions) < noAddrMost:
				noAddr.add(n, m)
			}
		}
	}
	g.actions, g.underWay = append(g.actions, noAddr.actions...), g.underWay || noAddr.underWay
	return g.plan("nodes know each other under addresses that have changed")
}

// epochStep is the distance of the epochs that new nodes get. The epochs between
// are for elections and takeovers, which count up by one.
const epochStep = 1024

// setEpochs gives every new node an epoch of its own, above all that are seen.
// Redis allows it only while the node knows nobody. Without it new nodes collide
// with the epoch 0, and raise theirs as they hear of each other: one that becomes
// a replica meanwhile can keep the very epoch that its primary has. A takeover
// raises an epoch only if it is not the highest known
// (clusterBumpConfigEpochWithoutConsensus), so that such a replica would claim
// its primary's slots with the same epoch, and could lose them to it again, with
// all that was written since.
//
// Two nodes never get the same epoch, even if neither is seen when the other
// gets its own: of the steps each place has every len(Nodes)-th.
func setEpochs(_ Desired, o *Observed) Plan {
	var highest uint64
	for _, n := range o.answeredNodes() {
		highest = max(highest, n.ConfigEpoch)
		for _, p := range n.Peers {
			highest = max(highest, p.Epoch)
		}
	}
	places := uint64(len(o.Nodes))
	var actions []Action
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.answered() || !n.Primary || n.ConfigEpoch != 0 || len(n.Peers) > 0 {
			continue
		}
		seen := highest / epochStep
		step := seen/places*places + uint64(i) + 1
		if step <= seen {
			step += places
		}
		actions = append(actions, Action{Kind: SetEpoch, Pod: n.Pod, Epoch: step * epochStep})
	}
	return act(actions, "new nodes get their epochs")
}

// meet joins nodes that do not know each other, unless one would lose its data.
func meet(_ Desired, o *Observed) Plan {
	if p := rivals(o); !p.Empty() {
		return p
	}
	var g greetings
	nodes := o.answeredNodes()
	for i, a := range nodes[:min(hubs, len(nodes))] {
		for _, b := range nodes[i+1:] {
			_, ab := a.knows(b.ID)
			_, ba := b.knows(a.ID)
			switch {
			case !ab:
				// Of two nodes that are strangers to each other the first one asks.
				g.add(a, b)
			case !ba:
				g.add(b, a)
			}
		}
	}
	return g.plan("nodes have to meet")
}

// rivals finds two nodes that are strangers to each other and claim the same
// slot. They must not meet, not even through others: the one with the lower
// epoch would delete its keys.
func rivals(o *Observed) Plan {
	var owned Slots
	nodes := o.answeredNodes()
	for i, a := range nodes {
		if !a.Slots.overlaps(owned) {
			owned = owned.Union(a.Slots)
			continue
		}
		for _, b := range nodes[:i] {
			both := a.Slots.Intersect(b.Slots)
			_, ab := a.knows(b.ID)
			_, ba := b.knows(a.ID)
			if both.Empty() || ab && ba {
				continue
			}
			return Plan{Wait: WaitPerson, Why: fmt.Sprintf(
				"%s and %s do not know each other and both own slots %s: joining them would delete the keys of one; "+
					"decide which one holds the right data and delete the Pod and the volume of the other", b.Pod, a.Pod, both)}
		}
		owned = owned.Union(a.Slots)
	}
	return Plan{}
}

// greetings collects the handshakes to order.
type greetings struct {
	actions []Action
	// underWay: some of them have been ordered already.
	underWay bool
}

// add makes a node meet another one, unless it is at it already.
func (g *greetings) add(n, other *Node) {
	switch {
	case other.IP == "":
	case n.shakes(other.IP):
		g.underWay = true
	default:
		g.actions = append(g.actions, Action{Kind: Meet, Pod: n.Pod, ID: other.ID, Peer: other.Pod, IP: other.IP})
	}
}

func (g *greetings) plan(why string) Plan {
	if len(g.actions) == 0 && g.underWay {
		return Plan{Wait: WaitRedis, Why: why + ", and are shaking hands"}
	}
	return act(g.actions, why)
}

// forget removes ids that are left over from nodes of the past: they own
// nothing, nobody follows them, nobody can reach them or their process has
// ended, and every node of the cluster is known, so that none of them is one
// that just does not answer.
func forget(_ Desired, o *Observed) Plan {
	actions, _ := leftOver(o)
	return act(actions, "nodes of the past are forgotten")
}

// awaitForget says that some node of the past cannot be forgotten yet.
func awaitForget(_ Desired, o *Observed) Plan {
	if _, waiting := leftOver(o); waiting {
		return Plan{Wait: WaitRedis, Why: "a node of the past is not marked as failed by all others yet"}
	}
	return Plan{}
}

// leftOver finds what to forget, and whether there is more that cannot be yet.
func leftOver(o *Observed) (actions []Action, waiting bool) {
	if !o.Complete() {
		return nil, false
	}
	keep := map[string]bool{}
	nodes := o.answeredNodes()
	for _, n := range nodes {
		keep[n.ID], keep[n.Follows] = true, true
	}
	for id, g := range o.ghosts() {
		if !g.slots.Empty() || g.reachable && !o.Ended[id] {
			keep[id] = true
		}
	}
	for _, n := range nodes {
		for _, p := range n.Peers {
			switch {
			case p.Handshake || p.ID == "":
			case !keep[p.ID]:
				actions = append(actions, Action{Kind: Forget, Pod: n.Pod, ID: p.ID})
			case o.byID(p.ID) == nil && p.Slots.Empty():
				waiting = true
			}
		}
	}
	return actions, waiting
}

// act makes a plan of actions; without any it is empty.
func act(actions []Action, why string) Plan {
	if len(actions) == 0 {
		return Plan{}
	}
	return Plan{Actions: actions, Why: why}
}
