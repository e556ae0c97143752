package redis_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

func TestReach(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr := netip.AddrPortFrom(redistest.Address(t), redistest.Port).String()
	begin := time.Now()
	if r := redis.Reach(ctx, addr); r != redis.Refused || r.String() != "refused" {
		t.Errorf("closed port: %s", r)
	}
	if d := time.Since(begin); d < 50*time.Millisecond {
		t.Errorf("two refusals within %s", d)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if r := redis.Reach(ctx, addr); r != redis.Listening || r.String() != "listening" {
		t.Errorf("open port: %s", r)
	}
	_ = l.Close()
	if r := redis.Reach(ctx, "256.0.0.1:6379"); r != redis.Unknown {
		t.Errorf("no address: %s", r)
	}
}

// A host that swallows packets proves nothing: here a socket whose queue is full,
// so that the kernel drops what comes.
func TestReachOfABlackHole(t *testing.T) {
	addr := blackHole(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := redis.Reach(ctx, addr); r != redis.Unknown || r.String() != "unknown" {
		t.Errorf("got %s", r)
	}
	n := redis.Dialer{Timeout: 100 * time.Millisecond}.Open(addr)
	defer func() { _ = n.Close() }()
	if _, err := n.Probe(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a probe of it: %v", err)
	}
}

func TestReachWithoutTime(t *testing.T) {
	addr := netip.AddrPortFrom(redistest.Address(t), redistest.Port).String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := redis.Reach(ctx, addr); r != redis.Unknown {
		t.Errorf("cancelled before: %s", r)
	}
	// Enough for the first refusal, too little for the second.
	ctx, cancel = context.WithTimeout(t.Context(), 25*time.Millisecond)
	defer cancel()
	if r := redis.Reach(ctx, addr); r != redis.Unknown {
		t.Errorf("one refusal: %s", r)
	}
}

// A frozen server looks alive from outside, as its kernel accepts for it.
func TestReachOfAFrozenServer(t *testing.T) {
	s := redistest.Start(t, redistest.Versions(t)[0])
	s.Freeze()
	defer s.Thaw()
	if r := redis.Reach(t.Context(), s.Addr()); r != redis.Listening {
		t.Errorf("got %s", r)
	}
}

// blackHole listens with the shortest queue and fills it up.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	ip := redistest.Address(t)
	ok(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: redistest.Port, Addr: ip.As4()}))
	ok(t, syscall.Listen(fd, 0))
	addr := netip.AddrPortFrom(ip, redistest.Port).String()
	for range 100 {
		conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return addr
		}
		ok(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue of a socket does not fill up")
	return ""
}
