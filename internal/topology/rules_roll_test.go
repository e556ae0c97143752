package topology

import "testing"

func TestRoll(t *testing.T) {
	replace := func(pod string) []Action { return []Action{{Kind: Replace, Pod: pod, ID: "id" + pod[1:]}} }
	// stale makes Pods of an older template; every primary streams to its replicas.
	stale := func(pods ...string) func(*Desired, *Observed) {
		return func(_ *Desired, o *Observed) {
			for _, pod := range pods {
				o.pod(pod).Outdated = true
			}
			for i := range o.Nodes {
				if n := &o.Nodes[i]; !n.Primary {
					head := o.byID(n.Follows)
					head.Streams = append(head.Streams, n.IP)
				}
			}
		}
	}
	all := stale("c-0-0", "c-0-1", "c-1-0", "c-1-1")
	checkRule(t, roll, []ruleCase{
		{name: "all are of the present template", shards: 2, members: 2},
		{name: "the replica of the first shard first", shards: 2, members: 2, change: all, want: replace("c-0-1"), why: "present template"},
		{
			name: "of two replicas the last", shards: 1, members: 3, change: stale("c-0-0", "c-0-1", "c-0-2"),
			want: replace("c-0-2"), why: "present template",
		},
		{
			name: "then the primary hands over to one that is new", shards: 2, members: 2, change: stale("c-0-0", "c-1-0", "c-1-1"),
			want: []Action{{Kind: Handover, Pod: "c-0-1", ID: "id-0-0"}}, why: "a replica takes its place",
		},
		{
			name: "not to one that was elected a moment ago", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				stale("c-0-0")(d, o)
				o.Elected = map[string]bool{"id-0-1": true}
			},
			wait: WaitRedis, why: "c-0-1 can take its place in a moment",
		},
		{
			name: "not to one that is far behind", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { stale("c-0-0")(d, o); o.pod("c-0-0").Offset += 2 * caughtUp },
			wait:   WaitPods, why: "none of its replicas is in sync",
		},
		{
			name: "not to one that its primary does not stream to", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { stale("c-0-0")(d, o); o.pod("c-0-0").Streams = nil },
			wait:   WaitPods, why: "none of its replicas is in sync",
		},
		{
			name: "not before the voters know it as a replica", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				stale("c-0-0")(d, o)
				for i := range o.pod("c-1-0").Peers {
					if p := &o.pod("c-1-0").Peers[i]; p.ID == "id-0-1" {
						p.Follows = ""
					}
				}
			},
			wait: WaitRedis, why: "c-0-1 can take its place in a moment",
		},
		{
			name: "a hand-over is under way", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				stale("c-0-0")(d, o)
				o.Asked = map[string]Asked{"id-0-1": {Kind: Handover}}
			},
			wait: WaitRedis, why: "c-0-1 takes its place",
		},
		{
			name: "one at a time", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { all(d, o); o.pod("c-1-1").LinkUp = false },
			wait:   WaitPods, why: "once c-1-1 is in its place",
		},
		{
			name: "unknown: another one does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { all(d, o); o.silence("c-1-1") },
			wait:   WaitPods, why: "once c-1-1 is in its place",
		},
		{
			name: "unknown: it does not answer itself", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				stale("c-0-1")(d, o)
				o.silence("c-0-1")
				o.pod("c-0-1").Outdated = true
			},
			wait: WaitPods, why: "once it is known what it holds",
		},
		{
			name: "one in which nothing runs is replaced before the others", shards: 2, members: 3,
			change: func(d *Desired, o *Observed) {
				stale("c-0-0", "c-0-2")(d, o)
				o.silence("c-0-1")
				o.pod("c-0-1").Outdated, o.pod("c-0-1").Idle = true, true
			},
			want: []Action{{Kind: Replace, Pod: "c-0-1"}}, why: "present template",
		},
		{
			name: "one that ends is waited for", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { stale("c-0-1")(d, o); o.pod("c-0-1").Ending = true },
			wait:   WaitPods, why: "c-0-1 ends",
		},
		{
			name: "a shard of one is announced", shards: 2, members: 1, change: stale("c-0-0"),
			want: replace("c-0-0"), why: "does not serve until it is back",
		},
	})
}
