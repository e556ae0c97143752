package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// jobPoll is how often a job is asked for while a Step waits for it.
	jobPoll = 20 * time.Millisecond
	// jobPause is how long no new job is started after one that failed, so that
	// its message stays where the next Step finds it.
	jobPause = 5 * time.Second
	// importRetries are the attempts after which a job that fails again and again counts
	// as failed.
	importRetries = 3
)

// handOver is how two servers move slots by themselves: all at once at the end of a
// copy, so that no client is ever sent back and forth (ASK).
type handOver struct {
	// command starts a job at the keeper, which knows then how it goes.
	command string
	keeper  *Node
	// start is the command with its arguments.
	start func(ctx context.Context, slots []SlotRange) goredis.Cmder
	// jobs lists the jobs that a node knows of, as far back as it remembers them.
	jobs func(ctx context.Context, n *Node) ([]job, error)
	// lone: a node takes part in one job at a time, whatever its slots are, and in none
	// while any slot is open.
	lone bool
}

// job is slots on their way from one node to another. It lives in the memory of both.
type job struct {
	name, source, target string
	slots                []SlotRange
	// active: it is under way. What ended is a success, or the slots are still the
	// source's, with everything in them.
	active, success bool
	// outcome is the server's word for how it ended or failed last, with its reason.
	outcome string
	// idle is how long ago its state changed, as exactly as the server tells.
	idle time.Duration
}

