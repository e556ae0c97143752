package topology

import (
	"maps"
	"slices"
	"testing"
)

func TestOutAndUnmet(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(d *Desired, o *Observed)
		out    []string
		unmet  bool // all that are out
	}{
		{"none", func(*Desired, *Observed) {}, nil, true},
		{"unknown: it does not answer", func(_ *Desired, o *Observed) { o.silence("c-0-1") }, []string{"c-0-1"}, false},
		{"it ended", func(_ *Desired, o *Observed) { o.end("c-0-0") }, []string{"c-0-0", "c-0-1"}, false},
		{"its link is down", func(_ *Desired, o *Observed) { o.pod("c-0-1").LinkUp = false }, []string{"c-0-1"}, false},
		{"it is ready no more", func(_ *Desired, o *Observed) { o.pod("c-1-0").PodReady = false }, []string{"c-1-0"}, false},
		{"it ends", func(_ *Desired, o *Observed) { o.pod("c-1-0").Ending = true }, []string{"c-1-0"}, false},
		{"it is a primary without slots", func(_ *Desired, o *Observed) { o.pod("c-1-1").Primary = true }, []string{"c-1-1"}, false},
		{"it finds the cluster broken, by another's fault", func(_ *Desired, o *Observed) { o.pod("c-1-0").ClusterOK = false }, nil, true},
		{"it is not wanted", func(d *Desired, o *Observed) { d.Members = []int{2}; o.silence("c-1-0") }, nil, true},
		{"it has never been made", func(d *Desired, o *Observed) {
			d.Members[0] = 3
			o.Nodes = append(o.Nodes, Node{Pod: "c-0-2", Ordinal: 2, Idle: true})
		}, []string{"c-0-2"}, true},
		{"nobody has met it", func(d *Desired, o *Observed) {
			d.Members[0] = 3
			o.Nodes = append(o.Nodes, Node{Pod: "c-0-2", Ordinal: 2, Knowledge: Answered, ID: "x", Primary: true, PodReady: true})
		}, []string{"c-0-2"}, true},
		{"nobody has met it, and it may be one that was lost", func(_ *Desired, o *Observed) {
			o.end("c-0-1")
			n := o.pod("c-0-1")
			n.Knowledge, n.ID, n.Primary = Answered, "x", true
		}, []string{"c-0-1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, o := cluster(2, 2)
			tt.change(&d, o)
			var out []string
			unmet := true
			all := Out(d, o)
			for _, n := range all {
				out, unmet = append(out, n.Pod), unmet && Unmet(o, all)[n]
			}
			if !slices.Equal(out, tt.out) || unmet != tt.unmet {
				t.Errorf("out %v, unmet %v; want %v, %v", out, unmet, tt.out, tt.unmet)
			}
		})
	}
}

func TestMissed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(o *Observed)
		want   []int
	}{
		{"none", func(*Observed) {}, nil},
		{"a replica does not answer", func(o *Observed) { o.silence("c-0-1") }, []int{0}},
		{"a new member is not met yet", func(o *Observed) { o.Nodes = append(o.Nodes, Node{Pod: "c-0-2", Ordinal: 2}) }, nil},
		{"a handshake is nobody's", func(o *Observed) {
			o.pod("c-0-0").Peers = append(o.pod("c-0-0").Peers, Peer{ID: "x", Handshake: true})
		}, nil},
		{"a primary does not answer: its slots are missed, not a replica", func(o *Observed) { o.silence("c-0-0") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := cluster(2, 2)
			tt.change(o)
			if got := slices.Sorted(maps.Keys(Missed(o))); !slices.Equal(got, tt.want) {
				t.Errorf("shards %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLostSlots(t *testing.T) {
	half := AllSlots.Split(2)[0]
	for _, tt := range []struct {
		name   string
		change func(o *Observed)
		want   Slots
	}{
		{"none", func(*Observed) {}, nil},
		{"unknown: others reach the owner", func(o *Observed) { o.silence("c-0-0") }, nil},
		{"others have lost the owner", func(o *Observed) { o.silence("c-0-0"); o.failed("id-0-0") }, half},
		{"nothing runs in its Pod", func(o *Observed) { o.silence("c-0-0"); o.pod("c-0-0").Idle = true }, half},
		{"its Pod has no address", func(o *Observed) { o.silence("c-0-0"); o.pod("c-0-0").IP = "" }, half},
		{"the start guard holds it", func(o *Observed) { o.silence("c-0-0"); o.pod("c-0-0").Held = true }, half},
		{"its Pod is another one, at an address that nobody knows", func(o *Observed) { o.silence("c-0-0"); o.pod("c-0-0").IP = "10.9.9.9" }, half},
		{"it ended and has not started again", func(o *Observed) { o.end("c-0-0") }, half},
		{"it finds the cluster down", func(o *Observed) { o.pod("c-0-0").ClusterOK = false }, half},
		{"unknown: nobody answers", func(o *Observed) { o.silence("c-0-0", "c-0-1", "c-1-0", "c-1-1") }, nil},
		{"nothing runs at all", func(o *Observed) {
			o.silence("c-0-0", "c-0-1", "c-1-0", "c-1-1")
			for i := range o.Nodes {
				o.Nodes[i].Idle = true
			}
		}, AllSlots},
		{"it hands over", func(o *Observed) { handsOver(o, false) }, nil},
		{"it was to hand over and has not in time", func(o *Observed) { handsOver(o, true) }, half},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := cluster(2, 2)
			tt.change(o)
			if got := Lost(o); !slices.Equal(got, tt.want) {
				t.Errorf("lost %v, want %v", got, tt.want)
			}
		})
	}
}

// handsOver is the moment in which the primary of shard 0 was seen after it had given
// its slots up, and the replica before it had got them.
func handsOver(o *Observed, due bool) {
	n := o.pod("c-0-0")
	n.Primary, n.Slots, n.Follows = false, nil, "id-0-1"
	o.Asked = map[string]Asked{"id-0-1": {Kind: Handover, Due: due}}
}
