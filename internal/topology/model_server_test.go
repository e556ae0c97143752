package topology

import (
	"fmt"
	"maps"
	"slices"
)

// A model of the servers of one Redis Cluster, after Redis 7.0's cluster.c. One
// tick is about half a second. Messages are exchanged within a tick, but which
// nodes exchange some in a tick is random, so that gossip spreads over ticks.

const (
	nodeTimeout  = 10  // cluster-node-timeout, in ticks
	banTime      = 120 // CLUSTER_BLACKLIST_TTL
	writableTime = 4   // CLUSTER_WRITABLE_DELAY
	validity     = 10  // cluster-replica-validity-factor
)

// line is one entry of a node's table (clusterNode).
type line struct {
	id, ip          string // an empty ip is the flag noaddr
	handshake, meet bool
	primary         bool
	follows         string
	pfail, fail     bool
	epoch           uint64
	slots           Slots
	unclaimed       Slots // owner_not_claiming_slot
	made            int   // ctime
	heard           int   // pong_received, or any data since
	pinged          int   // ping_sent; 0 when none is pending
	failedAt        int
	votedAt         int
	reports         map[string]int // failure reports: who, when
}

// server is one redis-server process.
type server struct {
	w    *world
	id   string
	ip   string
	pod  string
	born int
	// busy until: loading its data, hung (answers nobody), mute (does not answer
	// the operator), held by the start guard (does not listen).
	loading, hung, mute int
	guarded             bool

	primary bool
	follows string
	slots   Slots
	// open slots by the id of the other side
	migrating, importing map[string]Slots
	current              uint64
	config               uint64
	lastVote             uint64
	table                []*line
	banned               map[string]int

	data     map[int]int // slot → version of the one key in it
	offset   int64
	source   string // masterhost
	linkUp   bool
	synced   bool // has been in sync since its start
	syncing  int  // ticks left of a synchronisation
	lostAt   int  // when the link went down
	elect    int  // when an election may start; 0: none is planned
	electEnd int  // no other election before
	votedAt  int  // when it voted for a replica of its own
	promoted int  // when it became a primary
}

func (s *server) line(id string) *line {
	for _, l := range s.table {
		if l.id == id && !l.handshake {
			return l
		}
	}
	return nil
}

func (s *server) drop(gone *line) {
	s.table = slices.DeleteFunc(s.table, func(l *line) bool { return l == gone })
	for _, l := range s.table {
		delete(l.reports, gone.id)
		if l.follows == gone.id {
			l.follows = "" // freeClusterNode
		}
	}
}

func (s *server) add(l *line) {
	l.made, l.heard, l.reports = s.w.now, s.w.now, map[string]int{}
	s.table = append(s.table, l)
}

// size is the number of primaries that own slots, in this node's eyes.
func (s *server) size() (all, reachable int) {
	if s.primary && !s.slots.Empty() {
		all, reachable = 1, 1
	}
	for _, l := range s.table {
		if l.primary && !l.slots.Empty() {
			all++
			if !l.fail && !l.pfail {
				reachable++
			}
		}
	}
	return all, reachable
}

// clusterOK is cluster_state (clusterUpdateState) with
// cluster-require-full-coverage no.
func (s *server) clusterOK() bool {
	all, reachable := s.size()
	return reachable >= all/2+1 && (!s.primary || s.up() >= writableTime)
}

// up is the time since the server has been up, its data read.
func (s *server) up() int { return s.w.now - max(s.born, s.loading) }

// claim is what the header of a message carries (clusterBuildMessageHdr).
func (s *server) claim() (Slots, uint64) {
	if !s.primary {
		if l := s.line(s.follows); l != nil {
			return l.slots, l.epoch
		}
	}
	return s.slots, s.config
}

// tick is clusterCron.
func (s *server) tick() {
	for _, l := range s.w.shuffledLines(s.table) {
		if l.handshake && s.w.now-l.made > nodeTimeout {
			s.drop(l)
			continue
		}
		if l.ip == "" {
			continue
		}
		other := s.w.listening(l.ip)
		due := l.pinged > 0 || s.w.now-l.heard >= nodeTimeout/2
		switch {
		case other == nil:
			if l.pinged == 0 {
				l.pinged = s.w.now
			}
		case due || s.w.chance(4) || l.handshake && s.w.chance(2):
			s.exchange(l, other)
		}
		silent := l.pinged > 0 && s.w.now-l.pinged > nodeTimeout && s.w.now-l.heard > nodeTimeout
		if silent && !l.handshake && !l.fail {
			l.pfail = true
		}
	}
	s.tryElection()
}

