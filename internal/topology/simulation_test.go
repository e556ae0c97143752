package topology

import (
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var seeds = flag.Int("topology.seeds", 0, "simulated runs of each shape; 0: a few hundred in all")

// shapes are the clusters that are simulated: members of each shard, and the
// share of the runs of a normal test that each gets.
var shapes = []struct {
	members []int
	runs    int
}{
	{[]int{1}, 20},
	{[]int{2}, 60},
	{[]int{1, 1, 1}, 40},
	{[]int{3}, 40},
	{[]int{2, 2}, 60},
	{[]int{2, 2, 2}, 100},
	{[]int{3, 2, 2}, 40},
	{[]int{3, 3, 3, 3}, 20},
	{[]int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, 6},
	{slices.Repeat([]int{4}, 10), 2}, // 40 nodes: beyond the hubs
}

// settled is how many ticks a cluster may take to converge once it is left
// alone; bans of forgotten ids, lost elections and a person's errands are in it.
const settled = 600

// sim is one run.
type sim struct {
	*world
	t      *testing.T
	passes int
	calm   bool
	// decided: a person has preferred one copy of a shard over another.
	decided bool
	// asked and seen are the operator's memory: promotions that it asked for, and
	// who was a replica when it last looked and who has been elected since.
	asked    map[string]asking
	replicas map[string]bool
	elected  map[string]int
}

// asking is a promotion that was asked for, and when.
type asking struct {
	kind Kind
	at   int
}

func newSim(t *testing.T, w *world) *sim {
	return &sim{world: w, t: t, asked: map[string]asking{}, replicas: map[string]bool{}, elected: map[string]int{}}
}

// remember adds to what is observed what the operator remembers.
func (s *sim) remember(o *Observed) {
	if !s.calm && s.chance(40) {
		s.logf("the operator restarts")
		s.asked, s.replicas, s.elected = map[string]asking{}, map[string]bool{}, map[string]int{}
	}
	o.Asked, o.Elected = map[string]Asked{}, map[string]bool{}
	for id, a := range s.asked {
		patience := map[Kind]int{Force: 1, Handover: 12}[a.kind]
		o.Asked[id] = Asked{Kind: a.kind, Due: s.now-a.at > patience}
	}
	for _, n := range o.answeredNodes() {
		if n.Primary && s.replicas[n.ID] {
			s.elected[n.ID] = s.now
		}
		if n.Primary {
			delete(s.asked, n.ID)
		}
		s.replicas[n.ID] = !n.Primary
		o.Elected[n.ID] = s.elected[n.ID] > 0 && s.now-s.elected[n.ID] < 4*nodeTimeout
	}
}

func (s *sim) failf(format string, args ...any) {
	s.t.Helper()
	trace := s.trace
	if len(trace) > 300 {
		trace = slices.Concat(trace[:200], []string{"…"}, trace[len(trace)-100:])
	}
	s.t.Fatalf("%s\n--- trace, tick and event:\n%s\n--- servers:\n%s", fmt.Sprintf(format, args...), strings.Join(trace, "\n"), s.dump())
}

func TestSimulation(t *testing.T) {
	for _, shape := range shapes {
		name := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape.members), "[]"), " ", "+")
		t.Run(name, func(t *testing.T) {
			runs := shape.runs
			if *seeds > 0 {
				runs = *seeds
			}
			for seed := range runs {
				for _, storage := range []bool{false, true} {
					t.Run(fmt.Sprintf("seed=%d/storage=%v", seed, storage), func(t *testing.T) {
						simulate(t, uint64(seed), shape.members, storage)
					})
				}
			}
		})
	}
}

func simulate(t *testing.T, seed uint64, members []int, storage bool) {
	s := newSim(t, newWorld(seed, members, storage))
	s.calm = s.chance(2)
	s.settle("forming")
	s.calm = false
	for range 1 + s.rng.IntN(4) {
		s.disturb()
		for range s.rng.IntN(4 * nodeTimeout) {
			s.step()
			if s.chance(12) {
				s.disturb()
			}
		}
		if s.chance(2) {
			s.settle("healing")
		}
	}
	s.settle("healing")
}

// disturb is a fault, or a person who wants something else.
func (s *sim) disturb() {
	switch s.rng.IntN(6) {
	case 0:
		shards := 1 + s.rng.IntN(4)
		nodes := shards * (1 + s.rng.IntN(2))
		if s.chance(3) {
			nodes += s.rng.IntN(shards)
		}
		members := make([]int, shards)
		for i := range nodes {
			members[i%shards]++
		}
		s.desired = Desired{Members: members}
		s.logf("a person wants %v", members)
	case 1:
		s.template++
		s.logf("a person wants another template")
	default:
		s.fault()
	}
}

// step is a tick and, most of the time, a pass of the operator.
func (s *sim) step() {
	s.tick()
	s.check("a tick")
	if !s.chance(3) {
		s.pass()
	}
}

