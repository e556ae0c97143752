package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/example/redis-operator/internal/redis"
)

const (
	// attempts is how often a backup begins anew when slots moved or a node broke off.
	attempts = 3
	// streams is how many shards are read at the same time: each costs some 16 MB.
	streams = 2
	// cleanup bounds the removal of what a failed attempt has written.
	cleanup = time.Minute
)

// run makes a backup.
type run struct {
	task   *Task
	store  store
	dialer redis.Dialer
}

// backup writes the backup of a Task, unless it is there already.
func backup(ctx context.Context, t *Task, st store) (Result, error) {
	if t.Compression == "" {
		t.Compression = zstdCompression
	}
	if t.Compression != zstdCompression && t.Compression != noCompression {
		return Result{}, refuse(ReasonInvalid, "the compression %q is neither Zstd nor None", t.Compression)
	}
	if t.Verify != "" && t.Verify != VerifyChecksums && t.Verify != VerifyRestore {
		return Result{}, refuse(ReasonInvalid, "the verification %q is neither Checksums nor Restore", t.Verify)
	}
	d, err := dialer(t)
	if err != nil {
		return Result{}, err
	}
	r := &run{task: t, store: st, dialer: d}
	// This also tells whether the store can be used at all, before a node is asked.
	if err := r.clean(ctx); err != nil {
		if errors.Is(err, errExists) {
			return r.existing(ctx)
		}
		return Result{}, err
	}
	for i := 1; ; i++ {
		m, err := r.attempt(ctx)
		if err == nil {
			sum, err := writeManifest(ctx, st, m)
			if err == nil {
				return m.result(st, sum), nil
			}
			return Result{}, r.abandon(ctx, err)
		}
		again := isReason(err, ReasonSlotsMoved) || isReason(err, ReasonSourceFailed)
		if err = r.abandon(ctx, err); !again || i == attempts || ctx.Err() != nil {
			return Result{}, err
		}
	}
}

var errExists = errors.New("the backup is there already")

// clean removes what an earlier attempt has left; errExists when that one was
// whole.
func (r *run) clean(ctx context.Context) error {
	names, err := r.store.list(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == ManifestName {
			return errExists
		}
	}
	for _, name := range names {
		if err := r.store.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// existing reports a backup that an earlier Pod has finished.
func (r *run) existing(ctx context.Context) (Result, error) {
	m, sum, err := readManifest(ctx, r.store)
	if err != nil {
		return Result{}, err
	}
	return m.result(r.store, sum), sizes(ctx, r.store, m)
}

// abandon removes what an attempt has written, also when the work was told to
// end, and returns why it failed.
func (r *run) abandon(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	if err := r.clean(ctx); err != nil {
		var f *reasonError
		if errors.As(why, &f) {
			return &reasonError{Reason: f.Reason, Permanent: f.Permanent, Err: fmt.Errorf("%w; what was written stays: %w", f.Err, err)}
		}
	}
	r.store.close()
	return why
}

// attempt streams every shard. The slots and the claims to them are compared before
// and after: a slot that moved meanwhile may be in two shards' RDBs, or in none.
func (r *run) attempt(ctx context.Context) (*Manifest, error) {
	created := time.Now().UTC().Truncate(time.Second)
	before, err := discover(ctx, r.dialer, r.task.Seeds)
	if err != nil {
		return nil, err
	}
	m := &Manifest{FormatVersion: FormatVersion, ID: r.task.ID, Cluster: r.task.Cluster, Created: created}
	m.Shards = make([]ManifestShard, len(before))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(streams)
	for i, s := range before {
		if from := s.source.state; minor(from.Version) >= minor(m.Version) {
			m.Engine, m.Version = string(from.Engine), from.Version
		}
		group.Go(func() error {
			var err error
			m.Shards[i], err = r.stream(groupCtx, objectName(i, r.task.Compression), s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	after, err := discover(ctx, r.dialer, r.task.Seeds)
	if err != nil {
		return nil, err
	}
	if slotMap(before) != slotMap(after) {
		return nil, fail(ReasonSlotsMoved, "slots moved between shards, or primaries were replaced, while they were read, %d times", attempts)
	}
	return m, r.drill(ctx, m)
}

// remove deletes a backup, its manifest first, so that none is ever half there.
func remove(ctx context.Context, st store) (Result, error) {
	if err := st.remove(ctx, ManifestName); err != nil {
		return Result{}, err
	}
	names, err := st.list(ctx)
	if err != nil {
		return Result{}, err
	}
	for _, name := range names {
		if err := st.remove(ctx, name); err != nil {
			return Result{}, err
		}
	}
	st.close()
	return Result{Location: st.location()}, nil
}
