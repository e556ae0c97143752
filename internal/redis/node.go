// Package redis speaks to one Redis or Valkey node: what it knows of itself and
// of its cluster (Probe), the commands that form, heal and reshape a cluster,
// and whether anybody listens at its address at all (Reach).
//
// It knows nothing of Kubernetes and decides nothing. Servers from Redis 7.0 and
// Valkey 8.0 on are understood; the facts that are relied upon are tested
// against real servers.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DefaultTimeout bounds each dial and each exchange of a Dialer that sets none.
const DefaultTimeout = 2 * time.Second

// Dialer holds what is needed to reach the nodes of one cluster. The zero value
// speaks plain TCP as the server's default user.
type Dialer struct {
	// Username is the ACL user; empty for the default user.
	Username string
	// Password of the user; empty sends no credentials at all.
	Password string
	// TLS is the client's side of TLS; nil for plain TCP. Its ServerName is the
	// host of the node's address when empty.
	TLS *tls.Config
	// Timeout bounds each dial, and each exchange of commands and replies, in
	// addition to the context's deadline. Zero is DefaultTimeout.
	Timeout time.Duration
	// Meter is told of every exchange of commands; nil for nobody.
	Meter Meter
}

// Open makes a Node for an address, host:port. It does no I/O.
func (d Dialer) Open(addr string) *Node {
	if d.Timeout == 0 {
		d.Timeout = DefaultTimeout
	}
	return &Node{dialer: d, addr: addr}
}

// Node is one server. It has at most one connection, made at the first command
// and dropped after any failure, so that the next command dials anew; nothing is
// ever sent twice. A Node is meant to be
// opened, used and closed within one pass, and costs no goroutine. Its methods
// may be called from several goroutines and take turns.
type Node struct {
	dialer Dialer
	addr   string

	mu     sync.Mutex
	link   *link
	closed bool
}

// Addr is the address that the node was opened with.
func (n *Node) Addr() string { return n.addr }

// Close drops the connection and makes later commands fail with net.ErrClosed.
// It waits for a command under way, which the Dialer's timeout bounds.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	return n.drop()
}

func (n *Node) drop() error {
	if n.link == nil {
		return nil
	}
	err := n.link.close()
	n.link = nil
	return err
}

// link is one connection. The client library gets a connection that was dialed
// here: its pool would dial detached from the caller's context, go on dialing in
// the background after a failure, and report an older dial's error.
type link struct {
	raw    net.Conn
	client *goredis.Client
	conn   *goredis.Conn
	// refusal is the server's error reply to the handshake, if any.
	refusal ServerError
	// cut: the connection was closed because a context had ended.
	cut bool
}

func (d Dialer) connect(ctx context.Context, addr string) (*link, error) {
	raw, err := d.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	l := &link{raw: raw}
	l.client = goredis.NewClient(&goredis.Options{
		Addr:     addr,
		Username: d.Username,
		Password: d.Password,
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return raw, nil },
		// RESP2 needs no push messages and no notification handshake.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		PoolSize:                 1,
		PipelinePoolSize:         -1,
		MaxRetries:               -1,
		DialerRetries:            1,
		// Every exchange has a context with a deadline, and that one counts.
		ContextTimeoutEnabled: true,
		ReadTimeout:           -1,
		WriteTimeout:          -1,
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       4 << 10,
	})
	l.client.AddHook(handshake{link: l})
	l.conn = l.client.Conn()
	return l, nil
}

// dial connects. A timeout of the system's is reported as the context's would be.
func (d Dialer) dial(ctx context.Context, addr string) (net.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	var raw net.Conn
	var err error
	if d.TLS != nil {
		raw, err = (&tls.Dialer{Config: d.TLS}).DialContext(bounded, "tcp", addr)
	} else {
		raw, err = (&net.Dialer{}).DialContext(bounded, "tcp", addr)
	}
	var timeout net.Error
	switch {
	case err == nil:
		return raw, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("no connection within %s: %w", d.Timeout, context.DeadlineExceeded)
	}
	return nil, err
}

func (l *link) close() error {
	// Both take the connection back to the library's pool and close it there.
	err := errors.Join(l.conn.Close(), l.client.Close())
	if e := l.raw.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// handshake remembers the server's reply to HELLO. When it is an error, the
// library would send AUTH with the same credentials, for servers older than
// HELLO: a second failed login in the server's log, and the first reply lost if
// the server has hung up ("max number of clients reached", protected mode).
type handshake struct{ link *link }

func (handshake) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (handshake) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h handshake) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "auth" && h.link.refusal != "" {
			return h.link.refusal
		}
		err := next(ctx, cmd)
		if reply, ok := serverError(err); ok && cmd.Name() == "hello" {
			h.link.refusal = reply
		}
		return err
	}
}

// send sends commands in one write and reads all replies, each into its
// command. The error is of the exchange as a whole: nil means that every command
// has a reply, which may be an error reply. Besides the Dialer's timeout it
// allows for extra, the time that the commands may take in the server.
func (n *Node) send(ctx context.Context, extra time.Duration, cmds ...goredis.Cmder) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.fail(connecting, net.ErrClosed)
	}
	if n.link == nil {
		link, err := n.dialer.connect(ctx, n.addr)
		if err != nil {
			return n.fail(connecting, err)
		}
		n.link = link
	}
	err := n.link.exchange(ctx, n.dialer.Timeout+extra, cmds)
	refusal := n.link.refusal
	if err != nil || n.link.cut {
		_ = n.drop()
	}
	switch {
	case refusal != "":
		return n.fail(connecting, refusal)
	case err != nil && !isReply(err):
		return n.fail(name(cmds[0]), err)
	}
	return nil
}

// exchange returns the first failure of all, an error reply included.
func (l *link) exchange(ctx context.Context, limit time.Duration, cmds []goredis.Cmder) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The library minds the context's deadline, but not its cancellation.
	stop := context.AfterFunc(bounded, func() { _ = l.raw.Close() })
	defer func() { l.cut = !stop() }()
	pipe := l.conn.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(bounded, cmd)
	}
	_, err := pipe.Exec(bounded)
	switch {
	case err == nil || isReply(err):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
	}
	return err
}

// connecting stands for the command in errors of the dial and the login.
const connecting = "connect"

func (n *Node) fail(command string, err error) error {
	return &Error{Node: n.addr, Command: command, Err: err}
}

// do runs commands in one exchange and returns the first error of any.
func (n *Node) do(ctx context.Context, extra time.Duration, cmds ...goredis.Cmder) error {
	if len(cmds) == 0 {
		return nil
	}
	if err := n.exchange(ctx, extra, cmds...); err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := n.replyError(cmd); err != nil {
			return err
		}
	}
	return nil
}

// replyError is the failure of one command of an exchange, nil if it has none.
func (n *Node) replyError(cmd goredis.Cmder) error {
	err := cmd.Err()
	if err == nil {
		return nil
	}
	if reply, ok := serverError(err); ok {
		return n.fail(name(cmd), reply)
	}
	return n.fail(name(cmd), err)
}

// name is the command in capitals, with its subcommand and nothing else.
func name(cmd goredis.Cmder) string {
	words := cmd.Args()
	text := fmt.Sprint(words[0])
	if len(words) > 1 && (text == "CLUSTER" || text == "CONFIG") {
		text += " " + fmt.Sprint(words[1])
	}
	return text
}