// settle leaves the cluster alone until it has converged and stays so.
func (s *sim) settle(what string) {
	s.t.Helper()
	s.calm = s.calm || what == "healing"
	start, passes, quiet := s.now, s.passes, 0
	for quiet < 2*nodeTimeout {
		s.tick()
		s.check("a tick")
		plan := s.pass()
		o := s.observe()
		if plan.Empty() && Converged(s.desired, o) && len(s.zombies) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		if s.now-start > settled {
			s.failf("%s: not converged after %d ticks and %d passes; the plan is %+v", what, s.now-start, s.passes-passes, plan)
		}
	}
	s.checkConverged()
	s.calm = false
}

// pass is one pass of the operator: observe, plan, act. It may die in the middle,
// its actions may be lost, and time goes by meanwhile.
func (s *sim) pass() Plan {
	s.t.Helper()
	s.passes++
	s.ensurePlaces()
	o := s.observe()
	s.remember(o)
	plan := Next(s.desired, o)
	checkPlan(s.t, o, plan)
	if plan.Wait == WaitPerson {
		s.logf("wait for a person: %s", plan.Why)
		s.errand(plan)
	}
	to := map[string]*server{}
	for _, n := range o.answeredNodes() {
		to[n.Pod] = s.live(n.ID)
	}
	actions := slices.Clone(plan.Actions)
	s.rng.Shuffle(len(actions), func(i, j int) { actions[i], actions[j] = actions[j], actions[i] })
	if len(actions) > 0 && !s.calm && s.chance(6) {
		actions = actions[:s.rng.IntN(len(actions))]
		s.logf("the operator dies after %d of %d actions", len(actions), len(plan.Actions))
	}
	for _, a := range actions {
		if onPods[a.Kind] {
			s.actOnPod(a)
			continue
		}
		target := to[a.Pod]
		switch {
		case target == nil:
			s.failf("%+v goes to a Pod that has not answered", a)
		case s.live(target.id) != target || !s.calm && s.chance(20):
			s.logf("%s %s is lost", a.Kind, a.Pod)
			continue
		}
		s.checkAction(a, target)
		if a.Kind == MoveSlots {
			s.move(a, target)
			continue
		}
		if a.Kind == Force || a.Kind == Handover {
			s.asked[target.id] = asking{a.Kind, s.now}
		}
		err := target.do(a)
		s.logf("%s %s %s%s%s: %v — %s", a.Kind, a.Pod, a.ID, a.IP, a.Slots, err, plan.Why)
		s.checkTwice(a, target)
		s.check("an action")
		if !s.calm && s.chance(20) {
			s.tick()
			s.check("a tick within a pass")
		}
	}
	return plan
}

// onPods are the kinds of actions that are carried out by Kubernetes.
var onPods = map[Kind]bool{Remove: true, Replace: true, Consent: true}

// actOnPod carries out such an action.
func (s *sim) actOnPod(a Action) {
	s.t.Helper()
	p := s.place(a.Pod)
	if p == nil || p.leaving {
		return
	}
	s.logf("%s %s", a.Kind, a.Pod)
	s.checkPodAction(a, p)
	switch a.Kind {
	case Remove:
		s.takeAway(p, !s.calm && s.chance(6))
	case Replace:
		s.remake(p, false, false)
	case Consent:
		s.remake(p, false, true)
	}
	s.forgive()
	s.check(string(a.Kind))
}

// move moves slots, and may be interrupted at each command.
func (s *sim) move(a Action, from *server) {
	s.t.Helper()
	err := s.migrate(from, a, func() bool {
		if !s.calm && s.chance(20) {
			s.tick()
			s.check("a tick within a migration")
		}
		return !s.calm && s.chance(12)
	})
	s.logf("%s %s to %s %s: %v", a.Kind, a.Pod, a.Peer, a.Slots, err)
	s.check("a migration")
}

// checkTwice repeats an action now and then, as after a lost answer: nothing may
// come of it.
func (s *sim) checkTwice(a Action, target *server) {
	if a.Kind == Force || a.Kind == Handover || !s.chance(max(4, len(s.places))) {
		return
	}
	was := s.dump()
	_ = target.do(a) // refused or without effect, it does not matter which
	if is := s.dump(); is != was {
		s.failf("%+v done twice changed\n%s\ninto\n%s", a, was, is)
	}
}

// errand is what a person does who is asked to look.
func (s *sim) errand(plan Plan) {
	if s.chance(5) {
		return // not at once
	}
	switch {
	case strings.Contains(plan.Why, "still holds a copy"):
		s.saveBestCopy()
	case strings.Contains(plan.Why, "holds keys of slots that it does not own") && s.decided:
		for _, p := range s.places { // another copy of a shard was preferred
			if p.srv != nil && p.srv.primary && p.srv.slots.Empty() && len(p.srv.data) > 0 {
				s.remake(p, false, true)
			}
		}
		s.forgive()
	default:
		s.failf("a person is asked for: %s", plan.Why)
	}
}

