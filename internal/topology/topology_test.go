package topology

import "testing"

func TestHead(t *testing.T) {
	halves := AllSlots.Split(2)
	for _, tt := range []struct {
		name   string
		change func(o *Observed)
		want   string // the Pod, empty for none
	}{
		{"the primary", func(*Observed) {}, "c-0-0"},
		{"nobody owns slots", func(o *Observed) { o.pod("c-0-0").Slots = nil }, ""},
		{"unknown: it does not answer", func(o *Observed) { o.silence("c-0-0") }, ""},
		{"the role is not in the name", func(o *Observed) { o.pod("c-0-1").Slots, o.pod("c-0-0").Slots = AllSlots, nil }, "c-0-1"},
		{"two own different slots: the one with more", func(o *Observed) {
			o.pod("c-0-0").Slots, o.pod("c-0-1").Slots = Slots{{0, 9}}, Slots{{10, 99}}
		}, "c-0-1"},
		{"as many: the first", func(o *Observed) { o.pod("c-0-0").Slots, o.pod("c-0-1").Slots = halves[0], halves[1] }, "c-0-0"},
		{"two claim the same slots: the higher epoch", func(o *Observed) {
			o.pod("c-0-1").Slots, o.pod("c-0-1").ConfigEpoch = AllSlots, 5
		}, "c-0-1"},
		{"what it has lost to a higher epoch does not count", func(o *Observed) {
			o.pod("c-0-0").Slots = Slots{{0, 12000}}
			o.pod("c-0-1").Slots, o.pod("c-0-1").ConfigEpoch = Slots{{1000, 12000}}, 5
		}, "c-0-1"},
		{"members of other shards do not count", func(o *Observed) { o.pod("c-0-0").Shard = 7 }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := cluster(1, 2)
			tt.change(o)
			got := ""
			if head := o.Head(0); head != nil {
				got = head.Pod
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if head := o.heads()[0]; head != o.Head(0) {
				t.Errorf("heads has %v, Head %v", head, o.Head(0))
			}
		})
	}
}

func TestConverged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(d *Desired, o *Observed)
		want   bool
		pod    string // does not hold its role
	}{
		{"all is well", func(*Desired, *Observed) {}, true, ""},
		{"another member is the primary", func(_ *Desired, o *Observed) {
			o.pod("c-0-1").Primary, o.pod("c-0-1").Slots, o.pod("c-0-1").Follows = true, o.pod("c-0-0").Slots, ""
			o.pod("c-0-0").follow(o.pod("c-0-1"))
		}, true, ""},
		{"a link is down", func(_ *Desired, o *Observed) { o.pod("c-0-1").LinkUp = false }, false, "c-0-1"},
		{"it follows another shard's primary", func(_ *Desired, o *Observed) { o.pod("c-0-1").follow(o.pod("c-1-0")) }, false, "c-0-1"},
		{"a primary without slots", func(_ *Desired, o *Observed) { o.pod("c-0-1").Primary = true }, false, "c-0-1"},
		{"a node that finds the cluster in disorder", func(_ *Desired, o *Observed) { o.pod("c-1-0").ClusterOK = false }, false, "c-1-0"},
		{"a node that does not answer", func(_ *Desired, o *Observed) { o.silence("c-1-1") }, false, "c-1-1"},
		{"a Pod that is not ready", func(_ *Desired, o *Observed) { o.pod("c-1-1").PodReady = false }, false, ""},
		{"a node that cannot route to all slots", func(_ *Desired, o *Observed) { o.pod("c-1-1").Unrouted = true }, false, ""},
		{"a slot without an owner", func(_ *Desired, o *Observed) { o.pod("c-0-0").Slots = Slots{{1, 8191}} }, false, ""},
		{"one node too many", func(d *Desired, _ *Observed) { d.Members = []int{2, 1} }, false, ""},
		{"one too few", func(d *Desired, _ *Observed) { d.Members = []int{2, 3} }, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, o := cluster(2, 2)
			tt.change(&d, o)
			if got := Converged(d, o); got != tt.want {
				t.Errorf("Converged: %v, want %v", got, tt.want)
			}
			for i := range o.Nodes {
				n := &o.Nodes[i]
				if got := o.HoldsRole(n); got != (n.Pod != tt.pod) {
					t.Errorf("HoldsRole of %s: %v", n.Pod, got)
				}
			}
		})
	}
}

func TestComplete(t *testing.T) {
	_, o := cluster(1, 3)
	o.pod("c-0-1").Knowledge = Blank
	if !o.Complete() {
		t.Error("a blank node is as good as known")
	}
	if owned := o.Owned(); owned.Count() != SlotCount {
		t.Errorf("owned are %s", owned)
	}
	o.silence("c-0-0")
	if o.Complete() || !o.Owned().Empty() {
		t.Errorf("complete %v, owned %s, without the primary", o.Complete(), o.Owned())
	}
}
