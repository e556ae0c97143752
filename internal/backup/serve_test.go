package backup

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/example/redis-operator/internal/redis/redistest"
)

// TestServed: a backup in a directory is read by those who know the password, and
// only read.
func TestServed(t *testing.T) {
	v := redistest.Versions(t)[0]
	servers := cluster(t, v)
	fill(t, servers)
	want := content(t, servers[:3])
	folder, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
	task := backupTask(t, Destination{Directory: folder}, servers)
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Fatalf("%+v", r)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveOn(ctx, l, filepath.Join(folder, "b1"), "operator", "right") }()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("right")
	task.Destination = Destination{Remote: &Remote{URL: "http://" + l.Addr().String(), Username: "operator", PasswordFile: password}}
	restores(t, task, v, true, want)

	fails := func(what string, reason Reason, permanent bool) {
		t.Helper()
		seed := task
		seed.Operation, seed.Engine, seed.Version, seed.DataDir = OperationSeed, engineName(v), v.Release, t.TempDir()
		if r := Do(t.Context(), seed); r.Reason != reason || r.Permanent != permanent {
			t.Errorf("%s: %+v, want %s", what, r, reason)
		}
		if left, err := os.ReadDir(seed.DataDir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", what, left, err)
		}
	}
	write("wrong")
	fails("another password", ReasonAccessDenied, false)
	write("")
	fails("no password", ReasonInvalid, true)
	write("right")
	object := filepath.Join(folder, "b1", "shard-0000.rdb.zst")
	if err := os.Truncate(object, 100); err != nil {
		t.Fatal(err)
	}
	fails("an object that is cut short", ReasonDamaged, true)
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	fails("an object that is missing", ReasonDamaged, true)
	task.Operation = OperationDelete
	if r := Do(t.Context(), task); r.Reason != ReasonInvalid {
		t.Errorf("a backup that is served is deleted: %+v", r)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end of the work: %v", err)
	}
	fails("nobody serves", ReasonStoreUnavailable, false)
}
