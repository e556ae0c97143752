package backup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// drill restores each shard into a server of its own, one after the other, and
// compares what that has loaded with the manifest. It needs room for the largest
// RDB in the folder for temporary files, and memory for its data.
func (r *run) drill(ctx context.Context, m *Manifest) error {
	if r.task.Verify != VerifyRestore {
		return nil
	}
	server, err := exec.LookPath(strings.ToLower(m.Engine) + "-server")
	if err != nil {
		return refuse(ReasonInvalid, "a verification by restore needs the server's program: %w", err)
	}
	for i := range m.Shards {
		if err := r.drillShard(ctx, server, &m.Shards[i]); err != nil {
			return err
		}
	}
	m.Restored = true
	return nil
}

func (r *run) drillShard(ctx context.Context, server string, s *ManifestShard) error {
	dir, err := os.MkdirTemp("", "drill")
	if err != nil {
		return fail(ReasonStoreFull, "make a folder for the verification: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := fetch(ctx, r.store, s, filepath.Join(dir, "dump.rdb")); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(ctx, server, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	log := &lastBytes{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fail(ReasonVerificationFailed, "start %s: %w", server, err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	defer func() { cancel(); <-exited }()
	client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: socket, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	keys, libraries, err := loaded(ctx, client, exited)
	if err != nil {
		cancel()
		<-exited
		return fail(ReasonVerificationFailed, "the server that was to load %s: %w: %s", s.Object, err, log.text())
	}
	if keys != s.Keys || libraries != s.Functions {
		return refuse(ReasonVerificationFailed, "a server has read %d keys and %d function libraries of %s, the backup's own count is %d and %d",
			keys, libraries, s.Object, s.Keys, s.Functions)
	}
	return nil
}

// loaded waits until a server has loaded its data, and returns how many keys it
// has read, with those that had expired, and how many function libraries.
func loaded(ctx context.Context, client *goredis.Client, exited <-chan struct{}) (keys, libraries int64, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		case <-exited:
			return 0, 0, errors.New("it ended")
		case <-tick.C:
		}
		text, err := client.Info(ctx, "persistence").Result()
		if err != nil || infoNumber(text, "loading") != 0 {
			continue
		}
		functions, err := client.FunctionList(ctx, goredis.FunctionListQuery{}).Result()
		return infoNumber(text, "rdb_last_load_keys_loaded") + infoNumber(text, "rdb_last_load_keys_expired"), int64(len(functions)), err
	}
}

// infoNumber is a field of INFO; -1 when it is not there.
func infoNumber(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return -1
}

// lastBytes keeps the end of a log. It is read after its writer has ended.
type lastBytes struct{ data []byte }

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.data = append(l.data, p...)
	if over := len(l.data) - 1000; over > 0 {
		l.data = append(l.data[:0], l.data[over:]...)
	}
	return len(p), nil
}

func (l *lastBytes) text() string { return string(l.data) }
