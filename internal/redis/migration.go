package redis

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Migration moves slots with their keys from one primary to another. It holds no
// state: a new one for the same slots goes on where an earlier one ended, from what
// the nodes say.
type Migration struct {
	// Source has the slots, Target gets them. Both are primaries that know each other.
	Source, Target *Node
	// SourceID and TargetID are their ids.
	SourceID, TargetID string
	// TargetAddr is where the source reaches the target's port for clients.
	TargetAddr netip.AddrPort
	// Others are the other primaries, which are told of the new owner. One that
	// does not answer hears of it by gossip.
	Others []*Node
	// Username and Password are what the source logs in to the target with; an
	// empty password for none.
	Username, Password string
	// Slots to move.
	Slots []SlotRange
}

const (
	// batchSlots are opened, emptied and handed over together.
	batchSlots = 256
	// keysAtOnce bounds one MIGRATE: it blocks both nodes while it runs.
	keysAtOnce = 100
	// slotsAtOnce bounds the MIGRATEs that are sent in one exchange: a server
	// carries out what one client has sent before it turns to the next.
	slotsAtOnce = 10
	// migrateTimeout is for one MIGRATE: of a key of hundreds of megabytes it takes
	// seconds.
	migrateTimeout = 90 * time.Second
)

// Step moves slots for about the given time, and tells how many the target does
// not own yet. Where both servers can, they move the slots by themselves, all at once
// (see handOver); elsewhere, and for slots that are open already, the keys are moved
// batch by batch. It ends between two commands, so that one large key can make it
// last longer. An error reply of a server (IsServer) stops it; what was moved stays
// moved, and the next Step tries the rest again.
//
// While a slot is open (CLUSTER SETSLOT MIGRATING and IMPORTING), clients write a key
// at the source as long as it is there, and at the target otherwise. So the source's
// copy of a key is the right one where both have one, as after a MIGRATE whose answer
// was lost, and replaces the other. The target claims slots only when the source has
// no key in them and both have them marked: a source deletes what it still has of a
// slot that it loses. Nothing is moved before the target has heard of the source's
// epoch, which gossip tells within a second or so.
func (m *Migration) Step(ctx context.Context, budget time.Duration) (left int, err error) {
	end := time.Now().Add(budget)
	target, err := m.Target.Probe(ctx)
	if err != nil {
		return countSlots(m.Slots), err
	}
	source, err := m.Source.Probe(ctx)
	if err != nil {
		return countSlots(m.Slots), err
	}
	arrived, rest := split(m.Slots, target.Slots)
	// While a slot is marked as importing, gossip does not change its owner: one that
	// has failed over meanwhile would count as a failed primary for ever, and the
	// target would find the cluster down. Both marks go with that.
	wrong := misled(&target, m.SourceID, rest)
	if err := m.Target.SetSlotsOwner(ctx, m.SourceID, wrong...); err != nil {
		return countSlots(rest), err
	}
	maps.DeleteFunc(target.Importing, func(slot int, _ string) bool { return contains(wrong, slot) })
	// An earlier migration may have ended between the claim and the word of it.
	if err := m.spread(ctx, misled(&source, m.TargetID, arrived)); err != nil {
		return countSlots(rest), err
	}
	if len(rest) == 0 {
		return 0, nil
	}
	if !heardOf(&target, m.SourceID, &source) {
		return countSlots(rest), nil
	}
	marks := marks{importing: target.Importing, migrating: source.Migrating}
	way, err := m.handOver(ctx)
	if err != nil {
		return countSlots(rest), err
	}
	if way == nil {
		return m.move(ctx, rest, marks, end)
	}
	// Slots that are open already get there key by key: part of their keys has.
	begun, whole := parted(rest, func(slot int) bool { return marks.importing[slot] != "" || marks.migrating[slot] != "" })
	if len(begun) == 0 {
		if begun, whole, err = way.remains(ctx, m, &target, rest); err != nil {
			return countSlots(rest), err
		}
	}
	if len(begun) > 0 {
		left, err := m.move(ctx, begun, marks, end)
		return left + countSlots(whole), err
	}
	if way.lone && len(source.Migrating)+len(source.Importing)+len(target.Migrating)+len(target.Importing) > 0 {
		return countSlots(rest), nil // another migration ends first
	}
	done, err := way.move(ctx, m, rest, end)
	if done {
		rest = nil
	}
	return countSlots(rest), err
}

