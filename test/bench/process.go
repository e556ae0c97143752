package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// podProcesses are the folders in /proc of a Pod's processes that run on this
// machine.
func podProcesses(podUID string) ([]string, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	// The cgroup drivers of the kubelet write the UID with dashes or underscores.
	names := []string{"pod" + podUID, "pod" + strings.ReplaceAll(podUID, "-", "_")}
	var out []string
	for _, path := range groups {
		data, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for the processes of a Pod: %w", err)
		}
		if strings.Contains(string(data), names[0]) || strings.Contains(string(data), names[1]) {
			out = append(out, filepath.Dir(path))
		}
	}
	return out, nil
}

// residentMemory is the resident memory, in bytes, of the largest process of a
// Pod that runs on this machine. The Pod's other process is the one that holds
// its namespaces and does nothing.
func residentMemory(podUID string) (int64, error) {
	processes, err := podProcesses(podUID)
	if err != nil {
		return 0, err
	}
	var largest int64
	for _, process := range processes {
		rss, err := vmRSS(filepath.Join(process, "status"))
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		largest = max(largest, rss)
	}
	if largest == 0 {
		return 0, fmt.Errorf("no process of the manager's Pod %s runs on this machine, so that its memory cannot be read", podUID)
	}
	return largest, nil
}

// kill ends the server of a Pod that runs on this machine, as the kernel does when
// memory runs out.
func kill(podUID string) error {
	processes, err := podProcesses(podUID)
	if err != nil {
		return err
	}
	for _, process := range processes {
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if gone(err) || !strings.HasSuffix(strings.TrimSpace(string(name)), "-server") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			return fmt.Errorf("read the id of a process: %w", err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the server: %w", err)
		}
		return nil
	}
	return fmt.Errorf("no server of the Pod %s runs on this machine", podUID)
}

// gone tells whether a process ended while it was looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "no such process")
}

// vmRSS reads the line "VmRSS: 1234 kB" of a /proc/PID/status; 0 without it.
func vmRSS(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of a process: %w", err)
			}
			return kib * 1024, nil
		}
	}
	return 0, nil
}
