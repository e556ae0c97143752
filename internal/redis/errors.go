package redis

import (
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Error is what every method of Node returns when it fails: which command, sent
// to which node, and why. Err is a ServerError when the server itself refused;
// anything else means that there was no answer, so the command may or may not
// have been carried out. Neither credentials nor values are part of it.
type Error struct {
	// Node is the address that was dialed, host:port.
	Node string
	// Command is the command without its arguments ("CLUSTER MEET"), or
	// "connect" for the dial and the login.
	Command string
	// Err is the cause.
	Err error
}

// Error is the text for people: node, command, cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.Node, e.Command, e.Err)
}

// Unwrap returns the cause, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// ServerError is an error reply, in the server's own words, such as
// "ERR Unknown node 8f2e…".
type ServerError string

// Error is the server's text, unchanged.
func (e ServerError) Error() string { return string(e) }

// Code is the reply's first word, by which servers classify errors: "ERR",
// "NOPERM", "LOADING", "CLUSTERDOWN", …
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// IsAuth tells whether the server refused because of who asks: no credentials
// (NOAUTH), wrong ones or a disabled user (WRONGPASS), or a user that may not
// run the command (NOPERM).
func IsAuth(err error) bool { return hasCode(err, "NOAUTH", "WRONGPASS", "NOPERM") }

// IsLoading tells whether the server refused because it is still reading its
// dataset, from disk or from its primary.
func IsLoading(err error) bool { return hasCode(err, "LOADING") }

// IsImmutable tells whether a directive exists and a running server does not take
// it (CONFIG SET, since 7.0).
func IsImmutable(err error) bool {
	var se ServerError
	return errors.As(err, &se) && strings.Contains(string(se), "immutable config")
}

// IsServer tells whether the server itself answered, with any error.
func IsServer(err error) bool {
	var se ServerError
	return errors.As(err, &se)
}

func hasCode(err error, codes ...string) bool {
	var se ServerError
	if !errors.As(err, &se) {
		return false
	}
	for _, c := range codes {
		if se.Code() == c {
			return true
		}
	}
	return false
}

// serverError turns an error reply as the client library knows it into a
// ServerError; it reports false for any other error.
func serverError(err error) (ServerError, bool) {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	return ServerError(reply.Error()), true
}

func isReply(err error) bool {
	_, ok := serverError(err)
	return ok
}
