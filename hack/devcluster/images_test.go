package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestMirrorsOfThisMachinesSources(t *testing.T) {
	for _, c := range []struct {
		name, uris string
		want       []string
	}{
		{"nothing", "", nil},
		{
			"one archive in several suites, and the security archive",
			"'http://m.example/debian/dists/bookworm/InRelease' m_InRelease 0 \n" +
				"'http://m.example/debian/dists/bookworm-updates/InRelease' m_InRelease 0 \n" +
				"'http://m.example/debian-security/dists/bookworm-security/InRelease' m_InRelease 0 \n" +
				"'http://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' m_Packages 0 \n",
			[]string{"http://m.example/debian"},
		},
		{
			"another publisher comes first, both are tried",
			"'https://other.example/linux/debian/dists/bookworm/InRelease' o 0 \n'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/InRelease' d 0 \n",
			[]string{"https://other.example/linux/debian", "mirror+file:/etc/apt/mirrors/debian.list"},
		},
		{"no archive with suites, no network", "'http://m.example/flat/./InRelease' f 0 \n'cdrom:[Debian]/dists/bookworm/InRelease' c 0 \n", nil},
	} {
		if got := mirrors(c.uris); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReleaseMustBeOfTheMinorInTheName(t *testing.T) {
	d := database{engine: "redis", minor: "8.0", suite: "sid"}
	if got, err := d.release("Redis server v=8.0.6 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64\n"); err != nil || got != "8.0.6" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, said := range []string{"Redis server v=8.2.1 sha=0", "Redis server v=8.01.0", "no such file", ""} {
		if got, err := d.release(said); err == nil || !strings.Contains(err.Error(), "want redis 8.0") {
			t.Errorf("%q: got %q, %v", said, got, err)
		}
	}
}

func TestAnImageIsMadeOnlyWithItsFileSystem(t *testing.T) {
	cache := t.TempDir()
	d := databases[0]
	place := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if d.made(cache) {
		t.Error("an empty cache holds an image")
	}
	place(d.archive(cache))
	if d.made(cache) {
		t.Error("an archive without its file system is taken as made")
	}
	place(d.tree(cache))
	if !d.made(cache) {
		t.Error("what is there is not seen")
	}
	for _, d := range databases {
		place(d.archive(cache))
		place(d.tree(cache))
	}
	archives, err := ensureDatabaseImages(t.Context(), cache, t.Errorf)
	if err != nil || len(archives) != len(databases) {
		t.Errorf("a full cache: %q, %v", archives, err)
	}
}

func TestWriteImageGivesEveryReference(t *testing.T) {
	dir := t.TempDir()
	layer, out := filepath.Join(dir, "layer.tar"), filepath.Join(dir, "images", "x.tar")
	if err := os.WriteFile(layer, make([]byte, 1024), 0o644); err != nil {
		t.Fatal(err)
	}
	config := v1.Config{WorkingDir: "/data", Cmd: []string{"redis-server"}}
	if err := writeImage(out, layer, config, "docker.io/library/redis:8.0", "docker.io/library/redis:8.0.6"); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"docker.io/library/redis:8.0", "docker.io/library/redis:8.0.6"} {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(out, &tag)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		file, err := image.ConfigFile()
		if err != nil || file.Config.WorkingDir != "/data" || file.Config.User != "" || file.OS != "linux" {
			t.Errorf("%s: config %+v, %v", ref, file, err)
		}
	}
	if left, err := filepath.Glob(out + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if err := writeImage(filepath.Join(dir, "bad.tar"), layer, config, "docker.io/Library/redis:8.0"); err == nil {
		t.Error("a bad reference is accepted")
	}
}

func TestFinishedRootHasAccountsShellAndDataFolder(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/share/doc/x", "var/lib/apt"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := (database{engine: "valkey", minor: "9.1"}).finish(root); err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string]string{"sh": "dash", "awk": "mawk", "redis-server": "valkey-server", "redis-cli": "valkey-cli"} {
		if got, err := os.Readlink(filepath.Join(root, "usr/bin", link)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", link, got, err)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "valkey:x:999:999:") || !strings.Contains(string(passwd), "nobody:x:65534:") {
		t.Errorf("passwd %q, %v", passwd, err)
	}
	if info, err := os.Stat(filepath.Join(root, "tmp")); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("tmp: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(root, "data")); err != nil || !info.IsDir() {
		t.Errorf("data: %v, %v", info, err)
	}
	for _, gone := range []string{"usr/share/doc", "var/lib"} {
		if _, err := os.Stat(filepath.Join(root, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
}
