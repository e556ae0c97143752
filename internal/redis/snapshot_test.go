package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/example/redis-operator/internal/rdb"
	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// fill writes one key of every kind, several kinds both small and large, and
// returns how many keys there are.
func fill(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	s.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	redistest.Eventually(t, patience, func() error {
		_, err := s.Try("SET", "string", "value", "PX", 86400000)
		return err
	})
	s.Do("SET", "number", "12345")
	s.Do("SET", "compressible", strings.Repeat("a", 200_000))
	s.Do("SETBIT", "bitmap", 100_000, 1)
	s.Do("PFADD", "hll", "a", "b", "c")
	s.Do("GEOADD", "geo", "13.361389", "38.115556", "Palermo")
	s.Do("HSET", "hash", "f", "v", "g", "w")
	s.Do("SADD", "ints", 1, 2, 3)
	s.Do("RPUSH", "list", "a", "b", strings.Repeat("x", 20_000))
	for i := range 600 {
		s.Do("HSET", "large-hash", fmt.Sprint("f", i), strings.Repeat("v", 70))
		s.Do("SADD", "large-set", fmt.Sprint("m", i))
		s.Do("ZADD", "large-zset", float64(i)/3, fmt.Sprint("m", i))
	}
	s.Do("XADD", "stream", "*", "k", "v")
	s.Do("XADD", "stream", "*", "k", "w")
	s.Do("XGROUP", "CREATE", "stream", "group", "0")
	s.Do("XREADGROUP", "GROUP", "group", "consumer", "COUNT", 1, "STREAMS", "stream", ">")
	s.Do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
	for _, key := range []string{"hash", "large-hash"} {
		if _, err := s.Try("HPEXPIRE", key, 86400000, "FIELDS", 1, "f"); err != nil && !strings.Contains(err.Error(), "unknown command") {
			t.Fatal(err)
		}
	}
	if _, err := s.Try("HPEXPIRE", "large-hash", 86400000, "FIELDS", 1, "f1"); err != nil && !strings.Contains(err.Error(), "unknown command") {
		t.Fatal(err)
	}
	return s.Do("DBSIZE").(int64)
}

func TestSnapshotIsCountedToTheKey(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		for _, diskless := range []string{"yes", "no"} {
			s := redistest.Start(t, v, "--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0", "--requirepass", "")
			keys := fill(t, s)
			s.Do("ACL", "SETUSER", "reader", "on", ">secret", "+sync", "+psync", "+replconf")
			d := redis.Dialer{Username: "reader", Password: "secret"}
			snap, err := d.Snapshot(t.Context(), s.Addr(), v.Release)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = snap.Close() }()
			file, err := os.Create(filepath.Join(t.TempDir(), "dump.rdb"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			got, err := rdb.Scan(io.TeeReader(snap, file))
			if err != nil {
				t.Fatal(err)
			}
			if got.Keys != keys || got.Functions != 1 || got.Unchecked {
				t.Errorf("diskless %s: %+v, want %d keys and 1 function, checked", diskless, got, keys)
			}
			if snap.OnDisk != (diskless == "no") || len(snap.ReplicationID) != 40 {
				t.Errorf("diskless %s: %+v", diskless, snap)
			}
			refuseDamage(t, file.Name(), got)
		}
	})
}

// refuseDamage alters an RDB in every way that must be noticed.
func refuseDamage(t *testing.T, path string, want rdb.Summary) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rdb.Scan(iotest.OneByteReader(strings.NewReader(string(whole))))
	if err != nil || again != want {
		t.Fatalf("byte by byte: %+v, %v, want %+v", again, err, want)
	}
	for i := 0; i < len(whole); i += 1 + len(whole)/97 {
		damaged := []byte(string(whole))
		damaged[i] ^= 0x10
		if _, err := rdb.Scan(strings.NewReader(string(damaged))); !errors.Is(err, rdb.ErrFormat) {
			t.Errorf("byte %d altered: %v", i, err)
		}
		if _, err := rdb.Scan(strings.NewReader(string(whole[:i]))); !errors.Is(err, rdb.ErrFormat) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := rdb.Scan(strings.NewReader(string(whole) + "x")); !errors.Is(err, rdb.ErrFormat) {
		t.Errorf("with a byte more: %v", err)
	}
}

func TestSnapshotFailures(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Versions(t)[0], "--repl-diskless-sync-delay", "0")
	s.Do("ACL", "SETUSER", "reader", "on", ">secret", "+replconf")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, d := range []redis.Dialer{{Username: "reader", Password: "wrong"}, {Username: "reader", Password: "secret"}} {
		if _, err := d.Snapshot(ctx, s.Addr(), ""); !redis.IsAuth(err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want a refusal", d.Username, err)
		}
	}
	snap, err := redis.Dialer{}.Snapshot(ctx, s.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snap.Close() }()
	cancel()
	if _, err := rdb.Scan(snap); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
