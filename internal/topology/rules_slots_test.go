package topology

import "testing"

func TestAssignSlots(t *testing.T) {
	anew := func(shards, members int) func(*Desired, *Observed) {
		return func(d *Desired, o *Observed) {
			fd, f := strangers(shards, members)
			*d, o.Nodes = fd, f.Nodes
			acquaint(o)
		}
	}
	add := func(pod string, s Slots) Action { return Action{Kind: AddSlots, Pod: pod, Slots: s} }
	halves, thirds := AllSlots.Split(2), AllSlots.Split(3)
	// lostShard: all members of shard 0 ended and came back as other nodes.
	lostShard := func(_ *Desired, o *Observed) {
		o.end("c-0-0", "c-0-1")
		o.failed("id-0-0", "id-0-1")
		o.rejoin("c-0-0").ConfigEpoch = 9
		o.rejoin("c-0-1")
	}
	checkRule(t, assignSlots, []ruleCase{
		{name: "every slot has an owner", shards: 3, members: 2},
		{
			name: "a new cluster", shards: 1, members: 1, change: anew(3, 2),
			want: []Action{add("c-0-0", thirds[0]), add("c-1-0", thirds[1]), add("c-2-0", thirds[2])}, why: "given out",
		},
		{
			name: "the rest of a new cluster, after a crash in the middle", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(3, 2)(d, o); o.pod("c-1-0").Slots = thirds[1]; acquaint(o) },
			want:   []Action{add("c-0-0", thirds[0]), add("c-2-0", thirds[2])}, why: "given out",
		},
		{
			name: "a new cluster whose nodes have to meet first", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(2, 1)(d, o); o.pod("c-1-0").Peers = nil },
			want:   []Action{greet("c-1-0", "id-0-0", "10.0.0.1")}, why: "have to meet",
		},
		{
			name: "unknown: a node that does not answer may own them", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(2, 2)(d, o); o.silence("c-1-1") },
			wait:   WaitPods, why: "nothing is known of c-1-1",
		},
		{
			name: "blank: holds nothing, and is not waited for if another can lead", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(1, 2)(d, o); o.pod("c-0-0").Knowledge = Blank; acquaint(o) },
			want:   []Action{add("c-0-1", AllSlots)}, why: "given out",
		},
		{
			name: "blank, and nobody else can lead", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(2, 1)(d, o); o.pod("c-0-0").Knowledge = Blank; acquaint(o) },
			wait:   WaitPods, why: "shard 0 has no primary",
		},
		{
			name: "every shard has some: the one with the fewest", shards: 3, members: 1,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-1-0").Slots = o.pod("c-1-0").Slots.Minus(Slots{{6000, 6009}})
				acquaint(o)
			},
			want: []Action{add("c-1-0", Slots{{6000, 6009}})}, why: "given out",
		},
		{
			name: "the member that has keys leads", shards: 1, members: 1,
			change: func(d *Desired, o *Observed) { anew(1, 3)(d, o); o.pod("c-0-1").Keys = 7 },
			want:   []Action{add("c-0-1", AllSlots)}, why: "given out",
		},
		{
			name: "a shard is lost with all that it had", shards: 2, members: 2, change: lostShard,
			want: []Action{add("c-0-0", halves[0])}, why: "given out",
		},
		{
			name: "its slots need a higher epoch", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { lostShard(d, o); o.pod("c-0-0").ConfigEpoch = 0 },
			want:   []Action{{Kind: BumpEpoch, Pod: "c-0-0"}}, why: "higher epoch",
		},
		{
			name: "a taker that has the highest epoch has to be overtaken first", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { lostShard(d, o); o.pod("c-0-0").ConfigEpoch = 1 },
			want:   []Action{{Kind: BumpEpoch, Pod: "c-0-0"}, {Kind: BumpEpoch, Pod: "c-0-1"}}, why: "higher epoch",
		},
		{
			name: "the taker itself believes them to be owned", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				lostShard(d, o)
				for i := range o.pod("c-0-0").Peers {
					if p := &o.pod("c-0-0").Peers[i]; p.ID == "id-0-0" {
						p.Slots, p.Epoch = halves[0], 1
					}
				}
			},
			want: []Action{{Kind: DelSlots, Pod: "c-0-0", Slots: halves[0]}}, why: "disregard",
		},
		{
			name: "somebody can still reach the owner", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				lostShard(d, o)
				o.eachLine("id-0-0", func(p *Peer) { p.Failed = false })
				o.Ended = nil
			},
			wait: WaitRedis, why: "may still run",
		},
		{
			name: "somebody can still reach its replica", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				lostShard(d, o)
				o.eachLine("id-0-1", func(p *Peer) { p.Failed = false })
				o.Ended = nil
			},
			wait: WaitRedis, why: "may still run",
		},
		{
			name: "a node that nobody knows is joining", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				lostShard(d, o)
				n := o.pod("c-1-0")
				n.Peers = append(n.Peers, Peer{ID: "made-up", IP: "10.9.9.9", Handshake: true})
			},
			wait: WaitRedis, why: "shakes hands with one that is not known",
		},
		{
			name: "a replica can be promoted", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.failed("id-0-0"); o.rejoin("c-0-0") },
			wait:   WaitRedis, why: "a copy of them is on c-0-1",
		},
		{
			name: "a replica is still connected to the owner", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.failed("id-0-0")
				o.rejoin("c-0-0")
				o.pod("c-0-1").Holder, o.pod("c-0-1").LinkUp = false, true
			},
			wait: WaitRedis, why: "a copy of them is on c-0-1",
		},
		{
			name: "a copy that cannot be promoted safely", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.failed("id-0-0")
				o.rejoin("c-0-0")
				o.pod("c-0-1").Holder = false
			},
			wait: WaitPerson, why: "slots 0-8191 have lost their primary, and c-0-1 still holds a copy",
		},
		{
			name: "the same, and nobody knows any more which slots they are", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.failed("id-0-0")
				o.rejoin("c-0-0")
				o.pod("c-0-1").Holder, o.pod("c-0-1").Peers[0].Slots = false, nil
			},
			wait: WaitPerson, why: "c-0-1 still holds a copy",
		},
		{
			name: "a replica that never held anything", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.failed("id-0-0")
				o.rejoin("c-0-0").ConfigEpoch = 9
				o.pod("c-0-1").Holder, o.pod("c-0-1").Keys = false, 0
			},
			want: []Action{add("c-0-0", halves[0])}, why: "given out",
		},
		{
			name: "all that is left are empty replicas", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				lostShard(d, o)
				for _, pod := range []string{"c-0-0", "c-0-1"} {
					o.pod(pod).Primary, o.pod(pod).Follows = false, "id-0-0"
				}
			},
			wait: WaitPerson, why: "every node of shard 0 is a replica",
		},
	})
}

