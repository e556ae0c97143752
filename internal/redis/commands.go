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

// Meet makes the node greet others at their addresses for clients; their bus
// ports must be 10000 above. It returns when the node has begun to, and the
// handshakes go on without an error being reported. The cluster bus has no
// authentication: a stale address can merge two clusters, see MyID.
func (n *Node) Meet(ctx context.Context, peers ...netip.AddrPort) error {
	cmds := make([]goredis.Cmder, len(peers))
	for i, p := range peers {
		cmds[i] = goredis.NewStatusCmd(ctx, "CLUSTER", "MEET", p.Addr().String(), p.Port())
	}
	return n.do(ctx, 0, cmds...)
}

// Forget removes ids from the node's table and bans them for a minute. Redis 7.0
// does so on this node alone; later versions spread it through the cluster, and
// the slots of a forgotten id lose their owner everywhere.
func (n *Node) Forget(ctx context.Context, ids ...string) error {
	cmds := make([]goredis.Cmder, len(ids))
	for i, id := range ids {
		cmds[i] = goredis.NewStatusCmd(ctx, "CLUSTER", "FORGET", id)
	}
	return n.do(ctx, 0, cmds...)
}

// SetConfigEpoch gives a node its first epoch. The server refuses when the node
// knows others already or has an epoch.
func (n *Node) SetConfigEpoch(ctx context.Context, epoch uint64) error {
	return n.do(ctx, 0, goredis.NewStatusCmd(ctx, "CLUSTER", "SET-CONFIG-EPOCH", epoch))
}

// AddSlots makes the node claim slots that have no owner in its table. It is all
// or nothing: one slot that has an owner refuses all.
func (n *Node) AddSlots(ctx context.Context, ranges ...SlotRange) error {
	return n.do(ctx, 0, slotsCommand(ctx, "ADDSLOTSRANGE", ranges)...)
}

// DelSlots makes the node forget who owns slots, in its own table alone. Slots
// of its own lose their owner; the keys in them stay until they are claimed by
// another. It is all or nothing: one slot that has no owner refuses all.
func (n *Node) DelSlots(ctx context.Context, ranges ...SlotRange) error {
	return n.do(ctx, 0, slotsCommand(ctx, "DELSLOTSRANGE", ranges)...)
}

// BumpEpoch gives a primary a configuration epoch above all that it knows of,
// without asking anybody. One that has the highest already keeps it.
func (n *Node) BumpEpoch(ctx context.Context) error {
	return n.do(ctx, 0, goredis.NewStatusCmd(ctx, "CLUSTER", "BUMPEPOCH"))
}

// slotsCommand makes a CLUSTER subcommand over ranges; none for no range.
func slotsCommand(ctx context.Context, subcommand string, ranges []SlotRange) []goredis.Cmder {
	if len(ranges) == 0 {
		return nil
	}
	args := []any{"CLUSTER", subcommand}
	for _, r := range ranges {
		args = append(args, r.First, r.Last)
	}
	return []goredis.Cmder{goredis.NewStatusCmd(ctx, args...)}
}

// Replicate makes the node a replica of a primary, which must be in its table. It
// throws away what the node holds; the server refuses a primary that has slots or
// keys. The data come later, see Replication.LinkUp. Repeated for the same
// primary, Redis synchronises anew and Valkey does nothing.
func (n *Node) Replicate(ctx context.Context, primaryID string) error {
	return n.do(ctx, 0, goredis.NewStatusCmd(ctx, "CLUSTER", "REPLICATE", primaryID))
}

// FailoverMode is the way in which a replica replaces its primary.
type FailoverMode string

const (
	// Graceful: the primary pauses its writes, the replica catches up, then it is
	// elected. Nothing is lost. The link must be up, and the primary must list the
	// replica, else the request is ignored and times out after 5 seconds.
	Graceful FailoverMode = ""
	// Force: the replica asks for votes without asking its primary.
	Force FailoverMode = "FORCE"
	// Takeover: the replica takes a new epoch and the slots without asking anybody.
	Takeover FailoverMode = "TAKEOVER"
)

// Failover makes the node, a replica, replace its primary. A Graceful or Forced
// one is under way when it returns, and nothing tells of its failure. Force and
// Takeover never look at the data: see State.HoldsCopy.
func (n *Node) Failover(ctx context.Context, mode FailoverMode) error {
	args := []any{"CLUSTER", "FAILOVER"}
	if mode != Graceful {
		args = append(args, string(mode))
	}
	return n.do(ctx, 0, goredis.NewStatusCmd(ctx, args...))
}

