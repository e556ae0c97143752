package topology

import "slices"

// What clients write in the model's world, and what an operator can see of it.

// write lets a client write to a slot, if all live copies of it take part: what
// asynchronous replication may lose is not the planner's business.
func (w *world) write() {
	slot := w.rng.IntN(SlotCount)
	in := Slots{{slot, slot}}
	var owner *server
	for _, s := range w.servers {
		if !s.slots.Intersect(in).Empty() {
			if owner != nil {
				return
			}
			owner = s
		}
	}
	if owner == nil || w.listening(owner.ip) != owner || !owner.clusterOK() {
		return
	}
	if _, here := owner.data[slot]; !here && all(owner.migrating).overlaps(in) {
		if owner = w.importer(owner, in); owner == nil { // -ASK
			return
		}
	}
	if w.replaced(owner, in) {
		return
	}
	copies := []*server{owner}
	for _, s := range w.servers {
		if s.follows == owner.id {
			if !s.linkUp || s.hung > w.now {
				return
			}
			copies = append(copies, s)
		}
	}
	w.version++
	offset := owner.offset + 100
	for _, s := range copies {
		s.data[slot], s.offset = w.version, offset
	}
	w.best[slot] = w.version
}

// replaced tells whether an owner of slots has a successor that it has not heard
// of. What it writes will be lost, and to keep it from writing is the business of
// the start guard and not of the planner.
func (w *world) replaced(owner *server, slots Slots) bool {
	later := func(claim Slots, epoch uint64) bool {
		return epoch > owner.config && !claim.Intersect(slots).Empty()
	}
	for _, p := range w.places {
		if p.disk != nil && later(p.disk.slots, p.disk.config) {
			return true
		}
	}
	for _, s := range w.servers {
		if slices.ContainsFunc(s.table, func(l *line) bool { return later(l.slots, l.epoch) }) {
			return true
		}
	}
	return false
}

// newest is the newest version of each key in any copy, on any volume.
func (w *world) newest() map[int]int {
	out := map[int]int{}
	add := func(s *server) {
		for slot, v := range s.data {
			out[slot] = max(out[slot], v)
		}
	}
	for _, s := range w.servers {
		add(s)
	}
	for _, p := range w.places {
		if p.disk != nil && w.storage && !p.leaving {
			add(p.disk)
		}
	}
	return out
}

// observe is what a pass of the operator learns.
func (w *world) observe() *Observed {
	o := &Observed{Volumes: w.storage}
	for _, p := range w.places {
		n := Node{Pod: p.name, Shard: p.shard, Ordinal: p.ordinal, Outdated: p.template != w.template, Doomed: p.doomed, Ending: p.leaving}
		n.Held = !w.storage && p.srv != nil && p.srv.guarded && len(p.srv.data) == 0 && w.now-p.srv.born >= heldAfter
		n.Idle = !p.shown.exists || !p.shown.started && w.storage
		if p.shown.exists {
			n.IP = p.shown.ip
			if !w.storage && !p.shown.started {
				n.Knowledge = Blank
			}
			// Who answers at the address that the cache shows may be another one.
			if s := w.listening(p.shown.ip); p.shown.started && s != nil && s.mute <= w.now {
				s.node(&n)
				n.PodReady = s.primary || s.linkUp
			}
		}
		o.Nodes = append(o.Nodes, n)
	}
	w.gatherEvidence(o)
	return o
}

// gatherEvidence does what the controllers do, see ADR 2, and one thing more:
// a primary has ended only if it has at every address that somebody has for it.
func (w *world) gatherEvidence(o *Observed) {
	o.Ended = map[string]bool{}
	for _, n := range o.answeredNodes() {
		if n.Primary || n.LinkUp || n.Follows == "" || o.byID(n.Follows) != nil {
			continue
		}
		ips := map[string]bool{n.Source: true}
		for _, view := range o.answeredNodes() {
			if p, ok := view.knows(n.Follows); ok {
				ips[p.IP] = true
			}
		}
		delete(ips, "")
		ended := len(ips) > 0
		for ip := range ips {
			ended = ended && w.hasEnded(n.Follows, ip)
		}
		o.Ended[n.Follows] = ended
	}
}

func (w *world) hasEnded(id, ip string) bool {
	for _, p := range w.places {
		if p.exists && p.ip == ip {
			return p.started && (p.srv == nil || p.srv.guarded)
		}
	}
	s := w.listening(ip)
	return s == nil || s.id != id
}

// importer is the node that a client is sent to that asks for what has been moved.
func (w *world) importer(owner *server, slots Slots) *server {
	for _, s := range w.servers {
		if s.primary && w.listening(s.ip) == s && s.clusterOK() && s.importing[owner.id].overlaps(slots) && owner.migrating[s.id].overlaps(slots) {
			return s
		}
	}
	return nil
}
