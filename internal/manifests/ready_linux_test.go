package manifests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis/redistest"
)

// ready holds that ready.sh says what is wanted, within the probe's time-out.
func (p *pod) ready(want string) {
	p.t.Helper()
	got := p.run(readyFile)
	code := 1
	if want == "" {
		code = 0
	}
	if got.code != code || !strings.Contains(got.stdout, want) || want == "" && got.stdout != "" {
		p.t.Errorf("ready.sh of %s: exit %d, %q %q; want %d and %q", p.ip, got.code, got.stdout, got.stderr, code, want)
	}
	if got.took > 3*time.Second {
		p.t.Errorf("ready.sh took %s", got.took)
	}
	if strings.Contains(got.stdout+got.stderr, operatorPassword) {
		p.t.Errorf("ready.sh shows the password: %q %q", got.stdout, got.stderr)
	}
}

func TestReady(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		primary := newPod(t, sh, v, full())
		replica := newPod(t, sh, v, full())
		primary.ready("does not answer")
		primary.start()
		replica.start()
		primary.ready("")
		replica.ready("") // a node that has joined nothing yet is a primary

		meet(primary, replica)
		replica.do("CLUSTER", "REPLICATE", primary.do("CLUSTER", "MYID"))
		replica.shows("master_link_status:up", "INFO", "replication")
		replica.ready("")

		primary.stop(syscall.SIGKILL)
		replica.shows("master_link_status:down", "INFO", "replication")
		replica.ready("the link to the primary is down")

		primary.start()
		replica.shows("master_link_status:up", "INFO", "replication")
		replica.ready("")

		replica.write(operatorDir+"/password", "WRONG")
		replica.ready("not ready")
		primary.signal(syscall.SIGSTOP)
		primary.ready("does not answer")
	})
}

func TestNotReadyWhileLoading(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		// 20000 keys at 0.1 ms each; the server looks for commands every 1024 keys.
		p := newPod(t, sh, v, full(), "key-load-delay 100")
		p.start()
		p.do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
		p.shows("cluster_state:ok", "CLUSTER", "INFO")
		c := p.client(OperatorUser, operatorPassword)
		pipe := c.Pipeline()
		for i := range 20000 {
			pipe.Set(t.Context(), fmt.Sprintf("key-%d", i), strings.Repeat("x", 100), 0)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.stop(syscall.SIGTERM)
		p.start()
		p.ready("loading its data")
		p.shows("\nloading:0", "INFO", "persistence")
		p.ready("")
		if keys := p.do("DBSIZE"); keys != "20000" {
			t.Errorf("%s keys after the restart, want 20000", keys)
		}
	})
}