// exchange sends PING or MEET and takes the PONG.
func (s *server) exchange(l *line, other *server) {
	meeting := l.meet
	l.meet = false
	other.receive(s.packet(), meeting)
	if slices.Contains(s.table, l) {
		s.receivePong(l, other.packet())
	}
}

// packet is a PING, PONG or MEET.
type packet struct {
	from            *server
	primary         bool
	follows         string
	slots           Slots
	config, current uint64
	gossip          []line
	forgotten       []string
}

func (s *server) packet() packet {
	slots, epoch := s.claim()
	p := packet{from: s, primary: s.primary, follows: s.follows, slots: slots, config: epoch, current: s.current}
	// clusterSendPing: a tenth of the table and at least three, and all that are
	// in doubt. Handshakes, lines without address, and disconnected nodes without
	// slots are left out; a node that cannot be reached is connected half of the
	// time, while a connection is being tried.
	wanted := max(3, len(s.table)/10)
	for _, l := range s.w.shuffledLines(s.table) {
		if l.handshake || l.ip == "" || !l.pfail && (wanted == 0 || l.pinged > 0 && l.slots.Empty() && s.w.chance(2)) {
			continue
		}
		if !l.pfail {
			wanted--
		}
		p.gossip = append(p.gossip, *l)
	}
	if s.w.forgetSpreads {
		for _, id := range slices.Sorted(maps.Keys(s.banned)) {
			if s.banned[id] > s.w.now {
				p.forgotten = append(p.forgotten, id)
			}
		}
	}
	return p
}

// receive is clusterProcessPacket on an inbound link.
func (s *server) receive(p packet, meeting bool) {
	if p.from == s {
		return
	}
	sender := s.line(p.from.id)
	switch {
	case sender != nil:
		sender.heard = s.w.now
		if !meeting && sender.ip != p.from.ip {
			s.moved(sender, p.from.ip)
		}
		s.learn(sender, p)
	case meeting:
		s.add(&line{id: s.w.newID("handshake"), ip: p.from.ip, handshake: true})
	}
}

// receivePong is clusterProcessPacket on this node's own link to a line.
func (s *server) receivePong(l *line, p packet) {
	if l.handshake {
		if known := s.line(p.from.id); known != nil || p.from == s {
			// "we already know node, updating the address if needed"
			if known != nil && known.ip != p.from.ip {
				s.moved(known, p.from.ip)
			}
			s.drop(l)
			return
		}
		l.id, l.handshake, l.primary, l.heard, l.pinged = p.from.id, false, p.primary, s.w.now, 0
		return
	}
	if l.id != p.from.id {
		l.ip = "" // "PONG contains mismatching sender ID"
		return
	}
	l.heard, l.pinged = s.w.now, 0
	switch {
	case l.pfail:
		l.pfail = false
	case l.fail && (!l.primary || l.slots.Empty() || s.w.now-l.failedAt > 2*nodeTimeout):
		l.fail = false // clearNodeFailureIfNeeded
	}
	s.learn(l, p)
}

// moved is nodeUpdateAddressIfNeeded.
func (s *server) moved(l *line, ip string) {
	l.ip = ip
	if !s.primary && s.follows == l.id {
		s.replicateFrom(ip)
	}
}

// learn takes over what a known node says of itself and of others.
func (s *server) learn(l *line, p packet) {
	s.current = max(s.current, p.current)
	l.epoch = max(l.epoch, p.config)
	if p.primary {
		l.primary, l.follows = true, ""
	} else {
		if l.primary {
			l.primary, l.slots, l.unclaimed = false, nil, nil
		}
		if p.follows == s.id || s.line(p.follows) != nil {
			l.follows = p.follows
		}
	}
	known, dirty := l.slots, true
	if !l.primary {
		switch master := s.line(l.follows); {
		case l.follows == s.id:
			known = s.slots
		case master != nil:
			known = master.slots
		default:
			dirty = false
		}
	}
	if dirty = dirty && !slices.Equal(known, p.slots); dirty {
		if l.primary {
			s.rebind(l, p.config, p.slots)
		}
		s.correct(l, p)
	}
	s.settleCollision(l, p.config)
	s.gossip(l, p)
}

