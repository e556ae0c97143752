package redis_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// tape records what a Meter is told.
type tape struct{ heard []string }

func (t *tape) Exchange(first string) func() {
	t.heard = append(t.heard, "begin "+first)
	return func() { t.heard = append(t.heard, "end "+first) }
}

func (t *tape) Command(name string, err error) {
	outcome := "ok"
	var refused redis.ServerError
	switch {
	case errors.As(err, &refused):
		outcome = refused.Code()
	case err != nil:
		outcome = "no answer"
	}
	t.heard = append(t.heard, fmt.Sprintf("%s: %s", name, outcome))
}

// TestMeterHearsOfEachCommand of a real server: those that it answers, those that it
// refuses, and those that nobody is there for.
func TestMeterHearsOfEachCommand(t *testing.T) {
	server := redistest.Start(t, redistest.Versions(t)[0])
	heard := &tape{}
	n := redis.Dialer{Timeout: 2 * time.Second, Meter: heard}.Open(server.Addr())
	t.Cleanup(func() { _ = n.Close() })
	if _, err := n.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Replicate(t.Context(), "0000000000000000000000000000000000000000"); !redis.IsServer(err) {
		t.Fatalf("replicate nobody: %v", err)
	}
	want := []string{
		"begin INFO", "end INFO", "INFO: ok", "CLUSTER INFO: ok", "CLUSTER NODES: ok",
		"begin CLUSTER REPLICATE", "end CLUSTER REPLICATE", "CLUSTER REPLICATE: ERR",
	}
	if !slices.Equal(heard.heard, want) {
		t.Errorf("heard %q, want %q", heard.heard, want)
	}
}

// TestMeterHearsThatNobodyAnswers: a refused dial is a failed connect, and a server
// that accepts and is silent leaves its commands without an answer.
func TestMeterHearsThatNobodyAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	t.Cleanup(func() { _ = silent.Close() })
	for addr, want := range map[string][]string{
		closed.Addr().String(): {"begin CLUSTER MYID", "end CLUSTER MYID", "connect: no answer"},
		silent.Addr().String(): {"begin CLUSTER MYID", "end CLUSTER MYID", "CLUSTER MYID: no answer"},
	} {
		heard := &tape{}
		n := redis.Dialer{Timeout: 100 * time.Millisecond, Meter: heard}.Open(addr)
		if _, err := n.MyID(t.Context()); err == nil {
			t.Error("an answer came from nobody")
		}
		_ = n.Close()
		if !slices.Equal(heard.heard, want) {
			t.Errorf("heard %q, want %q", heard.heard, want)
		}
	}
}
