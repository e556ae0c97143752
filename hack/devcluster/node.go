package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pauseRef is the sandbox image of every Pod.
const pauseRef = "devcluster.local/pause:1"

// startNode starts a node, or what of it does not run: containerd, kubelet and
// kube-proxy in its network namespace, in its cgroup, with its own folders.
func (c *cluster) startNode(n int) error {
	if err := c.writeNodeConfig(n); err != nil {
		return err
	}
	ns := c.netns(n)
	bin := filepath.Dir(c.bin["containerd"])
	path := "PATH=" + filepath.Dir(c.bin["containerd-shim-runc-v2"]) + ":" + bin + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	steps := []struct {
		role string
		args []string
	}{
		{"containerd", []string{"--config", c.nodeDir(n, "containerd.toml")}},
		{"kubelet", []string{
			"--config=" + c.nodeDir(n, "kubelet.yaml"), "--kubeconfig=" + c.dir(c.nodeName(n)+".kubeconfig"),
			"--root-dir=" + c.nodeDir(n, "kubelet"), "--cert-dir=" + c.nodeDir(n, "kubelet-pki"),
			"--hostname-override=" + c.nodeName(n), "--node-ip=" + c.nodeIP(n)}},
		{"kube-proxy", []string{
			"--kubeconfig=" + c.dir("kube-proxy.kubeconfig"), "--hostname-override=" + c.nodeName(n), "--cluster-cidr=" + c.podRange(),
			"--proxy-mode=iptables", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
			"--iptables-min-sync-period=100ms"}},
	}
	for _, s := range steps {
		role := fmt.Sprintf("%s-%d", s.role, n)
		if c.Processes[role].alive() {
			continue
		}
		if err := c.start(role, c.nodeDir(n, s.role+".log"), ns, []string{path}, c.bin[s.role], s.args...); err != nil {
			return err
		}
		if s.role == "containerd" {
			if err := c.prepareContainerd(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareContainerd waits for containerd and gives it every image, so that the
// kubelet never has to pull one.
func (c *cluster) prepareContainerd(n int) error {
	var last error
	if !waitFor(20*time.Second, func() bool { _, last = c.ctr(n, "version"); return last == nil }) {
		return fmt.Errorf("containerd of %s does not answer, see %s: %w", c.nodeName(n), c.nodeDir(n, "containerd.log"), last)
	}
	for _, archive := range c.Images {
		if err := c.importImage(n, archive); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) ctr(n int, args ...string) (string, error) {
	return command(c.bin["ctr"], append([]string{"-a", c.nodeDir(n, "containerd.sock"), "-n", "k8s.io"}, args...)...)
}

func (c *cluster) importImage(n int, archive string) error {
	if _, err := c.ctr(n, "images", "import", "--local", archive); err != nil {
		return fmt.Errorf("load %s into %s: %w", filepath.Base(archive), c.nodeName(n), err)
	}
	return nil
}

// killNode ends a node's programs and everything that runs in its Pods, at once.
func (c *cluster) killNode(n int) {
	for _, role := range []string{"kubelet", "kube-proxy", "containerd"} {
		p := c.Processes[fmt.Sprintf("%s-%d", role, n)]
		if p.alive() {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	// A shim names its containerd's socket; a container's processes are in the
	// node's cgroup.
	for _, shim := range processesWith("containerd-shim-runc-v2", c.nodeDir(n, "containerd.sock")) {
		_ = syscall.Kill(shim.PID, syscall.SIGKILL)
	}
	waitFor(10*time.Second, func() bool {
		empty := true
		c.eachCgroup(n, func(dir string) {
			data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, line := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(line); err == nil {
					empty = false
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
		return empty
	})
}

// writeNodeConfig writes the configuration of a node's programs.
func (c *cluster) writeNodeConfig(n int) error {
	for _, dir := range []string{"cni", "volumes", "kubelet"} {
		if err := os.MkdirAll(c.nodeDir(n, dir), 0o755); err != nil {
			return fmt.Errorf("make folder of node: %w", err)
		}
	}
	runc := "/usr/sbin/runc"
	for file, content := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, c.nodeDir(n, "containerd"), c.nodeDir(n, "state"), c.nodeDir(n, "containerd.sock"),
			pauseRef, runc, c.nodeDir(n, "cni")),
		"kubelet.yaml":        fmt.Sprintf(kubeletConfig, c.nodeDir(n, "containerd.sock"), c.cgroupName(n), c.nodeDir(n, "pod-logs"), c.dnsIP(), c.dir("pki", "ca.crt")),
		"cni/10-ptp.conflist": fmt.Sprintf(cniConfig, c.podSubnet(n), c.nodeDir(n, "ipam")),
	} {
		if err := os.WriteFile(c.nodeDir(n, file), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s of node: %w", file, err)
		}
	}
	return nil
}

// restrict_oom_score_adj: without CAP_SYS_RESOURCE no score may be lowered.
// netns_mounts_under_state_dir: the Pods' namespaces go with the node's folder.
const containerdConfig = `version = 3
root = %q
state = %q
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %q
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = %q
`

// A development machine's disk may be almost full: that must not taint nodes,
// so eviction is off.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: /%s
podLogsDir: %s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: ""
serializeImagePulls: false
nodeStatusUpdateFrequency: 3s
nodeStatusReportFrequency: 10s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
localStorageCapacityIsolation: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
`

// ptp gives every Pod a link of its own, so that a reused address never meets a
// stale neighbour entry.
const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "subnet": %q, "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}}
]}
`