// SetSlotsOwner tells the node that slots belong to a node in its table, and ends
// their migration on this node. Told to the new owner while it imports a slot,
// it makes the claim, with a new epoch. A node that loses a slot deletes the keys
// that it still has in it.
func (n *Node) SetSlotsOwner(ctx context.Context, ownerID string, ranges ...SlotRange) error {
	return n.setSlots(ctx, ranges, "NODE", ownerID)
}

// SetSlotsMigrating marks slots of the node as on their way to another, which
// should have marked them as importing before.
func (n *Node) SetSlotsMigrating(ctx context.Context, targetID string, ranges ...SlotRange) error {
	return n.setSlots(ctx, ranges, "MIGRATING", targetID)
}

// SetSlotsImporting marks slots of another node as on their way to this one.
func (n *Node) SetSlotsImporting(ctx context.Context, sourceID string, ranges ...SlotRange) error {
	return n.setSlots(ctx, ranges, "IMPORTING", sourceID)
}

// SetSlotsStable takes both marks off.
func (n *Node) SetSlotsStable(ctx context.Context, ranges ...SlotRange) error {
	return n.setSlots(ctx, ranges, "STABLE")
}

// setSlotWait is how long Valkey 8 and later hold one SETSLOT back until the
// replicas have acknowledged it; after that they refuse it with -NOREPLICAS.
const setSlotWait = 2 * time.Second

// setSlots sends one command a slot, all in one exchange. With an error, slots
// before the failing one are done, and those after it may be: a Valkey replica that
// hangs costs 2 seconds a slot, and the exchange ends before the last of them.
func (n *Node) setSlots(ctx context.Context, ranges []SlotRange, change ...any) error {
	var cmds []goredis.Cmder
	for _, r := range ranges {
		for slot := r.First; slot <= r.Last; slot++ {
			args := append([]any{"CLUSTER", "SETSLOT", slot}, change...)
			cmds = append(cmds, goredis.NewStatusCmd(ctx, args...))
		}
	}
	return n.do(ctx, setSlotWait, cmds...)
}

// UsedMemory is what the node has allocated, in bytes (used_memory of INFO): more
// than its RDB takes.
func (n *Node) UsedMemory(ctx context.Context) (int64, error) {
	cmd := goredis.NewStringCmd(ctx, "INFO", "memory")
	if err := n.do(ctx, 0, cmd); err != nil {
		return 0, err
	}
	used, err := parseFields(cmd.Val()).number("used_memory")
	if err != nil {
		return 0, n.fail("INFO", err)
	}
	return used, nil
}

// CountKeysInSlots counts the keys that the node itself holds in each slot that it owns
// or imports. Slots without keys are left out.
func (n *Node) CountKeysInSlots(ctx context.Context, ranges ...SlotRange) (map[int]int64, error) {
	var cmds []goredis.Cmder
	for _, r := range ranges {
		for slot := r.First; slot <= r.Last; slot++ {
			cmds = append(cmds, goredis.NewIntCmd(ctx, "CLUSTER", "COUNTKEYSINSLOT", slot))
		}
	}
	if err := n.do(ctx, 0, cmds...); err != nil {
		return nil, err
	}
	counts := map[int]int64{}
	i := 0
	for _, r := range ranges {
		for slot := r.First; slot <= r.Last; slot++ {
			if keys := cmds[i].(*goredis.IntCmd).Val(); keys > 0 {
				counts[slot] = keys
			}
			i++
		}
	}
	return counts, nil
}