// handOver finds a way that both servers know, nil for none: CLUSTER MIGRATESLOTS,
// which the source of slots takes (Valkey 9), or CLUSTER MIGRATION, which the target
// takes (Redis 8.4).
func (m *Migration) handOver(ctx context.Context) (*handOver, error) {
	exports, imports := true, true
	for _, n := range []*Node{m.Source, m.Target} {
		known, err := n.knows(ctx, migrateSlots, migration)
		if err != nil {
			return nil, err
		}
		exports, imports = exports && known[0], imports && known[1]
	}
	switch {
	case exports:
		return &handOver{command: "CLUSTER MIGRATESLOTS", keeper: m.Source, jobs: exportJobs, start: func(ctx context.Context, slots []SlotRange) goredis.Cmder {
			return goredis.NewStatusCmd(ctx, append(bounds([]any{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"}, slots), "NODE", m.TargetID)...)
		}}, nil
	case imports:
		return &handOver{command: "CLUSTER MIGRATION", keeper: m.Target, jobs: importJobs, lone: true, start: func(ctx context.Context, slots []SlotRange) goredis.Cmder {
			return goredis.NewStringCmd(ctx, bounds([]any{"CLUSTER", "MIGRATION", "IMPORT"}, slots)...)
		}}, nil
	}
	return nil, nil
}

// bounds puts the first and the last of each range behind some arguments.
func bounds(args []any, slots []SlotRange) []any {
	for _, r := range slots {
		args = append(args, r.First, r.Last)
	}
	return args
}

// move has the servers move slots, or goes on to wait for a job that does so, until the
// given time. It tells whether a job has ended well. The source's replica knows nothing
// of the job, and the target drops what it has got when the job ends otherwise: after
// any failure the slots are the source's, whole.
func (h *handOver) move(ctx context.Context, m *Migration, slots []SlotRange, end time.Time) (bool, error) {
	started, waited := false, false
	earlier := map[string]bool{} // names, once one is started here
	for {
		jobs, err := h.jobs(ctx, h.keeper)
		if err != nil {
			return false, err
		}
		last := lastOf(jobs, m, slots, earlier)
		switch {
		case last != nil && last.active:
			waited = true
		case last != nil && last.success && started:
			return true, nil
		case last != nil && !last.success && (started || last.idle < jobPause):
			return false, h.keeper.fail(h.command, ServerError(last.outcome))
		case waited && !started:
			return false, nil // an earlier job has ended: the nodes are not what they were
		case started:
			return false, h.keeper.fail(h.command, ServerError("the job is not listed any more"))
		default:
			if busy, err := h.busy(ctx, m, jobs); err != nil || busy {
				return false, err
			}
			if err := h.keeper.do(ctx, 0, h.start(ctx, slots)); err != nil {
				return false, m.refused(ctx, slots, err)
			}
			started = true
			for _, j := range jobs {
				earlier[j.name] = true
			}
		}
		if time.Now().After(end) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(jobPoll):
		}
	}
}

// busy tells whether one of the nodes is taken by another job.
func (h *handOver) busy(ctx context.Context, m *Migration, jobs []job) (bool, error) {
	if !h.lone {
		return false, nil
	}
	others, err := h.jobs(ctx, m.Source)
	active := func(j job) bool { return j.active }
	return slices.ContainsFunc(jobs, active) || slices.ContainsFunc(others, active), err
}

// refused is the error of a job that was not started, nil where there is no fault in
// that: a node was taken a moment ago, or an earlier job has just brought slots.
func (m *Migration) refused(ctx context.Context, slots []SlotRange, refusal error) error {
	if isBusy(refusal.Error()) {
		return nil
	}
	target, err := m.Target.Probe(ctx)
	if err != nil {
		return err
	}
	if arrived, _ := split(slots, target.Slots); len(arrived) > 0 {
		return nil
	}
	return refusal
}

// isBusy recognises what Redis says when a node is taken by another job
// (asmCreateImportTask, clusterSyncSlotsCommand).
func isBusy(message string) bool {
	return strings.Contains(strings.ToLower(message), "another asm task is already in progress")
}

// remains are those of some slots that the target has keys of, and not from a job, whose
// keys the server deletes itself: they have come key by key, and are nowhere else. A new
// job would delete them (asmTrimSlotsIfNotOwned).
func (h *handOver) remains(ctx context.Context, m *Migration, target *State, slots []SlotRange) (keys, rest []SlotRange, err error) {
	jobs, err := h.jobs(ctx, m.Target)
	if err != nil {
		return nil, nil, err
	}
	_, unknown := parted(slots, func(slot int) bool {
		return slices.ContainsFunc(jobs, func(j job) bool { return contains(j.slots, slot) })
	})
	counts, err := m.Target.CountStrayKeys(ctx, target, unknown...)
	if err != nil {
		return nil, nil, err
	}
	keys, rest = parted(slots, func(slot int) bool { return counts[slot] > 0 })
	return keys, rest, nil
}

// lastOf is the newest job that moves any of some slots to the target, but for some; one
// that is under way before those that have ended, and one to another node too: there is
// one job for a slot.
func lastOf(jobs []job, m *Migration, slots []SlotRange, but map[string]bool) *job {
	var last *job
	for i := range jobs {
		j := &jobs[i]
		if in, _ := split(j.slots, slots); len(in) == 0 || but[j.name] {
			continue
		}
		switch {
		case j.active:
			return j
		case j.source == m.SourceID && j.target == m.TargetID && (last == nil || j.idle < last.idle):
			last = j
		}
	}
	return last
}

// exportJobs reads CLUSTER GETSLOTMIGRATIONS (Valkey 9).
func exportJobs(ctx context.Context, n *Node) ([]job, error) {
	return listJobs(ctx, n, goredis.NewSliceCmd(ctx, "CLUSTER", "GETSLOTMIGRATIONS"), func(text map[string]string, now time.Time) (job, error) {
		updated, err := strconv.ParseInt(text["last_update_time"], 10, 64)
		state := text["state"]
		return job{
			name: text["name"], source: text["source_node"], target: text["target_node"],
			active: state != "success" && state != "failed" && state != "cancelled", success: state == "success",
			outcome: state + ": " + text["message"], idle: now.Sub(time.Unix(updated, 0)),
		}, err
	})
}

// importJobs reads CLUSTER MIGRATION STATUS (Redis 8.4). A job that failed is tried again
// by the target every second, until it succeeds or another takes its place. The first
// failures say little: nodes that have just met do not know each other's secret yet
// (WRONGPASS invalid internal password).
func importJobs(ctx context.Context, n *Node) ([]job, error) {
	return listJobs(ctx, n, goredis.NewSliceCmd(ctx, "CLUSTER", "MIGRATION", "STATUS", "ALL"), func(text map[string]string, now time.Time) (job, error) {
		state, changed := text["state"], text["end_time"]
		if state == "failed" {
			changed = text["start_time"]
		}
		updated, err := strconv.ParseInt(changed, 10, 64)
		retries, noNumber := strconv.Atoi(text["retries"])
		ended := state == "completed" || state == "canceled" || state == "failed" && retries >= importRetries && !isBusy(text["last_error"])
		return job{
			name: text["id"], source: text["source"], target: text["dest"],
			active: !ended, success: state == "completed",
			outcome: state + ": " + text["last_error"], idle: now.Sub(time.UnixMilli(updated)),
		}, errors.Join(err, noNumber)
	})
}

// listJobs asks a node for its jobs, each of which is names and values by turns, and
// parses them.
func listJobs(ctx context.Context, n *Node, list *goredis.SliceCmd, parse func(text map[string]string, now time.Time) (job, error)) ([]job, error) {
	clock := goredis.NewTimeCmd(ctx, "TIME")
	if err := n.do(ctx, 0, clock, list); err != nil {
		return nil, err
	}
	command := fmt.Sprintf("%v %v", list.Args()[0], list.Args()[1])
	var jobs []job
	for _, entry := range list.Val() {
		fields, ok := entry.([]any)
		if !ok {
			return nil, n.fail(command, fmt.Errorf("an entry is a %T", entry))
		}
		text := map[string]string{}
		for i := 0; i+1 < len(fields); i += 2 {
			text[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
		}
		j, err := parse(text, clock.Val())
		if err == nil {
			j.slots, err = parseRanges(text["slot_ranges"] + text["slots"])
		}
		if err == nil && (j.name == "" || text["state"] == "") {
			err = fmt.Errorf("an entry of %d fields has no name or no state", len(fields))
		}
		if err != nil {
			return nil, n.fail(command, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// parseRanges reads slots such as "0-5 7 9-9".
func parseRanges(text string) ([]SlotRange, error) {
	var out []SlotRange
	for part := range strings.FieldsSeq(text) {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, err
		}
		out = append(out, SlotRange{First: from, Last: to})
	}
	return out, nil
}
