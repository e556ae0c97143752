// Package redistest runs real Redis and Valkey servers for tests. No test that
// needs one is ever skipped: without a server it fails and says what to install.
//
// # Which servers
//
// Those on PATH: redis-server and valkey-server, whatever version they are. And,
// for more versions, those in the folder that the environment variable
// REDISTEST_DIR names. It has one subfolder for each, called <engine>-<minor>,
// such as redis-8.0 or valkey-9.1; other names in it are passed over, symbolic
// links are followed. A subfolder is one of:
//
//   - the root of an extracted file system, with the server at
//     usr/bin/<engine>-server and its libraries and dynamic loader below usr/lib
//     or lib (usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2). The server is run by
//     that loader with those libraries, without chroot and so without root. One
//     root may serve two engines through two links to it.
//   - just bin/<engine>-server, that runs as it is.
//
// A version in REDISTEST_DIR hides the one on PATH of the same engine and minor.
//
// # Where they listen
//
// Every server has a loopback address to itself, out of 127.64.0.0/10, as a Pod
// has, and listens on port 6379 there (the cluster bus on 16379). Connections that
// it makes come from that address too. The address is held by a lock, a listening
// socket on it, until the test ends: test processes that run at the same time
// cannot clash. This needs Linux, where all of 127.0.0.0/8 is local.
package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Version is one server program that was found.
type Version struct {
	// Engine is "redis" or "valkey".
	Engine string
	// Minor is "8.0", Release "8.0.2".
	Minor, Release string

	// command runs the server: the program, or a loader with its arguments.
	command []string
}

// String is the name of a subfolder of REDISTEST_DIR: "valkey-9.1".
func (v Version) String() string { return v.Engine + "-" + v.Minor }

// Command is how the server is run, without its own arguments.
func (v Version) Command() []string { return slices.Clone(v.command) }

// Versions returns every server that this machine has, in order of engine and
// version. It fails the test when there is none, or when one does not run.
func Versions(t testing.TB) []Version {
	t.Helper()
	found, err := discovered()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if len(found) == 0 {
		t.Fatal("redistest: no redis-server and no valkey-server on PATH, and none in REDISTEST_DIR: install the package redis-server")
	}
	return slices.Clone(found)
}

// Find returns the server of one engine ("redis", "valkey") and minor version. It
// fails the test when this machine has none.
func Find(t testing.TB, engine, minor string) Version {
	t.Helper()
	var names []string
	for _, v := range Versions(t) {
		if v.Engine == engine && v.Minor == minor {
			return v
		}
		names = append(names, v.String())
	}
	t.Fatalf("redistest: no %s-%s among %s: put it into REDISTEST_DIR (see the documentation of redistest)", engine, minor, strings.Join(names, ", "))
	return Version{}
}

var discovered = sync.OnceValues(discover)

func discover() ([]Version, error) {
	var found []Version
	if dir := os.Getenv("REDISTEST_DIR"); dir != "" {
		var err error
		if found, err = discoverDir(dir); err != nil {
			return nil, err
		}
	}
	for _, engine := range []string{"redis", "valkey"} {
		path, err := exec.LookPath(engine + "-server")
		if err != nil {
			continue
		}
		v, err := identify([]string{path})
		if err != nil {
			return nil, err
		}
		known := func(o Version) bool { return o.Engine == v.Engine && o.Minor == v.Minor }
		if !slices.ContainsFunc(found, known) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b Version) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

var folderName = regexp.MustCompile(`^(redis|valkey)-[0-9]+\.[0-9]+$`)

func discoverDir(dir string) ([]Version, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("REDISTEST_DIR: %w", err)
	}
	var found []Version
	for _, e := range entries {
		match := folderName.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		command, err := commandIn(filepath.Join(dir, e.Name()), match[1]+"-server")
		if err != nil {
			return nil, err
		}
		v, err := identify(command)
		if err != nil {
			return nil, err
		}
		if v.String() != e.Name() {
			return nil, fmt.Errorf("%s holds %s", filepath.Join(dir, e.Name()), v)
		}
		found = append(found, v)
	}
	return found, nil
}

// commandIn finds how to run a program of a subfolder of REDISTEST_DIR.
func commandIn(root, program string) ([]string, error) {
	var path string
	for _, bin := range []string{"usr/bin", "usr/local/bin", "bin"} {
		if p := filepath.Join(root, bin, program); isFile(p) {
			path = p
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("%s has no usr/bin/%s and no bin/%s", root, program, program)
	}
	var libraries []string
	for _, lib := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		dirs, _ := filepath.Glob(filepath.Join(root, lib))
		libraries = append(libraries, dirs...)
	}
	for _, lib := range libraries {
		loaders, _ := filepath.Glob(filepath.Join(lib, "ld-linux*.so.*"))
		if len(loaders) > 0 {
			return []string{loaders[0], "--library-path", strings.Join(libraries, ":"), path}, nil
		}
	}
	return []string{path}, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var versionLine = regexp.MustCompile(`^(Redis|Valkey) server v=(([0-9]+\.[0-9]+)\.[0-9]+)`)

// identify asks a server program what it is.
func identify(command []string) (Version, error) {
	out, err := exec.Command(command[0], append(command[1:len(command):len(command)], "--version")...).CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w: %s", strings.Join(command, " "), err, out)
	}
	match := versionLine.FindStringSubmatch(string(out))
	if match == nil {
		return Version{}, fmt.Errorf("%s --version: unknown answer %q", strings.Join(command, " "), out)
	}
	return Version{Engine: strings.ToLower(match[1]), Release: match[2], Minor: match[3], command: command}, nil
}