// CountStrayKeys counts as CountKeysInSlots does, but in any slots, of a primary in a
// given state. Redis 8.4 and later show the keys of other slots only while these are
// marked as importing (clusterCanAccessKeysInSlot), so there a slot is marked, counted
// and unmarked in one transaction, of which nobody sees anything.
func (n *Node) CountStrayKeys(ctx context.Context, s *State, ranges ...SlotRange) (map[int]int64, error) {
	known, err := n.knows(ctx, migration)
	if err != nil {
		return nil, err
	}
	shown, hidden := parted(ranges, func(slot int) bool {
		return !known[0] || s.Importing[slot] != "" || contains(s.Slots, slot)
	})
	counts, err := n.CountKeysInSlots(ctx, shown...)
	if err != nil || len(hidden) == 0 {
		return counts, err
	}
	cmds := []goredis.Cmder{goredis.NewStatusCmd(ctx, "MULTI")}
	for _, r := range hidden {
		for slot := r.First; slot <= r.Last; slot++ {
			// From the node itself: that needs no other.
			cmds = append(cmds, goredis.NewStatusCmd(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", s.ID),
				goredis.NewStatusCmd(ctx, "CLUSTER", "COUNTKEYSINSLOT", slot), goredis.NewStatusCmd(ctx, "CLUSTER", "SETSLOT", slot, "STABLE"))
		}
	}
	exec := goredis.NewSliceCmd(ctx, "EXEC")
	if err := n.do(ctx, 0, append(cmds, exec)...); err != nil {
		return nil, err
	}
	replies := exec.Val()
	for _, r := range hidden {
		for slot := r.First; slot <= r.Last; slot++ {
			if len(replies) < 3 {
				return nil, n.fail("EXEC", fmt.Errorf("there are fewer replies than commands"))
			}
			keys, counted := replies[1].(int64)
			if _, refused := replies[0].(error); refused || !counted {
				return nil, n.fail("CLUSTER SETSLOT", fmt.Errorf("count the keys of slot %d: %v, %v", slot, replies[0], replies[1]))
			}
			if keys > 0 {
				counts[slot] = keys
			}
			replies = replies[3:]
		}
	}
	return counts, nil
}

// The two ways of a server to move slots by itself, as COMMAND INFO names them.
const (
	migrateSlots = "cluster|migrateslots"
	migration    = "cluster|migration"
)

// knows tells of each of some commands whether the server has it.
func (n *Node) knows(ctx context.Context, commands ...string) ([]bool, error) {
	args := []any{"COMMAND", "INFO"}
	for _, command := range commands {
		args = append(args, command)
	}
	cmd := goredis.NewSliceCmd(ctx, args...)
	if err := n.do(ctx, 0, cmd); err != nil {
		return nil, err
	}
	known := make([]bool, len(commands))
	if len(cmd.Val()) != len(known) {
		return nil, n.fail("COMMAND", fmt.Errorf("%d answers for %d commands", len(cmd.Val()), len(known)))
	}
	for i, entry := range cmd.Val() {
		known[i] = entry != nil
	}
	return known, nil
}

// GetKeysInSlot returns at most limit keys that the node holds in a slot.
func (n *Node) GetKeysInSlot(ctx context.Context, slot, limit int) ([]string, error) {
	cmd := goredis.NewStringSliceCmd(ctx, "CLUSTER", "GETKEYSINSLOT", slot, limit)
	if err := n.do(ctx, 0, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// DropKeys deletes the keys that the node holds in slots that it imports.
func (n *Node) DropKeys(ctx context.Context, ranges ...SlotRange) error {
	counts, err := n.CountKeysInSlots(ctx, ranges...)
	for ; err == nil && len(counts) > 0; counts, err = n.CountKeysInSlots(ctx, ranges...) {
		for slot := range counts {
			keys, err := n.GetKeysInSlot(ctx, slot, dropAtOnce)
			if err != nil {
				return err
			}
			var cmds []goredis.Cmder
			for _, key := range keys {
				cmds = append(cmds, goredis.NewStatusCmd(ctx, "ASKING"), goredis.NewIntCmd(ctx, "UNLINK", key))
			}
			if err := n.do(ctx, 0, cmds...); err != nil {
				return err
			}
		}
	}
	return err
}

// dropAtOnce bounds the keys that are deleted in one exchange.
const dropAtOnce = 1000

// ConfigGet returns directives as the server has them now. Names may be glob
// patterns; a directive that the server does not know is left out.
func (n *Node) ConfigGet(ctx context.Context, names ...string) (map[string]string, error) {
	args := []any{"CONFIG", "GET"}
	for _, name := range names {
		args = append(args, name)
	}
	cmd := goredis.NewMapStringStringCmd(ctx, args...)
	if err := n.do(ctx, 0, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// ConfigSet changes directives of the running server, all or none of them; the
// server's files are left as they are.
func (n *Node) ConfigSet(ctx context.Context, directives map[string]string) error {
	if len(directives) == 0 {
		return nil
	}
	args := []any{"CONFIG", "SET"}
	for _, name := range slices.Sorted(maps.Keys(directives)) {
		args = append(args, name, directives[name])
	}
	return n.do(ctx, 0, goredis.NewStatusCmd(ctx, args...))
}
