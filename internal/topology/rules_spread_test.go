package topology

import "testing"

func TestSpread(t *testing.T) {
	halves := AllSlots.Split(2)
	node := func(pod, id string, own Slots, peers ...Peer) Node {
		return Node{Pod: pod, ID: id, IP: "10.0.0." + id, Knowledge: Answered, Primary: true, Slots: own, Peers: peers}
	}
	tests := []struct {
		name  string
		nodes []Node
		want  []Action
	}{
		{"a node that has not heard of the other's slots is met by it", []Node{
			node("a", "1", halves[0], Peer{ID: "2", Slots: halves[1]}), node("b", "2", halves[1], Peer{ID: "1"}),
		}, []Action{{Kind: Meet, Pod: "a", ID: "2", Peer: "b", IP: "10.0.0.2"}}},
		{"everybody knows", []Node{
			node("a", "1", halves[0], Peer{ID: "2", Slots: halves[1]}), node("b", "2", halves[1], Peer{ID: "1", Slots: halves[0]}),
		}, nil},
		{"strangers are no matter of this rule", []Node{
			node("a", "1", halves[0], Peer{ID: "2", Slots: halves[1]}), node("b", "2", halves[1]),
		}, nil},
		{"another owner in its eyes is no gap", []Node{
			node("a", "1", halves[0], Peer{ID: "2", Slots: halves[1]}),
			node("b", "2", halves[1], Peer{ID: "1"}, Peer{ID: "3", Slots: halves[0]}),
		}, nil},
		{"unknown: a node that did not answer is not met", []Node{
			node("a", "1", halves[0], Peer{ID: "2"}), {Pod: "b", IP: "10.0.0.2"},
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := spread(Desired{}, &Observed{Nodes: tt.nodes}).Actions
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i].Kind != tt.want[i].Kind || got[i].Pod != tt.want[i].Pod || got[i].IP != tt.want[i].IP || got[i].ID != tt.want[i].ID {
					t.Errorf("got %+v, want %+v", got[i], tt.want[i])
				}
			}
		})
	}
}
