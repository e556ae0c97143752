package topology

import (
	"errors"
	"fmt"
	"slices"
)

// The rest of the model of a server: gossip about failures, elections,
// replication, and the commands that the planner's actions stand for.

// gossip is clusterProcessGossipSection.
func (s *server) gossip(sender *line, p packet) {
	for _, g := range p.gossip {
		l := s.line(g.id)
		switch {
		case g.id == s.id:
		case l == nil:
			if g.ip != "" && s.banned[g.id] <= s.w.now {
				s.add(&line{id: g.id, ip: g.ip, primary: g.primary, pfail: g.pfail, fail: g.fail})
			}
		default:
			if sender.primary && (g.fail || g.pfail) {
				l.reports[sender.id] = s.w.now
				s.markFailing(l)
			} else if sender.primary {
				delete(l.reports, sender.id)
			}
			if (l.fail || l.pfail) && !g.fail && !g.pfail && g.ip != "" && l.ip != g.ip {
				l.ip = g.ip // without nodeUpdateAddressIfNeeded's word to replication
			}
		}
	}
	for _, id := range p.forgotten { // CLUSTERMSG_EXT_TYPE_FORGOTTEN_NODE, since 7.2
		if l := s.line(id); l != nil && (s.primary || s.follows != id) {
			s.banned[id] = s.w.now + banTime
			s.drop(l)
		}
	}
}

// markFailing is markNodeAsFailingIfNeeded.
func (s *server) markFailing(l *line) {
	size, _ := s.size()
	failures := 0
	for _, at := range l.reports {
		if s.w.now-at <= 2*nodeTimeout {
			failures++
		}
	}
	if s.primary {
		failures++
	}
	if !l.pfail || l.fail || failures < size/2+1 {
		return
	}
	l.pfail, l.fail, l.failedAt = false, true, s.w.now
	for _, other := range s.table { // clusterSendFail; a hung process finds it later
		if q := s.w.live(other.id); q != nil && q.ip == other.ip && !q.guarded && q.line(s.id) != nil {
			if failing := q.line(l.id); failing != nil && !failing.fail {
				failing.pfail, failing.fail, failing.failedAt = false, true, s.w.now
			}
		}
	}
}

// holder tells what Node.Holder does: a copy that can be promoted.
func (s *server) holder() bool {
	return !s.primary && !s.linkUp && s.synced && s.syncing == 0 && s.loading <= s.w.now
}

// tryElection is clusterHandleSlaveFailover.
func (s *server) tryElection() {
	lost := s.line(s.follows)
	if s.primary || lost == nil || !lost.fail || lost.slots.Empty() || !s.holder() ||
		s.w.now-s.lostAt > nodeTimeout*(validity+1) || s.w.now < s.electEnd {
		s.elect = 0
		return
	}
	if s.elect == 0 {
		rank := 0 // clusterGetSlaveRank
		for _, other := range s.w.servers {
			if other.follows == s.follows && other.offset > s.offset {
				rank++
			}
		}
		s.elect = s.w.now + 1 + s.w.rng.IntN(2) + 2*rank
		return
	}
	if s.w.now < s.elect {
		return
	}
	s.ask(lost, false)
}

// ask asks for votes, and counts them at once. Redis asks again for nobody before
// twice the time that an election may take.
func (s *server) ask(lost *line, force bool) {
	s.elect, s.electEnd = 0, s.w.now+4*nodeTimeout
	s.current++
	size, _ := s.size()
	votes := 0
	for _, l := range s.w.shuffledLines(s.table) {
		if voter := s.w.listening(l.ip); voter != nil && voter.id == l.id && voter.votes(s, lost, force) {
			votes++
		}
	}
	if votes >= size/2+1 {
		s.config = s.current
		s.promote(lost)
	}
}

// votes is clusterSendFailoverAuthIfNeeded.
func (s *server) votes(candidate *server, lost *line, force bool) bool {
	l, primary := s.line(candidate.id), s.line(lost.id)
	if lost.id == s.id {
		primary = &line{id: s.id, slots: s.slots, epoch: s.config, votedAt: s.votedAt} // a graceful hand-over asks it too
		defer func() { s.votedAt = primary.votedAt }()
	}
	if l == nil || primary == nil || l.primary || l.follows != lost.id || !s.primary || s.slots.Empty() {
		return false
	}
	s.current = max(s.current, candidate.current)
	if candidate.current < s.current || s.lastVote == s.current || !primary.fail && !force || primary.votedAt > 0 && s.w.now-primary.votedAt < 2*nodeTimeout {
		return false
	}
	if lost.id != s.id && !s.slots.Intersect(lost.slots).Empty() && s.config > lost.epoch {
		return false
	}
	for _, owner := range s.table {
		if owner.epoch > lost.epoch && !owner.slots.Minus(owner.unclaimed).Intersect(lost.slots).Empty() {
			return false
		}
	}
	s.lastVote, primary.votedAt = s.current, s.w.now
	return true
}

// promote is clusterFailoverReplaceYourMaster.
func (s *server) promote(lost *line) {
	s.primary, s.follows, s.source, s.linkUp, s.syncing, s.promoted = true, "", "", false, 0, s.w.now
	s.slots = s.slots.Union(lost.slots)
	lost.slots, lost.unclaimed = nil, nil
	s.broadcast()
}

// broadcast is clusterBroadcastPong.
func (s *server) broadcast() {
	for _, l := range s.table {
		if q := s.w.listening(l.ip); q != nil && q.id == l.id {
			if sender := q.line(s.id); sender != nil {
				q.learn(sender, s.packet())
			}
		}
	}
}

