package redis

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Meter is told what a node is asked and how that ends. It must not block.
type Meter interface {
	// Exchange is called before a batch of commands is sent, or the node dialed for
	// it; first is the name of the first command. What it returns is called when the
	// last answer is there, or none will come.
	Exchange(first string) (end func())
	// Command is called for each command after its exchange, with the server's error
	// or that of the exchange. "connect" is a dial or a login that failed; then none of
	// the commands was sent.
	Command(name string, err error)
}

// exchange is send, told to the dialer's Meter.
func (n *Node) exchange(ctx context.Context, extra time.Duration, cmds ...goredis.Cmder) error {
	meter := n.dialer.Meter
	if meter == nil {
		return n.send(ctx, extra, cmds...)
	}
	end := meter.Exchange(name(cmds[0]))
	err := n.send(ctx, extra, cmds...)
	end()
	var failure *Error
	if errors.As(err, &failure) && failure.Command == connecting {
		meter.Command(connecting, err)
		return err
	}
	for _, cmd := range cmds {
		outcome := err
		if reply, refused := serverError(cmd.Err()); refused {
			outcome = reply
		}
		meter.Command(name(cmd), outcome)
	}
	return err
}
