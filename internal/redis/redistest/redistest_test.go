package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRestartKeepsTheNode(t *testing.T) {
	for _, v := range Versions(t) {
		t.Run(v.String(), func(t *testing.T) {
			a, b := Start(t, v), Start(t, v, "--appendonly", "yes")
			if a.Addr() == b.Addr() || a.PID() == b.PID() {
				t.Fatalf("two servers are one: %s %d, %s %d", a.Addr(), a.PID(), b.Addr(), b.PID())
			}
			id := b.Do("CLUSTER", "MYID")
			if reply := b.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383); reply != "OK" {
				t.Errorf("ADDSLOTSRANGE: %v", reply)
			}
			Eventually(t, 20*time.Second, func() error { _, err := b.Try("SET", "key", "value"); return err })
			b.Terminate()
			if b.PID() != 0 || !strings.Contains(b.Log(), "SIGTERM") {
				t.Errorf("process %d after SIGTERM, log:\n%s", b.PID(), b.Log())
			}
			if _, err := b.Try("PING"); err == nil {
				t.Error("it answers after its end")
			}
			b.Run()
			// It listens before it has loaded its data.
			Eventually(t, 20*time.Second, func() error {
				again, err := b.Try("CLUSTER", "MYID")
				if err == nil && again != id {
					t.Errorf("id %v, %v before the restart", again, id)
				}
				return err
			})
			// A primary serves two seconds after its start.
			Eventually(t, 20*time.Second, func() error {
				value, err := b.Try("GET", "key")
				if err == nil && value != "value" {
					err = fmt.Errorf("GET: %v", value)
				}
				return err
			})
			if nothing := b.Do("GET", "nothing"); nothing != nil {
				t.Errorf("GET of nothing: %v", nothing)
			}
		})
	}
}

func TestVersionsOfAFolder(t *testing.T) {
	v := Versions(t)[0]
	dir := t.TempDir()
	folder := filepath.Join(dir, v.String())
	place := func(bin string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(folder, bin), 0o700); err != nil {
			t.Fatal(err)
		}
		// A script, so that the program runs with whatever it needs.
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(v.command, " "))
		if err := os.WriteFile(filepath.Join(folder, bin, v.Engine+"-server"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes", "redis", "keydb-6.3"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := discoverDir(dir); err == nil || !strings.Contains(err.Error(), "has no usr/bin/"+v.Engine+"-server") {
		t.Errorf("an empty folder: %v, %v", found, err)
	}
	place("bin")
	found, err := discoverDir(dir)
	if err != nil || len(found) != 1 || found[0].String() != v.String() || found[0].Release != v.Release {
		t.Errorf("a folder with bin: %v, %v", found, err)
	}
	place("usr/bin")
	found, err = discoverDir(dir)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].command[0], "/usr/bin/") {
		t.Errorf("a folder with usr/bin: %v, %v", found, err)
	}
	if err := os.Rename(folder, filepath.Join(dir, v.Engine+"-99.0")); err != nil {
		t.Fatal(err)
	}
	if found, err := discoverDir(dir); err == nil || !strings.Contains(err.Error(), "holds "+v.String()) {
		t.Errorf("a folder of another version: %v, %v", found, err)
	}
}

// childEnv turns a run of this test binary into the one that gets killed.
const childEnv = "REDISTEST_CHILD"

// A server does not outlive its test process, however that ends.
func TestServerEndsWithTheTestProcess(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		fmt.Printf("address %s\n", Start(t, Versions(t)[0]).Addr())
		select {}
	}
	if dieWithParent() == nil {
		t.Fatal("redistest needs Linux")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		if rest, is := strings.CutPrefix(lines.Text(), "address "); is {
			addr = rest
		}
	}
	if err := ping(addr); err != nil {
		t.Fatalf("the child's server at %q: %v", addr, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	Eventually(t, 20*time.Second, func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("%s still listens", addr)
		}
		return nil
	})
}