// settleCollision is clusterHandleConfigEpochCollision.
func (s *server) settleCollision(l *line, epoch uint64) {
	if s.primary && l.primary && epoch == s.config && l.id > s.id {
		s.current++
		s.config = s.current
	}
}

// correct tells a node with an outdated claim of the owner (the UPDATE message).
func (s *server) correct(l *line, p packet) {
	if s.primary && s.config > p.config && !s.slots.Intersect(p.slots).Empty() {
		p.from.update(s, s.id, s.config, s.slots)
		return
	}
	for _, owner := range s.table {
		if owner == l || owner.epoch <= p.config || owner.handshake {
			continue
		}
		if claimed := owner.slots.Minus(owner.unclaimed); !claimed.Intersect(p.slots).Empty() {
			p.from.update(s, owner.id, owner.epoch, claimed)
			return
		}
	}
}

// update is the receipt of an UPDATE message.
func (s *server) update(from *server, id string, epoch uint64, slots Slots) {
	l := s.line(id)
	if s.line(from.id) == nil || l == nil || l.epoch >= epoch {
		return
	}
	l.primary, l.follows, l.epoch = true, "", epoch
	s.rebind(l, epoch, slots)
}

// rebind is clusterUpdateSlotsConfigWith.
func (s *server) rebind(l *line, epoch uint64, slots Slots) {
	slots = slots.Minus(all(s.importing)) // those change by SETSLOT alone
	took, mineBefore := Slots{}, s.slots
	cut := func(owner *line, have Slots, theirs uint64, unclaimed Slots) Slots {
		lost := have.Intersect(slots)
		if theirs >= epoch {
			lost = lost.Intersect(unclaimed)
		}
		took = took.Union(lost)
		if owner != nil {
			owner.slots, owner.unclaimed = owner.slots.Minus(lost), owner.unclaimed.Minus(lost)
		}
		return lost
	}
	taken := Slots{} // of this node, or of the primary that it follows
	if s.primary {
		taken = cut(nil, s.slots, s.config, nil)
		s.slots = s.slots.Minus(taken)
	}
	owned := mineBefore
	for _, other := range s.table {
		owned = owned.Union(other.slots)
		if other == l || other.slots.Empty() {
			continue
		}
		lost := cut(other, other.slots, other.epoch, other.unclaimed)
		if !s.primary && other.id == s.follows {
			taken = lost
		}
	}
	before := l.slots
	l.slots = before.Union(took).Union(slots.Minus(owned))
	l.unclaimed = l.unclaimed.Union(before.Minus(slots)).Minus(slots)

	mine := s.slots
	master := s.line(s.follows)
	if !s.primary && master != nil {
		mine = master.slots
	}
	switch {
	case !taken.Empty() && mine.Empty() && taken.Count() == slots.Count():
		s.setMaster(l)
	case !s.primary && master != nil && !master.primary && master.follows != "" && master.follows != s.id && s.line(master.follows) != nil:
		s.setMaster(s.line(master.follows)) // "I'm a sub-replica!"
	case s.primary:
		for _, r := range taken {
			maps.DeleteFunc(s.data, func(slot, _ int) bool { return r.First <= slot && slot <= r.Last })
		}
	}
}

// setMaster is clusterSetMaster.
func (s *server) setMaster(l *line) {
	if !s.slots.Empty() {
		panic(fmt.Sprintf("%s follows %s while it owns slots %s", s.id, l.id, s.slots))
	}
	s.primary, s.follows = false, l.id
	s.migrating, s.importing = map[string]Slots{}, map[string]Slots{} // clusterCloseAllSlots
	s.replicateFrom(l.ip)
}

// replicateFrom is replicationSetMaster.
func (s *server) replicateFrom(ip string) {
	if s.linkUp {
		s.lostAt = s.w.now
	}
	s.source, s.linkUp, s.syncing, s.elect = ip, false, 0, 0
}

// bump is clusterBumpConfigEpochWithoutConsensus.
func (s *server) bump() {
	highest := s.current
	for _, l := range s.table {
		highest = max(highest, l.epoch)
	}
	if s.config != 0 && s.config == highest {
		return
	}
	s.current++
	s.config = s.current
}