func TestAttachReplicas(t *testing.T) {
	replicate := func(pod, id string) []Action { return []Action{{Kind: Replicate, Pod: pod, ID: id}} }
	empty := func(o *Observed, pod string) *Node {
		n := o.pod(pod)
		n.Primary, n.Follows, n.Source, n.LinkUp, n.Keys = true, "", "", false, 0
		return n
	}
	checkRule(t, attachReplicas, []ruleCase{
		{name: "all are attached", shards: 2, members: 3},
		{
			name: "new members", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { empty(o, "c-0-1"); empty(o, "c-1-1") },
			want:   append(replicate("c-0-1", "id-0-0"), replicate("c-1-1", "id-1-0")...), why: "become replicas",
		},
		{
			name: "the primary is not the first member", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-1").Primary, o.pod("c-0-1").Slots = true, AllSlots
				empty(o, "c-0-0").Slots = nil
			},
			want: replicate("c-0-0", "id-0-1"), why: "become replicas",
		},
		{
			name: "a replica of another shard's primary", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-1").follow(o.pod("c-1-0")) },
			want:   replicate("c-0-1", "id-0-0"), why: "become replicas",
		},
		{
			name: "unknown: nobody is attached to a node that does not answer, nor told to", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				empty(o, "c-0-1")
				empty(o, "c-1-1")
				o.silence("c-0-0", "c-1-1")
			},
		},
		{
			name: "blank", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-1") },
		},
		{
			name: "it has not met its primary", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { empty(o, "c-0-1").Peers = nil },
			wait:   WaitRedis, why: "c-0-1 has not met c-0-0 yet",
		},
		{
			name: "two members own slots: those are moved, and hold up nothing", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-0").Slots = Slots{{0, 9999}}
				empty(o, "c-0-1").Slots = Slots{{10000, 16383}}
				acquaint(o)
			},
		},
		{
			name: "two members own slots, and another shard claims some of them", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-0").Slots = Slots{{0, 4999}}
				empty(o, "c-0-1").Slots = Slots{{5000, 8192}}
				acquaint(o)
			},
			wait: WaitRedis, why: "c-0-1 has yet to hear that another node owns its slots",
		},
		{
			name: "a primary that was replaced and has yet to hear of it leads nobody", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-1").Primary, o.pod("c-0-1").Slots, o.pod("c-0-1").ConfigEpoch = true, AllSlots, 2
				acquaint(o)
				o.silence("c-0-1")
				empty(o, "c-0-2")
			},
			wait: WaitRedis, why: "c-0-0 has yet to hear",
		},
		{
			name: "of two that claim the same slots the higher epoch leads", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-1").Primary, o.pod("c-0-1").Slots, o.pod("c-0-1").ConfigEpoch = true, AllSlots, 2
				empty(o, "c-0-2")
				acquaint(o)
			},
			want: replicate("c-0-2", "id-0-1"), why: "become replicas",
		},
		{
			name: "keys without slots", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { empty(o, "c-0-1").Keys = 3 },
			wait:   WaitPerson, why: "c-0-1 holds keys of slots that it does not own",
		},
		{
			name: "an empty primary does not win over a copy", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				n := o.pod("c-0-1")
				n.Follows, n.LinkUp = "past", false
				n.Peers = append(n.Peers, Peer{ID: "past", Failed: true})
				o.pod("c-0-0").Keys = 0
			},
			wait: WaitPerson, why: "c-0-1 holds keys and its shard's primary, c-0-0, holds none",
		},
		{
			name: "the copy of a primary that is gone and still owns slots in its eyes", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				n := o.pod("c-0-1")
				n.Follows, n.LinkUp = "past", false
				n.Peers = append(n.Peers, Peer{ID: "past", Failed: true, Slots: Slots{{0, 9}}})
			},
			wait: WaitRedis, why: "c-0-1 may hold the last copy",
		},
		{
			name: "of one that has been succeeded", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				n := o.pod("c-0-1")
				n.Follows, n.LinkUp = "past", false
				n.Peers = append(n.Peers, Peer{ID: "past", Failed: true})
			},
			want: replicate("c-0-1", "id-0-0"), why: "become replicas",
		},
		{
			name: "of one whose slots may be those without an owner", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				n := o.pod("c-0-1")
				n.Follows, n.LinkUp = "past", false
				n.Peers = append(n.Peers, Peer{ID: "past", Failed: true})
				o.silence("c-1-0")
			},
			wait: WaitRedis, why: "c-0-1 may hold the last copy",
		},
		{
			name: "of one that came back empty", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-1").follow(o.pod("c-1-0"))
				o.pod("c-0-1").LinkUp = false
				o.pod("c-1-0").Keys = 0
			},
			wait: WaitRedis, why: "c-0-1 may hold the last copy",
		},
		{
			name: "it copies from where its primary was", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-1").LinkUp, o.pod("c-0-1").Source = false, "10.9.9.9" },
			want:   replicate("c-0-1", "id-0-0"), why: "become replicas",
		},
		{
			name: "its table is stale too, and is corrected first", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.pod("c-0-1").LinkUp, o.pod("c-0-1").Source, o.pod("c-0-1").Peers[0].IP = false, "10.9.9.9", "10.9.9.9"
			},
		},
		{
			name: "its link is down and on its way", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-0-1").LinkUp = false },
		},
	})
}

