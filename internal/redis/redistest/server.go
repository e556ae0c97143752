package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is one server process. It ends with the test, by its process id; when
// the test has failed, the end of its log is shown.
type Server struct {
	// Version is what runs.
	Version Version
	// IP is the server's own loopback address; it listens on Port.
	IP netip.Addr
	// Dir is its working folder: nodes.conf, dumps, server.log. It is removed when
	// the test ends.
	Dir string

	t       testing.TB
	args    []string
	process *os.Process
	exited  chan struct{}
}

// Start runs a server in cluster mode without persistence and waits until it
// answers. An answer may be an error: it may be loading, or want a login. The
// arguments are directives as on the server's command line, "--appendonly",
// "yes", and come after the defaults, so that they win.
func Start(t testing.TB, v Version, args ...string) *Server {
	t.Helper()
	s := New(t, v, args...)
	s.Run()
	return s
}

// New prepares a server as Start does, address and folder, without running it, so
// that a test can put files into Dir first.
func New(t testing.TB, v Version, args ...string) *Server {
	t.Helper()
	s := &Server{Version: v, IP: Address(t), Dir: t.TempDir(), t: t}
	ip := s.IP.String()
	s.args = append([]string{
		"--bind", ip,
		"--bind-source-addr", ip,
		"--port", fmt.Sprint(Port),
		"--protected-mode", "no",
		"--daemonize", "no",
		"--dir", s.Dir,
		"--logfile", "",
		"--save", "",
		"--appendonly", "no",
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-announce-ip", ip,
		"--cluster-allow-replica-migration", "no",
		"--repl-diskless-sync-delay", "0",
		"--enable-debug-command", "yes",
	}, args...)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("%s at %s, end of its log:\n%s", v, s.Addr(), tail(s.Log(), 4000))
		}
	})
	return s
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.AddrPort().String() }

// AddrPort is Addr, as a value.
func (s *Server) AddrPort() netip.AddrPort { return netip.AddrPortFrom(s.IP, Port) }

// PID is the process id of the server that runs; 0 when none does.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.Pid
}

// Run starts the process, in the folder and at the address that the server has,
// and waits until it answers. More arguments are kept for later runs.
func (s *Server) Run(args ...string) {
	s.t.Helper()
	if s.process != nil {
		s.t.Fatalf("redistest: %s runs already", s.Addr())
	}
	s.args = append(s.args, args...)
	if err := s.launch(); err != nil {
		s.t.Fatalf("redistest: start %s: %v", s.Version, err)
	}
	s.awaitAnswer()
}

// launch starts the process from a goroutine that owns its thread until the
// process ends, because the kernel ends the process with that thread.
func (s *Server) launch() error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	words := append(append([]string{}, s.Version.command...), s.args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	cmd.SysProcAttr = dieWithParent()
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.exited = cmd.Process, exited
	return nil
}

// startLimit bounds the wait for the first answer; a start takes some 20 ms.
const startLimit = 20 * time.Second

func (s *Server) awaitAnswer() {
	s.t.Helper()
	deadline := time.Now().Add(startLimit)
	for {
		err := ping(s.Addr())
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			s.t.Fatalf("redistest: %s ended while starting:\n%s", s.Version, tail(s.Log(), 4000))
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("redistest: %s does not answer: %v\n%s", s.Version, err, tail(s.Log(), 4000))
		}
	}
}

// ping sends PING and takes any reply line for an answer.
func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

// Kill ends the process as a crash would, and waits until it is gone. It does
// nothing when none runs.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Terminate ends the process as Kubernetes would, by SIGTERM, and waits until it
// is gone.
func (s *Server) Terminate() { s.end(syscall.SIGTERM) }

func (s *Server) end(signal os.Signal) {
	if s.process == nil {
		return
	}
	_ = s.process.Signal(signal)
	// A frozen process takes a signal only once it runs again.
	_ = s.process.Signal(syscall.SIGCONT)
	<-s.exited
	s.process = nil
}

// Freeze stops the process without ending it: its port accepts connections, and
// nothing answers. Thaw undoes it.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.Signal(signal); err != nil {
		s.t.Fatalf("redistest: %v to %s: %v", signal, s.Addr(), err)
	}
}

// Do sends one command as the default user, on a connection of its own, and
// returns the reply: string, int64, []any or nil. An error fails the test.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("redistest: %v to %s: %v", args, s.Addr(), err)
	}
	return reply
}

// Try is Do for a test that expects an error.
func (s *Server) Try(args ...any) (any, error) {
	client := goredis.NewClient(&goredis.Options{
		Addr: s.Addr(), Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	reply, err := client.Do(context.Background(), args...).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	return reply, err
}

// Log is everything that the server has logged so far, over all its runs.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) logPath() string { return filepath.Join(s.Dir, "server.log") }

func tail(text string, size int) string {
	if len(text) <= size {
		return text
	}
	text = text[len(text)-size:]
	_, text, _ = strings.Cut(text, "\n")
	return "…\n" + text
}
