package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// database is a server image that is made of Debian packages.
type database struct {
	engine, minor, suite string
	repository           string
}

var databases = []database{
	{"redis", "7.0", "bookworm", "docker.io/library/redis"},
	{"redis", "8.0", "sid", "docker.io/library/redis"},
	{"valkey", "8.1", "trixie", "docker.io/valkey/valkey"},
	{"valkey", "9.1", "sid", "docker.io/valkey/valkey"},
}

// ensureDatabaseImages makes the image archives that the cache lacks and
// returns the path of each. The file systems stay in servers/ENGINE-MINOR, where
// the tests of internal/redis find servers of every version.
func ensureDatabaseImages(ctx context.Context, cache string, say func(format string, a ...any)) ([]string, error) {
	var archives []string
	for _, d := range databases {
		archive := filepath.Join(cache, "images", d.engine+"-"+d.minor+".tar")
		archives = append(archives, archive)
		if _, err := os.Stat(archive); err == nil {
			continue
		}
		say("making the image of %s %s from Debian packages, once", d.engine, d.minor)
		start := time.Now()
		version, err := d.make(ctx, cache, archive)
		if err != nil {
			return nil, fmt.Errorf("make image of %s %s: %w", d.engine, d.minor, err)
		}
		say("made %s %s in %s", d.engine, version, time.Since(start).Round(time.Second))
	}
	return archives, nil
}

var versionForm = regexp.MustCompile(`v=(\d+\.\d+\.\d+)`)

