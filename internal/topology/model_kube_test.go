package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// The world around the servers: Pods that start, end and move, volumes, the
// start guard, clients that write, and what an operator can see of it all.

// place is one ordinal of a StatefulSet: its Pod, when there is one.
type place struct {
	name           string
	shard, ordinal int
	exists         bool // the Pod object
	template       int  // what its Pod was made from
	doomed         bool // its volume is being deleted
	leaving        bool // it is no place of its StatefulSet any more
	ip             string
	started        bool // a container of this Pod has started
	startAt        int
	shown, was     pod // what the operator's cache shows of the Pod, up to two ticks late
	srv            *server
	// disk is the last process that wrote the volume, or the Pod's emptyDir; its
	// table, role and data are what the next one reads.
	disk *server
}

// pod is what the API server tells of a Pod.
type pod struct {
	exists, started bool
	ip              string
}

type world struct {
	rng           *rand.Rand
	now, ids      int
	storage       bool
	forgetSpreads bool // FORGET is gossiped, since 7.2
	desired       Desired
	template      int
	places        []*place
	servers       []*server // all processes
	zombies       map[*server]int
	ips           []string // addresses that were used before
	everOwned     Slots
	version       int
	best          map[int]int // slot → the newest version of its key that must live on
	trace         []string
}

func newWorld(seed uint64, members []int, storage bool) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0)), storage: storage, desired: Desired{Members: members},
		zombies: map[*server]int{}, best: map[int]int{}}
	w.forgetSpreads = w.chance(2)
	w.ensurePlaces()
	return w
}

func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) newID(prefix string) string {
	w.ids++
	return fmt.Sprintf("%s%02d.%d", prefix, w.rng.IntN(90)+10, w.ids)
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.now)+fmt.Sprintf(format, args...))
}

