package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// closeSlots finishes what a migration that was interrupted has left open: the
// owner of an open slot goes on to move it. Where there is nobody to move it to,
// the mark is taken off. Redis does not replicate the marks, so that one side can
// have lost its own with a failover, and keys are on both.
func closeSlots(_ Desired, o *Observed) Plan {
	heirs, contested := o.heirs(), o.contested()
	moving, closing := map[[2]*Node]Slots{}, map[*Node]Slots{}
	waits := ""
	for _, n := range o.answeredNodes() {
		second := !n.Slots.Empty() && !n.Slots.overlaps(contested)
		if !n.Primary || n != o.Lead(n.Shard) && !second {
			continue // what a replica has, or one that was succeeded, is its primary's business
		}
		for id, slots := range n.Importing {
			closing[n] = closing[n].Union(slots.Intersect(n.Slots)) // it owns them by now
			for _, owner := range o.answeredNodes() {
				if owner != n && owner.Primary && owner.Slots.overlaps(slots) {
					pair := [2]*Node{owner, n}
					moving[pair] = moving[pair].Union(slots.Intersect(owner.Slots))
				}
			}
			if left := slots.Minus(o.Owned()); !left.Empty() {
				waits = fmt.Sprintf("slots %s are being moved from %s to %s and have no owner", left, id, n.Pod)
			}
		}
		for id, slots := range n.Migrating {
			closing[n] = closing[n].Union(slots.Minus(n.Slots))
			heir, known := heirs[id]
			slots = slots.Intersect(n.Slots)
			switch {
			case slots.Empty():
			case heir != nil && heir != n:
				moving[[2]*Node{n, heir}] = moving[[2]*Node{n, heir}].Union(slots)
			case known || !o.Complete():
				waits = fmt.Sprintf("slots %s are being moved from %s to a node that does not answer", slots, n.Pod)
			default:
				closing[n] = closing[n].Union(slots)
			}
		}
	}
	var closes []Action
	for n, slots := range closing {
		if !slots.Empty() {
			closes = append(closes, Action{Kind: CloseSlots, Pod: n.Pod, Slots: slots})
		}
	}
	switch {
	case len(closes) > 0:
		return act(sorted(closes), "slots that are not on their way any more are marked as if they were")
	case len(moving) > 0:
		return act(eachOnce(moving), "slots that are on their way get there")
	case waits != "":
		return Plan{Wait: WaitRedis, Why: waits}
	}
	return Plan{}
}

// eachOnce makes the moves from the first node of a pair to the second. A slot that
// two nodes import goes to one of them; the other one's mark is then of a slot that is
// somebody else's, and it is moved on from there.
func eachOnce(moving map[[2]*Node]Slots) []Action {
	var moves []Action
	for pair, slots := range moving {
		moves = append(moves, move(pair[0], pair[1], slots))
	}
	moves = sorted(moves)
	kept := moves[:0]
	var taken Slots
	for _, m := range moves {
		if m.Slots = m.Slots.Minus(taken); !m.Slots.Empty() {
			taken = taken.Union(m.Slots)
			kept = append(kept, m)
		}
	}
	return kept
}

// discard empties a primary that a replica has succeeded while slots were on their
// way to it. Redis deletes its keys of the slots that it owned, when it hears of the
// successor, and leaves those that it did not own yet: with them it cannot become a
// replica. Its successor has them, as it has all else that was replicated.
func discard(_ Desired, o *Observed) Plan {
	var actions []Action
	for _, n := range o.answeredNodes() {
		head := o.Head(n.Shard)
		if !n.Primary || !n.Slots.Empty() || len(n.Importing) == 0 || head == nil || head == n || head.ConfigEpoch <= n.ConfigEpoch {
			continue
		}
		var left Slots
		for _, slots := range n.Importing {
			left = left.Union(slots)
		}
		if left.Minus(o.Owned()).Empty() {
			actions = append(actions, Action{Kind: Discard, Pod: n.Pod, Slots: left})
		}
	}
	return act(actions, "nodes that were succeeded drop what they had got of slots that were on their way")
}

