package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// server is the one behind a Pod.
func (s *shapeStage) server(pod string) *redistest.Server {
	s.Helper()
	p := &corev1.Pod{}
	if !s.get(p, pod) || s.servers[string(p.UID)] == nil {
		s.Fatalf("there is no Pod %s that runs", pod)
	}
	return s.servers[string(p.UID)]
}

// members are the primary and a replica of a shard of two.
func (s *shapeStage) members(shard int) (primary, replica *redistest.Server) {
	s.Helper()
	primary, replica = s.server(fmt.Sprintf("orders-%d-0", shard)), s.server(fmt.Sprintf("orders-%d-1", shard))
	if role := replica.Do("ROLE").([]any)[0]; role == "master" {
		primary, replica = replica, primary
	}
	return primary, replica
}

// ownSlot is a slot in the last range that a server owns, with keys or without.
func (s *shapeStage) ownSlot(owner *redistest.Server, keys bool) int64 {
	s.Helper()
	for _, line := range strings.Split(fmt.Sprint(owner.Do("CLUSTER", "NODES")), "\n") {
		if !strings.Contains(line, "myself") {
			continue
		}
		ranges := strings.Fields(line)[8:]
		var first, last int64
		if n, err := fmt.Sscanf(ranges[len(ranges)-1]+"-", "%d-%d", &first, &last); n == 0 {
			s.Fatalf("%q: %v", line, err)
		}
		for slot := first; slot <= last; slot++ {
			if (owner.Do("CLUSTER", "COUNTKEYSINSLOT", slot).(int64) > 0) == keys {
				return slot
			}
		}
	}
	s.Fatalf("%s has no such slot", owner.Addr())
	return 0
}

func nodeID(server *redistest.Server) string { return fmt.Sprint(server.Do("CLUSTER", "MYID")) }

// TestAClusterHeals breaks a cluster in the ways in which people, interrupted
// migrations and older tools do. The operator mends each of them, and no key is lost.
func TestAClusterHeals(t *testing.T) {
	t.Parallel()
	six, shards := int32(6), int32(3)
	s := newShapeStage(t, redisv1.RedisClusterSpec{Replicas: &six, Shards: &shards})
	s.until(operators["steady"], 6)
	s.fill()
	var stranger *redistest.Server
	for _, broken := range []struct {
		name  string
		does  func()
		until func() error // what is to be seen beside a whole cluster; nil for nothing
	}{
		{name: "a slot is left open, with its keys on both sides", does: func() {
			from, _ := s.members(0)
			to, _ := s.members(1)
			slot := s.ownSlot(from, true)
			to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", nodeID(from))
			from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", nodeID(to))
			key := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)[0]
			from.Do("MIGRATE", to.IP.String(), redistest.Port, key, 0, 5000)
		}},
		{name: "a slot is left open on one side", does: func() {
			from, _ := s.members(2)
			to, _ := s.members(1)
			from.Do("CLUSTER", "SETSLOT", s.ownSlot(from, true), "MIGRATING", nodeID(to))
		}},
		{name: "a slot with keys has no owner", does: func() {
			owner, _ := s.members(1)
			owner.Do("CLUSTER", "DELSLOTS", s.ownSlot(owner, true))
		}},
		{name: "two nodes claim a slot", does: func() {
			owner, _ := s.members(0)
			other, _ := s.members(2)
			slot := s.ownSlot(owner, false)
			other.Do("CLUSTER", "DELSLOTS", slot)
			other.Do("CLUSTER", "ADDSLOTS", slot)
		}},
		{name: "the second member of a shard owns slots as well", does: func() {
			owner, second := s.members(1)
			slot := s.ownSlot(owner, false)
			second.Do("CLUSTER", "RESET")
			second.Do("CLUSTER", "MEET", owner.IP.String(), redistest.Port)
			redistest.Eventually(t, time.Minute, func() error {
				if known := second.Do("CLUSTER", "INFO").(string); !strings.Contains(known, "cluster_known_nodes:6") {
					return fmt.Errorf("it has not met all: %s", known)
				}
				return nil
			})
			second.Do("CLUSTER", "BUMPEPOCH")
			second.Do("CLUSTER", "SETSLOT", slot, "NODE", nodeID(second))
			redistest.Eventually(t, time.Minute, func() error {
				if nodes := owner.Do("CLUSTER", "NODES").(string); !strings.Contains(nodes, fmt.Sprintf(" connected %d\n", slot)) {
					return fmt.Errorf("its primary has not heard of its claim: %s", nodes)
				}
				return nil
			})
		}},
		{name: "a node of no Pod had joined, and has ended", does: func() {
			stranger = newServer(t, s.version, s.password)
			stranger.Run()
			known, _ := s.members(0)
			stranger.Do("CLUSTER", "MEET", known.IP.String(), redistest.Port)
			redistest.Eventually(t, time.Minute, func() error {
				for _, server := range s.servers {
					if nodes := server.Do("CLUSTER", "NODES").(string); !strings.Contains(nodes, nodeID(stranger)) {
						return fmt.Errorf("%s does not know it", server.Addr())
					}
				}
				return nil
			})
			stranger.Kill()
		}, until: func() error {
			for _, server := range s.servers {
				if nodes := strings.TrimSpace(server.Do("CLUSTER", "NODES").(string)); strings.Count(nodes, "\n") != 5 {
					return fmt.Errorf("%s knows %s", server.Addr(), nodes)
				}
			}
			return nil
		}},
	} {
		t.Log(broken.name)
		broken.does()
		redistest.Eventually(t, 2*time.Minute, func() error {
			s.until(operators["restarted before every pass"], 6)
			if broken.until != nil {
				return broken.until()
			}
			return nil
		})
		redistest.Eventually(t, time.Minute, func() error { // gossip has settled too
			s.writes = 0
			if err := s.pass(); err != nil {
				return err
			}
			if s.writes != 0 {
				return fmt.Errorf("%d writes by a pass afterwards", s.writes)
			}
			return nil
		})
		s.checkKeys()
	}
}
