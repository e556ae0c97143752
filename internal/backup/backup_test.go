package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

const patience = 30 * time.Second

// cluster starts three primaries, the first with a replica, and fills them.
func cluster(t *testing.T, v redistest.Version) []*redistest.Server {
	t.Helper()
	var servers []*redistest.Server
	for i := range 4 {
		s := redistest.Start(t, v, "--repl-diskless-sync-delay", "0")
		servers = append(servers, s)
		if i < 3 {
			s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
			s.Do("CLUSTER", "ADDSLOTSRANGE", thirds[i].First, thirds[i].Last)
		}
	}
	meet(t, servers)
	settled(t, servers)
	servers[3].Do("CLUSTER", "REPLICATE", servers[0].Do("CLUSTER", "MYID"))
	redistest.Eventually(t, patience, func() error {
		if text := fmt.Sprint(servers[3].Do("INFO", "replication")); !strings.Contains(text, "master_link_status:up") {
			return errors.New(text)
		}
		return nil
	})
	return servers
}

var thirds = []redis.SlotRange{{First: 0, Last: 5460}, {First: 5461, Last: 10922}, {First: 10923, Last: 16383}}

func meet(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers[1:] {
		servers[0].Do("CLUSTER", "MEET", s.IP.String(), redistest.Port)
	}
}

// settled waits until all agree that the cluster serves.
func settled(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	redistest.Eventually(t, patience, func() error {
		for _, s := range servers {
			text := fmt.Sprint(s.Do("CLUSTER", "INFO"))
			if !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d", len(servers))) {
				return errors.New(text)
			}
		}
		return nil
	})
}

// try sends a command to the primary that takes it.
func try(t *testing.T, servers []*redistest.Server, args ...any) any {
	t.Helper()
	var last error
	for _, s := range servers {
		reply, err := s.Try(args...)
		if err == nil {
			return reply
		}
		if !strings.HasPrefix(err.Error(), "MOVED") || last == nil {
			last = err
		}
		if !strings.HasPrefix(err.Error(), "MOVED") {
			break
		}
	}
	t.Fatalf("%v: %v", args, last)
	return nil
}

// fill writes keys of every type over all shards.
func fill(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for i := range 40 {
		try(t, servers, "SET", fmt.Sprint("key", i), strings.Repeat(fmt.Sprint("value", i), 300))
	}
	try(t, servers, "SET", "expiring", "v", "PX", 7200000)
	try(t, servers, "RPUSH", "list", "a", "b", strings.Repeat("x", 9000))
	try(t, servers, "SADD", "set", "a", "b", 3)
	try(t, servers, "SADD", "ints", 1, 2, 3)
	try(t, servers, "ZADD", "zset", "1.5", "a", "-inf", "b")
	try(t, servers, "HSET", "hash", "f", "v", "g", "w")
	try(t, servers, "SETBIT", "bitmap", 9999, 1)
	try(t, servers, "PFADD", "hll", "a", "b", "c")
	try(t, servers, "GEOADD", "geo", "13.361389", "38.115556", "Palermo")
	try(t, servers, "XADD", "stream", "1-1", "k", "v")
	try(t, servers, "XADD", "stream", "1-2", "k", "w")
	try(t, servers, "XGROUP", "CREATE", "stream", "group", "0")
	try(t, servers, "XREADGROUP", "GROUP", "group", "consumer", "COUNT", 1, "STREAMS", "stream", ">")
	if hasFieldTTLs(servers[0].Version) {
		try(t, servers, "HPEXPIRE", "hash", 7200000, "FIELDS", 1, "f")
	}
	for _, s := range servers[:3] {
		s.Do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
	}
}

func hasFieldTTLs(v redistest.Version) bool {
	return v.String() == "redis-8.0" || v.String() == "valkey-9.1"
}

// content reads every key by what its type has, and its lifetime to the minute.
func content(t *testing.T, servers []*redistest.Server) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range servers {
		for _, k := range s.Do("KEYS", "*").([]any) {
			key := k.(string)
			kind := s.Do("TYPE", key).(string)
			var v any
			switch kind {
			case "string":
				v = s.Do("GET", key)
			case "list":
				v = s.Do("LRANGE", key, 0, -1)
			case "set":
				v = s.Do("SORT", key, "ALPHA")
			case "zset":
				v = s.Do("ZRANGE", key, 0, -1, "WITHSCORES")
			case "hash":
				v = []any{s.Do("HGET", key, "f"), s.Do("HGET", key, "g"), s.Do("HLEN", key)}
				if hasFieldTTLs(s.Version) {
					v = []any{v, s.Do("HPEXPIRETIME", key, "FIELDS", 2, "f", "g")}
				}
			case "stream":
				groups := fmt.Sprint(s.Do("XINFO", "GROUPS", key))
				pending := s.Do("XPENDING", key, "group")
				v = []any{s.Do("XRANGE", key, "-", "+"), strings.Contains(groups, "consumers 1") || strings.Contains(groups, "consumers:1"), pending}
			default:
				t.Fatalf("%s is a %s", key, kind)
			}
			if _, twice := out[key]; twice {
				t.Errorf("%s is there twice", key)
			}
			out[key] = fmt.Sprint(kind, v, s.Do("PEXPIRETIME", key))
		}
	}
	return out
}

