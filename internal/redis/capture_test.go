//go:build capture

package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis/redistest"
)

// TestCapture writes testdata/ anew, see the README there:
//
//	REDISTEST_DIR=... go test -tags capture -run TestCapture ./internal/redis
func TestCapture(t *testing.T) {
	for _, v := range redistest.Versions(t) {
		t.Run(v.String(), func(t *testing.T) {
			c := &capture{T: t, dir: filepath.Join("testdata", v.String())}
			if err := os.MkdirAll(c.dir, 0o750); err != nil {
				t.Fatal(err)
			}
			c.form(v)
			c.breakIt()
			c.reload()
		})
	}
}

// capture is a cluster of five: three primaries, a replica of the first (3), and
// one that will be replaced by a stranger (4).
type capture struct {
	*testing.T
	dir string
	s   []*redistest.Server
	ids []string
}

func (c *capture) write(name string, s *redistest.Server, command ...any) {
	reply := s.Do(command...).(string)
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(reply), 0o600); err != nil {
		c.Fatal(err)
	}
}

func (c *capture) info(name string, s *redistest.Server) {
	c.write(name, s, "INFO", "server", "replication", "persistence", "keyspace")
}

// await waits until the reply to a command has a text.
func (c *capture) await(s *redistest.Server, text string, command ...any) {
	redistest.Eventually(c.T, 20*time.Second, func() error {
		reply, err := s.Try(command...)
		if !strings.Contains(fmt.Sprint(reply), text) {
			return fmt.Errorf("%v: no %q in %v, %v", command, text, reply, err)
		}
		return nil
	})
}

func (c *capture) form(v redistest.Version) {
	for i := range 5 {
		args := []string{"--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"}
		if i == 1 {
			args = append(args, "--cluster-announce-hostname", "orders-1.orders.default.svc", "--cluster-replica-no-failover", "yes")
		}
		s := redistest.Start(c.T, v, args...)
		c.s, c.ids = append(c.s, s), append(c.ids, s.Do("CLUSTER", "MYID").(string))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	c.write("nodes-fresh.txt", c.s[0], "CLUSTER", "NODES")
	c.write("cluster-info-fresh.txt", c.s[0], "CLUSTER", "INFO")
	c.info("info-fresh.txt", c.s[0])
	c.s[0].Do("CLUSTER", "ADDSLOTSRANGE", 0, 5460, 7000, 7000)
	c.s[1].Do("CLUSTER", "ADDSLOTSRANGE", 5461, 6999, 7001, 10922)
	c.s[2].Do("CLUSTER", "ADDSLOTSRANGE", 10923, 16383)
	for _, s := range c.s[1:] {
		c.s[0].Do("CLUSTER", "MEET", s.IP.String(), redistest.Port)
	}
	for _, s := range c.s {
		c.await(s, "cluster_state:ok", "CLUSTER", "INFO")
		c.await(s, "cluster_known_nodes:5", "CLUSTER", "INFO")
	}
	c.await(c.s[0], "OK", "SET", "{06S}a", "1")
	c.s[3].Do("CLUSTER", "REPLICATE", c.ids[0])
	c.await(c.s[3], "master_link_status:up", "INFO", "replication")
	c.await(c.s[0], "state=online", "INFO", "replication")
	c.info("info-primary.txt", c.s[0])
	c.info("info-replica.txt", c.s[3])
}

// breakIt opens slots, puts a stranger at the address of 4, and kills 2.
func (c *capture) breakIt() {
	c.s[1].Do("CLUSTER", "SETSLOT", 93, "IMPORTING", c.ids[0])
	c.s[0].Do("CLUSTER", "SETSLOT", 93, "MIGRATING", c.ids[1])
	c.s[0].Do("CLUSTER", "SETSLOT", 6000, "IMPORTING", c.ids[1])
	c.s[4].Kill()
	if err := os.Remove(filepath.Join(c.s[4].Dir, "nodes.conf")); err != nil {
		c.Fatal(err)
	}
	c.s[4].Run()
	c.await(c.s[0], "noaddr", "CLUSTER", "NODES")
	c.s[2].Kill()
	c.await(c.s[0], "master,fail ", "CLUSTER", "NODES")
	c.s[0].Do("CLUSTER", "MEET", "127.0.0.1", 1)
	c.write("nodes-primary.txt", c.s[0], "CLUSTER", "NODES")
	c.write("cluster-info-primary.txt", c.s[0], "CLUSTER", "INFO")
	c.write("nodes-replica.txt", c.s[3], "CLUSTER", "NODES")
}

// reload kills the first primary, restarts its replica, and catches 1 loading.
func (c *capture) reload() {
	c.s[0].Kill()
	c.await(c.s[3], "master_link_status:down", "INFO", "replication")
	c.info("info-replica-lost.txt", c.s[3])
	c.s[3].Kill()
	c.s[3].Run()
	c.await(c.s[3], "role:slave", "INFO", "replication")
	c.info("info-replica-never.txt", c.s[3])
	c.s[1].Do("DEBUG", "POPULATE", 20000)
	c.s[1].Do("SAVE")
	c.s[1].Kill()
	c.s[1].Run("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
	c.info("info-loading.txt", c.s[1])
}
