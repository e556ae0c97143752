package topology

import (
	"maps"
	"slices"
)

// fault lets something go wrong, at random.
func (s *sim) fault() {
	p := s.places[s.rng.IntN(len(s.places))]
	switch s.rng.IntN(12) {
	case 0, 1, 2:
		s.remake(p, false, false)
	case 3:
		s.remake(p, true, false)
	case 4, 5:
		s.end(p)
	case 6:
		if p.srv != nil {
			p.srv.hung = s.now + s.rng.IntN(4*nodeTimeout)
			s.logf("%s hangs until %d", p.name, p.srv.hung)
		}
	case 7, 8:
		if p.srv != nil {
			p.srv.mute = s.now + s.rng.IntN(4*nodeTimeout)
			s.logf("%s does not answer the operator until %d", p.name, p.srv.mute)
		}
	case 9:
		for _, p := range s.places {
			s.remake(p, false, false)
		}
	case 10:
		for _, p := range s.places {
			if s.chance(2) {
				s.remake(p, s.chance(5), false)
			}
		}
	case 11:
		s.remake(p, false, s.storage)
		if s.chance(3) { // and a Pod that does not come back for long
			p.startAt += s.rng.IntN(8 * nodeTimeout)
		}
	}
	s.forgive()
}

// checkPodAction: no Pod is taken away, or made anew, with which data would go.
func (s *sim) checkPodAction(a Action, p *place) {
	s.t.Helper()
	srv := p.srv
	switch {
	case srv == nil && (p.disk == nil || !s.storage):
		return
	case srv == nil:
		srv = p.disk
	}
	alone := slices.IndexFunc(s.places, func(q *place) bool { return q.shard == p.shard && q != p }) < 0
	switch {
	case a.Kind == Replace && a.Alone && alone:
	case a.Kind != Consent && srv.primary && !srv.slots.Empty() && p.srv != nil && !s.replaced(srv, srv.slots):
		s.failf("%s %s, which is the primary of slots %s", a.Kind, a.Pod, srv.slots)
	case a.Kind == Consent && (!srv.guarded || len(srv.data) > 0):
		s.failf("%s starts anew, and is not held, or has data", a.Pod)
	case a.Kind == Replace && s.storage:
		return
	}
	had := srv.data
	srv.data = map[int]int{}
	left := s.newest()
	srv.data = had
	for slot, version := range had {
		if left[slot] < version && s.best[slot] == version && (a.Kind != Replace || !a.Alone) {
			s.failf("%s %s, which holds the only copy of version %d in slot %d", a.Kind, a.Pod, version, slot)
		}
	}
}

// checkAction holds an action against the truth, which the planner cannot see,
// before it is carried out.
func (s *sim) checkAction(a Action, target *server) {
	s.t.Helper()
	switch a.Kind {
	case Takeover, Force:
		s.checkTakeover(a, target)
	case Handover:
		s.checkHandover(a, target)
	case AddSlots, DelSlots:
		for _, other := range s.servers {
			if both := other.slots.Intersect(a.Slots); !both.Empty() && !s.unheardOf(other) {
				s.failf("%s of slots %s to %s: %s owns them", a.Kind, both, target.pod, other.pod)
			}
		}
		if a.Kind == AddSlots {
			s.checkNothingLost(a, target)
		}
	case Replicate, Discard:
		had := target.data
		target.data = map[int]int{}
		left := s.newest()
		target.data = had
		for slot, version := range had {
			if left[slot] < version && s.best[slot] == version {
				s.failf("%s holds the only copy of version %d in slot %d, and %s empties it", target.pod, version, slot, a.Kind)
			}
		}
	case Forget:
		s.checkForget(a)
	}
}

// checkHandover: the primary lives, and its replica has all that it has.
func (s *sim) checkHandover(a Action, target *server) {
	s.t.Helper()
	if from := s.live(a.ID); from != nil && target.follows == a.ID && target.linkUp && !maps.Equal(from.data, target.data) {
		s.failf("%s is handed over to %s, which lacks some of its data", from.pod, target.pod)
	}
}

func (s *sim) checkTakeover(a Action, target *server) {
	s.t.Helper()
	lost := target.line(target.follows)
	if lost == nil || target.primary {
		return // it is refused
	}
	// A process that has only just started takes no writes yet; nor does one that
	// hangs, and if it is not the one that was lost, nobody can tell that it lives.
	srv := s.live(a.ID)
	hung := srv != nil && srv.hung > s.now && srv.ip != lost.ip
	if srv != nil && !srv.guarded && srv.up() >= writableTime && !hung {
		s.failf("%s takes over from %s, which lives", target.pod, srv.pod)
	}
	if !target.holder() {
		s.failf("%s takes over without a copy", target.pod)
	}
	for _, other := range s.servers {
		if both := other.slots.Intersect(lost.slots); !both.Empty() && other.id != a.ID && other.config > lost.epoch && !s.unheardOf(other) {
			s.failf("%s takes slots %s over from %s", target.pod, both, other.pod)
		}
		if other.follows == a.ID && other.holder() && other.offset > target.offset {
			s.failf("%s takes over with offset %d, and %s has %d", target.pod, target.offset, other.pod, other.offset)
		}
	}
}

// checkNothingLost: slots that had an owner are given out only when nobody has
// their data any more, and with an epoch that counts.
func (s *sim) checkNothingLost(a Action, target *server) {
	s.t.Helper()
	elsewhere := func(srv *server) bool { return srv != nil && srv != target }
	for slot := range s.best {
		if (Slots{{slot, slot}}).Intersect(a.Slots).Empty() || target.data[slot] == s.best[slot] {
			continue
		}
		if target.data[slot] < s.best[slot] {
			defer delete(s.best, slot) // only copies that nobody can know of are left
		}
		holds := func(srv *server) bool { return elsewhere(srv) && srv.data[slot] == s.best[slot] && !s.unheardOf(srv) }
		if slices.ContainsFunc(s.servers, holds) ||
			s.storage && slices.ContainsFunc(s.places, func(p *place) bool { return holds(p.disk) }) {
			s.failf("slot %d is given to %s, and its data lives elsewhere", slot, target.pod)
		}
	}
	for _, p := range s.places {
		for _, l := range tableOf(p.srv) {
			if both := l.slots.Intersect(a.Slots); !both.Empty() && l.id != target.id && l.epoch >= target.config {
				s.failf("%s claims slots %s with epoch %d, and %s believes %s to own them with epoch %d",
					target.pod, both, target.config, p.name, l.id, l.epoch)
			}
		}
	}
}

func (s *sim) checkForget(a Action) {
	s.t.Helper()
	if srv := s.live(a.ID); srv != nil && !s.unheardOf(srv) {
		s.failf("%s is forgotten and lives", a.ID)
	}
	for _, p := range s.places {
		if p.srv != nil && p.srv.follows == a.ID {
			s.failf("%s is forgotten, and %s follows it", a.ID, p.name)
		}
		for _, l := range tableOf(p.srv) {
			if l.id == a.ID && !l.slots.Empty() {
				s.failf("%s is forgotten, and owns slots %s in the eyes of %s", a.ID, l.slots, p.name)
			}
		}
	}
	if s.storage && slices.ContainsFunc(s.places, func(p *place) bool { return p.disk != nil && p.disk.id == a.ID }) {
		s.failf("%s is forgotten, and is on a volume", a.ID)
	}
}

func tableOf(s *server) []*line {
	if s == nil {
		return nil
	}
	return s.table
}
