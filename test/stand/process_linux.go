package stand

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis"
)

// pod is the server of one Pod.
type pod struct {
	name         types.NamespacedName
	uid          types.UID
	engine, root string
	ip, password string
	env          []string
	hung         bool
	exits        chan<- event.GenericEvent

	mu       sync.Mutex
	process  *os.Process
	exited   chan struct{}
	listener net.Listener
	starts   int32
	started  time.Time
	ending   bool
}

// grace is how long a server may take to end before it is killed.
const grace = 20 * time.Second

// firstAddress is where the search for free loopback addresses begins: 127.128.0.0/9,
// by chance, so that stands do not get into each other's way.
func firstAddress() uint32 { return uint32(rand.IntN(1 << 23)) }

// address is a loopback address at which nobody listens.
func (s *Stand) address() (string, error) {
	for range 10000 {
		n := s.next.Add(1) % (1 << 23)
		ip := net.IPv4(127, byte(128+n>>16), byte(n>>8), byte(n)).String()
		if n%256 == 0 || n%256 == 255 {
			continue
		}
		free := true
		for _, port := range []int{manifests.RedisPort, manifests.RedisPort + 10000} {
			l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, port))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return ip, nil
		}
	}
	return "", errors.New("no loopback address is free: does something listen on port 6379 of all addresses?")
}

func (p *pod) address() string { return fmt.Sprintf("%s:%d", p.ip, manifests.RedisPort) }

// keepRunning starts the server unless it runs.
func (p *pod) keepRunning() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || p.process != nil || p.listener != nil {
		return nil
	}
	if p.hung {
		return p.hang()
	}
	log, err := os.OpenFile(filepath.Join(p.root, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of Pod %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := p.script("start.sh")
	cmd.Stdout, cmd.Stderr = log, log
	// The kernel ends the server with the thread that started it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begun, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		p.mu.Lock()
		p.process = nil
		p.mu.Unlock()
		close(exited)
		select {
		case p.exits <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.name.Namespace, Name: p.name.Name}}}:
		default: // nobody listens any more
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("start the server of Pod %s: %w", p.name, err)
	}
	p.process, p.exited, p.started = cmd.Process, exited, time.Now()
	p.starts++
	return nil
}

// script is one of the Pod's scripts, run as in the container.
func (p *pod) script(name string) *exec.Cmd {
	cmd := exec.Command("sh", filepath.Join(p.root, "etc/redis-operator/config", name), p.root)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, p.env...)
	return cmd
}

// hang listens, takes connections and says nothing.
func (p *pod) hang() error {
	l, err := net.Listen("tcp", p.address())
	if err != nil {
		return fmt.Errorf("listen for Pod %s: %w", p.name, err)
	}
	p.listener, p.started = l, time.Now()
	p.starts++
	return nil // the kernel takes the connections
}

// lives tells how often the server was started again, and when it was last.
func (p *pod) lives() (restarts int32, started time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.starts-1), p.started
}

// ready is what ready.sh tells: not loading, and a primary or a replica in step. A
// server that hangs was ready before it did.
func (p *pod) ready(ctx context.Context) bool {
	if p.hung {
		return true
	}
	node := redis.Dialer{Username: manifests.OperatorUser, Password: p.password, Timeout: time.Second}.Open(p.address())
	defer func() { _ = node.Close() }()
	s, err := node.Probe(ctx)
	return err == nil && !s.Loading && (s.Role == redis.Primary || s.Replication.LinkUp)
}

// crash ends the server as the kernel would that is out of memory.
func (p *pod) crash() { p.signal(syscall.SIGKILL) }

func (p *pod) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		_ = p.process.Signal(s) // it may have just ended
	}
}

// kill ends the server for good.
func (p *pod) kill() {
	p.mu.Lock()
	p.ending = true
	if p.listener != nil {
		_ = p.listener.Close()
	}
	exited, runs := p.exited, p.process != nil
	p.mu.Unlock()
	if runs {
		p.crash()
		<-exited
	}
	_ = os.RemoveAll(p.root) // what is left goes with Dir
}

// terminate ends the server as a kubelet does.
func (p *pod) terminate() {
	p.mu.Lock()
	p.ending = true
	exited, runs := p.exited, p.process != nil
	p.mu.Unlock()
	if runs {
		_ = p.script("prestop.sh").Run() // whatever comes of it, the server ends
		p.signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(grace):
		}
	}
	p.kill()
}
