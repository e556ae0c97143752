package kube

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

// PodProcesses are the folders in /proc of a Pod's processes that run on this
// machine.
func PodProcesses(podUID string) ([]string, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	// The cgroup drivers of the kubelet write the UID with dashes or underscores.
	names := []string{"pod" + podUID, "pod" + strings.ReplaceAll(podUID, "-", "_")}
	var out []string
	for _, path := range groups {
		data, err := os.ReadFile(path)
		if ProcessGone(err) {
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

// KillServer ends the server of a Pod that runs on this machine, as the kernel does when
// memory runs out.
func KillServer(podUID string) error {
	processes, err := PodProcesses(podUID)
	if err != nil {
		return err
	}
	for _, process := range processes {
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if ProcessGone(err) || !strings.HasSuffix(strings.TrimSpace(string(name)), "-server") {
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

// ProcessGone tells whether a process ended while it was looked at.
func ProcessGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "no such process")
}
