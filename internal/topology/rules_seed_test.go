package topology

import "testing"

func TestAwaitSeeds(t *testing.T) {
	seeds := func(n int) func(*Desired, *Observed) { return func(d *Desired, _ *Observed) { d.Seeds = n } }
	lonely := func(change func(o *Observed)) func(*Desired, *Observed) {
		return func(d *Desired, o *Observed) {
			d.Seeds = 3
			for i := range o.Nodes {
				o.Nodes[i].Peers = nil // nobody has met anybody
			}
			if change != nil {
				change(o)
			}
		}
	}
	checkRule(t, awaitSeeds, []ruleCase{
		{name: "all are there", shards: 3, members: 1, change: lonely(nil), wait: WaitRedis, why: "every shard of the backup is in its place"},
		{name: "the others are not looked at", shards: 3, members: 2, change: lonely(func(o *Observed) { o.pod("c-1-1").Knowledge = Unknown }), wait: WaitRedis, why: "in its place"},
		{name: "more shards than are wanted", shards: 3, members: 1, change: func(d *Desired, o *Observed) {
			lonely(nil)(d, o)
			d.Members = d.Members[:1]
		}, wait: WaitRedis, why: "in its place"},
		{name: "one is unknown", shards: 3, members: 1, change: lonely(func(o *Observed) { o.pod("c-1-0").Knowledge = Unknown }), wait: WaitPods, why: "shard 1 is not up yet"},
		{name: "one is being filled, and looks as if it had nothing", shards: 3, members: 1, change: lonely(func(o *Observed) {
			n := o.pod("c-2-0")
			n.Knowledge, n.Slots = Blank, nil
		}), wait: WaitPods, why: "shard 2 is not up yet"},
		{name: "one has no Pod", shards: 3, members: 1, change: seeds(4), wait: WaitPods, why: "shard 3 is not up yet"},
		{name: "one came up without slots", shards: 3, members: 1, change: lonely(func(o *Observed) { o.pod("c-0-0").Slots = nil }), wait: WaitPerson, why: "c-0-0 should have come up with slots"},
		{name: "one came up as a replica", shards: 3, members: 1, change: lonely(func(o *Observed) { o.pod("c-0-0").Primary = false }), wait: WaitPerson, why: "c-0-0 should have come up with slots"},
		{name: "two have the same", shards: 3, members: 1, change: lonely(func(o *Observed) { o.pod("c-1-0").Slots = o.pod("c-0-0").Slots }), wait: WaitPerson, why: "c-1-0 has come up with slots that another node has"},
		{name: "some are missing", shards: 3, members: 1, change: lonely(func(o *Observed) { o.pod("c-0-0").Slots, _ = o.pod("c-0-0").Slots.cutEnd(2) }), wait: WaitPerson, why: "slots 5460-5461 are not among them"},
	})
}

// TestNothingIsDoneWhileFilling: whatever a cluster needs, it waits for the backup.
func TestNothingIsDoneWhileFilling(t *testing.T) {
	d, o := strangers(3, 2)
	if len(Next(d, o).Actions) == 0 {
		t.Fatal("new nodes need nothing")
	}
	d.Seeds = 3
	if p := Next(d, o); len(p.Actions) > 0 {
		t.Errorf("%v", p.Actions)
	}
	if Seeded(d, o) {
		t.Error("nodes without slots pass for filled ones")
	}
	d, o = cluster(3, 1)
	if Seeded(d, o) {
		t.Error("a cluster that is not filled passes for one that is")
	}
	d.Seeds = 3
	if !Seeded(d, o) {
		t.Error("three primaries with all slots do not pass for filled ones")
	}
}

func TestNoSlotMovesDuringABackup(t *testing.T) {
	half := func(d *Desired, o *Observed) { // the second shard has yet to get its share
		d.Backup = "nightly"
		first, second := o.pod("c-0-0"), o.pod("c-1-0")
		first.Slots, second.Slots = AllSlots, nil
		acquaint(o)
	}
	checkRule(t, rebalance, []ruleCase{
		{name: "slots are to be moved", shards: 2, members: 1, change: half, wait: WaitRedis, why: "waits for the end of backup nightly"},
		{name: "nothing is to be moved", shards: 2, members: 1, change: func(d *Desired, _ *Observed) { d.Backup = "nightly" }},
	})
	some := SlotsOf(Range{100, 109})
	checkRule(t, closeSlots, []ruleCase{{
		name: "what was begun is finished", shards: 2, members: 2,
		change: func(d *Desired, o *Observed) {
			d.Backup = "nightly"
			o.pod("c-0-0").Migrating = map[string]Slots{"id-1-0": some}
		},
		want: []Action{moveTo("c-0-0", "id-1-0", Range{100, 109})}, why: "get there",
	}})
}

func TestMovesSlots(t *testing.T) {
	d, o := cluster(2, 2)
	if MovesSlots(Next(d, o), o) {
		t.Error("a cluster at rest moves slots")
	}
	o.pod("c-0-0").Migrating = map[string]Slots{"id-1-0": SlotsOf(Range{100, 109})}
	if !MovesSlots(Plan{}, o) {
		t.Error("an open slot is not on its way")
	}
	o.pod("c-0-0").Knowledge = Unknown
	if MovesSlots(Plan{}, o) {
		t.Error("what is known of a node that does not answer is old")
	}
	if !MovesSlots(Plan{Actions: []Action{{Kind: MoveSlots}}}, o) {
		t.Error("a plan that moves slots does not")
	}
}
