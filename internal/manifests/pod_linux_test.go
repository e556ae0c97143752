package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// Passwords of the tests. That of the default user holds what a shell or a
// configuration file could trip over, a line break at its end included.
const (
	operatorPassword = "OPERATOR23456789"
	clientPassword   = "pa ss\"'$`\\#é\n"
)

// shell is one that images of the servers come with.
type shell struct {
	name    string
	command []string
	// tools are programs that the image has from its shell's package, and sh itself.
	tools map[string]string
}

// shells are dash, which Debian's images have, and busybox, which Alpine's have,
// with its own programs, where it is installed.
func shells(t *testing.T) []shell {
	t.Helper()
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Fatalf("install the package dash: %v", err)
	}
	found := []shell{{name: "dash", command: []string{dash}, tools: map[string]string{"sh": dash}}}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Log("busybox is not installed; only dash is tried")
		return found
	}
	tools := map[string]string{}
	for _, tool := range []string{"timeout", "sleep", "sha256sum", "date", "sh", "cat", "grep", "sed", "sort", "head", "mkdir", "rm"} {
		tools[tool] = busybox
	}
	return append(found, shell{name: "busybox", command: []string{busybox, "sh"}, tools: tools})
}

// pod is the container of one node: its files, its address and its process.
type pod struct {
	t       *testing.T
	shell   shell
	ip      netip.Addr
	port    int
	dir     string
	env     []string
	process *os.Process
	exited  chan struct{}
	// code is how the process ended, once exited is closed.
	code int
}

