package topology

import (
	"fmt"
	"slices"
	"testing"
)

func greet(pod, id, ip string) Action { return Action{Kind: Meet, Pod: pod, ID: id, IP: ip} }

func TestHealAddresses(t *testing.T) {
	moved := func(o *Observed) { o.eachLine("id-0-0", func(p *Peer) { p.IP = "10.9.9.9" }) }
	checkRule(t, healAddresses, []ruleCase{
		{name: "addresses are right", shards: 2, members: 2},
		{
			name: "a Pod came back with another address", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { moved(o) },
			want: []Action{
				greet("c-0-1", "id-0-0", "10.0.0.1"), greet("c-1-0", "id-0-0", "10.0.0.1"), greet("c-1-1", "id-0-0", "10.0.0.1"),
			},
			why: "addresses that have changed",
		},
		{
			name: "a node that has no address any more (noaddr)", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { o.eachLine("id-0-0", func(p *Peer) { p.IP, p.Failed = "", true }) },
			want:   []Action{greet("c-1-0", "id-0-0", "10.0.0.1")}, why: "addresses",
		},
		{
			name: "all Pods came back with other addresses", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				for i := range o.Nodes {
					for j := range o.Nodes[i].Peers {
						o.Nodes[i].Peers[j].IP = "10.9.9.9"
					}
				}
			},
			want: []Action{greet("c-0-0", "id-1-0", "10.0.1.1"), greet("c-1-0", "id-0-0", "10.0.0.1")}, why: "addresses",
		},
		{
			name: "unknown: neither asked nor met", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { moved(o); o.silence("c-0-0", "c-1-1") },
		},
		{
			name: "a Pod without an address is not met", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { moved(o); o.pod("c-0-0").IP = "" },
		},
		{
			name: "the line of a handshake is no member's", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				n := o.pod("c-1-0")
				n.Peers = append(n.Peers, Peer{ID: "id-0-0", IP: "10.9.9.9", Handshake: true})
			},
		},
		{
			name: "they are shaking hands already", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				moved(o)
				n := o.pod("c-1-0")
				n.Peers = append(n.Peers, Peer{ID: "made-up", IP: "10.0.0.1", Handshake: true})
			},
			wait: WaitRedis, why: "shaking hands",
		},
	})
}

// In a cluster that is large the number of handshakes stays linear.
func TestHealAddressesOfManyNodes(t *testing.T) {
	d, o := cluster(50, 2)
	// Gossip gives no address to a node that has none.
	far := o.pod("c-40-0")
	far.Peers[len(far.Peers)-1].IP = ""
	if p := healAddresses(d, o); len(p.Actions) != 1 || p.Actions[0].Pod != far.Pod || p.Actions[0].IP != o.pod("c-49-1").IP {
		t.Errorf("a node without an address in one table: %v", p.Actions)
	}
	far.Peers[len(far.Peers)-1].IP = o.pod("c-49-1").IP

	for i := range o.Nodes {
		o.Nodes[i].IP += "9"
	}
	p := healAddresses(d, o)
	most := 2*hubs*len(o.Nodes) + len(o.Nodes)
	if len(p.Actions) > most {
		t.Errorf("%d handshakes for %d nodes, want %d at most", len(p.Actions), len(o.Nodes), most)
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n.Primary {
			continue
		}
		head := o.Head(n.Shard)
		if !slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Pod == n.Pod && a.ID == head.ID && a.IP == head.IP }) {
			t.Errorf("%s is not told the address of its primary %s", n.Pod, head.Pod)
		}
	}
}

