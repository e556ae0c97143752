package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/example/redis-operator/test/kube"
)

// residentMemory is the resident memory, in bytes, of the largest process of a
// Pod that runs on this machine. The Pod's other process is the one that holds
// its namespaces and does nothing.
func residentMemory(podUID string) (int64, error) {
	processes, err := kube.PodProcesses(podUID)
	if err != nil {
		return 0, err
	}
	var largest int64
	for _, process := range processes {
		rss, err := statusLine(filepath.Join(process, "status"), "VmRSS:")
		if kube.ProcessGone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		largest = max(largest, rss)
	}
	if largest == 0 {
		return 0, fmt.Errorf("no process of the Pod %s runs on this machine, so that its memory cannot be read", podUID)
	}
	return largest, nil
}

// statusLine reads a line as "VmRSS: 1234 kB" of a /proc/PID/status; 0 without it.
func statusLine(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of a process: %w", err)
			}
			return kib * 1024, nil
		}
	}
	return 0, nil
}