// newPod lays out the files of a Pod as its volumes would. Lines are added to
// redis.conf.
func newPod(t *testing.T, sh shell, v redistest.Version, spec redisv1.RedisClusterSpec, lines ...string) *pod {
	t.Helper()
	p := &pod{t: t, shell: sh, ip: redistest.Address(t), port: RedisPort, dir: t.TempDir()}
	for _, dir := range []string{"bin", "data", runDir, configDir, operatorDir, authDir} {
		if err := os.MkdirAll(p.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range ConfigMap(&redisv1.RedisCluster{Spec: spec}, UserDirectives(&spec), "").Data {
		if name == redisConfFile {
			// All servers of a test share this machine.
			lines = append([]string{"bind " + p.ip.String(), "bind-source-addr " + p.ip.String()}, lines...)
			text += strings.Join(lines, "\n") + "\n"
		}
		p.write(configDir+"/"+name, text)
	}
	p.write("etc/resolv.conf", "nameserver 127.0.0.1\nsearch "+domain+" svc.test test\noptions ndots:5\n")
	p.write(operatorDir+"/password", operatorPassword)
	p.write(authDir+"/password", clientPassword)
	for name, target := range sh.tools {
		if err := os.Symlink(target, p.path("bin/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	link(t, v, p.path("bin"))
	p.env = []string{
		"PATH=" + p.path("bin") + ":/usr/bin:/bin", "ENGINE=" + v.Engine, "POD_IP=" + p.ip.String(),
		"AUTH_DISABLED=" + strconv.FormatBool(spec.AuthDisabled()), "SERVICE=" + service,
	}
	p.named(p.dir, "orders-0-0")
	t.Cleanup(func() {
		p.stop(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.ip, p.log())
		}
	})
	return p
}

// The headless Service of the tests' Pods, and the domain that makes a full name.
const (
	service = "orders-headless"
	domain  = "shop.svc.test"
)

// named gives a Pod its name. names is the folder that stands for the DNS of the
// Pods that know each other: a file for each name.
func (p *pod) named(names, name string) {
	p.t.Helper()
	p.env = append(p.env, "POD_NAME="+name, "NAMES="+names)
	if err := os.WriteFile(filepath.Join(names, name+"."+service+"."+domain+"."), []byte(p.ip.String()+"\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// resolve has the command line client look the names of Pods up as named has
// written them, and fail as the C library does.
const resolve = `case $2 in
*.` + service + "." + domain + `.)
	if [ -r "$NAMES/$2" ]; then
		IFS= read -r ip <"$NAMES/$2"
		shift 2
		set -- -h "$ip" "$@"
	else
		echo "Could not connect to $2: Name or service not known" >&2
		exit 1
	fi
	;;
esac
`

// link makes the server and the command line client of a version available in a
// folder, by the names that its image has.
func link(t *testing.T, v redistest.Version, bin string) {
	t.Helper()
	for _, name := range []string{v.Engine + "-server", v.Engine + "-cli"} {
		script := "#!/bin/sh\nexec " + strings.Join(program(t, v, name), " ") + " \"$@\"\n"
		if strings.HasSuffix(name, "-cli") {
			script = strings.Replace(script, "exec ", resolve+"exec ", 1)
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// program is how to run a program of a version that redistest has found: below
// REDISTEST_DIR, with the loader and the libraries from there, or on PATH.
func program(t *testing.T, v redistest.Version, name string) []string {
	t.Helper()
	root := filepath.Join(os.Getenv("REDISTEST_DIR"), v.String())
	for _, bin := range []string{"usr/bin", "usr/local/bin", "bin"} {
		file := filepath.Join(root, bin, name)
		if _, err := os.Stat(file); os.Getenv("REDISTEST_DIR") == "" || err != nil {
			continue
		}
		loaders, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/ld-linux*.so.*"))
		if len(loaders) == 0 {
			return []string{file}
		}
		return []string{loaders[0], "--library-path", filepath.Dir(loaders[0]), file}
	}
	file, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	return []string{file}
}

func (p *pod) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pod) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) addr() string { return netip.AddrPortFrom(p.ip, uint16(p.port)).String() }

func (p *pod) log() string {
	text, err := os.ReadFile(p.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// start runs start.sh and waits until the server answers. It ends with the test.
func (p *pod) start() {
	p.t.Helper()
	p.launch()
	p.answers(20 * time.Second)
}

// launch runs start.sh and does not wait.
func (p *pod) launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := p.command(startFile)
	cmd.Stdout, cmd.Stderr = log, log
	// A server must not outlive a test process that is killed. The kernel ends
	// it with the thread that started it, so that thread is kept. The group takes
	// the place of the container: all in it end with its first process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log says why
			p.code = cmd.ProcessState.ExitCode()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	p.process, p.exited = cmd.Process, exited
}

// answers waits until the server answers.
func (p *pod) answers(limit time.Duration) {
	p.t.Helper()
	redistest.Eventually(p.t, limit, func() error {
		select {
		case <-p.exited:
			p.t.Fatal("the server has ended")
		default:
		}
		_, err := p.try("PING")
		var reply goredis.Error
		if errors.As(err, &reply) {
			return nil // loading
		}
		return err
	})
}

// stop sends a signal and waits until the process is gone.
func (p *pod) stop(signal os.Signal) {
	if p.process == nil {
		return
	}
	_ = p.process.Signal(signal)
	_ = p.process.Signal(syscall.SIGCONT) // a frozen process ends once it runs
	<-p.exited
	_ = syscall.Kill(-p.process.Pid, syscall.SIGKILL)
	p.process = nil
}

// signal sends a signal and does not wait.
func (p *pod) signal(signal os.Signal) {
	p.t.Helper()
	if err := p.process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) command(script string, args ...string) *exec.Cmd {
	words := append([]string{}, p.shell.command...)
	words = append(words, p.path(configDir+"/"+script), p.dir, strconv.Itoa(p.port))
	words = append(words, args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Dir = p.env, p.path("data")
	return cmd
}

// outcome is how a script ended.
type outcome struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// run runs a script to its end, with arguments after root and port.
func (p *pod) run(script string, args ...string) outcome {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := p.command(script, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%s: %v", script, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(begin)}
}

// client is a connection as a user; the default user has no name.
func (p *pod) client(user, password string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{
		Addr: p.addr(), Username: user, Password: password, Protocol: 2, MaxRetries: -1, DialerRetries: 1,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// try sends a command as the operator.
func (p *pod) try(args ...any) (any, error) {
	c := p.client(OperatorUser, operatorPassword)
	defer func() { _ = c.Close() }()
	return c.Do(context.Background(), args...).Result()
}

// do is try for a command that must not fail.
func (p *pod) do(args ...any) string {
	p.t.Helper()
	reply, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("%v to %s: %v", args, p.ip, err)
	}
	return fmt.Sprint(reply)
}

// shows waits until the reply to a command contains a text.
func (p *pod) shows(text string, args ...any) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, func() error {
		reply, err := p.try(args...)
		if err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprint(reply), text) {
			return fmt.Errorf("%v of %s does not show %q: %v", args, p.ip, text, reply)
		}
		return nil
	})
}
