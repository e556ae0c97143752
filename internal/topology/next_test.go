package topology

import (
	"fmt"
	"reflect"
	"testing"
)

func TestNext(t *testing.T) {
	checkRule(t, Next, []ruleCase{
		{name: "nothing to do", shards: 3, members: 2},
		{
			name: "what waits does not hold up what can be done: an election needs the addresses", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.end("c-0-0")
				o.Ended = nil
				o.pod("c-2-0").Peers[2].IP = "10.9.9.9"
			},
			want: []Action{greet("c-2-0", "id-1-0", "10.0.1.1")}, why: "addresses",
		},
		{
			name: "nor a new replica in another shard", shards: 3, members: 2,
			change: func(_ *Desired, o *Observed) {
				o.silence("c-0-0")
				n := o.pod("c-1-1")
				n.Primary, n.Follows, n.Source, n.LinkUp, n.Keys = true, "", "", false, 0
			},
			want: []Action{{Kind: Replicate, Pod: "c-1-1", ID: "id-1-0"}}, why: "become replicas",
		},
		{
			name: "of what waits the first is told", shards: 1, members: 2,
			change: func(_ *Desired, o *Observed) { o.end("c-0-0"); o.Ended = nil },
			wait:   WaitRedis, why: "the primary of shard 0 does not answer",
		},
		{
			name: "two that answer with one id are believed neither", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) {
				n, other := o.pod("c-0-1"), *o.pod("c-1-0")
				other.Pod, other.Shard, other.Ordinal, other.IP = n.Pod, n.Shard, n.Ordinal, n.IP
				*n = other
			},
			wait: WaitPods, why: "with the same node id, so that none of them is believed: c-0-1, c-1-0",
		},
		{
			name: "an answer without an id is none", shards: 2, members: 2,
			change: func(_ *Desired, o *Observed) { o.pod("c-1-1").ID = "" },
			wait:   WaitPods, why: "c-1-1",
		},
	})
}

// Next leaves what it is shown as it is.
func TestNextChangesNothing(t *testing.T) {
	d, o := cluster(2, 2)
	o.pod("c-0-1").ID = o.pod("c-1-1").ID
	was := fmt.Sprintf("%+v %+v", d, *o)
	Next(d, o)
	if is := fmt.Sprintf("%+v %+v", d, *o); is != was {
		t.Errorf("Next changed\n%s\ninto\n%s", was, is)
	}
}

// feed reads fuzzed bytes; beyond their end it reads zeros.
type feed struct{ data []byte }

func (f *feed) next(n int) int {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return int(b) % n
}

func (f *feed) flag() bool { return f.next(2) == 1 }

// id is one of a few, so that they meet; sometimes none.
func (f *feed) id() string { return []string{"", "a", "b", "c", "d", "e", "f", "g"}[f.next(8)] }

func (f *feed) ip() string {
	return []string{"", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}[f.next(6)]
}

func (f *feed) slots() Slots {
	parts := AllSlots.Split(4)
	var s Slots
	for _, part := range parts {
		if f.next(3) == 2 {
			s = s.Union(part)
		}
	}
	if f.next(8) == 7 {
		s = s.Minus(Slots{{f.next(256) * 64, f.next(256) * 64}})
	}
	return s
}

func (f *feed) open() map[string]Slots {
	if f.next(4) != 3 {
		return nil
	}
	return map[string]Slots{f.id(): f.slots(), f.id(): f.slots()}
}

