package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"time"
)

// runFolder holds a folder for each cluster. It is short because the paths of
// Unix sockets below it may have no more than 107 characters.
const runFolder = "/run/devcluster"

// cluster is one Kubernetes on this machine, as state.json keeps it.
type cluster struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
	Nodes int    `json:"nodes"`
	// Processes by role: "etcd", "kubelet-2", …
	Processes map[string]process `json:"processes"`
	// Images are the archives that were loaded, for nodes that join later.
	Images []string `json:"images"`

	bin map[string]string
}

var nameForm = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

func (c *cluster) dir(parts ...string) string {
	return filepath.Join(append([]string{runFolder, c.Name}, parts...)...)
}
func (c *cluster) nodeDir(n int, parts ...string) string {
	return c.dir(append([]string{c.nodeName(n)}, parts...)...)
}
func (c *cluster) kubeconfig() string { return c.dir("kubeconfig") }
func (c *cluster) auditLog() string   { return c.dir("audit.log") }
func (c *cluster) server() string     { return fmt.Sprintf("https://%s:6443", c.hostIP()) }

// loadCluster reads the state of a cluster; fs.ErrNotExist when there is none.
func loadCluster(name string) (*cluster, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("%q is no name for a cluster: at most 20 lower-case letters, digits and dashes, a letter first", name)
	}
	c := &cluster{Name: name, Processes: map[string]process{}}
	data, err := os.ReadFile(c.dir("state.json"))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("read state of cluster %s: %w", name, err)
	}
	return c, nil
}

// save writes the state. It is called before anything that down has to undo.
func (c *cluster) save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(c.dir("state.json.part"), data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return os.Rename(c.dir("state.json.part"), c.dir("state.json"))
}

// start starts a program and remembers it.
func (c *cluster) start(role, logFile, netns string, env []string, program string, args ...string) error {
	p, err := spawn(logFile, netns, env, program, args...)
	if err != nil {
		return err
	}
	c.Processes[role] = p
	return c.save()
}

// healthy lists what is not as it should be; nothing means healthy.
func (c *cluster) unhealthy() []string {
	var bad []string
	for role, p := range c.Processes {
		if !p.alive() {
			bad = append(bad, role+" does not run")
		}
	}
	sort.Strings(bad)
	return bad
}

// down ends and removes everything of a cluster, whatever state it is in.
func (c *cluster) down() error {
	order := []string{"provisioner", "coredns", "kube-scheduler", "kube-controller-manager"}
	for _, role := range order {
		c.Processes[role].end(2 * time.Second)
	}
	for n := 1; n <= maxNodes; n++ {
		if _, err := os.Stat(c.nodeDir(n)); err == nil {
			c.killNode(n)
		}
	}
	for _, p := range c.Processes {
		p.end(3 * time.Second)
	}
	errs := []error{unmountBelow(c.dir()), c.removeNetwork()}
	for n := 1; n <= maxNodes; n++ {
		errs = append(errs, c.removeCgroups(n))
	}
	errs = append(errs, c.removeLogLinks(), os.RemoveAll(c.dir()))
	if noClusters() {
		errs = append(errs, restoreForwarding())
	}
	_ = os.Remove(runFolder) // stays while another cluster is in it
	return errors.Join(errs...)
}

// noClusters tells whether no cluster is on this machine.
func noClusters() bool {
	entries, err := os.ReadDir(runFolder)
	return err != nil || len(entries) == 0
}

// removeLogLinks removes the kubelets' links to logs below the cluster's
// folder: their place is the same for all kubelets.
func (c *cluster) removeLogLinks() error {
	links, err := filepath.Glob("/var/log/containers/*.log")
	if err != nil {
		return fmt.Errorf("find links to logs: %w", err)
	}
	var errs []error
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, c.dir()+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

// cgroupRoots are the hierarchies of cgroup v1, or the one of v2.
func cgroupRoots() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	roots, _ := filepath.Glob("/sys/fs/cgroup/*")
	return roots
}

// makeCgroups makes a node's own cgroup in every hierarchy, so that the kubelets
// do not share /kubepods.
func (c *cluster) makeCgroups(n int) error {
	for _, root := range cgroupRoots() {
		dir := filepath.Join(root, c.cgroupName(n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// A new cpuset of v1 is empty and takes no process until it is filled.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if data, err := os.ReadFile(filepath.Join(root, file)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
					return fmt.Errorf("fill cgroup: %w", err)
				}
			}
		}
	}
	return nil
}

// eachCgroup visits a node's cgroups, the deepest first.
func (c *cluster) eachCgroup(n int, visit func(dir string)) {
	for _, root := range cgroupRoots() {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(root, c.cgroupName(n)), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // what has gone meanwhile needs no visit
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			visit(dirs[i])
		}
	}
}

// removeCgroups removes a node's cgroups once nothing runs in them.
func (c *cluster) removeCgroups(n int) error {
	var last error
	waitFor(5*time.Second, func() bool {
		last = nil
		c.eachCgroup(n, func(dir string) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				last = fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		})
		return last == nil
	})
	return last
}
