package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are Debian's, by a file that shows that they are there.
var packages = map[string]string{
	"runc": "/usr/sbin/runc", "iptables": "/usr/sbin/iptables", "iproute2": "/usr/sbin/ip|/usr/bin/ip|/sbin/ip",
	"containernetworking-plugins": "/usr/lib/cni/ptp", "util-linux": "/usr/bin/nsenter", "ca-certificates": "/etc/ssl/certs/ca-certificates.crt",
	"conntrack": "/usr/sbin/conntrack",
}

// up starts a cluster from nothing. One that runs whole is left as it is; one
// that does not is removed first.
func up(ctx context.Context, c *cluster, exists bool, nodes int) (err error) {
	if nodes < 1 || nodes > maxNodes {
		return fmt.Errorf("a cluster has 1 to %d nodes, not %d", maxNodes, nodes)
	}
	if exists && len(c.unhealthy()) == 0 && len(c.Processes) > 0 {
		if c.Nodes != nodes {
			return fmt.Errorf("cluster %q runs with %d nodes; `devcluster down --name %s` first", c.Name, c.Nodes, c.Name)
		}
		say("cluster %q runs already", c.Name)
		return nil
	}
	if err := installPackages(); err != nil {
		return err
	}
	bin, err := ensureBinaries(ctx)
	if err != nil {
		return err
	}
	archives, err := ensureImages(ctx, bin)
	if err != nil {
		return err
	}
	unlock, err := lockFile(runFolder + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if exists {
		say("cluster %q does not run whole (%s): starting it anew", c.Name, strings.Join(c.unhealthy(), ", "))
	}
	if _, statErr := os.Stat(c.dir()); statErr == nil {
		if err := c.down(); err != nil {
			return fmt.Errorf("remove the old cluster: %w", err)
		}
	}
	index, err := freeIndex()
	if err != nil {
		return err
	}
	c = &cluster{Name: c.Name, Index: index, Nodes: nodes, Processes: map[string]process{}, Images: archives, bin: bin}
	if err := c.bring(); err != nil {
		return fmt.Errorf("%w (logs are in %s; `devcluster down --name %s` removes what there is)", err, c.dir(), c.Name)
	}
	say("cluster %q is up: export KUBECONFIG=%s", c.Name, c.kubeconfig())
	return nil
}

// bring starts every part in its order.
func (c *cluster) bring() error {
	if err := os.MkdirAll(c.dir(), 0o755); err != nil {
		return fmt.Errorf("make run folder: %w", err)
	}
	if err := c.save(); err != nil {
		return err
	}
	if err := errors.Join(allowForwarding(), c.makeBridge()); err != nil {
		return err
	}
	for n := 1; n <= c.Nodes; n++ {
		if err := errors.Join(c.makeNodeNetwork(n), c.makeCgroups(n)); err != nil {
			return err
		}
	}
	say("starting the control plane")
	if err := c.startControlPlane(); err != nil {
		return err
	}
	say("starting %d nodes", c.Nodes)
	for n := 1; n <= c.Nodes; n++ {
		if err := c.startNode(n); err != nil {
			return err
		}
	}
	if err := c.startAddons(); err != nil {
		return err
	}
	_, err := command(c.bin["kubectl"], "--kubeconfig="+c.kubeconfig(), "wait", "--for=create", "node/"+c.nodeName(c.Nodes), "--timeout=60s")
	if err == nil {
		_, err = command(c.bin["kubectl"], "--kubeconfig="+c.kubeconfig(), "wait", "--for=condition=Ready", "node", "--all", "--timeout=90s")
	}
	if bad := c.unhealthy(); err == nil && len(bad) > 0 {
		err = errors.New(strings.Join(bad, ", "))
	}
	return err
}

// ensureImages makes the archives of all images that every node gets.
func ensureImages(ctx context.Context, bin map[string]string) ([]string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	pause := filepath.Join(cache, "images", "pause.tar")
	if _, err := os.Stat(pause); err != nil {
		if err := os.MkdirAll(filepath.Dir(pause), 0o755); err != nil {
			return nil, fmt.Errorf("make folder of images: %w", err)
		}
		if err := binaryImage(bin["pause"], pauseRef, "/pause", "65535:65535", pause); err != nil {
			return nil, err
		}
	}
	databases, err := ensureDatabaseImages(ctx, cache, say)
	return append([]string{pause}, databases...), err
}

// installPackages installs the Debian packages that the machine lacks.
func installPackages() error {
	var missing []string
next:
	for name, files := range packages {
		for _, file := range strings.Split(files, "|") {
			if _, err := os.Stat(file); err == nil {
				continue next
			}
		}
		missing = append(missing, name)
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these are missing, and there is no apt-get to install them: %s", strings.Join(missing, ", "))
	}
	say("installing %s", strings.Join(missing, ", "))
	if err := os.Setenv("DEBIAN_FRONTEND", "noninteractive"); err != nil {
		return fmt.Errorf("set DEBIAN_FRONTEND: %w", err)
	}
	if _, err := command("apt-get", "update"); err != nil {
		return err
	}
	_, err := command("apt-get", append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
	return err
}
