package redis

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Reachability is what an attempt to connect has shown.
type Reachability int

// The answers. Unknown, the zero value, says nothing: a timeout, an unreachable
// network or a cancelled context may hide a server that lives and serves others.
const (
	Unknown Reachability = iota
	// Listening: a connection was accepted.
	Listening
	// Refused: the host answered, twice, that nobody listens at that port.
	Refused
)

// String is "unknown", "listening" or "refused".
func (r Reachability) String() string {
	switch r {
	case Listening:
		return "listening"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// refusedAgain is the time between two refusals that count as one answer: it
// bridges a server that has bound its port and does not listen yet.
const refusedAgain = 50 * time.Millisecond

// Reach tells whether anybody listens at host:port. It blocks until the answer is
// known, for up to two dials that the context must bound.
//
// Refused alone is no evidence of death. The caller must also know that the
// address is the Pod's own and not a Service's, that it belonged to the same Pod
// before and after, that connections to the server broke, and that its replica's
// link is down. A firewall that rejects looks the same as a closed port.
func Reach(ctx context.Context, addr string) Reachability {
	return reach(ctx, func() Reachability { return dialOnce(ctx, addr) })
}

func reach(ctx context.Context, dial func() Reachability) Reachability {
	if first := dial(); first != Refused {
		return first
	}
	select {
	case <-ctx.Done():
		return Unknown
	case <-time.After(refusedAgain):
	}
	return dial()
}

func dialOnce(ctx context.Context, addr string) Reachability {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	switch {
	case err == nil:
		_ = conn.Close()
		return Listening
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	}
	return Unknown
}
