package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// kubernetesVersion is the version of every Kubernetes binary; go.mod of
// binaries/kubernetes pins the same.
const kubernetesVersion = "v1.37.2"

// binary is a program that is built once from Go modules.
type binary struct {
	name string
	// module is its folder below binaries/, pkg the package to build there.
	module, pkg string
	// version names its folder in the cache.
	version string
	args    []string
}

// programs are all binaries, the one that compiles what the others share first.
var programs = []binary{
	kubernetes("kube-apiserver"), kubernetes("kube-controller-manager"), kubernetes("kube-scheduler"),
	kubernetes("kubelet"), kubernetes("kube-proxy"), kubernetes("kubectl"),
	{name: "etcd", module: "etcd", pkg: ".", version: "v3.7.3"},
	containerd("containerd"), containerd("containerd-shim-runc-v2"), containerd("ctr"),
	{name: "coredns", module: "coredns", pkg: ".", version: "v1.15.0"},
	{name: "provisioner", module: "provisioner", pkg: ".", version: "2"},
	{name: "pause", module: "pause", pkg: ".", version: "1"},
}

func kubernetes(name string) binary {
	const x = "-X k8s.io/component-base/version."
	return binary{name: name, module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/" + name, version: kubernetesVersion,
		args: []string{"-ldflags", "-s -w " + x + "gitVersion=" + kubernetesVersion + " " + x + "gitMajor=1 " + x + "gitMinor=37"}}
}

func containerd(name string) binary {
	return binary{name: name, module: "containerd", pkg: "github.com/containerd/containerd/v2/cmd/" + name, version: "v2.4.2",
		args: []string{"-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", "-s -w"}}
}

// cacheFolder is where binaries, images and servers are kept between clusters.
func cacheFolder() (string, error) {
	if dir := os.Getenv("DEVCLUSTER_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set DEVCLUSTER_CACHE): %w", err)
	}
	return filepath.Join(base, "redis-operator-devcluster"), nil
}

// sourceFolder is the folder of this program's source: the binaries' modules
// are beside it, and cannot be embedded because they are modules of their own.
func sourceFolder() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "binaries")); !ok || err != nil {
		return "", fmt.Errorf("the source of devcluster is needed to build Kubernetes: run it with `go run .` in hack/devcluster")
	}
	return filepath.Dir(file), nil
}

// ensureBinaries builds the named programs that the cache lacks, all of them if
// none is named, and returns the path of each by name.
func ensureBinaries(ctx context.Context, names ...string) (map[string]string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(programs, func(b binary) bool { return b.name == name }) {
			return nil, fmt.Errorf("no program is called %q", name)
		}
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	paths := map[string]string{}
	var missing []binary
	for _, b := range programs {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		paths[b.name] = filepath.Join(cache, "bin", b.name+"-"+b.version, b.name)
		if _, err := os.Stat(paths[b.name]); err != nil {
			missing = append(missing, b)
		}
	}
	for i, b := range missing {
		if err := build(ctx, b, paths[b.name], fmt.Sprintf("%d/%d", i+1, len(missing))); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// build compiles one program. The file gets its name only when it is whole.
func build(ctx context.Context, b binary, path, which string) error {
	source, err := sourceFolder()
	if err != nil {
		return err
	}
	say("building %s %s (%s), once; the first takes minutes", b.name, b.version, which)
	start := time.Now()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache folder: %w", err)
	}
	args := append([]string{"build", "-o", path + ".part"}, b.args...)
	cmd := exec.CommandContext(ctx, "go", append(args, b.pkg)...)
	cmd.Dir = filepath.Join(source, "binaries", b.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	stop := keepSaying(fmt.Sprintf("still building %s", b.name))
	out, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", b.name, err, tail(string(out), 20))
	}
	if err := os.Rename(path+".part", path); err != nil {
		return fmt.Errorf("keep %s: %w", b.name, err)
	}
	say("built %s in %s", b.name, time.Since(start).Round(time.Second))
	return nil
}

// tail keeps the last lines of an output.
func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