// make installs the server's packages into a folder, and makes a one-layer
// image of it under its minor and its full version.
func (d database) make(ctx context.Context, cache, archive string) (string, error) {
	work, err := os.MkdirTemp(cache, "image-")
	if err != nil {
		return "", fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	root := filepath.Join(work, "root")
	if err := d.unpack(ctx, work, root); err != nil {
		return "", err
	}
	if err := d.finish(root); err != nil {
		return "", err
	}
	out, err := command("chroot", root, "/usr/bin/"+d.engine+"-server", "--version")
	if err != nil {
		return "", err
	}
	match := versionForm.FindStringSubmatch(out)
	if match == nil || !strings.HasPrefix(match[1], d.minor+".") {
		return "", fmt.Errorf("suite %s of Debian has another version: %s", d.suite, strings.TrimSpace(out))
	}
	layer := filepath.Join(work, "layer.tar")
	if _, err := command("tar", "-C", root, "--numeric-owner", "-cf", layer, "."); err != nil {
		return "", err
	}
	config := v1.Config{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/data",
		Cmd: []string{d.engine + "-server"}, ExposedPorts: map[string]struct{}{"6379/tcp": {}},
	}
	if err := writeImage(archive, layer, config, d.repository+":"+d.minor, d.repository+":"+match[1]); err != nil {
		return "", err
	}
	keep := filepath.Join(cache, "servers", d.engine+"-"+d.minor)
	if err := os.RemoveAll(keep); err != nil {
		return "", fmt.Errorf("replace %s: %w", keep, err)
	}
	if err := os.MkdirAll(filepath.Dir(keep), 0o755); err != nil {
		return "", fmt.Errorf("make folder of servers: %w", err)
	}
	return match[1], os.Rename(root, keep)
}

// unpack downloads the packages of a suite with what they need, by an apt that
// knows nothing of this machine's packages, and unpacks them.
func (d database) unpack(ctx context.Context, work, root string) error {
	uri, err := mirror()
	if err != nil {
		return err
	}
	sources := filepath.Join(work, "sources.list")
	line := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", uri, d.suite)
	for file, content := range map[string]string{sources: line, filepath.Join(work, "status"): ""} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return fmt.Errorf("make folder of apt: %w", err)
		}
	}
	apt := func(args ...string) error {
		options := []string{
			"-o", "Dir::State=" + work, "-o", "Dir::State::lists=" + work + "/lists", "-o", "Dir::State::status=" + work + "/status",
			"-o", "Dir::Cache=" + work, "-o", "Dir::Cache::archives=" + work + "/archives", "-o", "Dir::Etc::sourcelist=" + sources,
			"-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
		}
		out, err := exec.CommandContext(ctx, "apt-get", append(options, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, tail(string(out), 5))
		}
		return nil
	}
	if err := apt("update"); err != nil {
		return err
	}
	if err := apt("install", "-y", "--download-only", "--no-install-recommends",
		d.engine+"-server", d.engine+"-tools", "dash", "coreutils", "grep", "sed", "base-files"); err != nil {
		return err
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", link), 0o755); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "archives", "*.deb"))
	if err != nil || len(debs) == 0 {
		return fmt.Errorf("apt-get downloaded no package")
	}
	for _, deb := range debs {
		if _, err := command("sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --keep-directory-symlink`, "sh", deb, root); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

// finish does what the packages' scripts would have done, and removes what no
// server needs.
func (d database) finish(root string) error {
	for _, dir := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/zoneinfo", "var/cache", "var/lib"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return fmt.Errorf("trim root: %w", err)
		}
	}
	links := map[string]string{"usr/bin/sh": "dash"}
	if d.engine == "valkey" {
		// As in the official image, the names of Redis work too.
		links["usr/bin/redis-server"], links["usr/bin/redis-cli"] = "valkey-server", "valkey-cli"
	}
	for link, target := range links {
		if _, err := os.Lstat(filepath.Join(root, link)); err == nil {
			continue
		}
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	files := map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" + d.engine + ":x:999:999::/data:/bin/sh\n",
		"etc/group":  "root:x:0:\n" + d.engine + ":x:999:\n",
	}
	for file, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	for _, dir := range []string{"data", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("make root: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("open /tmp: %w", err)
	}
	return os.Chown(filepath.Join(root, "data"), 999, 999)
}

// mirror is where this machine's own apt gets Debian from.
func mirror() (string, error) {
	out, err := command("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
	if err != nil {
		return "", fmt.Errorf("find the Debian mirror: %w", err)
	}
	for _, line := range strings.Split(out, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.HasPrefix(fields[0], "http") && !strings.Contains(fields[0], "security") && !strings.Contains(fields[1], "security") {
			return fields[0], nil
		}
	}
	return "", fmt.Errorf("this machine's apt names no Debian mirror")
}

// binaryImage makes an image that holds one static binary as its entrypoint,
// this machine's CA roots and little else, as a distroless one does.
func binaryImage(path, ref, entrypoint, user string, out string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	roots, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		return fmt.Errorf("read the CA roots (Debian package ca-certificates): %w", err)
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"tmp/", 0o1777, nil}, {"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{strings.TrimPrefix(entrypoint, "/"), 0o755, program},
	} {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write layer: %w", err)
		}
		if _, err := w.Write(f.content); err != nil {
			return fmt.Errorf("write layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	layer := out + ".layer"
	if err := os.WriteFile(layer, buffer.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	defer func() { _ = os.Remove(layer) }()
	return writeImage(out, layer, v1.Config{Entrypoint: []string{entrypoint}, User: user, WorkingDir: "/"}, ref)
}

// writeImage writes an archive of an image of one layer under some references.
// The file gets its name only when it is whole.
func writeImage(out, layer string, config v1.Config, refs ...string) error {
	l, err := tarball.LayerFromFile(layer)
	if err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read image config: %w", err)
	}
	file = file.DeepCopy()
	file.Config, file.OS, file.Architecture = config, "linux", runtime.GOARCH
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return fmt.Errorf("set image config: %w", err)
	}
	images := map[name.Tag]v1.Image{}
	for _, ref := range refs {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("reference %q: %w", ref, err)
		}
		images[tag] = image
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("make folder of images: %w", err)
	}
	if err := tarball.MultiWriteToFile(out+".part", images); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return os.Rename(out+".part", out)
}
