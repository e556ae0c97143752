// Command kubectl-redis is a plugin of kubectl: `kubectl redis`. It shows a
// RedisCluster as its user sees it, tells which of the eleven steps of the operator is
// slow, takes a backup, and has a replica take its primary's place. It talks to the API
// server alone, with the rights of whoever calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK = iota
	// exitFailed: something did not work.
	exitFailed
	// exitUsage: the command line makes no sense.
	exitUsage
	// exitNotSo: all worked, and the answer is no: the cluster is not ready, the backup
	// has failed, nobody could take the primary's place.
	exitNotSo
)

// usageError is a command line that makes no sense.
type usageError struct{ error }

// notSoError says what is not as it should be.
type notSoError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := execute(ctx, streams, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs a command line and gives its exit code.
func execute(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	root := newRoot(streams)
	root.SetArgs(args)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	err := root.ExecuteContext(ctx)
	var usage usageError
	var notSo notSoError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &notSo):
		_, _ = fmt.Fprintln(streams.ErrOut, notSo)
		return exitNotSo
	}
	_, _ = fmt.Fprintln(streams.ErrOut, "error:", err)
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