func (f *feed) observed() (Desired, *Observed) {
	d, o := Desired{}, &Observed{}
	for range f.next(4) {
		d.Members = append(d.Members, f.next(4))
	}
	for range f.next(3) {
		if o.Ended == nil {
			o.Ended = map[string]bool{}
		}
		o.Ended[f.id()] = f.flag()
	}
	for range f.next(3) {
		if o.Asked == nil {
			o.Asked, o.Elected = map[string]Asked{}, map[string]bool{}
		}
		o.Asked[f.id()] = Asked{Kind: []Kind{Force, Handover}[f.next(2)], Due: f.flag()}
		o.Elected[f.id()] = f.flag()
	}
	for range f.next(8) {
		n := Node{
			Shard: f.next(4), Ordinal: f.next(3), IP: f.ip(), PodReady: f.flag(), Knowledge: []Knowledge{Answered, Unknown, Blank}[f.next(3)],
			ID: f.id(), Primary: f.flag(), Follows: f.id(), Source: f.ip(), LinkUp: f.flag(), Holder: f.flag(), Offset: int64(f.next(3)),
			ConfigEpoch: uint64(f.next(4)), ClusterOK: f.flag(), Unrouted: f.flag(), Keys: int64(f.next(3)), Slots: f.slots(),
		}
		n.Pod = fmt.Sprintf("c-%d-%d", n.Shard, n.Ordinal)
		n.Outdated, n.Doomed, n.Ending, n.Idle, n.Held = f.next(4) == 3, f.next(8) == 7, f.next(8) == 7, f.flag(), f.next(8) == 7
		n.Migrating, n.Importing, n.Stray, n.Streams = f.open(), f.open(), f.slots(), []string{f.ip(), f.ip()}
		for range f.next(6) {
			n.Peers = append(n.Peers, Peer{ID: f.id(), IP: f.ip(), Handshake: f.flag(), Failed: f.flag(), Follows: f.id(), Slots: f.slots(), Epoch: uint64(f.next(4))})
		}
		o.Nodes = append(o.Nodes, n)
	}
	return d, o
}

// FuzzNext: whatever is observed, Next does not panic, gives the same answer to
// the same question, and acts only on what answered.
func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 0, 2})
	for i := range 64 {
		seed := make([]byte, 200)
		for j := range seed {
			seed[j] = byte(i*31 + j*j*7 + i*j)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, o := (&feed{data}).observed()
		p := Next(d, o)
		d2, o2 := (&feed{data}).observed()
		if again := Next(d2, o2); !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v, and then %+v", p, again)
		}
		if !reflect.DeepEqual(o, o2) || !reflect.DeepEqual(d, d2) {
			t.Fatal("what was observed has been changed")
		}
		checkPlan(t, o, p)
	})
}

// checkPlan holds a plan to what every plan promises.
func checkPlan(t *testing.T, o *Observed, p Plan) {
	t.Helper()
	if len(p.Actions) > 0 && p.Wait != WaitNothing {
		t.Errorf("acts and waits: %+v", p)
	}
	if p.Empty() != (p.Why == "") {
		t.Errorf("no word about a plan, or one about none: %+v", p)
	}
	answered := map[string]bool{}
	for i := range o.Nodes {
		if o.Nodes[i].Knowledge == Answered {
			answered[o.Nodes[i].Pod] = true
		}
	}
	for _, a := range p.Actions {
		if a.Kind != p.Actions[0].Kind {
			t.Errorf("two kinds of actions: %+v", p.Actions)
		}
		if !answered[a.Pod] && !onPods[a.Kind] {
			t.Errorf("acts on a node that has not answered: %+v", a)
		}
		complete := map[Kind]bool{
			SetEpoch: a.Epoch > 0, Meet: a.IP != "" && a.ID != "", AddSlots: !a.Slots.Empty(), DelSlots: !a.Slots.Empty(),
			BumpEpoch: true, Replicate: a.ID != "", Takeover: a.ID != "", Force: a.ID != "", Handover: a.ID != "", Forget: a.ID != "",
			MoveSlots: a.ID != "" && !a.Slots.Empty(), CloseSlots: !a.Slots.Empty(), Discard: !a.Slots.Empty(), Remove: true, Replace: true, Consent: true,
		}
		if !complete[a.Kind] {
			t.Errorf("an action that says too little: %+v", a)
		}
	}
}
