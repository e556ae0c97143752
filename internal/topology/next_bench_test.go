package topology

import (
	"fmt"
	"testing"
)

// BenchmarkNext is what a pass over a converged cluster costs, where it has to
// find that nothing is left to do; 1000 nodes are the most that the API admits.
func BenchmarkNext(b *testing.B) {
	for _, shards := range []int{3, 50, 500} {
		b.Run(fmt.Sprintf("nodes=%d", 2*shards), func(b *testing.B) {
			d, o := cluster(shards, 2)
			for b.Loop() {
				if p := Next(d, o); !p.Empty() {
					b.Fatalf("the plan is %+v", p)
				}
			}
		})
	}
}
