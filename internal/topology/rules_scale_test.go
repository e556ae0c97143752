package topology

import "testing"

// moveTo is a migration between two Pods of builders' clusters.
func moveTo(pod, id string, ranges ...Range) Action {
	return Action{Kind: MoveSlots, Pod: pod, ID: id, Slots: SlotsOf(ranges...)}
}

func TestCloseSlots(t *testing.T) {
	some := SlotsOf(Range{100, 109})
	marks := func(id string) map[string]Slots { return map[string]Slots{id: some} }
	checkRule(t, closeSlots, []ruleCase{
		{name: "nothing is open", shards: 2, members: 2},
		{
			name: "both sides have it open: it goes on", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-0").Migrating, o.pod("c-1-0").Importing = marks("id-1-0"), marks("id-0-0")
			},
			want: []Action{moveTo("c-0-0", "id-1-0", Range{100, 109})}, why: "get there",
		},
		{
			name: "the owner has lost its mark: it goes on", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-0").Importing = marks("id-0-0") },
			want:   []Action{moveTo("c-0-0", "id-1-0", Range{100, 109})}, why: "get there",
		},
		{
			name: "the target has lost its mark: it goes on", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-0").Migrating = marks("id-1-0") },
			want:   []Action{moveTo("c-0-0", "id-1-0", Range{100, 109})}, why: "get there",
		},
		{
			name: "the target was replaced by its replica, which gets them", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-0").Migrating = marks("id-1-0")
				head, replica := o.pod("c-1-0"), o.pod("c-1-1")
				replica.Primary, replica.Follows, replica.Slots, replica.ConfigEpoch = true, "", head.Slots, 9
				head.follow(replica)
				acquaint(o)
			},
			want: []Action{moveTo("c-0-0", "id-1-1", Range{100, 109})}, why: "get there",
		},
		{
			name: "two nodes import it: one of them gets it", shards: 3, members: 1,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-1-0").Importing, o.pod("c-2-0").Importing = marks("id-0-0"), marks("id-0-0")
			},
			want: []Action{moveTo("c-0-0", "id-1-0", Range{100, 109})}, why: "get there",
		},
		{
			name: "it has arrived: the mark is taken off", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-0").Importing = marks("id-1-0") },
			want:   []Action{{Kind: CloseSlots, Pod: "c-0-0", Slots: some}}, why: "not on their way any more",
		},
		{
			name: "a mark for slots of somebody else is taken off", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-0").Migrating = marks("id-0-0") },
			want:   []Action{{Kind: CloseSlots, Pod: "c-1-0", Slots: some}}, why: "not on their way any more",
		},
		{
			name: "a second owner in a shard goes on with what it gives", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				secondOwner(o)
				o.pod("c-0-1").Migrating = marks("id-0-0")
			},
			want: []Action{moveTo("c-0-1", "id-0-0", Range{100, 109})}, why: "get there",
		},
		{
			name: "a primary that was succeeded does not", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-0").Migrating = marks("id-1-0")
				heir := o.pod("c-0-1")
				heir.Primary, heir.Follows, heir.Slots, heir.ConfigEpoch = true, "", o.pod("c-0-0").Slots, 9
			},
		},
		{
			name: "a target that nobody knows: the mark is taken off", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-0").Migrating = marks("gone") },
			want:   []Action{{Kind: CloseSlots, Pod: "c-0-0", Slots: some}}, why: "not on their way any more",
		},
		{
			name: "unknown: the target does not answer", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-0").Migrating = marks("id-1-0"); o.silence("c-1-0") },
			wait:   WaitRedis, why: "to a node that does not answer",
		},
		{
			name: "unknown: a target that nobody knows while a Pod does not answer", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-0").Migrating = marks("gone"); o.silence("c-1-1") },
			wait:   WaitRedis, why: "to a node that does not answer",
		},
		{
			name: "unknown: the owner does not answer", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-0").Importing = marks("id-0-0"); o.silence("c-0-0") },
			wait:   WaitRedis, why: "have no owner",
		},
	})
}

