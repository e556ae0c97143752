package manifests

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// The guard's own times: for the operator, and for a member that is silent.
const (
	guardPatience = 3 * time.Second
	guardSilence  = 8 * time.Second
	// guardMost is how long a step may take on a busy machine.
	guardMost = time.Minute
)

// stored is a cluster with storage: a node finds its data again.
func stored() redisv1.RedisClusterSpec {
	return redisv1.RedisClusterSpec{Storage: &redisv1.StorageSpec{Size: resource.MustParse("1Gi")}}
}

// restart launches a node after its death, as the kubelet does with a container,
// and returns when.
func (p *pod) restart() time.Time {
	p.t.Helper()
	p.stop(syscall.SIGKILL)
	begin := time.Now()
	p.launch()
	return begin
}

// says waits until the log of a Pod contains a text.
func (p *pod) says(text string, limit time.Duration) {
	p.t.Helper()
	redistest.Eventually(p.t, limit, func() error {
		if log := p.log(); !strings.Contains(log, text) {
			return fmt.Errorf("the log of %s does not say %q:\n%s", p.ip, text, log)
		}
		return nil
	})
}

func (p *pod) neverSays(text string) {
	p.t.Helper()
	if log := p.log(); strings.Contains(log, text) {
		p.t.Errorf("the log of %s says %q:\n%s", p.ip, text, log)
	}
}

// heldUntil holds that the server does not listen before the guard has been there
// for a while, and that it answers in the end.
func (p *pod) heldUntil(begin time.Time, least time.Duration) {
	p.t.Helper()
	p.answers(least + guardMost)
	if took := time.Since(begin); took < least {
		p.t.Errorf("%s answers after %s, want at least %s", p.ip, took, least)
	}
}

// follows waits until a node is a replica whose link is up.
func (p *pod) follows() {
	p.t.Helper()
	p.shows("role:slave", "INFO", "replication")
	p.shows("master_link_status:up", "INFO", "replication")
}

// fill writes keys to a primary, and waits until its replicas have them.
func fill(t *testing.T, primary *pod, replicas, keys int) {
	t.Helper()
	c := primary.client("", clientPassword)
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	for i := range keys {
		if err := conn.Set(t.Context(), fmt.Sprintf("{b}%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, 20*time.Second, func() error {
		n, err := conn.Do(t.Context(), "WAIT", replicas, 1000).Int()
		if err == nil && n < replicas {
			err = fmt.Errorf("%d replicas of %d", n, replicas)
		}
		return err
	})
	// A write waits in memory while the disk is busy with an earlier one, for up to two
	// seconds (flushAppendOnlyFile); what the guard is asked is what a process has left.
	info, err := primary.try("INFO", "persistence")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(info), "aof_enabled:1") {
		primary.shows("aof_buffer_length:0", "INFO", "persistence")
	}
}

// holds waits until a node has so many keys, and holds that it has no others.
func (p *pod) holds(keys int) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, func() error {
		if n, err := p.try("DBSIZE"); err != nil || fmt.Sprint(n) != fmt.Sprint(keys) {
			return errors.Join(fmt.Errorf("%s has %v keys, want %d", p.ip, n, keys), err)
		}
		return nil
	})
}

// elect has a replica take over, as the operator does.
func (p *pod) elect() {
	p.t.Helper()
	p.do("CLUSTER", "FAILOVER", "TAKEOVER")
}

// TestGuardLetsGoAtOnce restarts nodes that nobody can be harmed by.
func TestGuardLetsGoAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		atOnce := func(p *pod) {
			t.Helper()
			begin := p.restart()
			p.answers(guardMost)
			t.Logf("%s answers after %s", p.ip, time.Since(begin))
			p.neverSays("start guard")
		}
		shard := startShards(t, sh, v, 1, 2)[0]
		atOnce(shard[1]) // a replica

		alone := startShards(t, sh, v, 1, 1)[0][0]
		atOnce(alone) // nobody follows it, and it has no data

		spare, follower := newPod(t, sh, v, redisv1.RedisClusterSpec{}), newPod(t, sh, v, redisv1.RedisClusterSpec{})
		spare.start()
		follower.start()
		meet(spare, follower)
		follower.do("CLUSTER", "REPLICATE", spare.do("CLUSTER", "MYID"))
		spare.shows("state=online", "INFO", "replication")
		spare.shows("slave "+spare.do("CLUSTER", "MYID"), "CLUSTER", "NODES")
		atOnce(spare) // followed, but without a slot
	})
}

// TestGuardPromotesTheBestHolder has no operator. One of two replicas has missed
// writes: the other one must win.
func TestGuardPromotesTheBestHolder(t *testing.T) {
	for _, shards := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
				shard := startShards(t, sh, v, shards, 3)[0]
				primary, behind, best := shard[0], shard[1], shard[2]
				fill(t, primary, 2, 50)
				// It cannot log in any more, and keeps what it has.
				behind.do("CONFIG", "SET", "masterauth", "wrong")
				behind.do("CLIENT", "KILL", "TYPE", "master")
				behind.shows("master_link_status:down", "INFO", "replication")
				fill(t, primary, 1, 100)

				primary.heldUntil(primary.restart(), guardPatience)
				best.shows("role:master", "INFO", "replication")
				primary.follows()
				primary.says("CLUSTER FAILOVER FORCE, OK", 0)
				primary.says("another node has taken over", 0)
				for _, p := range []*pod{primary, best} {
					p.holds(100)
				}
				behind.neverSays("Manual failover user request")
				behind.do("CONFIG", "SET", "masterauth", operatorPassword)
				behind.follows()
				behind.holds(100)
			})
		})
	}
}

