package topology

import "fmt"

// hubs is the number of nodes that meet every other node directly. Up to that
// size all nodes meet at once, without waiting for gossip; beyond it gossip
// spreads the word, and the number of handshakes stays linear.
const hubs = 8

// healAddresses corrects stale addresses: a node that knows a member under an
// address that it no longer has is made to meet it at the present one. Redis
// then updates the entry in place, with its id and slots, and a replica follows
// its primary there. No id is forgotten for it.
func healAddresses(_ Desired, o *Observed) Plan {
	var actions []Action
	for _, n := range o.answeredNodes() {
		for _, peer := range n.Peers {
			m := o.byID(peer.ID)
			if m == nil || m == n || peer.Handshake || peer.IP == m.IP || m.IP == "" {
				continue
			}
			actions = append(actions, Action{Kind: Meet, Pod: n.Pod, ID: m.ID, Peer: m.Pod, IP: m.IP})
		}
	}
	return act(actions, "nodes know each other under addresses that have changed")
}

// setEpochs gives the first node of each shard of a cluster that owns nothing
// yet an epoch of its own. Redis allows it only while the node knows nobody.
func setEpochs(_ Desired, o *Observed) Plan {
	if !o.Owned().Empty() {
		return Plan{}
	}
	var actions []Action
	for _, n := range o.answeredNodes() {
		if n.Ordinal == 0 && n.Primary && n.ConfigEpoch == 0 && len(n.Peers) == 0 {
			actions = append(actions, Action{Kind: SetEpoch, Pod: n.Pod, Epoch: uint64(n.Shard) + 1})
		}
	}
	return act(actions, "new nodes get their epochs")
}

// meet joins nodes that do not know each other. Two nodes that claim the same
// slot must not meet: the one with the lower epoch would delete its keys.
func meet(_ Desired, o *Observed) Plan {
	var actions []Action
	nodes := o.answeredNodes()
	for i, a := range nodes {
		for j, b := range nodes {
			_, known := a.knows(b.ID)
			_, mutual := b.knows(a.ID)
			// Of two nodes that are strangers to each other the first one asks.
			if i == j || known || min(i, j) >= hubs || (!mutual && i > j) {
				continue
			}
			if both := a.Slots.Intersect(b.Slots); !both.Empty() {
				return Plan{Wait: WaitPerson, Why: fmt.Sprintf(
					"%s and %s do not know each other and both own slots %s: joining them would delete the keys of one; "+
						"decide which one holds the right data and delete the Pod and the volume of the other", a.Pod, b.Pod, both)}
			}
			actions = append(actions, Action{Kind: Meet, Pod: a.Pod, ID: b.ID, Peer: b.Pod, IP: b.IP})
		}
	}
	return act(actions, "nodes have to meet")
}

// forget removes ids that are left over from nodes of the past: they own
// nothing, nobody follows them, they are marked failed, and every node of the
// cluster is known, so that none of them is one that just does not answer.
func forget(_ Desired, o *Observed) Plan {
	if !o.Complete() {
		return Plan{}
	}
	keep := map[string]bool{}
	nodes := o.answeredNodes()
	for _, n := range nodes {
		keep[n.ID], keep[n.Follows] = true, true
		for _, p := range n.Peers {
			if !p.Slots.Empty() || !p.Failed {
				keep[p.ID] = true
			}
		}
	}
	var actions []Action
	waiting := false
	for _, n := range nodes {
		for _, p := range n.Peers {
			switch {
			case p.Handshake:
			case !keep[p.ID]:
				actions = append(actions, Action{Kind: Forget, Pod: n.Pod, ID: p.ID})
			case o.byID(p.ID) == nil && p.Slots.Empty():
				waiting = true
			}
		}
	}
	if len(actions) == 0 && waiting {
		return Plan{Wait: WaitRedis, Why: "a node of the past is not marked as failed by all others yet"}
	}
	return act(actions, "nodes of the past are forgotten")
}

// act makes a plan of actions; without any it is empty.
func act(actions []Action, why string) Plan {
	if len(actions) == 0 {
		return Plan{}
	}
	return Plan{Actions: actions, Why: why}
}
