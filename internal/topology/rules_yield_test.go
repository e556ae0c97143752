package topology

import "testing"

func TestYield(t *testing.T) {
	// asked: a primary is asked to give up its place, in a cluster that streams.
	asked := func(pod string) func(*Desired, *Observed) {
		return func(d *Desired, o *Observed) {
			d.Yield = pod
			for i := range o.Nodes {
				if n := &o.Nodes[i]; !n.Primary {
					head := o.byID(n.Follows)
					head.Streams = append(head.Streams, n.IP)
				}
			}
		}
	}
	checkRule(t, yield, []ruleCase{
		{name: "nobody is asked", shards: 2, members: 2, change: asked("")},
		{
			name: "to a replica in sync", shards: 2, members: 2, change: asked("c-1-0"),
			want: []Action{{Kind: Handover, Pod: "c-1-1", ID: "id-1-0"}}, why: "c-1-0 is asked to give up its place: a replica takes its place",
		},
		{name: "a replica has no place to give up", shards: 2, members: 2, change: asked("c-1-1")},
		{name: "a Pod of another cluster", shards: 2, members: 2, change: asked("d-1-0")},
		{name: "alone in its shard", shards: 2, members: 1, change: asked("c-1-0"), wait: WaitPods, why: "its shard has no other node"},
		{
			name: "nobody is in sync", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { asked("c-1-0")(d, o); o.pod("c-1-1").LinkUp = false },
			wait:   WaitPods, why: "none of its replicas is in sync",
		},
		{
			name: "not to a Pod that is about to be replaced", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { asked("c-1-0")(d, o); o.pod("c-1-1").Outdated = true },
			wait:   WaitPods, why: "none of its replicas is in sync",
		},
		{
			name: "it is under way", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) {
				asked("c-1-0")(d, o)
				o.Asked = map[string]Asked{"id-1-1": {Kind: Handover}}
			},
			wait: WaitRedis, why: "c-1-1 takes its place",
		},
		{name: "unknown: it does not answer", shards: 2, members: 2, change: func(d *Desired, o *Observed) { asked("c-1-0")(d, o); o.silence("c-1-0") }},
		{
			name: "unknown: its replica does not answer", shards: 2, members: 2,
			change: func(d *Desired, o *Observed) { asked("c-1-0")(d, o); o.silence("c-1-1") },
			wait:   WaitPods, why: "none of its replicas is in sync",
		},
	})
}