// heirs finds for the id of each node the primary that has what it had: itself,
// or the one of its shard. The value is nil for one that some table lists and
// that does not answer.
func (o *Observed) heirs() map[string]*Node {
	out := map[string]*Node{}
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			out[p.ID] = nil
		}
	}
	for _, n := range o.answeredNodes() {
		switch {
		case n.Primary:
			out[n.ID] = n
		default:
			out[n.ID] = o.byID(n.Follows)
		}
	}
	return out
}

func move(from, to *Node, slots Slots) Action {
	return Action{Kind: MoveSlots, Pod: from.Pod, ID: to.ID, Peer: to.Pod, Slots: slots}
}

func sorted(actions []Action) []Action {
	slices.SortFunc(actions, func(a, b Action) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Peer, b.Peer))
	})
	return actions
}

// rebalance moves slots until every wanted shard has as many as the others, give
// or take one, and no other shard has any. It waits for the nodes that are to get
// some: the members of a new shard are joined and in sync before it gets its
// first slot.
func rebalance(d Desired, o *Observed) Plan {
	actions := moves(d, o)
	if len(actions) == 0 {
		return Plan{}
	}
	if d.Backup != "" {
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("slots are to be moved, which waits for the end of backup %s", d.Backup)}
	}
	if both := o.contested(); !both.Empty() {
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("slots %s are claimed by two nodes, and nothing is moved before that is settled", both)}
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		head := o.Lead(n.Shard)
		switch {
		case !d.wants(n) || n == head && n.ClusterOK && !n.Ending:
		case n == head:
			return Plan{Wait: WaitRedis, Why: n.Pod + " does not find the cluster in order yet, and nothing is moved before"}
		case o.Head(n.Shard) != nil:
			// A shard that serves goes on to, also while one of its replicas is away.
		case !n.answered():
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("shard %d gets its slots once its nodes are in sync; nothing is known yet of %s", n.Shard, n.Pod)}
		case head == nil || n.Follows != head.ID || !n.LinkUp:
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf("shard %d gets its slots once its nodes are in sync, and %s is not yet", n.Shard, n.Pod)}
		}
	}
	return act(firstSlot(o, actions), "slots are moved so that every shard has its share")
}

// firstSlot gives a shard that owns no slot a single one at first. A primary
// without slots is none in the others' eyes: nobody votes for its replica, and
// what it has got of slots that are on their way would go with it.
func firstSlot(o *Observed, actions []Action) []Action {
	begun := map[string]bool{}
	out := actions[:0]
	for _, a := range actions {
		if to := o.byID(a.ID); to.Slots.Empty() {
			if begun[a.ID] {
				continue
			}
			begun[a.ID] = true
			_, a.Slots = a.Slots.cutEnd(1)
		}
		out = append(out, a)
	}
	return out
}

// contested are the slots that more than one answered node claims.
func (o *Observed) contested() Slots {
	var owned, both Slots
	for _, n := range o.answeredNodes() {
		both, owned = both.Union(n.Slots.Intersect(owned)), owned.Union(n.Slots)
	}
	return both
}

// Lead is the primary that a shard has or is to have: its head, or while none of
// its members owns slots the one that would be given some.
func (o *Observed) Lead(shard int) *Node {
	if head := o.Head(shard); head != nil {
		return head
	}
	return firstPrimary(o, shard)
}

// Scaling tells whether the cluster has another shape than it should: nodes that are
// not wanted, a shard that has no slots yet, or slots that are not where they should
// be. It is false while some slot has no owner: that is more than a matter of shape.
func Scaling(d Desired, o *Observed) bool {
	if !AllSlots.Minus(o.Owned()).Empty() {
		return false
	}
	heads := o.heads()
	for shard := range d.Members {
		if heads[shard] == nil {
			return true
		}
	}
	return SlotsToMove(d, o) > 0 || slices.ContainsFunc(o.Nodes, func(n Node) bool { return !d.wants(&n) || n.open() })
}

// Rolling tells whether some Pod is made from another template than it should be.
func Rolling(d Desired, o *Observed) bool {
	return slices.ContainsFunc(o.Nodes, func(n Node) bool { return n.Outdated && d.wants(&n) })
}

