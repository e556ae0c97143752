package topology

import (
	"fmt"
	"maps"
	"slices"
)

// What an operator does to the model's world beyond single commands: Pods that
// are made, replaced and taken away, and slots that are moved.

// ensurePlaces makes the Pods that are wanted and do not exist.
func (w *world) ensurePlaces() {
	for shard, n := range w.desired.Members {
		for ordinal := range n {
			name := fmt.Sprintf("c-%d-%d", shard, ordinal)
			if !slices.ContainsFunc(w.places, func(p *place) bool { return p.name == name }) {
				p := &place{name: name, shard: shard, ordinal: ordinal}
				w.places = append(w.places, p)
				w.create(p)
			}
		}
	}
	slices.SortFunc(w.places, func(a, b *place) int { return a.shard*1000 + a.ordinal - b.shard*1000 - b.ordinal })
}

func (w *world) place(pod string) *place {
	for _, p := range w.places {
		if p.name == pod {
			return p
		}
	}
	return nil
}

// takeAway removes a place for good, its volume first. It may stop after that.
func (w *world) takeAway(p *place, stop bool) {
	p.doomed = w.storage
	if stop {
		return
	}
	if slices.ContainsFunc(w.places, func(q *place) bool {
		return q.shard == p.shard && q.ordinal > p.ordinal && !q.leaving && !q.doomed && w.wants(q)
	}) {
		w.remake(p, false, true) // a StatefulSet loses only its last Pods
		p.doomed = false
		return
	}
	p.leaving, p.startAt = true, w.now+w.rng.IntN(4)
	w.logf("%s is taken away", p.name)
}

func (w *world) wants(p *place) bool {
	return p.shard < len(w.desired.Members) && p.ordinal < w.desired.Members[p.shard]
}

func all(open map[string]Slots) Slots {
	var s Slots
	for _, slots := range open {
		s = s.Union(slots)
	}
	return s
}

func unmark(open map[string]Slots, slots Slots) {
	for id := range open {
		if open[id] = open[id].Minus(slots); open[id].Empty() {
			delete(open, id)
		}
	}
}

func mark(open map[string]Slots, id string, slots Slots) {
	unmark(open, slots)
	open[id] = open[id].Union(slots)
}

func cloneSlots(open map[string]Slots) map[string]Slots {
	if len(open) == 0 {
		return map[string]Slots{}
	}
	return maps.Clone(open)
}

// migrate moves a part of the slots, by the commands of the classic way, and may
// stop before each of them.
func (w *world) migrate(from *server, a Action, stop func() bool) error {
	to := w.live(a.ID)
	if to == nil || w.listening(to.ip) != to || to.mute > w.now {
		return fmt.Errorf("%w: the target does not answer", errRefused)
	}
	part := a.Slots
	if n := part.Count(); n > 1 && w.chance(2) {
		_, part = part.cutEnd(1 + w.rng.IntN(n))
	}
	steps := []func() error{
		func() error {
			if !to.primary || to.slots.overlaps(part) {
				return fmt.Errorf("%w: IMPORTING on %s", errRefused, to.pod)
			}
			if l := to.line(from.id); l != nil && !part.Minus(l.slots).Empty() {
				to.assign(from.id, part) // its own word of the owner is out of date
			}
			mark(to.importing, from.id, part)
			return nil
		},
		func() error {
			if !from.primary || !part.Minus(from.slots).Empty() || from.line(to.id) == nil {
				return fmt.Errorf("%w: MIGRATING on %s", errRefused, from.pod)
			}
			mark(from.migrating, to.id, part)
			return nil
		},
		func() error { return w.migrateKeys(from, to, part) },
		func() error {
			if !part.Minus(to.importing[from.id]).Empty() || !part.Minus(from.migrating[to.id]).Empty() || from.holdsKeys(part) {
				return fmt.Errorf("%w: not claimed, a mark is gone or keys are left", errRefused)
			}
			unmark(to.importing, part)
			to.bump()
			to.assign(to.id, part)
			to.broadcast()
			return nil
		},
		func() error {
			if from.holdsKeys(part) {
				return fmt.Errorf("%w: NODE on %s", errRefused, from.pod)
			}
			unmark(from.migrating, part)
			from.assign(to.id, part)
			return nil
		},
		func() error {
			for _, s := range w.servers {
				if s != from && s != to && s.primary && w.listening(s.ip) == s && s.line(to.id) != nil {
					s.assign(to.id, part)
				}
			}
			return nil
		},
	}
	for _, step := range steps {
		if stop() || w.live(from.id) != from || w.live(to.id) != to {
			return fmt.Errorf("%w: interrupted", errRefused)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// assign is SETSLOT NODE.
func (s *server) assign(id string, slots Slots) {
	s.slots = s.slots.Minus(slots)
	for _, l := range s.table {
		l.slots, l.unclaimed = l.slots.Minus(slots), l.unclaimed.Minus(slots)
	}
	if id == s.id {
		s.slots = s.slots.Union(slots)
	} else if l := s.line(id); l != nil {
		l.slots = l.slots.Union(slots)
	}
}

func (s *server) holdsKeys(slots Slots) bool {
	for slot := range s.data {
		if slots.overlaps(Slots{{slot, slot}}) {
			return true
		}
	}
	return false
}

// migrateKeys moves keys if all live copies take part: what asynchronous
// replication may lose is not the planner's business.
func (w *world) migrateKeys(from, to *server, part Slots) error {
	sides := map[*server][]*server{from: {from}, to: {to}}
	for _, s := range w.servers {
		for primary := range sides {
			if s.follows == primary.id {
				if !s.linkUp || s.hung > w.now {
					return fmt.Errorf("%w: %s is not in sync", errRefused, s.pod)
				}
				sides[primary] = append(sides[primary], s)
			}
		}
	}
	if !from.clusterOK() || !to.clusterOK() || w.listening(from.ip) != from {
		return fmt.Errorf("%w: CLUSTERDOWN", errRefused)
	}
	for _, slot := range slices.Sorted(maps.Keys(from.data)) {
		if !part.overlaps(Slots{{slot, slot}}) || w.replaced(from, Slots{{slot, slot}}) {
			continue
		}
		value, there, here := from.data[slot], to.offset+1, from.offset+1
		for _, s := range sides[to] {
			s.data[slot], s.offset = value, there
		}
		for _, s := range sides[from] {
			delete(s.data, slot)
			s.offset = here
		}
		if w.chance(8) {
			return nil
		}
	}
	return nil
}
