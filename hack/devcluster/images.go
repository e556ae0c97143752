package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// archive is where the cache keeps the image, tree where it keeps the file
// system of the image.
func (d database) archive(cache string) string {
	return filepath.Join(cache, "images", d.engine+"-"+d.minor+".tar")
}

func (d database) tree(cache string) string {
	return filepath.Join(cache, "servers", d.engine+"-"+d.minor)
}

// made tells whether the cache holds both. Each gets its name when it is whole.
func (d database) made(cache string) bool {
	for _, path := range []string{d.archive(cache), d.tree(cache)} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// ensureDatabaseImages makes the image archives that the cache lacks and
// returns the path of each. The file systems stay in servers/ENGINE-MINOR, where
// the tests of internal/redis find servers of every version. The caller holds
// the cache's lock. Suites are worked on at the same time, and say is called by
// one at a time.
func ensureDatabaseImages(ctx context.Context, cache string, say func(format string, a ...any)) ([]string, error) {
	var archives []string
	missing := map[string][]database{}
	for _, d := range databases {
		archives = append(archives, d.archive(cache))
		if !d.made(cache) {
			missing[d.suite] = append(missing[d.suite], d)
		}
	}
	if len(missing) == 0 {
		return archives, nil
	}
	// What runs that were killed have left.
	left, err := filepath.Glob(filepath.Join(cache, "image-*"))
	if err != nil {
		return nil, fmt.Errorf("look for old work folders: %w", err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("remove old work folder: %w", err)
		}
	}
	var speaking sync.Mutex
	orderly := func(format string, a ...any) {
		speaking.Lock()
		defer speaking.Unlock()
		say(format, a...)
	}
	var working sync.WaitGroup
	failed := make(chan error, len(missing))
	for suite, wanted := range missing {
		working.Go(func() { failed <- makeSuite(ctx, cache, suite, wanted, orderly) })
	}
	working.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return archives, nil
}

// makeSuite makes the images whose packages come from one suite of Debian.
func makeSuite(ctx context.Context, cache, suite string, wanted []database, say func(format string, a ...any)) error {
	work, err := os.MkdirTemp(cache, "image-")
	if err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, d := range wanted {
		say("making the image of %s %s from Debian packages, once", d.engine, d.minor)
	}
	source, err := openSuite(ctx, work, suite)
	if err != nil {
		return fmt.Errorf("read the packages of %s: %w", suite, err)
	}
	for _, d := range wanted {
		start := time.Now()
		version, err := d.make(ctx, source, cache)
		if err != nil {
			return fmt.Errorf("make image of %s %s: %w", d.engine, d.minor, err)
		}
		say("made %s %s in %s", d.engine, version, time.Since(start).Round(time.Second))
	}
	return nil
}

var versionForm = regexp.MustCompile(`v=(\d+\.\d+\.\d+)`)

// make installs the server's packages into a folder, and makes a one-layer
// image of it under its minor and its full version.
func (d database) make(ctx context.Context, source packageSource, cache string) (string, error) {
	work := filepath.Join(source.folder, d.engine+"-"+d.minor)
	root := filepath.Join(work, "root")
	if err := d.unpack(ctx, source, work, root); err != nil {
		return "", err
	}
	if err := d.finish(root); err != nil {
		return "", err
	}
	if err := os.Chown(filepath.Join(root, "data"), 999, 999); err != nil {
		return "", fmt.Errorf("give /data to the server: %w", err)
	}
	out, err := command("chroot", root, "/usr/bin/"+d.engine+"-server", "--version")
	if err != nil {
		return "", err
	}
	version, err := d.release(out)
	if err != nil {
		return "", err
	}
	layer := filepath.Join(work, "layer.tar")
	if _, err := command("tar", "-C", root, "--numeric-owner", "-cf", layer, "."); err != nil {
		return "", err
	}
	tree := d.tree(cache)
	if err := os.MkdirAll(filepath.Dir(tree), 0o755); err != nil {
		return "", fmt.Errorf("make folder of servers: %w", err)
	}
	// Aside and not removed in place, where a test could meet half of it.
	if err := os.Rename(tree, filepath.Join(work, "old")); err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("replace %s: %w", tree, err)
	}
	if err := os.Rename(root, tree); err != nil {
		return "", fmt.Errorf("keep the file system: %w", err)
	}
	config := v1.Config{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/data",
		Cmd: []string{d.engine + "-server"}, ExposedPorts: map[string]struct{}{"6379/tcp": {}},
	}
	return version, writeImage(d.archive(cache), layer, config, d.repository+":"+d.minor, d.repository+":"+version)
}

