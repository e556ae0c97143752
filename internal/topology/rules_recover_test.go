package topology

import "testing"

func TestRecoverShards(t *testing.T) {
	takeover := func(pod, lost string) []Action { return []Action{{Kind: Takeover, Pod: pod, ID: lost}} }
	checkRule(t, recoverShards, []ruleCase{
		{name: "nothing is lost", shards: 2, members: 2},
		{
			name: "two shards: nobody can elect", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0") },
			want:   takeover("c-0-1", "id-0-0"), why: "has ended and no majority is left",
		},
		{
			name: "a majority elects the one that is asked to", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0") },
			want:   []Action{{Kind: Force, Pod: "c-0-1", ID: "id-0-0"}}, why: "has ended",
		},
		{
			name: "a majority elects by itself without proof", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.Ended = nil },
			wait:   WaitRedis, why: "its replicas elect another",
		},
		{
			name: "an election is under way", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.Asked = map[string]Asked{"id-0-1": {Kind: Force}}
			},
			wait: WaitRedis, why: "c-0-1 is being elected",
		},
		{
			name: "an election that was not won", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.Asked = map[string]Asked{"id-0-1": {Kind: Force, Due: true}}
			},
			want: takeover("c-0-1", "id-0-0"), why: "was not elected",
		},
		{
			name: "one election at a time", shards: 5, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0", "c-1-0")
				o.Asked = map[string]Asked{"id-1-1": {Kind: Force}}
			},
			wait: WaitRedis, why: "is elected after c-1-1",
		},
		{
			name: "a node of the past that owns slots is a voter that cannot vote", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0", "c-1-0", "c-1-1")
			},
			want: takeover("c-0-1", "id-0-0"), why: "no majority",
		},
		{
			name: "no proof of its end", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.Ended = nil },
			wait:   WaitRedis, why: "c-0-1 is promoted once that process has provably ended",
		},
		{
			name: "the best copy", shards: 1, members: 4,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-2").Offset, o.pod("c-0-3").Offset = 2000, 2000
			},
			want: takeover("c-0-2", "id-0-0"), why: "has ended",
		},
		{
			name: "a replica without a copy is none", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-1").Holder, o.pod("c-0-1").Offset = false, 9000
			},
			want: takeover("c-0-2", "id-0-0"), why: "has ended",
		},
		{
			name: "nobody holds a copy", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.pod("c-0-1").Holder = false },
		},
		{
			name: "another replica is still connected to it", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.pod("c-0-2").LinkUp = true },
		},
		{
			name: "somebody succeeded it, by his own word", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-1").Primary, o.pod("c-0-1").Slots, o.pod("c-0-1").Follows = true, AllSlots, ""
				o.pod("c-0-1").ConfigEpoch = 2
			},
			wait: WaitRedis, why: "c-0-2 has yet to hear that another node owns the slots",
		},
		{
			name: "somebody succeeded it, as another table has it, and does not answer", shards: 2, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.silence("c-0-1")
				o.pod("c-1-0").Peers[1].Slots, o.pod("c-1-0").Peers[1].Epoch = AllSlots.Split(2)[0], 7
			},
			wait: WaitRedis, why: "c-0-2 has yet to hear",
		},
		{
			name: "a table with an older owner does not count", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				n := o.pod("c-1-1")
				n.Peers = append(n.Peers, Peer{ID: "older", Slots: AllSlots.Split(2)[0], Epoch: 0})
			},
			want: takeover("c-0-1", "id-0-0"), why: "has ended",
		},
		{
			name: "unknown: a member that may have a better copy", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.silence("c-0-2") },
			wait:   WaitRedis, why: "once it is known what c-0-2 holds",
		},
		{
			name: "unknown, and the candidate cannot reach it either", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.silence("c-0-2"); o.failed("id-0-2") },
			want:   takeover("c-0-1", "id-0-0"), why: "has ended",
		},
		{
			name: "unknown at the address where the lost primary ended", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-0").Knowledge, o.pod("c-0-0").IP = Unknown, "10.0.0.1"
			},
			want: takeover("c-0-1", "id-0-0"), why: "has ended",
		},
		{
			name: "unknown at a new address: the lost primary may be back", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-0").Knowledge, o.pod("c-0-0").IP = Unknown, "10.9.9.9"
			},
			wait: WaitRedis, why: "once it is known what c-0-0 holds",
		},
		{
			name: "unknown without an address: nothing runs in it", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.pod("c-0-0").Knowledge = Unknown },
			want:   takeover("c-0-1", "id-0-0"), why: "has ended",
		},
		{
			name: "unknown in another shard", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.silence("c-1-1") },
			want:   takeover("c-0-1", "id-0-0"), why: "has ended",
		},
		{
			name: "a shard that has to wait does not hold up another", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0", "c-1-0")
				delete(o.Ended, "id-0-0")
			},
			want: takeover("c-1-1", "id-1-0"), why: "the primary of shard 1 has ended",
		},
		{
			name: "its replica never heard of its slots: Redis cannot elect it", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.pod("c-0-1").Peers[0].Slots = nil },
			want:   takeover("c-0-1", "id-0-0"), why: "before its replica heard of its slots",
		},
		{
			name: "nor did anybody else that is left", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.pod("c-0-1").Peers[0].Slots = nil },
			want:   takeover("c-0-1", "id-0-0"), why: "before its replica heard of its slots",
		},
		{
			name: "one that did comes first", shards: 1, members: 3,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-1").Peers[0].Slots, o.pod("c-0-1").Offset = nil, 2000
			},
			want: takeover("c-0-2", "id-0-0"), why: "has ended and no majority",
		},
		{
			name: "unknown: the primary may come back with its slots", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.pod("c-0-0").Knowledge = Unknown
				o.pod("c-0-1").Peers[0].Slots = nil
			},
			wait: WaitPods, why: "nothing is known of c-0-0",
		},
	})
}