func (w *world) shuffledLines(lines []*line) []*line {
	out := slices.Clone(lines)
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// listening is the server that answers at an address.
func (w *world) listening(ip string) *server {
	for _, s := range w.servers {
		if s.ip == ip && ip != "" && s.hung <= w.now && s.loading <= w.now && !s.guarded {
			return s
		}
	}
	return nil
}

func (w *world) hanging(ip string) bool {
	return slices.ContainsFunc(w.servers, func(s *server) bool { return s.ip == ip && s.hung > w.now })
}

// unheardOf tells whether a process is one that no Pod runs and that no Pod's
// table lists as alive: nobody can know that it lives.
func (w *world) unheardOf(s *server) bool {
	if _, zombie := w.zombies[s]; !zombie {
		return false
	}
	return !slices.ContainsFunc(w.places, func(p *place) bool {
		l := tableLine(p.srv, s.id)
		return l != nil && !l.fail && !l.pfail
	})
}

func tableLine(s *server, id string) *line {
	if s == nil {
		return nil
	}
	return s.line(id)
}

func (w *world) live(id string) *server {
	for _, s := range w.servers {
		if s.id == id {
			return s
		}
	}
	return nil
}

// newIP is often one that another Pod had before, but not one at which some
// table has a primary: whoever follows that one would copy from the wrong node,
// and neither Redis nor the planner can help it.
func (w *world) newIP() string {
	if w.chance(2) {
		for _, ip := range w.ips {
			if !w.addressed(ip) {
				return ip
			}
		}
	}
	ip := fmt.Sprintf("10.0.0.%d", len(w.ips)+1)
	w.ips = append(w.ips, ip)
	return ip
}

func (w *world) addressed(ip string) bool {
	names := func(s *server) bool {
		return s.ip == ip || s.source == ip || slices.ContainsFunc(s.table, func(l *line) bool { return l.primary && l.ip == ip })
	}
	return slices.ContainsFunc(w.servers, names) || slices.ContainsFunc(w.places, func(p *place) bool {
		return p.ip == ip || p.disk != nil && names(p.disk)
	})
}

// create makes the Pod object of a place.
func (w *world) create(p *place) {
	p.exists, p.started, p.ip, p.template = true, false, "", w.template
	p.startAt = w.now + 1 + w.rng.IntN(6)
	if !w.storage {
		p.disk = nil
	}
}

// start starts the container of a Pod.
func (w *world) start(p *place) {
	if p.ip == "" {
		p.ip = w.newIP()
	}
	s := &server{w: w, ip: p.ip, pod: p.name, born: w.now, primary: true, banned: map[string]int{}, data: map[int]int{},
		migrating: map[string]Slots{}, importing: map[string]Slots{}}
	if d := p.disk; d == nil {
		s.id = w.newID("n")
	} else {
		s.load(d)
		s.guarded = s.primary
	}
	p.started, p.srv, p.disk = true, s, s
	w.servers = append(w.servers, s)
	w.logf("%s starts as %s at %s, %d keys, slots %q", p.name, s.id, s.ip, len(s.data), s.slots)
}

// load reads nodes.conf and the data that an earlier process left.
func (s *server) load(d *server) {
	s.id, s.primary, s.follows, s.slots = d.id, d.primary, d.follows, d.slots
	s.current, s.config, s.lastVote = d.current, d.config, d.lastVote
	s.migrating, s.importing = cloneSlots(d.migrating), cloneSlots(d.importing)
	for _, l := range d.table {
		if !l.handshake {
			c := *l
			c.pinged, c.failedAt = 0, s.w.now
			if !c.primary {
				c.epoch = 0
			}
			s.add(&c)
		}
	}
	switch {
	case s.w.storage:
		s.data, s.offset = cloneData(d.data), d.offset
	case !s.primary && s.w.chance(2): // the dump.rdb of a full synchronisation
		s.data = cloneData(d.data)
	}
	if len(s.data) > 0 {
		s.loading = s.w.now + s.w.rng.IntN(6)
	}
	if !s.primary {
		return
	}
	owned := s.slots.Union(all(s.importing)) // verifyClusterConfigWithData
	for _, l := range s.table {
		owned = owned.Union(l.slots)
	}
	for _, slot := range slices.Sorted(maps.Keys(s.data)) {
		s.slots = s.slots.Union(Slots{{slot, slot}}.Minus(owned))
	}
}

// end ends the process of a place; its Pod restarts it.
func (w *world) end(p *place) {
	if p.srv == nil {
		return
	}
	w.logf("%s: process %s ends", p.name, p.srv.id)
	w.remove(p.srv)
	p.srv, p.startAt = nil, w.now+1+w.rng.IntN(4)
}

func (w *world) remove(s *server) {
	w.servers = slices.DeleteFunc(w.servers, func(other *server) bool { return other == s })
	delete(w.zombies, s)
}

// remake deletes the Pod of a place, and its volume if that is wanted; another
// one is made. With force the process lives on for a while.
func (w *world) remake(p *place, force, volume bool) {
	w.logf("%s: Pod deleted, force %v, volume %v", p.name, force, volume)
	if s := p.srv; s != nil && force {
		// It can be reached: to tell one that cannot from one that is gone is
		// beyond anybody, see ADR 2.
		s.hung = 0
		w.zombies[s] = w.now + 2 + w.rng.IntN(3*nodeTimeout)
		p.srv = nil
	}
	w.end(p)
	if volume {
		p.disk = nil
	}
	w.create(p)
}

// tick lets half a second pass.
func (w *world) tick() {
	w.now++
	order := slices.Clone(w.servers)
	w.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, s := range order {
		if s.guarded {
			w.guard(s)
		}
		if s.hung <= w.now && s.loading <= w.now && !s.guarded {
			s.tick()
			s.replicate()
		}
	}
	for _, s := range order {
		if end, ok := w.zombies[s]; ok && end <= w.now {
			w.logf("process %s, whose Pod is long gone, ends", s.id)
			w.remove(s)
			w.best = w.newest()
		}
	}
	w.places = slices.DeleteFunc(w.places, func(p *place) bool { return p.leaving && p.srv == nil })
	for _, p := range w.places {
		if p.leaving {
			if p.startAt <= w.now {
				w.end(p)
				w.best = w.newest()
			}
			continue
		}
		attached := w.storage && slices.ContainsFunc(w.servers, func(s *server) bool { return s.pod == p.name })
		if p.exists && p.srv == nil && p.startAt <= w.now && !attached {
			w.start(p)
		}
		now := pod{p.exists, p.started, p.ip}
		if p.shown, p.was = p.was, now; w.chance(2) {
			p.shown = now
		}
	}
	w.write()
}

// guard is the start guard of a primary: it lets nobody connect until it is clear
// that the other members of its shard are not harmed by it.
func (w *world) guard(s *server) {
	var best *server
	succeeded, followed, unknown, absent := false, false, false, false
	for _, p := range w.places {
		r := p.srv
		if p.name == s.pod || !strings.HasPrefix(p.name, s.pod[:strings.LastIndexByte(s.pod, '-')+1]) {
			continue
		}
		switch {
		case r == nil || r.guarded:
			absent = true
		case r.hung > w.now || r.loading > w.now:
			unknown = true
		case r.primary:
			succeeded = succeeded || !r.slots.Intersect(s.slots).Empty()
		case r.follows != s.id:
		case r.holder():
			followed = true
			if best == nil || r.offset > best.offset || r.offset == best.offset && r.id < best.id {
				best = r
			}
		default:
			followed = true
			unknown = unknown || r.linkUp // it has not noticed yet
		}
	}
	up, hasData := w.now-s.born, w.storage || len(s.data) > 0 // an append-only file is never empty
	switch {
	case !followed && (succeeded || !absent && !unknown):
		s.guarded = false
	case best != nil && up == guardPatience:
		w.logf("the start guard of %s has %s elected", s.pod, best.pod)
		_ = best.do(Action{Kind: Force}) // accepted, whatever comes of it
	case best != nil && up > guardPatience:
		w.logf("the start guard of %s has %s take over", s.pod, best.pod)
		_ = best.do(Action{Kind: Takeover}) // refused when it has been promoted meanwhile
	case best == nil && hasData && (!unknown && up >= guardPatience || up >= nodeTimeout+guardPatience):
		s.guarded = false
	}
}

const (
	guardPatience = 6
	heldAfter     = 4 * nodeTimeout
)

func cloneData(data map[int]int) map[int]int { return maps.Clone(data) }

// dump shows all servers, for the trace of a failed run.
func (w *world) dump() string {
	var b strings.Builder
	for _, s := range w.servers {
		fmt.Fprintf(&b, "%s %s at %s: primary %v, follows %q from %q, link %v, slots %q, epoch %d/%d, %d keys, offset %d, loading %d, hung %d, mute %d, guarded %v, open %v %v\n",
			s.pod, s.id, s.ip, s.primary, s.follows, s.source, s.linkUp, s.slots, s.config, s.current, len(s.data), s.offset, s.loading, s.hung, s.mute, s.guarded, s.migrating, s.importing)
		for _, l := range s.table {
			fmt.Fprintf(&b, "      %s at %q: handshake %v, primary %v, follows %q, fail %v/%v, epoch %d, slots %q\n",
				l.id, l.ip, l.handshake, l.primary, l.follows, l.pfail, l.fail, l.epoch, l.slots)
		}
	}
	return b.String()
}