// Bare are the shards that have a primary, should have replicas, and have none that
// is in sync.
func Bare(d Desired, o *Observed) []int {
	var out []int
	for shard, members := range d.Members {
		head := o.Head(shard)
		inSync := func(n Node) bool { return n.answered() && head != nil && n.Follows == head.ID && n.LinkUp }
		if members > 1 && head != nil && !slices.ContainsFunc(o.Nodes, inSync) {
			out = append(out, shard)
		}
	}
	return out
}

// Strangers are the ids that some node reaches and that no Pod has, sorted; none
// while some Pod is unknown, which one of them may be.
func Strangers(o *Observed) []string {
	if !o.Complete() {
		return nil
	}
	var out []string
	for id, g := range o.indexed().ghosts() {
		if g.reachable && !o.Ended[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// SlotsToMove is the number of slots that are not where they should be.
func SlotsToMove(d Desired, o *Observed) int {
	sum := 0
	for _, a := range moves(d, o) {
		sum += a.Slots.Count()
	}
	return sum
}

// moves are the fewest that make the shards even: those with more than their
// share give what they have too much, those with less get it. A giver gives from
// its end, in one run where it can. A node that owns slots beside the primary of
// its shard, as one does that had keys of slots without an owner, gives all of
// them. It is empty while a shard that is to get slots, or has some, has no primary
// that answers.
func moves(d Desired, o *Observed) []Action {
	heads := o.heads()
	wanted := make([]*Node, len(d.Members))
	for shard := range d.Members {
		if wanted[shard] = heads[shard]; wanted[shard] == nil {
			wanted[shard] = firstPrimary(o, shard)
		}
		if n := wanted[shard]; n == nil || n.Doomed {
			return nil
		}
	}
	share := shares(wanted)
	var givers []*Node
	give := map[*Node]int{}
	for _, n := range o.answeredNodes() {
		if extra := n.Slots.Count() - share[n]; extra > 0 {
			givers, give[n] = append(givers, n), extra
		}
	}
	var out []Action
	left := map[*Node]Slots{}
	for _, to := range wanted {
		for need := share[to] - to.Slots.Count(); need > 0 && len(givers) > 0; {
			from := givers[0]
			if left[from] == nil {
				left[from] = from.Slots
			}
			rest, part := left[from].cutEnd(min(need, give[from]))
			out = append(out, move(from, to, part))
			left[from], need = rest, need-part.Count()
			if give[from] -= part.Count(); give[from] == 0 {
				givers = givers[1:]
			}
		}
	}
	return out
}

// shares is the number of slots that each of the wanted primaries should have:
// as even as can be, the odd ones where the most slots are already.
func shares(wanted []*Node) map[*Node]int {
	most := slices.Clone(wanted)
	slices.SortStableFunc(most, func(a, b *Node) int { return cmp.Compare(b.Slots.Count(), a.Slots.Count()) })
	share := map[*Node]int{}
	for i, n := range most {
		share[n] = SlotCount / len(wanted)
		if i < SlotCount%len(wanted) {
			share[n]++
		}
	}
	return share
}

// cutEnd cuts the last n slots off.
func (s Slots) cutEnd(n int) (rest, end Slots) {
	rest = slices.Clone(s)
	for n > 0 {
		last := &rest[len(rest)-1]
		take := min(n, last.Last-last.First+1)
		end = append(end, Range{last.Last - take + 1, last.Last})
		n -= take
		if last.Last -= take; last.Last < last.First {
			rest = rest[:len(rest)-1]
		}
	}
	return rest, SlotsOf(end...)
}

// remove takes away the nodes that are not wanted any more: replicas at once, a
// primary after one of those that stay has taken its place, a whole shard when it
// owns no slot and holds no key. What does not answer is taken away only if no
// process runs there and all slots have an owner elsewhere.
func remove(d Desired, o *Observed) Plan {
	var gone []Action
	var wait Plan
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if d.wants(n) || n.Ending {
			continue
		}
		p := release(d, o, n)
		switch {
		case len(p.Actions) > 0 && p.Actions[0].Kind != Remove:
			return p
		case len(p.Actions) > 0:
			gone = append(gone, p.Actions...)
		case wait.Empty():
			wait = p
		}
	}
	if len(gone) > 0 {
		return act(gone, "nodes that are not wanted any more are taken away")
	}
	return wait
}

// release decides about one node that is not wanted.
func release(d Desired, o *Observed, n *Node) Plan {
	head := o.Head(n.Shard)
	stays := func(m *Node) bool { return m.Shard == n.Shard && d.wants(m) }
	place := slices.IndexFunc(o.Nodes, func(m Node) bool { return stays(&m) })
	switch {
	case !n.answered() && !n.Idle && n.Knowledge != Blank:
		return Plan{Wait: WaitPods, Why: n.Pod + " is not wanted any more, and is taken away once it is known what it holds"}
	case AllSlots.Minus(o.Owned()).Count() > 0:
		return Plan{Wait: WaitRedis, Why: n.Pod + " is not wanted any more, and stays as long as some slots have no owner"}
	case n.answered() && n.Primary && n.Slots.Empty() && n.Keys > 0:
		return Plan{Wait: WaitPerson, Why: fmt.Sprintf("%s is not wanted any more, owns no slots and still holds %d keys: "+
			"look at them, and delete them if they are not needed", n.Pod, n.Keys)}
	case !n.Slots.Empty() && place < 0:
		return Plan{Wait: WaitRedis, Why: n.Pod + " is not wanted any more, and is taken away once its slots are"}
	case !n.Slots.Empty():
		return handOver(o, n, stays, n.Pod+" is not wanted any more")
	case place >= 0 && slices.ContainsFunc(o.Nodes, func(m Node) bool { return stays(&m) && !o.inPlace(&m) }):
		return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s is taken away once the nodes of shard %d that stay are in their places", n.Pod, n.Shard)}
	case head != nil && place >= 0 && !d.wants(head):
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("%s is taken away once a node that stays leads shard %d", n.Pod, n.Shard)}
	case place < 0 && head != nil:
		return Plan{Wait: WaitRedis, Why: n.Pod + " is taken away once its shard owns no slots"}
	}
	return Plan{Actions: []Action{{Kind: Remove, Pod: n.Pod, ID: n.ID}}}
}

// knownToFollow tells whether all primaries that vote know a replica as one of its
// primary: until they do, its wish to take over is ignored, and it waits for 5
// seconds before it gives up.
func (o *Observed) knownToFollow(n *Node) bool {
	for _, voter := range o.answeredNodes() {
		if line, _ := voter.knows(n.ID); voter.Primary && !voter.Slots.Empty() && line.Follows != n.Follows {
			return false
		}
	}
	return true
}

// caughtUp is by how many bytes a replica may be behind its primary and still be
// handed over to: the primary's writes pause until it has them.
const caughtUp = 1 << 20

// handOver has one of the replicas of a primary take its place gracefully.
func handOver(o *Observed, head *Node, fit func(*Node) bool, why string) Plan {
	var best *Node
	rests := ""
	for _, n := range o.answeredNodes() {
		asked, ok := o.Asked[n.ID]
		switch {
		case n.Shard != head.Shard || n.Primary || n.Follows != head.ID:
		case ok && !asked.Due:
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf("%s: %s takes its place", why, n.Pod)}
		case !fit(n) || n.Ending || !n.PodReady || !n.LinkUp || !slices.Contains(head.Streams, n.IP) || head.Offset-n.Offset > caughtUp:
		case !o.knownToFollow(n):
			rests = n.Pod
		case o.Elected[n.ID]:
			rests = n.Pod
		case best == nil || n.Offset > best.Offset:
			best = n
		}
	}
	switch {
	case best != nil:
		return act([]Action{{Kind: Handover, Pod: best.Pod, ID: head.ID, Peer: head.Pod}}, why+": a replica takes its place")
	case rests != "":
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("%s; %s can take its place in a moment", why, rests)}
	default:
		return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s, and none of its replicas is in sync to take its place", why)}
	}
}
