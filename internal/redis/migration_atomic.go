package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// exportPoll is how often a job is asked for while a Step waits for it.
	exportPoll = 20 * time.Millisecond
	// exportPause is how long no new job is started after one that failed, so that
	// its message stays where the next Step finds it.
	exportPause = 5 * time.Second
)

// exportJob is an entry of CLUSTER GETSLOTMIGRATIONS (Valkey 9): slots that this
// node hands over to another by itself. It lives in the server's memory.
type exportJob struct {
	name    string
	target  string
	slots   []SlotRange
	state   string
	message string
	// idle is how long ago its state changed, in whole seconds.
	idle time.Duration
}

// active: the job is under way. What ended is a success, or the slots are still the
// source's, with everything in them.
func (j *exportJob) active() bool {
	return j.state != "success" && j.state != "failed" && j.state != "cancelled"
}

// exports tells whether both servers can hand slots over by themselves (CLUSTER
// MIGRATESLOTS), all at once at the end of a copy, so that no client is ever sent
// back and forth (ASK).
func (m *Migration) exports(ctx context.Context) (bool, error) {
	for _, n := range []*Node{m.Source, m.Target} {
		cmd := goredis.NewSliceCmd(ctx, "COMMAND", "INFO", "cluster|migrateslots")
		if err := n.do(ctx, 0, cmd); err != nil {
			return false, err
		}
		if known := cmd.Val(); len(known) != 1 || known[0] == nil {
			return false, nil
		}
	}
	return true, nil
}

// export has the source hand slots over, or goes on to wait for the job that does
// so, until the given time. It tells whether the job has ended well. The source's
// replica knows nothing of the job, and the target drops what it has got when the
// job ends otherwise: after any failure the slots are the source's, whole.
func (m *Migration) export(ctx context.Context, slots []SlotRange, end time.Time) (bool, error) {
	started, waited := false, false
	earlier := map[string]bool{} // names, once one is started here
	for {
		jobs, err := m.exportJobs(ctx)
		if err != nil {
			return false, err
		}
		last := lastOf(jobs, m.TargetID, slots, earlier)
		switch {
		case last != nil && last.active():
			waited = true
		case last != nil && last.state == "success" && started:
			return true, nil
		case last != nil && last.state != "success" && (started || last.idle < exportPause):
			return false, m.Source.fail("CLUSTER MIGRATESLOTS", ServerError(fmt.Sprintf("%s: %s", last.state, last.message)))
		case waited && !started:
			return false, nil // an earlier job, of other slots perhaps, has ended
		case started:
			return false, m.Source.fail("CLUSTER MIGRATESLOTS", ServerError("the job is not listed any more"))
		default:
			if err := m.Source.do(ctx, 0, migrateSlots(ctx, slots, m.TargetID)); err != nil {
				return false, err
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
		case <-time.After(exportPoll):
		}
	}
}

func migrateSlots(ctx context.Context, slots []SlotRange, target string) goredis.Cmder {
	args := []any{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"}
	for _, r := range slots {
		args = append(args, r.First, r.Last)
	}
	return goredis.NewStatusCmd(ctx, append(args, "NODE", target)...)
}

// lastOf is the newest job that moves any of some slots to a node, but for some; one
// that is under way before those that have ended, and one to another node too: the
// source refuses a second job for a slot.
func lastOf(jobs []exportJob, target string, slots []SlotRange, but map[string]bool) *exportJob {
	var last *exportJob
	for i := range jobs {
		j := &jobs[i]
		if in, _ := split(j.slots, slots); len(in) == 0 || but[j.name] {
			continue
		}
		switch {
		case j.active():
			return j
		case j.target == target && (last == nil || j.idle < last.idle):
			last = j
		}
	}
	return last
}

// exportJobs lists the source's jobs, as far back as it remembers them.
func (m *Migration) exportJobs(ctx context.Context) ([]exportJob, error) {
	clock, list := goredis.NewTimeCmd(ctx, "TIME"), goredis.NewSliceCmd(ctx, "CLUSTER", "GETSLOTMIGRATIONS")
	if err := m.Source.do(ctx, 0, clock, list); err != nil {
		return nil, err
	}
	var jobs []exportJob
	for _, entry := range list.Val() {
		fields, ok := entry.([]any)
		if !ok {
			return nil, m.Source.fail("CLUSTER GETSLOTMIGRATIONS", fmt.Errorf("an entry is a %T", entry))
		}
		job, err := parseExportJob(fields, clock.Val())
		if err != nil {
			return nil, m.Source.fail("CLUSTER GETSLOTMIGRATIONS", err)
		}
		if job != nil {
			jobs = append(jobs, *job)
		}
	}
	return jobs, nil
}

// parseExportJob reads an entry, which is names and values by turns; nil for an
// import.
func parseExportJob(fields []any, now time.Time) (*exportJob, error) {
	text := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		text[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	if text["operation"] != "EXPORT" {
		return nil, nil
	}
	job := &exportJob{name: text["name"], target: text["target_node"], state: text["state"], message: text["message"]}
	for part := range strings.FieldsSeq(text["slot_ranges"]) {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("slots %q: %w", part, err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, fmt.Errorf("slots %q: %w", part, err)
		}
		job.slots = append(job.slots, SlotRange{First: from, Last: to})
	}
	updated, err := strconv.ParseInt(text["last_update_time"], 10, 64)
	if err != nil || job.state == "" {
		return nil, fmt.Errorf("no state or time in %d fields: %w", len(fields), err)
	}
	job.idle = now.Sub(time.Unix(updated, 0))
	return job, nil
}
