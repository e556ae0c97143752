package redis

import (
	"fmt"
	"strconv"
	"strings"
)

// SlotCount is the number of hash slots of a cluster, fixed by the protocol.
const SlotCount = 16384

// SlotRange is a run of hash slots, both ends included.
type SlotRange struct{ First, Last int }

// ParseSlotRange reads the form that CLUSTER NODES uses: "0-5460", or "7" for
// one slot. It refuses slots outside 0 to 16383 and a range that runs backwards.
func ParseSlotRange(s string) (SlotRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	var r SlotRange
	var err error
	if r.First, err = parseSlot(first); err != nil {
		return SlotRange{}, fmt.Errorf("slot range %q: %w", s, err)
	}
	if r.Last, err = parseSlot(last); err != nil {
		return SlotRange{}, fmt.Errorf("slot range %q: %w", s, err)
	}
	if r.Last < r.First {
		return SlotRange{}, fmt.Errorf("slot range %q runs backwards", s)
	}
	return r, nil
}

// String is the form that ParseSlotRange reads.
func (r SlotRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Count is the number of slots in the range.
func (r SlotRange) Count() int { return r.Last - r.First + 1 }

func parseSlot(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("slot %q is no number", s)
	}
	if n >= SlotCount {
		return 0, fmt.Errorf("slot %d is above %d", n, SlotCount-1)
	}
	return int(n), nil
}
