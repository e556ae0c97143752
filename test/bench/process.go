package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// residentMemory is the resident memory, in bytes, of the largest process of a
// Pod that runs on this machine. The Pod's other process is the one that holds
// its namespaces and does nothing.
func residentMemory(podUID string) (int64, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	// The cgroup drivers of the kubelet write the UID with dashes or underscores.
	names := []string{"pod" + podUID, "pod" + strings.ReplaceAll(podUID, "-", "_")}
	var largest int64
	for _, path := range groups {
		data, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("look for the manager's process: %w", err)
		}
		if !strings.Contains(string(data), names[0]) && !strings.Contains(string(data), names[1]) {
			continue
		}
		rss, err := vmRSS(filepath.Join(filepath.Dir(path), "status"))
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
