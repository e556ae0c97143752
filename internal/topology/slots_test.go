package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// model is the naive set that Slots is compared with.
type model [SlotCount]bool

func modelOf(s Slots) *model {
	m := &model{}
	for _, r := range s {
		for i := r.First; i <= r.Last; i++ {
			m[i] = true
		}
	}
	return m
}

// checkForm fails unless s is in the one form that a set has.
func checkForm(t *testing.T, what string, s Slots) {
	t.Helper()
	for i, r := range s {
		if r.Last < r.First {
			t.Fatalf("%s: empty range %v in %v", what, r, s)
		}
		if i > 0 && r.First <= s[i-1].Last+1 {
			t.Fatalf("%s: %v and %v touch or are out of order in %v", what, s[i-1], r, s)
		}
	}
}

// checkSet fails unless s is a well-formed set of the slots that are wanted.
func checkSet(t *testing.T, what string, s Slots, want func(slot int) bool) {
	t.Helper()
	checkForm(t, what, s)
	m, n := modelOf(s), 0
	for slot := range SlotCount {
		if m[slot] != want(slot) {
			t.Fatalf("%s: slot %d in the set: %v, want %v", what, slot, m[slot], want(slot))
		}
		if m[slot] {
			n++
		}
	}
	if s.Count() != n || s.Empty() != (n == 0) {
		t.Fatalf("%s: Count %d, Empty %v, with %d slots", what, s.Count(), s.Empty(), n)
	}
}

// parse reads what String writes.
func parse(t *testing.T, text string) Slots {
	t.Helper()
	var s Slots
	for _, part := range strings.Fields(text) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil {
			t.Fatalf("%q is no range", part)
		}
		s = append(s, Range{a, b})
	}
	return s
}

func TestSlotsOf(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ranges []Range
		want   string
		count  int
	}{
		{"nothing", nil, "", 0},
		{"one slot", []Range{{7, 7}}, "7", 1},
		{"all", []Range{{0, 16383}}, "0-16383", 16384},
		{"out of order", []Range{{10, 20}, {0, 5}}, "0-5 10-20", 17},
		{"touching ones become one", []Range{{6, 9}, {0, 5}}, "0-9", 10},
		{"a gap of one stays", []Range{{7, 9}, {0, 5}}, "0-5 7-9", 9},
		{"overlapping", []Range{{0, 10}, {5, 15}}, "0-15", 16},
		{"one inside another", []Range{{0, 10}, {3, 4}}, "0-10", 11},
		{"twice the same", []Range{{3, 4}, {3, 4}}, "3-4", 2},
		{"an empty range adds nothing", []Range{{9, 8}, {1, 1}}, "1", 1},
		{"an empty range joins nothing", []Range{{0, 4}, {5, 4}, {6, 6}}, "0-4 6", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.ranges)
			s := SlotsOf(tt.ranges...)
			if s.String() != tt.want || s.Count() != tt.count {
				t.Errorf("got %q (%d slots), want %q (%d)", s, s.Count(), tt.want, tt.count)
			}
			if !slices.Equal(given, tt.ranges) {
				t.Errorf("the argument was changed to %v", tt.ranges)
			}
		})
	}
}

func TestSlotsSplit(t *testing.T) {
	scattered := SlotsOf(Range{0, 0}, Range{2, 2}, Range{4, 9}, Range{100, 300}, Range{16383, 16383})
	for _, tt := range []struct {
		set  Slots
		n    int
		want string // the parts, joined by a bar
	}{
		{AllSlots, 1, "0-16383"},
		{AllSlots, 2, "0-8191|8192-16383"},
		{AllSlots, 3, "0-5461|5462-10922|10923-16383"},
		{SlotsOf(Range{0, 1}), 3, "0|1|"},
		{nil, 2, "|"},
		{AllSlots, 0, ""},
		{SlotsOf(Range{0, 2}, Range{10, 12}), 2, "0-2|10-12"},
		{SlotsOf(Range{0, 2}, Range{10, 13}), 2, "0-2 10|11-13"},
		{scattered, 2, "0 2 4-9 100-196|197-300 16383"},
	} {
		t.Run(fmt.Sprintf("%s by %d", tt.set, tt.n), func(t *testing.T) {
			var got []string
			for _, part := range tt.set.Split(tt.n) {
				got = append(got, part.String())
			}
			if strings.Join(got, "|") != tt.want {
				t.Errorf("got %q, want %q", strings.Join(got, "|"), tt.want)
			}
		})
	}
	// The shards of a new cluster: sizes that differ by one at most, one range each.
	for n := 1; n <= 1000; n++ {
		for i, part := range AllSlots.Split(n) {
			want := SlotCount / n
			if i < SlotCount%n {
				want++
			}
			if len(part) != 1 || part.Count() != want {
				t.Fatalf("part %d of %d is %v, want one range of %d slots", i, n, part, want)
			}
		}
	}
}

