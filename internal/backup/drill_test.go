package backup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/example/redis-operator/internal/redis/redistest"
)

// onPath makes PATH a folder with one server, run by a script that ends in tail.
func onPath(t *testing.T, v redistest.Version, tail string) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"%s\n", strings.Join(v.Command(), "' '"), tail)
	if err := os.WriteFile(filepath.Join(dir, v.Engine+"-server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func TestDrill(t *testing.T) {
	v := redistest.Versions(t)[0]
	servers := cluster(t, v)
	fill(t, servers)
	drill := func(id string) (Result, Destination) {
		d := Destination{Directory: t.TempDir()}
		task := backupTask(t, d, servers)
		task.Verify, task.ID = VerifyRestore, id
		return Do(t.Context(), task), d
	}
	refused := func(what string, r Result, d Destination, reason Reason, message string) {
		t.Helper()
		if r.Reason != reason || !strings.Contains(r.Message, message) || r.Verified {
			t.Errorf("%s: %+v, want %s with %q", what, r, reason, message)
		}
		if left, err := os.ReadDir(d.Directory); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", what, left, err)
		}
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)

	onPath(t, v, "")
	r, d := drill("whole")
	if r.Reason != "" || !r.Verified || r.Keys < 40 {
		t.Errorf("%+v", r)
	}
	task := backupTask(t, d, servers)
	task.Verify, task.ID = VerifyRestore, "whole"
	if again := Do(t.Context(), task); again != r {
		t.Errorf("a second run: %+v, want %+v", again, r)
	}

	onPath(t, v, " --dbfilename other")
	r, d = drill("empty")
	refused("a server that reads nothing", r, d, ReasonVerificationFailed, "has read 0 keys and 0 function libraries")

	onPath(t, v, " --no-such-option yes")
	r, d = drill("broken")
	refused("a server that ends", r, d, ReasonVerificationFailed, "no-such-option")

	t.Setenv("PATH", t.TempDir())
	r, d = drill("none")
	refused("no server", r, d, ReasonInvalid, v.Engine+"-server")

	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
