package v1

// The names that the operator derives from a cluster and puts on its objects.
const (
	// LabelShard holds the index of a Pod's shard.
	LabelShard = "redis.example.com/shard"
	// LabelRole holds what Redis says that a Pod is: RolePrimary or RoleReplica.
	LabelRole = "redis.example.com/role"
	// RolePrimary and RoleReplica are the values of LabelRole.
	RolePrimary = "primary"
	RoleReplica = "replica"
	// AuthPasswordKey is the key of the client's password in the auth Secret.
	AuthPasswordKey = "password"
)

// Nodes is the number of nodes that the spec asks for. The API server sets the
// default (6); it is repeated here for objects that never went through it.
func (s *RedisClusterSpec) Nodes() int {
	if s.Replicas == nil {
		return 6
	}
	return int(*s.Replicas)
}

// ShardCount is the number of shards that the spec asks for: spec.shards, or
// half of the nodes and at least one.
func (s *RedisClusterSpec) ShardCount() int {
	if s.Shards != nil {
		return int(*s.Shards)
	}
	return max(1, s.Nodes()/2)
}

// Members is the number of nodes of each shard, by index: the nodes spread
// evenly, the first shards holding one more.
func (s *RedisClusterSpec) Members() []int {
	shards := s.ShardCount()
	members := make([]int, shards)
	for i := range members {
		members[i] = s.Nodes() / shards
		if i < s.Nodes()%shards {
			members[i]++
		}
	}
	return members
}

// AuthDisabled tells whether clients get in without a password.
func (s *RedisClusterSpec) AuthDisabled() bool {
	return s.Auth != nil && s.Auth.Disabled
}

// AuthSecretName is the Secret that holds the client's password: the user's,
// or the generated <cluster>-auth. It means nothing when auth is disabled.
func (c *RedisCluster) AuthSecretName() string {
	if c.Spec.Auth != nil && c.Spec.Auth.SecretName != "" {
		return c.Spec.Auth.SecretName
	}
	return c.Name + "-auth"
}