func TestSetEpochs(t *testing.T) {
	fresh := func(shards, members int) func(*Desired, *Observed) {
		return func(_ *Desired, o *Observed) { _, f := strangers(shards, members); o.Nodes = f.Nodes }
	}
	set := func(pod string, step uint64) Action { return Action{Kind: SetEpoch, Pod: pod, Epoch: step * epochStep} }
	checkRule(t, setEpochs, []ruleCase{
		{name: "all have theirs", shards: 2, members: 2},
		{
			name: "new nodes, each its own", shards: 1, members: 1, change: fresh(2, 2),
			want: []Action{set("c-0-0", 1), set("c-0-1", 2), set("c-1-0", 3), set("c-1-1", 4)}, why: "epochs",
		},
		{
			name: "one that joins later gets one above all that any table has", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				n := o.pod("c-0-0")
				n.Knowledge, n.ID, n.IP, n.Primary = Answered, "new", "10.9.9.9", true
				o.eachLine("id-0-0", func(p *Peer) { p.Epoch = 5*epochStep + 3 })
			},
			want: []Action{set("c-0-0", 7)}, why: "epochs",
		},
		{
			name: "refused by Redis once a node knows somebody, be it by a handshake", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) {
				fresh(1, 2)(d, o)
				o.pod("c-0-0").Peers = []Peer{{ID: "made-up", IP: "10.9.9.9", Handshake: true}}
			},
			want: []Action{set("c-0-1", 2)}, why: "epochs",
		},
		{
			name: "unknown and blank", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) {
				fresh(1, 3)(d, o)
				o.silence("c-0-0")
				o.pod("c-0-1").Knowledge = Blank
			},
			want: []Action{set("c-0-2", 3)}, why: "epochs",
		},
	})
}

// However few nodes are seen at a time, no two get the same epoch.
func TestSetEpochsOneByOne(t *testing.T) {
	d, o := strangers(3, 3)
	given := map[uint64]string{}
	for seen := range o.Nodes {
		for i := range o.Nodes {
			o.Nodes[i].Knowledge = Unknown
		}
		o.Nodes[seen].Knowledge = Answered
		for _, a := range setEpochs(d, o).Actions {
			if other := given[a.Epoch]; other != "" {
				t.Errorf("%s and %s both get epoch %d", a.Pod, other, a.Epoch)
			}
			given[a.Epoch] = a.Pod
		}
	}
	if len(given) != len(o.Nodes) {
		t.Errorf("%d epochs for %d nodes", len(given), len(o.Nodes))
	}
}

func TestMeet(t *testing.T) {
	apart := func(o *Observed, a, b string) {
		for _, pair := range [][2]string{{a, b}, {b, a}} {
			n, id := o.pod(pair[0]), o.pod(pair[1]).ID
			n.Peers = slices.DeleteFunc(n.Peers, func(p Peer) bool { return p.ID == id })
		}
	}
	checkRule(t, meet, []ruleCase{
		{name: "all know each other", shards: 2, members: 2},
		{name: "a single node", shards: 1, members: 1},
		{
			name: "strangers: the first asks", shards: 1, members: 1,
			change: func(_ *Desired, o *Observed) { _, f := strangers(3, 1); o.Nodes = f.Nodes },
			want: []Action{
				greet("c-0-0", "id-1-0", "10.0.1.1"), greet("c-0-0", "id-2-0", "10.0.2.1"), greet("c-1-0", "id-2-0", "10.0.2.1"),
			},
			why: "have to meet",
		},
		{
			name: "known on one side: the other one asks", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-0").Peers = nil },
			want:   []Action{greet("c-1-0", "id-0-0", "10.0.0.1")}, why: "have to meet",
		},
		{
			name: "the handshake is under way", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-1-0").Peers = []Peer{{ID: "made-up", IP: "10.0.0.1", Handshake: true}}
			},
			wait: WaitRedis, why: "shaking hands",
		},
		{
			name: "strangers that own the same slots must not meet", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) {
				apart(o, "c-0-0", "c-1-0")
				o.pod("c-1-0").Slots = o.pod("c-0-0").Slots
			},
			wait: WaitPerson, why: "c-0-0 and c-1-0 do not know each other and both own slots 0-8191",
		},
		{
			name: "acquainted ones that do settle it between them", shards: 2, members: 1,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-0").Slots = o.pod("c-0-0").Slots },
		},
		{
			name: "nor through a third that both could meet, beyond the hubs", shards: 6, members: 2,
			change: func(_ *Desired, o *Observed) {
				apart(o, "c-4-0", "c-5-0")
				o.pod("c-5-0").Slots = o.pod("c-4-0").Slots
				o.pod("c-0-0").Peers = nil
			},
			wait: WaitPerson, why: "c-4-0 and c-5-0 do not know each other",
		},
		{
			name: "unknown and blank: not met", shards: 1, members: 1,
			change: func(_ *Desired, o *Observed) {
				_, f := strangers(3, 1)
				o.Nodes = f.Nodes
				o.silence("c-1-0")
				o.pod("c-2-0").Knowledge = Blank
			},
		},
		{
			name: "nor a Pod without an address", shards: 1, members: 1,
			change: func(_ *Desired, o *Observed) {
				_, f := strangers(2, 1)
				o.Nodes = f.Nodes
				o.pod("c-1-0").IP = ""
			},
		},
	})
}