// release takes the version from what the server says of itself, and refuses
// another minor than the image's name promises.
func (d database) release(said string) (string, error) {
	match := versionForm.FindStringSubmatch(said)
	if match == nil || !strings.HasPrefix(match[1], d.minor+".") {
		return "", fmt.Errorf("want %s %s, and suite %s of Debian has another version: %s", d.engine, d.minor, d.suite, strings.TrimSpace(said))
	}
	return match[1], nil
}

// unpack downloads the server's packages with what they need, and unpacks them.
func (d database) unpack(ctx context.Context, source packageSource, work, root string) error {
	archives := filepath.Join(work, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return fmt.Errorf("make folder of packages: %w", err)
	}
	if err := source.apt(ctx, "install", "-o", "Dir::Cache::archives="+archives, "-y", "--download-only", "--no-install-recommends",
		d.engine+"-server", d.engine+"-tools", "base-files", "base-passwd", "coreutils", "dash", "findutils", "grep", "libc-bin", "mawk", "sed"); err != nil {
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
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
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
// server needs. It needs no privilege: whose the folders are is another step.
func (d database) finish(root string) error {
	for _, dir := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/zoneinfo", "var/cache", "var/lib"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return fmt.Errorf("trim root: %w", err)
		}
	}
	links := map[string]string{"usr/bin/sh": "dash", "usr/bin/awk": "mawk"}
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
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" + d.engine + ":x:999:999::/data:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group": "root:x:0:\n" + d.engine + ":x:999:\nnogroup:x:65534:\n",
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
	return nil
}

// packageSource is one suite of Debian, read by an apt that knows nothing of
// this machine's packages and changes none of its files.
type packageSource struct {
	folder  string
	options []string
}

// openSuite downloads the index of a suite from the first of this machine's
// mirrors that has it, signed by Debian. Another publisher's mirror, which looks
// no different in the sources, has not.
func openSuite(ctx context.Context, folder, suite string) (packageSource, error) {
	out, err := command("apt-get", "update", "--print-uris")
	if err != nil {
		return packageSource{}, fmt.Errorf("find the Debian mirror: %w", err)
	}
	var failed []error
	for i, uri := range mirrors(out) {
		s, err := newSource(filepath.Join(folder, fmt.Sprintf("apt-%d", i)), uri, suite)
		if err != nil {
			return packageSource{}, err
		}
		if err = s.apt(ctx, "update"); err == nil {
			return s, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", uri, err))
	}
	return packageSource{}, fmt.Errorf("no mirror in this machine's apt sources has it: %w", errors.Join(failed...))
}

var indexForm = regexp.MustCompile(`(?m)^'((?:https?|mirror\+)[^']*?)/dists/([^/']+)/InRelease'`)

// mirrors finds in what `apt-get update --print-uris` says, which needs no
// index, the archives that this machine's apt uses. The security archive has no
// trixie or sid of the plain name.
func mirrors(uris string) []string {
	var found []string
	for _, match := range indexForm.FindAllStringSubmatch(uris, -1) {
		if !strings.HasSuffix(match[2], "-security") && !slices.Contains(found, match[1]) {
			found = append(found, match[1])
		}
	}
	return found
}

func newSource(folder, uri, suite string) (packageSource, error) {
	if err := os.MkdirAll(filepath.Join(folder, "lists", "partial"), 0o755); err != nil {
		return packageSource{}, fmt.Errorf("make folder of apt: %w", err)
	}
	sources, status, config := filepath.Join(folder, "sources.list"), filepath.Join(folder, "status"), filepath.Join(folder, "apt.conf")
	for file, content := range map[string]string{
		sources: fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", uri, suite),
		status:  "",
		// What this machine does after its own updates is not for this one.
		config: "#clear APT::Update;\nAPT::Update::Error-Mode \"any\";\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return packageSource{}, fmt.Errorf("write %s: %w", file, err)
		}
	}
	return packageSource{folder: folder, options: []string{
		"-c", config, "-o", "Dir::State=" + folder, "-o", "Dir::State::lists=" + folder + "/lists", "-o", "Dir::State::status=" + status,
		"-o", "Dir::Cache=" + folder, "-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
	}}, nil
}

func (s packageSource) apt(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "apt-get", append(slices.Clone(s.options), args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, tail(string(out), 5))
	}
	return nil
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
