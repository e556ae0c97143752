package topology

import (
	"fmt"
	"slices"
	"strings"
)

// SlotCount is the number of hash slots of a cluster, fixed by the protocol.
const SlotCount = 16384

// Range is a run of slots, both ends included.
type Range struct{ First, Last int }

// Slots is a set of hash slots: sorted ranges that neither touch nor overlap.
// The zero value is the empty set. Values are not changed once made.
type Slots []Range

// AllSlots is the set of every slot.
var AllSlots = Slots{{0, SlotCount - 1}}

// SlotsOf makes a set of ranges in any order. Ranges may overlap; an empty one
// (Last below First) adds nothing.
func SlotsOf(ranges ...Range) Slots {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return a.First - b.First })
	var s Slots
	for _, r := range sorted {
		switch {
		case r.Last < r.First:
		case len(s) > 0 && r.First <= s[len(s)-1].Last+1:
			s[len(s)-1].Last = max(s[len(s)-1].Last, r.Last)
		default:
			s = append(s, r)
		}
	}
	return s
}

// Count is the number of slots in the set.
func (s Slots) Count() int {
	n := 0
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

// Empty tells whether the set has no slot.
func (s Slots) Empty() bool { return len(s) == 0 }

// Union is the set of slots in s, in o, or in both.
func (s Slots) Union(o Slots) Slots { return SlotsOf(slices.Concat(s, o)...) }

// Minus is the set of slots in s and not in o.
func (s Slots) Minus(o Slots) Slots {
	var out Slots
	j := 0
	for _, r := range s {
		first := r.First
		for j < len(o) && o[j].Last < first {
			j++
		}
		for k := j; k < len(o) && o[k].First <= r.Last; k++ {
			if o[k].First > first {
				out = append(out, Range{first, o[k].First - 1})
			}
			first = o[k].Last + 1
		}
		if first <= r.Last {
			out = append(out, Range{first, r.Last})
		}
	}
	return out
}

// Intersect is the set of slots in both s and o.
func (s Slots) Intersect(o Slots) Slots { return s.Minus(s.Minus(o)) }

// overlaps tells whether a slot is in both s and o.
func (s Slots) overlaps(o Slots) bool {
	for i, j := 0, 0; i < len(s) && j < len(o); {
		switch {
		case s[i].Last < o[j].First:
			i++
		case o[j].Last < s[i].First:
			j++
		default:
			return true
		}
	}
	return false
}

// Split cuts the set into n sets whose sizes differ by at most one, the larger
// first, each as contiguous as the set allows.
func (s Slots) Split(n int) []Slots {
	parts := make([]Slots, n)
	total, rest := s.Count(), slices.Clone(s)
	for i := range parts {
		want := total / n
		if i < total%n {
			want++
		}
		for want > 0 {
			r := rest[0]
			take := min(want, r.Last-r.First+1)
			parts[i] = append(parts[i], Range{r.First, r.First + take - 1})
			want -= take
			if rest[0].First += take; rest[0].First > r.Last {
				rest = rest[1:]
			}
		}
	}
	return parts
}

// String is the form that people and CLUSTER NODES use: "0-5460 7000"; empty
// for the empty set.
func (s Slots) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		if r.First == r.Last {
			parts[i] = fmt.Sprint(r.First)
		} else {
			parts[i] = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
	}
	return strings.Join(parts, " ")
}