func engineName(v redistest.Version) string {
	return map[string]string{"redis": "Redis", "valkey": "Valkey"}[v.Engine]
}

func backupTask(t *testing.T, d Destination, servers []*redistest.Server) Task {
	t.Helper()
	return Task{Operation: OperationBackup, Destination: d, ID: "b1", Cluster: "ns/name", Seeds: []string{servers[1].Addr()}}
}

// seeded starts a server for each shard of a backup, out of new data folders.
func seeded(t *testing.T, task Task, v redistest.Version, shards int, appendOnly bool) []*redistest.Server {
	t.Helper()
	task.Operation, task.Engine, task.Version, task.AppendOnly = OperationSeed, engineName(v), v.Release, appendOnly
	var servers []*redistest.Server
	for i := range shards {
		aof := "no"
		if appendOnly {
			aof = "yes"
		}
		s := redistest.New(t, v, "--appendonly", aof)
		task.Shard, task.DataDir = i, s.Dir
		if r := Do(t.Context(), task); r.Reason != "" {
			t.Fatalf("seed shard %d: %+v", i, r)
		}
		before, err := os.ReadFile(filepath.Join(s.Dir, nodesFile))
		if err != nil {
			t.Fatal(err)
		}
		if r := Do(t.Context(), task); r.Reason != "" {
			t.Fatalf("seed shard %d again: %+v", i, r)
		}
		after, err := os.ReadFile(filepath.Join(s.Dir, nodesFile))
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("a second seed changed the folder: %v", err)
		}
		s.Run()
		servers = append(servers, s)
	}
	return servers
}

// restores seeds a cluster from a backup and compares it with the source.
func restores(t *testing.T, task Task, v redistest.Version, appendOnly bool, want map[string]string) {
	t.Helper()
	servers := seeded(t, task, v, 3, appendOnly)
	for i, s := range servers {
		n := redis.Dialer{}.Open(s.Addr())
		var state redis.State
		redistest.Eventually(t, patience, func() (err error) {
			if state, err = n.Probe(t.Context()); err == nil && state.Loading {
				err = errors.New("it loads")
			}
			return err
		})
		_ = n.Close()
		if !slices.Equal(state.Slots, thirds[i:i+1]) || state.ConfigEpoch != uint64(i+1) || len(state.Importing)+len(state.Migrating) > 0 {
			t.Errorf("%s shard %d starts with %+v", v, i, state)
		}
	}
	meet(t, servers)
	settled(t, servers)
	got := content(t, servers)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %s is %.200s, want %.200s", v, key, got[key], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %d keys, want %d", v, len(got), len(want))
	}
	for _, s := range servers {
		if text := fmt.Sprint(s.Do("FUNCTION", "LIST")); !strings.Contains(text, "lib") {
			t.Errorf("%s: functions %s", v, text)
		}
	}
}

func TestBackupRestoresValueByValue(t *testing.T) {
	for _, v := range redistest.Versions(t) {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			servers := cluster(t, v)
			fill(t, servers)
			want := content(t, servers[:3])
			d := Destination{Directory: t.TempDir()}
			task := backupTask(t, d, servers)
			r := Do(t.Context(), task)
			if r.Reason != "" || r.Keys != int64(len(want)) || r.Shards != 3 || r.TotalBytes == 0 || r.Engine != engineName(v) || r.RedisVersion != v.Release {
				t.Fatalf("%+v, want %d keys", r, len(want))
			}
			if again := Do(t.Context(), task); again != r {
				t.Errorf("a second run: %+v, want %+v", again, r)
			}
			m, _, err := readManifest(t.Context(), openDirectory(d.Directory, "b1"))
			if err != nil {
				t.Fatal(err)
			}
			if m.Shards[0].Source != servers[3].Addr() || m.Shards[0].SourceRole != "replica" || m.Shards[1].SourceRole != "primary" {
				t.Errorf("the sources are %+v", m.Shards)
			}
			for _, target := range redistest.Versions(t) {
				inspect := task
				inspect.Operation, inspect.Engine, inspect.Version = OperationInspect, engineName(target), target.Release
				got := Do(t.Context(), inspect)
				if !readableBy[v.String()][target.String()] {
					if got.Reason != ReasonIncompatible || !got.Permanent {
						t.Errorf("%s into %s: %+v, want a refusal", v, target, got)
					}
					continue
				}
				if got.Reason != "" || got.ManifestSHA256 != r.ManifestSHA256 || got.Keys != r.Keys {
					t.Errorf("%s into %s: %+v", v, target, got)
				}
				for _, aof := range []bool{true, false} {
					if aof || target.String() == v.String() {
						restores(t, task, target, aof, likewise(want, v, target))
					}
				}
			}
		})
	}
}