// saveBestCopy: a person looks at all copies of a shard that has no primary, and
// lets the best one win.
func (s *sim) saveBestCopy() {
	s.decided = true
	best := map[int]*place{}
	led := map[int]bool{}
	for _, p := range s.places {
		if p.srv == nil || !p.srv.listens() {
			continue
		}
		led[p.shard] = led[p.shard] || !p.srv.slots.Empty()
		if b := best[p.shard]; len(p.srv.data) > 0 && (b == nil || p.srv.total() > b.srv.total()) {
			best[p.shard] = p
		}
	}
	for _, p := range s.places {
		b := best[p.shard]
		switch {
		case led[p.shard] || b == nil || p.srv == nil || p.srv.primary || s.live(p.srv.follows) != nil:
		case p == b:
			s.logf("a person promotes %s", p.name)
			_ = p.srv.do(Action{Kind: Takeover}) // may be refused; then it is asked for again
		case b.srv.primary && len(p.srv.data) > 0:
			s.logf("a person gives the copy on %s up for the one on %s", p.name, b.name)
			s.remake(p, false, true)
		}
	}
	s.forgive()
}

func (s *server) listens() bool { return s.w.listening(s.ip) == s }

func (s *server) total() int {
	sum := 0
	for _, v := range s.data {
		sum += v
	}
	return sum
}

// forgive takes what is left as the data that must live on, but for what only a
// process has of which nobody knows that it lives.
func (s *sim) forgive() {
	known := *s.world
	known.servers = slices.DeleteFunc(slices.Clone(s.servers), s.unheardOf)
	s.best = known.newest()
}

// check holds the invariants of REDIS facts after every step.
func (s *sim) check(after string) {
	s.t.Helper()
	for i, a := range s.servers {
		s.everOwned = s.everOwned.Union(a.slots)
		for _, b := range s.servers[:i] {
			if both := a.slots.Intersect(b.slots); a.config == b.config && !both.Empty() && !s.unheardOf(a) && !s.unheardOf(b) {
				s.failf("after %s: %s and %s own slots %s in the same epoch, %d", after, a.pod, b.pod, both, a.config)
			}
		}
	}
	have := s.newest()
	for slot, version := range s.best {
		if have[slot] < version {
			s.failf("after %s: version %d of the key in slot %d is lost, the newest is %d", after, version, slot, have[slot])
		}
	}
}

// checkConverged looks at the servers themselves, and not through the planner's eyes.
func (s *sim) checkConverged() {
	s.t.Helper()
	var owned Slots
	primaries := map[int]*server{}
	byPod := map[string]*server{}
	for _, srv := range s.servers {
		byPod[srv.pod] = srv
	}
	for _, p := range s.places {
		if srv := byPod[p.name]; srv.primary {
			if primaries[p.shard] != nil || srv.slots.Empty() {
				s.failf("%s is not its shard's only primary, or owns nothing", p.name)
			}
			primaries[p.shard] = srv
			if both := owned.Intersect(srv.slots); !both.Empty() {
				s.failf("slots %s have two owners", both)
			}
			owned = owned.Union(srv.slots)
		}
	}
	s.checkEven()
	if owned.Count() != SlotCount || len(s.servers) != len(s.places) {
		s.failf("%d slots owned, %d servers for %d Pods", owned.Count(), len(s.servers), len(s.places))
	}
	for _, p := range s.places {
		srv, head := byPod[p.name], primaries[p.shard]
		if srv != head && (srv.follows != head.id || !srv.linkUp || !maps.Equal(srv.data, head.data)) {
			s.failf("%s follows %q with link %v, and not %s with its data", p.name, srv.follows, srv.linkUp, head.id)
		}
		var ids, want []string
		for _, l := range srv.table {
			ids = append(ids, l.id)
		}
		for _, other := range s.servers {
			if other != srv {
				want = append(want, other.id)
			}
		}
		slices.Sort(ids)
		slices.Sort(want)
		if !reflect.DeepEqual(ids, want) {
			s.failf("%s lists %v, and the cluster is %v", p.name, ids, want)
		}
	}
	for slot, version := range s.best {
		owner := 0
		for _, head := range primaries {
			owner = max(owner, head.data[slot])
		}
		if owner < version {
			s.failf("no primary has version %d of the key in slot %d", version, slot)
		}
	}
}

// checkEven: the shards' sizes differ by one slot at most.
func (s *sim) checkEven() {
	least, most := SlotCount, 0
	for _, srv := range s.servers {
		if n := srv.slots.Count(); srv.primary {
			least, most = min(least, n), max(most, n)
		}
	}
	if most-least > 1 {
		s.failf("the shards have %d to %d slots", least, most)
	}
}
