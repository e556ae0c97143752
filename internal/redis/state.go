package redis

import "time"

// Engine is the kind of server, by the server's own fields.
type Engine string

// The engines. Valkey reports itself in server_name and valkey_version, and
// keeps a redis_version of 7.2 for old clients.
const (
	Redis  Engine = "Redis"
	Valkey Engine = "Valkey"
)

// Role is a node's role in its cluster.
type Role int

// The roles. RoleUnknown, the zero value, is what a Redis node has that is
// loading: it does not answer CLUSTER, and INFO calls even a replica a primary
// until the dataset is read.
const (
	RoleUnknown Role = iota
	Primary
	Replica
)

// String is "unknown", "primary" or "replica".
func (r Role) String() string {
	switch r {
	case Primary:
		return "primary"
	case Replica:
		return "replica"
	}
	return "unknown"
}

// State is what one node said of itself and of its cluster in one exchange. Each
// command is answered from one moment, but the server may have done other work
// between them.
type State struct {
	// Loading: the server is reading its dataset, from disk or from its primary.
	// Redis refuses CLUSTER then, and the fields from ID to Peers are zero; Valkey
	// answers.
	Loading bool

	// ID is the node's id: 40 hexadecimal digits.
	ID string
	// Role and PrimaryID are what the node's own line of its table says. PrimaryID
	// is the id that a replica follows; empty for a primary.
	Role      Role
	PrimaryID string
	// ConfigEpoch is the epoch of the node's claim to its slots; zero: never set.
	// A replica has its primary's.
	ConfigEpoch uint64
	// CurrentEpoch is the highest epoch that the node knows of.
	CurrentEpoch uint64
	// ClusterOK is the node's cluster_state. It stays false for the first two
	// seconds of a primary's life, and without a majority.
	ClusterOK bool
	// SlotsAssigned counts the slots that have an owner in the node's eyes.
	SlotsAssigned int
	// Slots are the node's own; nil for a replica.
	Slots []SlotRange
	// Migrating and Importing hold the node's open slots, with the id of the
	// other side. Nil when there is none. Valkey copies them to the replicas, Redis
	// does not.
	Migrating, Importing map[int]string
	// Peers has one entry for every other node in the table, real or not.
	Peers []Peer

	// Engine and Version are the kind of server and its release, "8.0.2".
	Engine  Engine
	Version string
	// RunID is drawn anew at each start of the process.
	RunID string
	// Uptime is how long the process has run, in whole seconds.
	Uptime time.Duration

	// Replication is the node's replication, known even while it is loading.
	Replication Replication

	// Keys counts the keys of all databases.
	Keys int64
	// AOFEnabled: the append-only file is on.
	AOFEnabled bool
	// AOFRewriting: an AOF rewrite runs or is scheduled.
	AOFRewriting bool
	// RDBSaving: a child writes an RDB, to disk or to replicas.
	RDBSaving bool
}

// Replication is the replication section of INFO.
type Replication struct {
	// ID names the history that Offset counts in. Offsets of nodes with different
	// histories say nothing about each other.
	ID string
	// Offset is how far the node has come in that history, in bytes. A replica that
	// has no position in it reports 1.
	Offset int64

	// PrimaryHost and PrimaryPort are the address that a replica follows, empty
	// and zero for a primary. It can be stale while the cluster's table is right.
	PrimaryHost string
	PrimaryPort int
	// LinkUp: a replica's link to its primary is up and the data are in step.
	LinkUp bool
	// LinkLost: the link is down and was up before, in the life of this process.
	// When both LinkUp and LinkLost are false, a replica has never been in step
	// since it started, whatever it has read from its disk.
	LinkLost bool
	// LinkLostFor is how long the link has been lost, in whole seconds.
	LinkLostFor time.Duration
	// Syncing: a full synchronisation from the primary is under way. What the
	// replica held before is thrown away once everything has been received.
	Syncing bool

	// Replicas are the replicas that are connected to this node.
	Replicas []ReplicaLink
}

// ReplicaLink is a connected replica, as its primary sees it.
type ReplicaLink struct {
	// Host and Port are the replica's address, as announced or as seen.
	Host string
	Port int
	// State is "online" once the replica follows; before that one of
	// "wait_bgsave", "send_bulk" and others that differ between versions.
	State string
	// Offset is what the replica has acknowledged, at most a second ago.
	Offset int64
	// Lag is the time since its last acknowledgement, in whole seconds.
	Lag time.Duration
}

// Peer is what a node believes of another node: one line of CLUSTER NODES.
type Peer struct {
	// ID of the peer; a made-up one while Handshake is set.
	ID string
	// Host is an IP address, empty when it is not known (NoAddr).
	Host string
	// Port is the one for clients, BusPort the one for the cluster bus.
	Port, BusPort int
	// Hostname is cluster-announce-hostname; usually empty.
	Hostname string
	// Role is RoleUnknown during a handshake.
	Role Role
	// PFail: this node cannot reach the peer. Fail: a majority of the primaries
	// agreed that it is down.
	PFail, Fail bool
	// Handshake: a MEET is under way; ID and Role are not the peer's own.
	Handshake bool
	// NoAddr: the address is not known.
	NoAddr bool
	// NoFailover: the peer will not start a failover by itself.
	NoFailover bool
	// PrimaryID is the id that a replica follows; empty for a primary.
	PrimaryID string
	// ConfigEpoch is that of the peer's claim; a replica has its primary's.
	ConfigEpoch uint64
	// Connected: this node's own link to the peer is up.
	Connected bool
	// Slots of the peer; nil for a replica.
	Slots []SlotRange
}

// HoldsCopy tells whether the node is a replica that has lost its primary and
// still holds what it had of its data: the link was up in the life of this
// process, no full synchronisation has replaced or is replacing its data, and
// nothing is being loaded.
// Only such a node may be promoted by force: neither CLUSTER FAILOVER FORCE nor
// TAKEOVER looks at the data, so an empty replica can win.
//
// A replica without a position in its primary's history reports offset 1, with or
// without data. Zero is a position: a primary counts from its first replica on, so
// that one which is in step and has received nothing yet, for up to 10 seconds, is
// at 0.
//
// It does not tell whose data they are. A replica that was moved to another
// primary holds the old one's until it is in step with the new one; compare
// Replication.ID when that can be.
func (s *State) HoldsCopy() bool {
	r := &s.Replication
	return s.Role == Replica && !s.Loading && r.LinkLost && !r.Syncing && r.Offset != noPosition
}

// noPosition is the slave_repl_offset of a replica that could not continue where
// it was (genRedisInfoString: neither a master nor a cached master).
const noPosition = 1