// readableBy is which server can be restored into which.
var readableBy = map[string]map[string]bool{
	"redis-7.0":  {"redis-7.0": true, "redis-8.0": true, "valkey-8.1": true, "valkey-9.1": true},
	"redis-8.0":  {"redis-8.0": true},
	"valkey-8.1": {"valkey-8.1": true, "valkey-9.1": true, "redis-8.0": true},
	"valkey-9.1": {"valkey-9.1": true},
}

// likewise takes out what only the target's way of reading has: the lifetimes of
// fields, of which the source has none.
func likewise(want map[string]string, from, to redistest.Version) map[string]string {
	out := map[string]string{}
	for key, value := range want {
		if strings.HasPrefix(value, "hash") && hasFieldTTLs(from) != hasFieldTTLs(to) {
			value = strings.Replace(value, "hash[v w 2]", "hash[[v w 2] [-1 -1]]", 1)
		}
		out[key] = value
	}
	return out
}

func TestDamageIsRefused(t *testing.T) {
	t.Parallel()
	v := redistest.Versions(t)[0]
	servers := cluster(t, v)
	fill(t, servers)
	for _, compression := range []string{zstdCompression, noCompression} {
		d := Destination{Directory: t.TempDir()}
		task := backupTask(t, d, servers)
		task.Compression = compression
		if r := Do(t.Context(), task); r.Reason != "" {
			t.Fatalf("%+v", r)
		}
		task.Engine, task.Version, task.DataDir = engineName(v), v.Release, t.TempDir()
		object := filepath.Join(d.Directory, "b1", objectName(0, compression))
		whole, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, op Operation, data []byte, reason Reason) {
			t.Helper()
			if err := os.WriteFile(object, data, 0o600); err != nil {
				t.Fatal(err)
			}
			task.Operation = op
			if r := Do(t.Context(), task); r.Reason != reason || !r.Permanent {
				t.Errorf("%s %s: %s: %+v, want %s", compression, what, op, r, reason)
			}
			if left, _ := os.ReadDir(task.DataDir); len(left) > 0 {
				t.Errorf("%s %s: %s is left", compression, what, left[0].Name())
			}
		}
		for i := 0; i < len(whole); i += 1 + len(whole)/50 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1
			refused(fmt.Sprint("byte ", i), OperationSeed, flipped, ReasonDamaged)
		}
		refused("cut short", OperationInspect, whole[:len(whole)-1], ReasonDamaged)
		refused("cut short", OperationSeed, whole[:len(whole)/2], ReasonDamaged)
		if err := os.Remove(filepath.Join(d.Directory, "b1", ManifestName)); err != nil {
			t.Fatal(err)
		}
		refused("no manifest", OperationInspect, whole, ReasonNotFound)
		refused("no manifest", OperationSeed, whole, ReasonNotFound)
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	servers := cluster(t, redistest.Versions(t)[0])
	root := t.TempDir()
	task := backupTask(t, Destination{Directory: root}, servers)
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Fatalf("%+v", r)
	}
	task.Operation = OperationDelete
	for range 2 { // what is gone already is no error
		if r := Do(t.Context(), task); r.Reason != "" {
			t.Fatalf("%+v", r)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestSourcesThatFail(t *testing.T) {
	t.Parallel()
	servers := cluster(t, redistest.Versions(t)[0])
	root := t.TempDir()
	task := backupTask(t, Destination{Directory: root}, servers)
	// What an attempt that was killed has left goes.
	if err := os.MkdirAll(filepath.Join(root, "b1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "b1", "shard-0000.rdb.zst"+temporary), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Do(ctx, task); r.Reason == "" || r.Permanent {
		t.Errorf("cancelled: %+v", r)
	}
	servers[2].Kill()
	if r := Do(t.Context(), task); r.Reason != ReasonClusterNotReady || r.Permanent || !strings.Contains(r.Message, "slot") {
		t.Errorf("a primary is gone: %+v", r)
	}
	task.Seeds = []string{netip.AddrPortFrom(redistest.Address(t), 6379).String()}
	if r := Do(t.Context(), task); r.Reason != ReasonClusterNotReady {
		t.Errorf("nobody listens: %+v", r)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestResultFits(t *testing.T) {
	t.Parallel()
	r := Result{Reason: ReasonDamaged, Message: strings.Repeat("ä\"", 5000)}
	text := r.encode()
	var back Result
	if err := json.Unmarshal([]byte(text), &back); err != nil || len(text) > resultLimit || len(text) < resultLimit-20 || back.Reason != r.Reason {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