// replicate moves a replica's copy on by a tick.
func (s *server) replicate() {
	if s.primary {
		return
	}
	if l := s.line(s.follows); s.source == "" && l != nil && l.ip != "" {
		s.source = l.ip // clusterCron: "the replication is still turned off"
	}
	from := s.w.listening(s.source)
	switch {
	case from == nil && s.linkUp && s.w.hanging(s.source):
		// The connection to a hung process stands until repl-timeout.
	case from == nil || from == s || from.loading > s.w.now || !from.primary && !from.linkUp:
		if s.linkUp {
			s.linkUp, s.lostAt = false, s.w.now
		}
		s.syncing = 0
	case s.linkUp:
		if from.offset != s.offset { // another history than the one followed so far
			s.linkUp, s.lostAt = false, s.w.now
		}
	case s.syncing > 1:
		s.syncing--
	case s.syncing == 1:
		s.data, s.offset = cloneData(from.data), from.offset
		s.linkUp, s.synced, s.syncing = true, true, 0
	default:
		s.syncing = 1 + s.w.rng.IntN(3)
	}
}

var errRefused = errors.New("refused by the server")

// do carries out the command of an action, or refuses it as Redis does.
func (s *server) do(a Action) error {
	refuse := func(why string) error { return fmt.Errorf("%w: %s on %s: %s", errRefused, a.Kind, a.Pod, why) }
	switch a.Kind {
	case SetEpoch:
		if len(s.table) > 0 || s.config != 0 {
			return refuse("the node is not fresh")
		}
		s.config, s.current = a.Epoch, max(s.current, a.Epoch)
	case Meet:
		if !slices.ContainsFunc(s.table, func(l *line) bool { return l.handshake && l.ip == a.IP }) {
			s.add(&line{id: s.w.newID("handshake"), ip: a.IP, handshake: true, meet: true})
		}
	case BumpEpoch:
		s.bump()
	case DelSlots:
		return s.delSlots(a.Slots, refuse)
	case AddSlots:
		owned := s.slots
		for _, l := range s.table {
			owned = owned.Union(l.slots)
		}
		if busy := owned.Intersect(a.Slots); !busy.Empty() || !s.primary {
			return refuse("slots " + busy.String() + " are already busy")
		}
		s.slots = s.slots.Union(a.Slots)
		unmark(s.importing, a.Slots)
	case Replicate:
		l := s.line(a.ID)
		if l == nil || !l.primary || s.primary && (!s.slots.Empty() || len(s.data) > 0) {
			return refuse("unknown node, or a replica, or this node is not empty")
		}
		s.setMaster(l)
	case Takeover:
		l := s.line(s.follows)
		if s.primary || l == nil {
			return refuse("not a replica of a known primary")
		}
		s.bump()
		s.promote(l)
	case Force, Handover:
		l := s.line(s.follows)
		if s.primary || l == nil {
			return refuse("not a replica of a known primary")
		}
		from := s.w.listening(s.source)
		listed := from != nil && from.id == l.id && from.primary && from.line(s.id) != nil && from.line(s.id).follows == from.id
		if a.Kind == Handover && (!s.linkUp || !listed) || s.w.now < s.electEnd {
			return nil // it is accepted, and nothing comes of it
		}
		s.ask(l, true)
	case Discard:
		for slot := range s.data {
			if all(s.importing).overlaps(a.Slots.Intersect(Slots{{slot, slot}})) {
				delete(s.data, slot)
			}
		}
		unmark(s.importing, a.Slots)
	case CloseSlots:
		unmark(s.migrating, a.Slots)
		unmark(s.importing, a.Slots)
	case Forget:
		l := s.line(a.ID)
		if l == nil || !s.primary && s.follows == a.ID {
			return refuse("unknown node, or this node's own primary")
		}
		s.banned[a.ID] = s.w.now + banTime
		s.drop(l)
	default:
		return refuse("no such command")
	}
	return nil
}

func (s *server) delSlots(slots Slots, refuse func(string) error) error {
	owned := s.slots
	for _, l := range s.table {
		owned = owned.Union(l.slots)
	}
	if free := slots.Minus(owned); !free.Empty() {
		return refuse("slots " + free.String() + " are already unassigned")
	}
	s.slots = s.slots.Minus(slots)
	for _, l := range s.table {
		l.slots, l.unclaimed = l.slots.Minus(slots), l.unclaimed.Minus(slots)
	}
	return nil
}

// node is what a probe learns of the server.
func (s *server) node(n *Node) {
	n.Knowledge = Answered
	n.ID, n.Primary, n.Follows, n.Source = s.id, s.primary, s.follows, s.source
	n.LinkUp, n.Holder, n.Offset = s.linkUp, s.holder(), s.offset
	n.ClusterOK, n.Keys, n.Slots = s.clusterOK(), int64(len(s.data)), s.slots
	_, n.ConfigEpoch = s.claim()
	known := s.slots
	for _, l := range s.table {
		known = known.Union(l.slots)
	}
	n.Unrouted = known.Count() != SlotCount
	if s.primary {
		var held []Range
		for slot := range s.data {
			held = append(held, Range{slot, slot})
		}
		n.Stray = SlotsOf(held...).Minus(s.slots)
	}
	n.Migrating, n.Importing = cloneSlots(s.migrating), cloneSlots(s.importing)
	for _, r := range s.w.servers {
		if r.follows == s.id && r.linkUp && r.source == s.ip {
			n.Streams = append(n.Streams, r.ip)
		}
	}
	for _, l := range s.table {
		p := Peer{ID: l.id, IP: l.ip, Handshake: l.handshake, Failed: l.pfail || l.fail || l.ip == "", Slots: l.slots, Epoch: l.epoch, Follows: l.follows}
		if master := s.line(l.follows); !l.primary && master != nil {
			p.Epoch = master.epoch // clusterGenNodeDescription
		}
		n.Peers = append(n.Peers, p)
	}
}