// TestGuardLeavesItToTheOperator has a replica promoted before the guard looks.
func TestGuardLeavesItToTheOperator(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShardsOf(t, sh, v, stored(), 1, 3)[0]
		primary, first, second := shard[0], shard[1], shard[2]
		fill(t, primary, 2, 50)
		primary.stop(syscall.SIGKILL)
		first.shows("master_link_status:down", "INFO", "replication")
		first.elect()
		primary.launch()
		primary.answers(guardMost)
		primary.follows()
		primary.says("another node has taken over", 0)
		primary.neverSays("CLUSTER FAILOVER")
		second.follows()
		for _, p := range shard {
			p.holds(50)
		}
	})
}

// TestGuardStartsWithItsData restarts a whole cluster with storage at once, and
// then a primary whose replica is away.
func TestGuardStartsWithItsData(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		cluster := startShardsOf(t, sh, v, stored(), 2, 2)
		primary, replica := cluster[0][0], cluster[0][1]
		fill(t, primary, 1, 50)
		for _, shard := range cluster {
			for _, p := range shard {
				p.stop(syscall.SIGKILL)
			}
		}
		begin := time.Now()
		for _, shard := range cluster {
			for _, p := range shard {
				p.launch()
			}
		}
		primary.heldUntil(begin, guardPatience)
		primary.shows("role:master", "INFO", "replication")
		primary.holds(50)
		replica.follows()
		replica.holds(50)

		replica.stop(syscall.SIGKILL)
		primary.heldUntil(primary.restart(), guardPatience)
		primary.shows("role:master", "INFO", "replication")
		primary.holds(50)
	})
}

// TestGuardWaitsForASilentMember freezes the replica: only a node with data starts
// without knowing what that one has.
func TestGuardWaitsForASilentMember(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShardsOf(t, sh, v, stored(), 1, 2)[0]
		fill(t, shard[0], 1, 50)
		shard[1].signal(syscall.SIGSTOP)
		shard[0].heldUntil(shard[0].restart(), guardSilence)
		shard[0].holds(50)
		shard[1].signal(syscall.SIGCONT)
		shard[1].follows()

		shard = startShards(t, sh, v, 1, 2)[0]
		fill(t, shard[0], 1, 50)
		shard[1].signal(syscall.SIGSTOP)
		begin := shard[0].restart()
		shard[0].says("a replica gives no clear answer", guardMost)
		redistest.Eventually(t, guardMost, func() error {
			if took := time.Since(begin); took < guardSilence+time.Second {
				return fmt.Errorf("only %s", took)
			}
			return nil
		})
		if _, err := shard[0].try("PING"); err == nil {
			t.Error("it has started empty while its replica was silent")
		}
		shard[1].signal(syscall.SIGCONT)
		shard[0].answers(guardMost)
		shard[1].shows("role:master", "INFO", "replication")
		shard[0].follows()
		for _, p := range shard {
			p.holds(50)
		}
	})
}

// TestGuardWaitsForConsent restarts a shard without storage: nobody has the data.
// It waits until it is told to end, and does so promptly.
func TestGuardWaitsForConsent(t *testing.T) {
	everywhere(t, func(t *testing.T, sh shell, v redistest.Version) {
		shard := startShards(t, sh, v, 1, 3)[0]
		primary := shard[0]
		fill(t, primary, 2, 50)
		for _, p := range shard {
			p.stop(syscall.SIGKILL)
		}
		shard[1].start() // stale; the other one is away
		primary.launch()
		primary.says("the data of slots 0-16383 are lost here, no replica that answers has a copy, a replica is away", guardMost)
		if _, err := primary.try("PING"); err == nil {
			t.Error("it has started")
		}
		if n := strings.Count(primary.log(), "start guard"); n > 3 {
			t.Errorf("%d lines:\n%s", n, primary.log())
		}
		primary.neverSays("CLUSTER FAILOVER")
		primary.ends(143)

		// Whoever gives its slots to another node ends its wait, too.
		primary.launch()
		shard[1].elect()
		primary.answers(guardMost)
		primary.follows()
	})
}

// ends tells a Pod to end while the guard runs: the whole of it must, at once.
func (p *pod) ends(code int) {
	p.t.Helper()
	group, begin := p.process.Pid, time.Now()
	p.signal(syscall.SIGTERM)
	<-p.exited
	if took := time.Since(begin); took > 3*time.Second {
		p.t.Errorf("it ended after %s", took)
	}
	if p.code != code {
		p.t.Errorf("exit %d, want %d", p.code, code)
	}
	redistest.Eventually(p.t, 3*time.Second, func() error {
		if err := syscall.Kill(-group, 0); err != syscall.ESRCH {
			return errors.Join(errors.New("processes are left"), err)
		}
		return nil
	})
	if _, err := os.Stat(p.path(runDir + "/guard")); !os.IsNotExist(err) {
		p.t.Errorf("the guard has left its folder: %v", err)
	}
	p.process = nil
}