func TestAwaitPods(t *testing.T) {
	checkRule(t, awaitPods, []ruleCase{
		{name: "converged", shards: 2, members: 2},
		{
			name: "unknown", shards: 2, members: 2, change: func(_ *Desired, o *Observed) { o.silence("c-1-1") },
			wait: WaitPods, why: "nothing is known yet of c-1-1",
		},
		{
			name: "blank", shards: 2, members: 2, change: func(_ *Desired, o *Observed) { o.end("c-1-1") },
			wait: WaitPods, why: "not ready yet: c-1-1",
		},
		{
			name: "not ready in the eyes of Kubernetes", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-1").PodReady = false },
			wait:   WaitPods, why: "not ready yet: c-1-1",
		},
		{
			name: "not in its role", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-1").LinkUp = false },
			wait:   WaitRedis, why: "not yet in their role: c-1-1",
		},
		{
			name: "it has not heard of all owners", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-1").Unrouted = true },
			wait:   WaitRedis, why: "not yet in their role: c-1-1",
		},
		{
			name: "many are named in part", shards: 4, members: 2,
			change: func(_ *Desired, o *Observed) {
				for i := range o.Nodes {
					o.Nodes[i].PodReady = false
				}
			},
			wait: WaitPods, why: "c-0-0, c-0-1, c-1-0, c-1-1, c-2-0 and 3 more",
		},
		{
			name: "one too many", shards: 2, members: 2, change: func(d *Desired, _ *Observed) { d.Members[1] = 1 },
			wait: WaitPods, why: "more or fewer nodes",
		},
	})
}
