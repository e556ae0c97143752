package redis

import (
	"context"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"
)

// Probe asks the node for everything that State holds, in one exchange. A node
// that is still loading its dataset is a fact (State.Loading), not an error.
// With an error there is no State.
//
// The id comes from the node's own line of CLUSTER NODES, and the keys from INFO,
// which answers where DBSIZE does not: while loading, and on a replica without its
// primary that may not serve stale data.
func (n *Node) Probe(ctx context.Context) (State, error) {
	info := goredis.NewStringCmd(ctx, "INFO", "server", "replication", "persistence", "keyspace")
	cluster := goredis.NewStringCmd(ctx, "CLUSTER", "INFO")
	nodes := goredis.NewStringCmd(ctx, "CLUSTER", "NODES")
	if err := n.exchange(ctx, 0, info, cluster, nodes); err != nil {
		return State{}, err
	}
	if err := n.replyError(info); err != nil {
		return State{}, err
	}
	var s State
	if err := parseInfo(info.Val(), &s); err != nil {
		return State{}, n.fail("INFO", err)
	}
	for _, cmd := range []goredis.Cmder{cluster, nodes} {
		err := n.replyError(cmd)
		if IsLoading(err) {
			// INFO may have been answered just before the loading began.
			s.Loading = true
			return s, nil
		}
		if err != nil {
			return State{}, err
		}
	}
	if err := parseClusterInfo(cluster.Val(), &s); err != nil {
		return State{}, n.fail("CLUSTER INFO", err)
	}
	t, err := parseNodes(nodes.Val())
	if err != nil {
		return State{}, n.fail("CLUSTER NODES", err)
	}
	s.ID, s.Role, s.PrimaryID = t.self.ID, t.self.Role, t.self.PrimaryID
	s.ConfigEpoch, s.Slots = t.self.ConfigEpoch, t.self.Slots
	s.Migrating, s.Importing, s.Peers = t.migrating, t.importing, t.peers
	return s, nil
}

// MyID asks for the node's id. It is the way to make sure, over a connection that
// needed this cluster's credentials, that an address still belongs to the node
// one means, before other nodes are told to MEET it.
func (n *Node) MyID(ctx context.Context) (string, error) {
	cmd := goredis.NewStringCmd(ctx, "CLUSTER", "MYID")
	if err := n.do(ctx, 0, cmd); err != nil {
		return "", err
	}
	return cmd.Val(), nil
}

func parseClusterInfo(text string, s *State) error {
	f := parseFields(text)
	state, ok := f["cluster_state"]
	if !ok {
		return fmt.Errorf("no field cluster_state")
	}
	s.ClusterOK = state == "ok"
	assigned, err := f.number("cluster_slots_assigned")
	if err != nil {
		return err
	}
	s.SlotsAssigned = int(assigned)
	if s.CurrentEpoch, err = strconv.ParseUint(f["cluster_current_epoch"], 10, 64); err != nil {
		return fmt.Errorf("field cluster_current_epoch is %q, want a number", f["cluster_current_epoch"])
	}
	return nil
}