// move moves slots key by key, until the given time, and tells how many are left.
func (m *Migration) move(ctx context.Context, slots []SlotRange, marks marks, end time.Time) (left int, err error) {
	for len(slots) > 0 {
		batch, after := cut(slots, batchSlots)
		done, err := m.moveBatch(ctx, batch, marks, end)
		if err != nil || !done {
			return countSlots(slots), err
		}
		if slots = after; time.Now().After(end) {
			break
		}
	}
	return countSlots(slots), nil
}

// misled are the slots of an owner that a node believes somebody else to have, or has
// marked as on their way from itself: gossip tells of an owner and takes no mark off,
// and a server with both marks shows this one alone. None while the node does not know
// the owner.
func misled(node *State, owner string, slots []SlotRange) []SlotRange {
	for _, p := range node.Peers {
		if p.ID == owner {
			_, out := parted(slots, func(slot int) bool { return contains(p.Slots, slot) && node.Migrating[slot] == "" })
			return out
		}
	}
	return nil
}

// marks are the open slots of both sides when the Step began.
type marks struct{ importing, migrating map[int]string }

// moveBatch moves some slots; false if the time was up before they were empty. What
// is marked already is not marked again: Valkey 8 has each mark acknowledged by the
// replicas, so that the marks of a batch can take longer than a Step.
func (m *Migration) moveBatch(ctx context.Context, batch []SlotRange, marks marks, end time.Time) (bool, error) {
	_, unmarked := parted(batch, func(slot int) bool { return marks.importing[slot] == m.SourceID })
	if err := m.Target.SetSlotsImporting(ctx, m.SourceID, unmarked...); err != nil {
		return false, err
	}
	_, unmarked = parted(batch, func(slot int) bool { return marks.migrating[slot] == m.TargetID })
	if err := m.Source.SetSlotsMigrating(ctx, m.TargetID, unmarked...); err != nil {
		return false, err
	}
	for {
		counts, err := m.Source.CountKeysInSlots(ctx, batch...)
		if err != nil {
			return false, err
		}
		if len(counts) == 0 {
			break
		}
		if err := m.moveKeys(ctx, counts, end); err != nil {
			return false, err
		}
		if time.Now().After(end) {
			return false, nil
		}
	}
	if sure, err := m.check(ctx, batch); err != nil || !sure {
		return false, err
	}
	if err := m.Target.SetSlotsOwner(ctx, m.TargetID, batch...); err != nil {
		return false, err
	}
	return true, m.spread(ctx, batch)
}