// Beyond the hubs gossip spreads the word: handshakes stay linear, and the graph
// of acquaintances is connected.
func TestMeetManyNodes(t *testing.T) {
	for _, n := range []int{2, hubs, hubs + 1, 40, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d, o := strangers(n, 1)
			p := meet(d, o)
			if most := hubs * n; len(p.Actions) > most {
				t.Errorf("%d handshakes, want %d at most", len(p.Actions), most)
			}
			reached := map[string]bool{o.Nodes[0].ID: true}
			for _, a := range p.Actions {
				if reached[o.pod(a.Pod).ID] {
					reached[a.ID] = true
				}
			}
			if len(reached) != n {
				t.Errorf("%d of %d nodes are reached from the first", len(reached), n)
			}
		})
	}
}

func TestForget(t *testing.T) {
	past := func(o *Observed, p Peer) {
		for i := range o.Nodes {
			o.Nodes[i].Peers = append(o.Nodes[i].Peers, p)
		}
	}
	gone := Peer{ID: "past", IP: "10.9.9.9", Failed: true}
	all := []Action{{Kind: Forget, Pod: "c-0-0", ID: "past"}, {Kind: Forget, Pod: "c-0-1", ID: "past"}}
	checkRule(t, forgetAndWait, []ruleCase{
		{name: "no node of the past", shards: 2, members: 2},
		{
			name: "one that everybody marks as failed", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { past(o, gone) }, want: all, why: "forgotten",
		},
		{
			name: "known to one node alone", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { n := o.pod("c-0-1"); n.Peers = append(n.Peers, gone) },
			want:   all[1:], why: "forgotten",
		},
		{
			name: "one node can still reach it", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { past(o, gone); o.pod("c-0-1").Peers[1].Failed = false },
			wait:   WaitRedis, why: "not marked as failed",
		},
		{
			name: "its process has ended, whatever they mark", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				past(o, Peer{ID: "past", IP: "10.9.9.9"})
				o.Ended = map[string]bool{"past": true}
			},
			want: all, why: "forgotten",
		},
		{
			name: "it owns slots in somebody's eyes", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { past(o, gone); o.pod("c-0-1").Peers[1].Slots = Slots{{5, 5}} },
			wait:   WaitRedis, why: "not marked as failed",
		},
		{
			name: "somebody follows it", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { past(o, gone); o.pod("c-0-1").Follows = "past" },
			wait:   WaitRedis, why: "not marked as failed",
		},
		{
			name: "a handshake is not forgotten", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				past(o, Peer{ID: "made-up", IP: "10.9.9.9", Handshake: true, Failed: true})
			},
		},
		{
			name: "a member that is marked as failed and answers", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.failed("id-0-1") },
		},
		{
			name: "unknown: it could be the node that does not answer", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { past(o, gone); o.silence("c-1-1") },
		},
		{
			name: "blank: that one is nobody's past", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) { o.end("c-0-2"); o.failed("id-0-2") },
			want:   []Action{{Kind: Forget, Pod: "c-0-0", ID: "id-0-2"}, {Kind: Forget, Pod: "c-0-1", ID: "id-0-2"}}, why: "forgotten",
		},
	})
}

// forgetAndWait are the two rules about nodes of the past, as Next tries them.
func forgetAndWait(d Desired, o *Observed) Plan {
	if p := forget(d, o); !p.Empty() {
		return p
	}
	return awaitForget(d, o)
}