func TestDiscard(t *testing.T) {
	some := SlotsOf(Range{9000, 9009})
	succeeded := func(_ *Desired, o *Observed) {
		old, heir := o.pod("c-0-0"), o.pod("c-0-1")
		heir.Primary, heir.Follows, heir.Slots, heir.ConfigEpoch = true, "", old.Slots, 9
		old.Slots, old.Importing, old.Keys = nil, map[string]Slots{"id-1-0": some}, 5
		acquaint(o)
	}
	checkRule(t, discard, []ruleCase{
		{name: "nothing is open", shards: 2, members: 2},
		{
			name: "a primary was succeeded while it imported", shards: 2, members: 2, change: succeeded,
			want: []Action{{Kind: Discard, Pod: "c-0-0", Slots: some}}, why: "drop what they had got",
		},
		{
			name: "its successor has the older epoch: not succeeded", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { succeeded(d, o); o.pod("c-0-1").ConfigEpoch = 0 },
		},
		{
			name: "unknown: the owner of the slots does not answer, and they may be nowhere else", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { succeeded(d, o); o.silence("c-1-0") },
		},
		{
			name: "unknown: the successor does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { succeeded(d, o); o.silence("c-0-1") },
		},
		{
			name: "it still owns slots", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { succeeded(d, o); o.pod("c-0-0").Slots = SlotsOf(Range{1, 1}) },
		},
	})
}

// secondOwner has the first slots of the first shard owned by its second member.
func secondOwner(o *Observed) {
	head, second := o.pod("c-0-0"), o.pod("c-0-1")
	second.Primary, second.Follows, second.Source, second.LinkUp, second.ConfigEpoch = true, "", "", false, 9
	second.Slots = SlotsOf(Range{0, 199})
	head.Slots = head.Slots.Minus(second.Slots)
	acquaint(o)
}

// grown asks for one more shard of two, whose Pods have joined and are in sync.
func grown(d *Desired, o *Observed) {
	d.Members = append(d.Members, 2)
	_, more := cluster(3, 2)
	for _, n := range more.Nodes[4:] {
		n.Slots, n.Keys = nil, 0
		o.Nodes = append(o.Nodes, n)
	}
	acquaint(o)
}

func TestRebalance(t *testing.T) {
	checkRule(t, rebalance, []ruleCase{
		{name: "even", shards: 3, members: 2},
		{
			name: "a new shard gets its first slot by itself, and from everybody", shards: 2, members: 2, change: grown,
			want: []Action{moveTo("c-0-0", "id-2-0", Range{8191, 8191})}, why: "its share",
		},
		{
			name: "then the rest, from the ends", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				grown(d, o)
				first := SlotsOf(Range{8191, 8191})
				o.pod("c-0-0").Slots, o.pod("c-2-0").Slots = o.pod("c-0-0").Slots.Minus(first), first
				acquaint(o)
			},
			want: []Action{
				moveTo("c-0-0", "id-2-0", Range{5461, 8190}),
				moveTo("c-1-0", "id-2-0", Range{13654, 16383}),
			}, why: "its share",
		},
		{
			name: "a replica of the new shard is not in sync yet", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.pod("c-2-1").LinkUp = false },
			wait:   WaitRedis, why: "c-2-1 is not yet",
		},
		{
			name: "unknown: a Pod of the new shard does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.silence("c-2-1") },
			wait:   WaitPods, why: "nothing is known yet of c-2-1",
		},
		{
			name: "unknown: a primary that has slots does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.silence("c-0-0") },
		},
		{
			name: "a replica of an old shard that is away holds up nothing", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.silence("c-0-1") },
			want:   []Action{moveTo("c-0-0", "id-2-0", Range{8191, 8191})}, why: "its share",
		},
		{
			name: "a primary does not find the cluster in order", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.pod("c-2-0").ClusterOK = false },
			wait:   WaitRedis, why: "c-2-0 does not find the cluster in order yet",
		},
		{
			name: "two nodes claim a slot", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				grown(d, o)
				o.pod("c-1-0").Slots = o.pod("c-1-0").Slots.Union(SlotsOf(Range{5, 5}))
			},
			wait: WaitRedis, why: "slots 5 are claimed by two nodes",
		},
		{
			name: "a second owner in a shard gives all that it has", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { secondOwner(o) },
			want:   []Action{moveTo("c-0-1", "id-0-0", Range{0, 199})}, why: "its share",
		},
		{
			name: "a shard that is not wanted gives all that it has", shards: 3, members: 1,
			change: func(d *Desired, _ *Observed) { d.Members = d.Members[:2] },
			want: []Action{
				moveTo("c-2-0", "id-0-0", Range{13654, 16383}),
				moveTo("c-2-0", "id-1-0", Range{10923, 13653}),
			}, why: "its share",
		},
		{
			name: "one whose volume is being deleted gets nothing", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { grown(d, o); o.pod("c-2-0").Doomed = true },
		},
	})
}