// check makes sure that the slots are still marked on both sides: a failover takes the
// marks off, and then the source has written what the target has not. False while the
// target's claim could lose to the source's.
func (m *Migration) check(ctx context.Context, batch []SlotRange) (bool, error) {
	target, err := m.Target.Probe(ctx)
	if err != nil {
		return false, err
	}
	source, err := m.Source.Probe(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range batch {
		for slot := r.First; slot <= r.Last; slot++ {
			if target.Importing[slot] != m.SourceID || source.Migrating[slot] != m.TargetID {
				return false, fmt.Errorf("slot %d is not open between %s and %s any more", slot, m.Source.Addr(), m.Target.Addr())
			}
		}
	}
	return heardOf(&target, m.SourceID, &source), nil
}

// heardOf tells whether a target knows the epoch of its source. It raises its own only
// if that is not the highest that it knows of
// (clusterBumpConfigEpochWithoutConsensus), as of a source that got slots a moment ago.
// Then what the source has said before takes the slots from it again, with their keys.
func heardOf(target *State, sourceID string, source *State) bool {
	return slices.ContainsFunc(target.Peers, func(p Peer) bool { return p.ID == sourceID && p.ConfigEpoch >= source.ConfigEpoch })
}

// spread tells all but the target who owns slots. The source comes first: until
// it knows, it sends clients to the target only for this once (ASK).
func (m *Migration) spread(ctx context.Context, slots []SlotRange) error {
	if len(slots) == 0 {
		return nil
	}
	err := m.Source.SetSlotsOwner(ctx, m.TargetID, slots...)
	for _, n := range m.Others {
		// The target's own claim reaches them too; this is only faster.
		_ = n.SetSlotsOwner(ctx, m.TargetID, slots...)
	}
	return err
}

// moveKeys moves the keys of slots, given with their numbers of keys, once around. It
// moves some even when the time is up, so that every Step gets on.
func (m *Migration) moveKeys(ctx context.Context, counts map[int]int64, end time.Time) error {
	slots := make([]int, 0, len(counts))
	for slot := range counts {
		slots = append(slots, slot)
	}
	for len(slots) > 0 {
		some := slots[:min(slotsAtOnce, len(slots))]
		slots = slots[len(some):]
		if err := m.moveSome(ctx, some); err != nil || time.Now().After(end) {
			return err
		}
	}
	return nil
}

// moveSome moves up to keysAtOnce keys of each slot.
func (m *Migration) moveSome(ctx context.Context, slots []int) error {
	lists := make([]goredis.Cmder, len(slots))
	for i, slot := range slots {
		lists[i] = goredis.NewStringSliceCmd(ctx, "CLUSTER", "GETKEYSINSLOT", slot, keysAtOnce)
	}
	if err := m.Source.do(ctx, 0, lists...); err != nil {
		return err
	}
	var moves []goredis.Cmder
	for _, list := range lists {
		keys := list.(*goredis.StringSliceCmd).Val()
		if len(keys) == 0 {
			continue
		}
		args := []any{"MIGRATE", m.TargetAddr.Addr().String(), m.TargetAddr.Port(), "", 0, migrateTimeout.Milliseconds(), "REPLACE"}
		if m.Password != "" {
			args = append(args, "AUTH2", m.Username, m.Password)
		}
		args = append(args, "KEYS")
		for _, key := range keys {
			args = append(args, key)
		}
		moves = append(moves, goredis.NewStatusCmd(ctx, args...))
	}
	return m.Source.do(ctx, migrateTimeout, moves...)
}

// CopyFunctions gives the target the function libraries of the source that it
// lacks: each node has its own, and only replicas get their primary's.
func CopyFunctions(ctx context.Context, source, target *Node) error {
	have, err := target.libraries(ctx)
	if err != nil {
		return err
	}
	libraries, err := source.libraries(ctx)
	if err != nil {
		return err
	}
	var loads []goredis.Cmder
	for name, code := range libraries {
		if _, ok := have[name]; !ok {
			loads = append(loads, goredis.NewStringCmd(ctx, "FUNCTION", "LOAD", code))
		}
	}
	return target.do(ctx, 0, loads...)
}

// libraries are the code of each function library by its name.
func (n *Node) libraries(ctx context.Context) (map[string]string, error) {
	cmd := goredis.NewFunctionListCmd(ctx, "FUNCTION", "LIST", "WITHCODE")
	if err := n.do(ctx, 0, cmd); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, library := range cmd.Val() {
		out[library.Name] = library.Code
	}
	return out, nil
}

func countSlots(ranges []SlotRange) int {
	n := 0
	for _, r := range ranges {
		n += r.Last - r.First + 1
	}
	return n
}

// split parts slots into those within others and the rest.
func split(slots, others []SlotRange) (in, rest []SlotRange) {
	return parted(slots, func(slot int) bool { return contains(others, slot) })
}

func contains(ranges []SlotRange, slot int) bool {
	return slices.ContainsFunc(ranges, func(r SlotRange) bool { return r.First <= slot && slot <= r.Last })
}

// parted parts slots into those that are within something and the rest.
func parted(slots []SlotRange, within func(slot int) bool) (in, rest []SlotRange) {
	for _, r := range slots {
		for slot := r.First; slot <= r.Last; slot++ {
			if within(slot) {
				in = appendSlot(in, slot)
			} else {
				rest = appendSlot(rest, slot)
			}
		}
	}
	return in, rest
}

func appendSlot(ranges []SlotRange, slot int) []SlotRange {
	if n := len(ranges); n > 0 && ranges[n-1].Last == slot-1 {
		ranges[n-1].Last = slot
		return ranges
	}
	return append(ranges, SlotRange{First: slot, Last: slot})
}

// cut takes up to n slots off the front.
func cut(ranges []SlotRange, n int) (head, rest []SlotRange) {
	for i, r := range ranges {
		size := r.Last - r.First + 1
		if size > n {
			if n > 0 {
				head = append(head, SlotRange{First: r.First, Last: r.First + n - 1})
			}
			return head, append([]SlotRange{{First: r.First + n, Last: r.Last}}, ranges[i+1:]...)
		}
		head, n = append(head, r), n-size
	}
	return head, nil
}
