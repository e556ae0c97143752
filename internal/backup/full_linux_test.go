package backup

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/example/redis-operator/internal/redis/redistest"
)

// TestFullVolume needs root, to mount one of a megabyte.
func TestFullVolume(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	fillLarge(t, servers, 3)
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small volume (as root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	})
	task := backupTask(t, Destination{Directory: full}, servers)
	if r := Do(t.Context(), task); r.Reason != ReasonStoreFull || r.Permanent || !strings.Contains(r.Message, "enlarge it") {
		t.Errorf("backup: %+v", r)
	}
	if left, err := os.ReadDir(full); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	task.Destination.Directory = t.TempDir()
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Fatalf("%+v", r)
	}
	task.Operation, task.Engine, task.Version, task.DataDir = OperationSeed, engineName(servers[0].Version), servers[0].Version.Release, full
	if r := Do(t.Context(), task); r.Reason != ReasonStoreFull || r.Permanent {
		t.Errorf("seed: %+v", r)
	}
	if left, err := os.ReadDir(full); err != nil || len(left) > 0 {
		t.Errorf("%v is left in the data folder, %v", left, err)
	}
}
