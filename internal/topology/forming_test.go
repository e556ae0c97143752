package topology

import (
	"fmt"
	"slices"
	"testing"
)

// TestForming: from Pods that start together to a whole cluster, the operator
// acts in a few passes, whatever the size.
func TestForming(t *testing.T) {
	for _, members := range [][]int{{1}, {2}, {1, 1, 1}, {2, 2}, {2, 2, 2}, {3, 2, 2}, {3, 3, 3, 3}, slices.Repeat([]int{2}, 10), slices.Repeat([]int{4}, 10)} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(members, seed), func(t *testing.T) {
				s := newSim(t, newWorld(seed, members, seed%2 == 0))
				s.calm = true
				for _, p := range s.places {
					p.startAt = 1
				}
				var kinds []Kind // of the passes that acted
				for !Converged(s.desired, s.observe()) {
					s.tick()
					if plan := s.pass(); len(plan.Actions) > 0 {
						kinds = append(kinds, plan.Actions[0].Kind)
					}
					if s.now > 6*nodeTimeout {
						s.failf("no cluster after %d ticks", s.now)
					}
				}
				s.checkEven()
				// Nodes answer over two ticks, and beyond the hubs gossip takes some.
				if len(kinds) > 12 {
					t.Errorf("%d passes acted: %v", len(kinds), kinds)
				}
				if n := count(kinds, AddSlots); n != 1 {
					t.Errorf("slots were given out in %d passes: %v", n, kinds)
				}
				if count(kinds, Takeover)+count(kinds, Forget)+count(kinds, BumpEpoch)+count(kinds, DelSlots) > 0 {
					t.Errorf("a new cluster needs no healing: %v", kinds)
				}
			})
		}
	}
}

func count(kinds []Kind, kind Kind) int {
	n := 0
	for _, k := range kinds {
		if k == kind {
			n++
		}
	}
	return n
}