// rangesFrom reads ranges from fuzzed bytes, four a range.
func rangesFrom(data []byte) []Range {
	var ranges []Range
	for ; len(data) >= 4; data = data[4:] {
		first := (int(data[0])<<8 | int(data[1])) % SlotCount
		length := int(data[2])<<8 | int(data[3])
		// Often short, so that many ranges fit; never beyond the last slot.
		ranges = append(ranges, Range{first, min(first+length%(1+length%997)-1, SlotCount-1)})
	}
	return ranges
}

func FuzzSlots(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint8(3))
	f.Add([]byte{0, 0, 0x40, 0}, []byte{0, 5, 0, 1, 0x3f, 0xff, 0, 9}, uint8(1))
	f.Add([]byte{0, 0, 1, 0, 0, 200, 1, 0, 1, 244, 0, 7}, []byte{0, 100, 2, 0}, uint8(7))
	f.Add([]byte{0x3f, 0xff, 0, 9, 0x3f, 0xfe, 0, 2}, []byte{0x3f, 0xff, 0, 9}, uint8(255))
	f.Fuzz(func(t *testing.T, first, second []byte, n uint8) {
		ra, rb := rangesFrom(first), rangesFrom(second)
		a, b := SlotsOf(ra...), SlotsOf(rb...)
		ma, mb := modelOf(Slots(ra)), modelOf(Slots(rb))

		checkSet(t, "a", a, func(i int) bool { return ma[i] })
		checkSet(t, "b", b, func(i int) bool { return mb[i] })
		checkSet(t, "a ∪ b", a.Union(b), func(i int) bool { return ma[i] || mb[i] })
		checkSet(t, "a \\ b", a.Minus(b), func(i int) bool { return ma[i] && !mb[i] })
		checkSet(t, "a ∩ b", a.Intersect(b), func(i int) bool { return ma[i] && mb[i] })
		checkSet(t, "¬a", AllSlots.Minus(a), func(i int) bool { return !ma[i] })

		if back := parse(t, a.String()); !slices.Equal(a, back) {
			t.Errorf("%q read back is %v, want %v", a.String(), back, a)
		}
		checkParts(t, a, int(n))
		checkSet(t, "a after all that", a, func(i int) bool { return ma[i] })
	})
}

// checkParts holds a split to its promises: the parts are disjoint, together the
// set, even, in order, and cut at no more places than needed.
func checkParts(t *testing.T, s Slots, n int) {
	t.Helper()
	parts := s.Split(n)
	if len(parts) != n {
		t.Fatalf("%d parts, want %d", len(parts), n)
	}
	if n == 0 {
		return
	}
	var whole Slots
	ranges := 0
	for i, part := range parts {
		if !whole.Intersect(part).Empty() {
			t.Errorf("part %d shares slots %v with the parts before it", i, whole.Intersect(part))
		}
		if len(whole) > 0 && len(part) > 0 && part[0].First < whole[len(whole)-1].Last {
			t.Errorf("part %d, %v, is not behind %v", i, part, whole)
		}
		whole = whole.Union(part)
		ranges += len(part)
		if i > 0 && (part.Count() > parts[i-1].Count() || part.Count()+1 < parts[0].Count()) {
			t.Errorf("part %d has %d slots, the one before %d, the first %d", i, part.Count(), parts[i-1].Count(), parts[0].Count())
		}
		checkForm(t, fmt.Sprint("part ", i), part)
	}
	if !slices.Equal(whole, s) {
		t.Errorf("the parts are %v together, want %v", whole, s)
	}
	if ranges > len(s)+n-1 {
		t.Errorf("%d ranges in the parts of %d ranges: cut more than %d times", ranges, len(s), n-1)
	}
}