func TestConsent(t *testing.T) {
	// held: the shard's old primary is back without its data, and its start waits.
	held := func(pods ...string) func(*Desired, *Observed) {
		return func(_ *Desired, o *Observed) {
			o.silence(pods...)
			for _, pod := range pods {
				o.pod(pod).Held = true
			}
		}
	}
	checkRule(t, consent, []ruleCase{
		{name: "nobody is held back", shards: 2, members: 2},
		{
			name: "all of the shard have lost their data", shards: 2, members: 2, change: held("c-0-0", "c-0-1"),
			want: []Action{{Kind: Consent, Pod: "c-0-0"}, {Kind: Consent, Pod: "c-0-1"}}, why: "start anew",
		},
		{
			name: "the other member is empty", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				held("c-0-0")(d, o)
				o.pod("c-0-1").LinkUp, o.pod("c-0-1").Holder, o.pod("c-0-1").Keys = false, false, 0
			},
			want: []Action{{Kind: Consent, Pod: "c-0-0"}}, why: "start anew",
		},
		{
			name: "a replica holds a copy", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				held("c-0-0")(d, o)
				o.pod("c-0-1").LinkUp, o.pod("c-0-1").Holder = false, true
			},
			wait: WaitRedis, why: "c-0-1 takes its place",
		},
		{
			name: "a replica holds keys that nobody vouches for", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				held("c-0-0")(d, o)
				o.pod("c-0-1").LinkUp, o.pod("c-0-1").Holder = false, false
			},
			wait: WaitPerson, why: "c-0-1 still holds a copy",
		},
		{
			name: "unknown: a replica does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { held("c-0-0")(d, o); o.silence("c-0-1") },
			wait:   WaitPods, why: "once it is known what c-0-1 holds",
		},
		{
			name: "the volume is there and its data are not", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { held("c-0-0", "c-0-1")(d, o); o.Volumes = true },
			wait:   WaitPerson, why: "put the data back",
		},
	})
}