func TestRemove(t *testing.T) {
	gone := func(pods ...string) []Action {
		var out []Action
		for _, pod := range pods {
			out = append(out, Action{Kind: Remove, Pod: pod, ID: "id" + pod[1:]})
		}
		return out
	}
	// fewer asks for one member in each shard, smaller for one shard less.
	fewer := func(d *Desired, _ *Observed) {
		for i := range d.Members {
			d.Members[i] = 1
		}
	}
	drained := func(d *Desired, o *Observed) {
		d.Members = d.Members[:2]
		halves := AllSlots.Split(2)
		o.pod("c-0-0").Slots, o.pod("c-1-0").Slots, o.pod("c-2-0").Slots = halves[0], halves[1], nil
		o.pod("c-2-0").Keys, o.pod("c-2-1").Keys = 0, 0
		acquaint(o)
	}
	checkRule(t, remove, []ruleCase{
		{name: "all are wanted", shards: 2, members: 2},
		{name: "replicas at once", shards: 2, members: 2, change: fewer, want: gone("c-0-1", "c-1-1"), why: "not wanted any more"},
		{name: "an empty shard", shards: 3, members: 2, change: drained, want: gone("c-2-0", "c-2-1"), why: "not wanted any more"},
		{
			name: "one that still owns slots stays", shards: 3, members: 2,
			change: func(d *Desired, _ *Observed) { d.Members = d.Members[:2] },
			wait:   WaitRedis, why: "once its slots are",
		},
		{
			name: "one that owns no slots and still holds keys stays", shards: 3, members: 2,
			change: func(d *Desired, o *Observed) { drained(d, o); o.pod("c-2-0").Keys = 7 },
			want:   gone("c-2-1"), why: "not wanted any more",
		},
		{
			name: "and says so", shards: 3, members: 1,
			change: func(d *Desired, o *Observed) {
				d.Members = d.Members[:2]
				halves := AllSlots.Split(2)
				o.pod("c-0-0").Slots, o.pod("c-1-0").Slots, o.pod("c-2-0").Slots = halves[0], halves[1], nil
				o.pod("c-2-0").Keys = 7
			},
			wait: WaitPerson, why: "still holds 7 keys",
		},
		{
			name: "a primary hands over before it goes", shards: 1, members: 2,
			change: func(d *Desired, o *Observed) {
				fewer(d, o)
				staying, going := o.pod("c-0-0"), o.pod("c-0-1")
				going.Primary, going.Follows, going.Slots, going.Source, going.LinkUp = true, "", staying.Slots, "", false
				staying.follow(going)
				going.Streams = []string{staying.IP}
				acquaint(o)
			},
			want: []Action{{Kind: Handover, Pod: "c-0-0", ID: "id-0-1"}}, why: "a replica takes its place",
		},
		{
			name: "unknown: one that does not answer may hold something", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { fewer(d, o); o.silence("c-0-1", "c-1-1") },
			wait:   WaitPods, why: "once it is known what it holds",
		},
		{
			name: "one in which no process runs", shards: 1, members: 2,
			change: func(d *Desired, o *Observed) { fewer(d, o); o.silence("c-0-1"); o.pod("c-0-1").Idle = true },
			want:   []Action{{Kind: Remove, Pod: "c-0-1"}}, why: "not wanted any more",
		},
		{
			name: "unknown: a slot without owner may be there", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { fewer(d, o); o.silence("c-1-0") },
			wait:   WaitRedis, why: "as long as some slots have no owner",
		},
		{
			name: "one that stays is not in its place", shards: 1, members: 2,
			change: func(d *Desired, o *Observed) { fewer(d, o); o.pod("c-0-0").PodReady = false },
			wait:   WaitPods, why: "once the nodes of shard 0 that stay are in their places",
		},
	})
}
