package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/example/redis-operator/internal/footprint"
)

// Do carries out a Task. A failure is in the Result, never elsewhere. It blocks
// until the work is done; when the context ends, what was half-written is removed
// first, for up to a minute.
func Do(ctx context.Context, t Task) Result {
	result, err := do(ctx, &t)
	if err == nil {
		return result
	}
	var f *reasonError
	if !errors.As(err, &f) {
		f = &reasonError{Reason: ReasonSourceFailed, Err: err}
	}
	result.Reason, result.Permanent, result.Message = f.Reason, f.Permanent, f.Err.Error()
	if ctx.Err() != nil {
		// Whatever it says, it was because the work was told to end.
		result.Permanent = false
	}
	return result
}

func do(ctx context.Context, t *Task) (Result, error) {
	st, err := openStore(t.Destination, t.ID)
	if err != nil {
		return Result{}, err
	}
	switch t.Operation {
	case OperationBackup:
		return backup(ctx, t, st)
	case OperationDelete:
		return remove(ctx, st)
	case OperationInspect:
		return inspect(ctx, t, st)
	case OperationSeed:
		return seed(ctx, t, st)
	case OperationServe:
		return serve(ctx, t, st)
	}
	return Result{}, refuse(ReasonInvalid, "the operation %q is unknown", t.Operation)
}

// terminationLog is where Kubernetes looks for a container's last words.
const terminationLog = "/dev/termination-log"

// Exit codes of the subcommands, beside 0.
const (
	// ExitFailed: trying again may help.
	ExitFailed = 1
	// ExitPermanent: trying again cannot help.
	ExitPermanent = 3
)

// Command is the body of the subcommands `backup` and `restore`: it carries out
// the Task of the environment and leaves the Result in the termination message,
// and on standard output. It returns the exit code.
func Command(subcommand string) int {
	// The limit of the garbage collector, not of the process, which the program itself
	// is a large part of.
	debug.SetMemoryLimit(32 << 20)
	debug.SetGCPercent(50)
	footprint.ForgetProgram()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	result := fromEnvironment(ctx, subcommand)
	text := result.encode()
	fmt.Println(text)
	// Outside of a container there is no such file, and none is made.
	if f, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_, err = io.WriteString(f, text)
		if err = errors.Join(err, f.Close()); err != nil {
			fmt.Fprintf(os.Stderr, "%s: leave the result: %v\n", subcommand, err)
		}
	}
	switch {
	case result.Reason == "":
		return 0
	case result.Permanent:
		return ExitPermanent
	}
	return ExitFailed
}

func fromEnvironment(ctx context.Context, subcommand string) Result {
	var t Task
	decoder := json.NewDecoder(strings.NewReader(os.Getenv(TaskVariable)))
	if err := decoder.Decode(&t); err != nil {
		return Result{Reason: ReasonInvalid, Permanent: true, Message: fmt.Sprintf("the variable %s holds no task: %v", TaskVariable, err)}
	}
	writes := t.Operation == OperationBackup || t.Operation == OperationDelete
	if writes != (subcommand == "backup") {
		return Result{Reason: ReasonInvalid, Permanent: true, Message: fmt.Sprintf("%s does not carry out the operation %q", subcommand, t.Operation)}
	}
	return Do(ctx, t)
}

// resultLimit is what Kubernetes keeps of a termination message, in bytes.
const resultLimit = 4096

// encode gives the result as JSON that fits, cutting the message where needed.
func (r Result) encode() string {
	for {
		data, err := json.Marshal(r)
		if err != nil {
			panic(err) // it holds nothing that cannot be
		}
		over := len(data) - resultLimit
		if over <= 0 || r.Message == "" {
			return string(data)
		}
		// Escaped, a byte can take six: cut little by little.
		text := strings.TrimSuffix(r.Message, "…")
		if text = strings.ToValidUTF8(text[:max(0, len(text)-max(1, over/6))], ""); text != "" {
			text += "…"
		}
		r.Message = text
	}
}

// Install copies the running program into a folder, for a container that has
// another image: the body of the subcommand `install`.
func Install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	f, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := writeFile(filepath.Join(dir, "manager"), f, 0o755); err != nil {
		return fmt.Errorf("install the program into %s: %w", dir, err)
	}
	return nil
}
