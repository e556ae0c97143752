package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that devcluster started. The start time (in clock ticks
// since boot) tells it from a later process with the same pid, so that a
// stranger is never ended.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

// spawn starts a program in a session of its own, its output in logFile. With a
// network namespace it runs inside that one.
func spawn(logFile, netns string, env []string, path string, args ...string) (process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return process{}, fmt.Errorf("open log of %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = log.Close() }() // the program has its own copy of it
	argv := append([]string{path}, args...)
	if netns != "" {
		argv = append([]string{"nsenter", "--net=" + netnsPath(netns), "--"}, argv...)
	}
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	pid := cmd.Process.Pid
	go func() { _ = cmd.Wait() }() // reap it, should it end while devcluster runs
	start, err := startTime(pid)
	if err != nil {
		return process{}, fmt.Errorf("%s ended at once, see %s", filepath.Base(path), logFile)
	}
	return process{PID: pid, Start: start}, nil
}

// startTime reads the start time of a process; an error means that it is gone.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold spaces; the fields after it do not.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// alive tells whether the very process that was started still runs.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// end asks a process to end, waits up to grace, then kills it.
func (p process) end(grace time.Duration) {
	if !p.alive() {
		return
	}
	_ = syscall.Kill(p.PID, syscall.SIGTERM)
	if waitFor(grace, func() bool { return !p.alive() }) {
		return
	}
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	waitFor(5*time.Second, func() bool { return !p.alive() })
}

// waitFor polls a condition until it holds or the time is over.
func waitFor(limit time.Duration, done func() bool) bool {
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for deadline := time.Now().Add(limit); ; <-beat.C {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// processesWith finds the processes whose command line holds all the words.
func processesWith(words ...string) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []process
next:
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		for _, w := range words {
			if !strings.Contains(string(line), w) {
				continue next
			}
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if start, err := startTime(pid); err == nil && pid != os.Getpid() {
			found = append(found, process{PID: pid, Start: start})
		}
	}
	return found
}

// unmountBelow detaches every mount below a folder, the deepest first.
func unmountBelow(dir string) error {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	var points []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			points = append(points, strings.ReplaceAll(fields[1], `\040`, " "))
		}
	}
	var errs []error
	for i := len(points) - 1; i >= 0; i-- {
		if err := syscall.Unmount(points[i], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", points[i], err))
		}
	}
	return errors.Join(errs...)
}

// lockFile takes a lock that ends with the process at the latest, waiting for
// another devcluster that holds it.
func lockFile(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		say("another devcluster is at work; waiting for it")
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return func() { _ = f.Close() }, nil
}

// command runs a program to its end and returns its output; the error holds the
// end of it.
func command(name string, args ...string) (string, error) {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(string(out), 5))
	}
	return string(out), nil
}
