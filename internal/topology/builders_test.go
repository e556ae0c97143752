package topology

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// cluster is a converged cluster: shards of so many members, the first of each
// the primary, each with as many keys as slots.
func cluster(shards, members int) (Desired, *Observed) {
	d, o := strangers(shards, members)
	parts := AllSlots.Split(shards)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		n.PodReady, n.ClusterOK, n.ConfigEpoch = true, true, uint64(n.Shard)+1
		n.Keys, n.Offset = int64(parts[n.Shard].Count()), 1000
		if n.Ordinal == 0 {
			n.Slots = parts[n.Shard]
		} else {
			n.follow(o.pod(fmt.Sprintf("c-%d-0", n.Shard)))
		}
	}
	acquaint(o)
	return d, o
}

// strangers are new nodes that know nobody.
func strangers(shards, members int) (Desired, *Observed) {
	d, o := Desired{}, &Observed{}
	for shard := range shards {
		d.Members = append(d.Members, members)
		for ordinal := range members {
			o.Nodes = append(o.Nodes, Node{
				Pod: fmt.Sprintf("c-%d-%d", shard, ordinal), Shard: shard, Ordinal: ordinal, Knowledge: Answered, Primary: true,
				ID: fmt.Sprintf("id-%d-%d", shard, ordinal), IP: fmt.Sprintf("10.0.%d.%d", shard, ordinal+1),
			})
		}
	}
	return d, o
}

// acquaint gives every node a table of those that answer, up to date.
func acquaint(o *Observed) {
	for i := range o.Nodes {
		o.Nodes[i].Peers = nil
		for j := range o.Nodes {
			if i != j && o.Nodes[j].answered() {
				o.Nodes[i].Peers = append(o.Nodes[i].Peers, peerOf(&o.Nodes[j]))
			}
		}
	}
}

// peerOf is the line of a node in a table that is up to date.
func peerOf(n *Node) Peer {
	return Peer{ID: n.ID, IP: n.IP, Follows: n.Follows, Slots: n.Slots, Epoch: n.ConfigEpoch}
}

func (o *Observed) pod(name string) *Node {
	for i := range o.Nodes {
		if o.Nodes[i].Pod == name {
			return &o.Nodes[i]
		}
	}
	panic("no Pod " + name)
}

// eachLine changes the lines of an id in all tables.
func (o *Observed) eachLine(id string, change func(*Peer)) {
	for i := range o.Nodes {
		for j := range o.Nodes[i].Peers {
			if p := &o.Nodes[i].Peers[j]; p.ID == id {
				change(p)
			}
		}
	}
}

// follow makes a node a replica in sync.
func (n *Node) follow(primary *Node) {
	n.Primary, n.Follows, n.Source, n.LinkUp, n.Slots = false, primary.ID, primary.IP, true, nil
}

// silence makes Pods not answer.
func (o *Observed) silence(pods ...string) {
	for _, pod := range pods {
		n := o.pod(pod)
		*n = Node{Pod: n.Pod, Shard: n.Shard, Ordinal: n.Ordinal, IP: n.IP}
	}
}

// end ends the process of a Pod, which is made again: Blank, with no address yet.
// The replicas that followed it notice.
func (o *Observed) end(pods ...string) {
	for _, pod := range pods {
		n := o.pod(pod)
		for i := range o.Nodes {
			if r := &o.Nodes[i]; r.Follows == n.ID {
				r.LinkUp, r.Holder = false, true
			}
		}
		if o.Ended == nil {
			o.Ended = map[string]bool{}
		}
		o.Ended[n.ID] = true
		*n = Node{Pod: n.Pod, Shard: n.Shard, Ordinal: n.Ordinal, Knowledge: Blank}
	}
}

// rejoin brings a Pod that ended back as another node, which all know; the one
// of the past stays in their tables, and in that of the new one, without slots.
func (o *Observed) rejoin(pod string) *Node {
	n := o.pod(pod)
	n.Knowledge, n.ID, n.IP, n.Primary = Answered, "new"+strings.TrimPrefix(n.Pod, "c"), fmt.Sprintf("10.1.%d.%d", n.Shard, n.Ordinal+1), true
	for i := range o.Nodes {
		other := &o.Nodes[i]
		if other == n || !other.answered() {
			continue
		}
		for _, p := range other.Peers {
			if _, known := n.knows(p.ID); !known && p.ID != n.ID && o.byID(p.ID) == nil {
				n.Peers = append(n.Peers, Peer{ID: p.ID, IP: p.IP, Failed: p.Failed})
			}
		}
		n.Peers = append(n.Peers, peerOf(other))
		other.Peers = append(other.Peers, peerOf(n))
	}
	return n
}

// failed marks ids as failed in all tables.
func (o *Observed) failed(ids ...string) {
	for _, id := range ids {
		o.eachLine(id, func(p *Peer) { p.Failed = true })
	}
}

// ruleCase is one row of a rule's table.
type ruleCase struct {
	name string
	// shards and members of the converged cluster that the row begins with.
	shards, members int
	// change makes it what is observed.
	change func(d *Desired, o *Observed)
	want   []Action
	wait   Wait
	why    string // a part of the sentence
}

// checkRule runs the rows. An action is compared in its kind, its Pod and what
// the row names beside.
func checkRule(t *testing.T, rule func(Desired, *Observed) Plan, cases []ruleCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			d, o := cluster(tt.shards, tt.members)
			if tt.change != nil {
				tt.change(&d, o)
			}
			p := rule(d, o)
			if !reflect.DeepEqual(brief(p.Actions), brief(tt.want)) {
				t.Errorf("actions\n%v, want\n%v", brief(p.Actions), brief(tt.want))
			}
			if p.Wait != tt.wait {
				t.Errorf("wait %v, want %v", p.Wait, tt.wait)
			}
			if !strings.Contains(p.Why, tt.why) || tt.why == "" && p.Why != "" {
				t.Errorf("why %q, want %q in it", p.Why, tt.why)
			}
		})
	}
}

// brief are the actions in an order that means nothing, as texts.
func brief(actions []Action) []string {
	out := make([]string, len(actions))
	for i, a := range actions {
		out[i] = fmt.Sprintf("%s %s id=%s ip=%s slots=%s epoch=%d", a.Kind, a.Pod, a.ID, a.IP, a.Slots, a.Epoch)
	}
	slices.Sort(out)
	return out
}
