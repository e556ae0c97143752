package main

import (
	"archive/tar"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestAddressesOfClustersAndNodesDoNotOverlap(t *testing.T) {
	var ranges []netip.Prefix
	add := func(s string) {
		p := netip.MustParsePrefix(s)
		for _, other := range ranges {
			if p.Overlaps(other) {
				t.Fatalf("%s overlaps %s", p, other)
			}
		}
		ranges = append(ranges, p)
	}
	for i := range maxClusters {
		c := cluster{Name: "x", Index: i}
		add(c.hostIP() + "/24")
		add(c.serviceRange())
		add(c.podRange())
		services := netip.MustParsePrefix(c.serviceRange())
		for _, ip := range []string{c.dnsIP(), c.kubernetesIP()} {
			if !services.Contains(netip.MustParseAddr(ip)) {
				t.Errorf("%s is not in the range of Services %s", ip, services)
			}
		}
		for n := 1; n <= maxNodes; n++ {
			if !netip.MustParsePrefix(c.podRange()).Contains(netip.MustParsePrefix(c.podSubnet(n)).Addr()) {
				t.Errorf("Pods of node %d are outside the range of Pods", n)
			}
			if len(c.veth(n)) > 15 {
				t.Errorf("%q is too long for a network device", c.veth(n))
			}
		}
	}
}

func TestEndSparesAProcessThatReusesThePid(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	start, err := startTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	process{PID: cmd.Process.Pid, Start: start + "0"}.end(time.Second)
	if !(process{PID: cmd.Process.Pid, Start: start}).alive() {
		t.Fatal("a process with another start time was ended")
	}
	process{PID: cmd.Process.Pid, Start: start}.end(time.Second)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the process was not ended")
	}
}

func TestParseTakesFlagsAnywhere(t *testing.T) {
	o, err := parse([]string{"load", "a:1", "--binary", "x", "--name", "e2e"})
	if err != nil || o.name != "e2e" || o.binary != "x" || !slices.Equal(o.args, []string{"load", "a:1"}) {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "A", "1a", "a/b", "..", strings.Repeat("a", 21), "a-"} {
		if _, err := loadCluster(name); err == nil || os.IsNotExist(err) {
			t.Errorf("name %q: got %v, want a refusal", name, err)
		}
	}
}

func TestBinaryImageHoldsTheProgramAndCARoots(t *testing.T) {
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil {
		t.Fatal("the Debian package ca-certificates is missing")
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := binaryImage(program, "example.com/x:1", "/manager", "65532:65532", out); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/manager"}) {
		t.Errorf("config: %+v", config.Config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(data)
	}
	if found["manager"] != "content" || !strings.Contains(found["etc/ssl/certs/ca-certificates.crt"], "BEGIN CERTIFICATE") {
		t.Errorf("the image lacks the program or the CA roots: %d files", len(found))
	}
}
