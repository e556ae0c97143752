package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Engine is the server software of a cluster.
// +kubebuilder:validation:Enum=Redis;Valkey
type Engine string

// The engines that the operator can run.
const (
	EngineRedis  Engine = "Redis"
	EngineValkey Engine = "Valkey"
)

// RedisClusterSpec is what the user asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.shards) || self.shards <= self.replicas",messageExpression="'shards (%d) must not exceed replicas (%d): every shard needs a node to hold its slots'.format([self.shards, self.replicas])"
// +kubebuilder:validation:XValidation:rule="has(self.storage) == has(oldSelf.storage)",message="storage can be neither added nor removed once the cluster exists: make a new cluster and move the data"
// +kubebuilder:validation:XValidation:rule="has(self.restoreFrom) == has(oldSelf.restoreFrom) && (!has(self.restoreFrom) || self.restoreFrom == oldSelf.restoreFrom)",message="restoreFrom is for a new cluster and cannot be changed: make a new cluster to restore into"
type RedisClusterSpec struct {
	// replicas is the number of Redis nodes (Pods) in all, primaries and their
	// replicas together. Six nodes are three shards of a primary and a replica.
	// `kubectl scale rdc` sets this field.
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// version of the server, as "8.0" or "8.0.2". It picks the tag of the image.
	// A version below the minor that has already served (status.version) is
	// refused: an older server cannot read what a newer one has written.
	// +kubebuilder:default="8.0"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,3}[.][0-9]{1,3}([.][0-9]{1,3})?$')",messageExpression="'\"' + self + '\" is no version: write major.minor or major.minor.patch, as \"8.0\" or \"8.0.2\"'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,3}[.][0-9]{1,3}([.][0-9]{1,3})?$') || int(self.split('.')[0]) >= 7",messageExpression="'version ' + self + ' is too old: 7.0 is the oldest that this operator runs'"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	Version string `json:"version,omitempty"`

	// shards is the number of primaries. The other nodes are spread evenly over
	// the shards as replicas; the first shards hold one more. Left out, it is
	// half of replicas, at least one: 6 nodes are 3 shards, 3 nodes are one.
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	// +optional
	Shards *int32 `json:"shards,omitempty"`

	// engine is the server software, Redis or Valkey. It cannot be changed.
	// +kubebuilder:default=Redis
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="engine cannot be changed: the engines do not read each other's files; make a new cluster and move the data"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Redis","urn:alm:descriptor:com.tectonic.ui:select:Valkey"}
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// image overrides the image that engine and version pick, for example to
	// use a mirror. It must hold the server of that engine and version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullPolicy of the image. Left out, Kubernetes decides by the tag.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:imagePullPolicy","urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets name Secrets of this namespace that hold registry logins.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// config holds directives of redis.conf, name to value, as
	// `maxmemory-policy: allkeys-lru`. Directives that the operator owns
	// (cluster-*, tls-*, port, dir, bind, aclfile, requirepass, …) are refused.
	// +kubebuilder:validation:MaxProperties=200
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-z][a-z0-9-]{0,63}$'))",messageExpression="'names of directives are lower-case letters, digits and dashes: %s'.format([self.filter(k, !k.matches('^[a-z][a-z0-9-]{0,63}$'))])"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].contains('\\n') && !self[k].contains('\\r') && !self[k].contains('\\u0000'))",messageExpression="'a value must be a single line: %s'.format([self.filter(k, self[k].contains('\\n') || self[k].contains('\\r') || self[k].contains('\\u0000'))])"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('cluster-') || k.startsWith('tls-') || k.startsWith('enable-') || k in ['port', 'dir', 'bind', 'bind-source-addr', 'protected-mode', 'unixsocket', 'unixsocketperm', 'aclfile', 'user', 'requirepass', 'masterauth', 'masteruser', 'primaryauth', 'primaryuser', 'replicaof', 'slaveof', 'include', 'loadmodule', 'rename-command', 'daemonize', 'supervised', 'pidfile', 'logfile', 'dbfilename', 'appendfilename', 'appenddirname', 'shutdown-on-sigterm', 'shutdown-on-sigint', 'shutdown-timeout', 'repl-diskless-load', 'replica-announce-ip', 'replica-announce-port', 'slave-announce-ip', 'slave-announce-port', 'rdb-del-sync-files'])",messageExpression="'owned by the operator, remove from config: %s'.format([self.filter(k, k.startsWith('cluster-') || k.startsWith('tls-') || k.startsWith('enable-') || k in ['port', 'dir', 'bind', 'bind-source-addr', 'protected-mode', 'unixsocket', 'unixsocketperm', 'aclfile', 'user', 'requirepass', 'masterauth', 'masteruser', 'primaryauth', 'primaryuser', 'replicaof', 'slaveof', 'include', 'loadmodule', 'rename-command', 'daemonize', 'supervised', 'pidfile', 'logfile', 'dbfilename', 'appendfilename', 'appenddirname', 'shutdown-on-sigterm', 'shutdown-on-sigint', 'shutdown-timeout', 'repl-diskless-load', 'replica-announce-ip', 'replica-announce-port', 'slave-announce-ip', 'slave-announce-port', 'rdb-del-sync-files'])])"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8
	// +optional
	Config map[string]ConfigValue `json:"config,omitempty"`

	// storage keeps the data on PersistentVolumes. Left out, the data lives in
	// the Pods: a shard keeps it only as long as one of its Pods lives.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5
	// +optional
	Storage *StorageSpec `json:"storage,omitempty"`

	// auth says how clients log in. Left out, a password is generated into the
	// Secret <name>-auth, key "password", for Redis's default user.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// resources of the Redis container. maxmemory follows the memory limit
	// (65 %) unless config sets it.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:resourceRequirements"}
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// affinity of the Pods. Left out, the members of one shard prefer to be on
	// different nodes and in different zones.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// nodeSelector restricts the Pods to nodes with these labels.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Pods.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// topologySpreadConstraints of the Pods, for every shard alike. A
	// constraint without a labelSelector gets that of the shard.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName of the Pods.
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:io.kubernetes:PriorityClass","urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// podSecurityContext overrides the Pods' security context, which by default
	// runs Redis as uid and gid 999. On OpenShift, set it to {} so that the
	// namespace's own uid range is used.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// podLabels are added to the Pods. Labels of the operator
	// (redis.example.com/*, app.kubernetes.io/*) are refused.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('redis.example.com/') || k.startsWith('app.kubernetes.io/'))",message="labels under redis.example.com/ and app.kubernetes.io/ are owned by the operator"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	PodLabels map[string]LabelValue `json:"podLabels,omitempty"`

	// podAnnotations are added to the Pods. Annotations under
	// redis.example.com/ are refused.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('redis.example.com/'))",message="annotations under redis.example.com/ are owned by the operator"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`

	// backup makes a RedisBackup at each tick of a schedule.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// restoreFrom starts the new cluster from a backup. It is set when the cluster
	// is created, and cannot be changed. Slots and keys then move until there are
	// spec.shards shards, whatever number the backup has.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10
	// +optional
	RestoreFrom *RestoreSource `json:"restoreFrom,omitempty"`

	// paused stops every change by the operator: it looks and reports, and
	// touches neither Kubernetes objects nor Redis.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ConfigValue is the value of one directive, as it stands in redis.conf after
// the directive's name.
// +kubebuilder:validation:MaxLength=1024
type ConfigValue string

// LabelValue is the value of a label of a Pod.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// StorageSpec describes the PersistentVolumeClaim of each node.
type StorageSpec struct {
	// size of each node's volume, as "8Gi". Raised, the volumes grow in place, if
	// their StorageClass allows it. It cannot shrink.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be a quantity above zero, as 8Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="size cannot shrink: a volume can only grow"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	Size resource.Quantity `json:"size"`

	// storageClassName of the volumes. Left out, the default StorageClass. It
	// cannot be changed once Pods exist.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:io.kubernetes:StorageClass"}
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retain keeps the claims when the RedisCluster is deleted, so that a
	// cluster made again under the same name finds its data.
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	// +optional
	Retain *bool `json:"retain,omitempty"`
}

// AuthSpec says how clients log in.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.secretName) && has(self.disabled) && self.disabled)",message="secretName and disabled exclude each other"
type AuthSpec struct {
	// secretName names a Secret of this namespace whose key "password" holds
	// the password of Redis's default user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:io.kubernetes:Secret"}
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// disabled lets every client in without a password. The operator still
	// logs in with a user of its own.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// RedisClusterStatus is what the operator saw when something last changed. It
// holds no volatile value: a write of the status must not be the cause of the
// next one.
type RedisClusterStatus struct {
	// phase is a summary for people; conditions are the contract.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// replicas is the number of Pods that exist.
	// +operator-sdk:csv:customresourcedefinitions:type=status,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas counts the Pods that are ready and hold their role in the
	// cluster: a primary with its slots, or a replica whose link is up. It
	// equals spec.replicas when the cluster has converged.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// shards is the number of primaries that serve slots.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Shards int32 `json:"shards"`

	// selector finds the Pods, for the scale subresource.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Selector string `json:"selector,omitempty"`

	// version is the highest server version that a primary has served.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Version string `json:"version,omitempty"`

	// observedGeneration is the generation of the spec that this status is about.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// restore is the backup that the cluster starts, or has started, from.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Restore *RestoreStatus `json:"restore,omitempty"`

	// lastScheduleTime is the last tick of spec.backup.schedule that was dealt with.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// conditions: Ready, Available, Progressing, Degraded, Persistent; Restored
	// and BackupScheduled where the spec asks for it; NameConflict and Stalled
	// while they are so.
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// shardStatuses holds one entry for each shard, by index, also for those that
	// are being taken away.
	// +listType=map
	// +listMapKey=index
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ShardStatuses []ShardStatus `json:"shardStatuses,omitempty"`
}

// ShardStatus is one shard as the operator saw it.
type ShardStatus struct {
	// index of the shard; its StatefulSet is <cluster>-<index>.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	Index int32 `json:"index"`

	// primary is the Pod that holds the shard's slots; empty when none does.
	// +operator-sdk:csv:customresourcedefinitions:type=status,xDescriptors={"urn:alm:descriptor:io.kubernetes:Pod"}
	// +optional
	Primary string `json:"primary,omitempty"`

	// slots that the primary serves, as "0-5460".
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Slots string `json:"slots,omitempty"`

	// readyReplicas counts the members that are ready and hold their role.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// replicas is the number of members that the shard should have; 0 for one that
	// is being taken away.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Replicas int32 `json:"replicas"`
}

// RedisCluster is a Redis Cluster or a Valkey cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:scope=Namespaced,shortName={rc,rdc},categories={all}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Shards",type=integer,JSONPath=`.status.shards`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 48",messageExpression="'metadata.name has %d characters, at most 48 are allowed: the names of Pods and Services are derived from it'.format([size(self.metadata.name)])"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and hold only lower-case letters, digits and dashes: a Service is named after it"
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || !self.spec.version.matches('^[0-9]{1,3}[.][0-9]{1,3}([.][0-9]{1,3})?$') || !has(oldSelf.status) || !has(oldSelf.status.version) || int(self.spec.version.split('.')[0])*1000+int(self.spec.version.split('.')[1]) >= int(oldSelf.status.version.split('.')[0])*1000+int(oldSelf.status.version.split('.')[1])",messageExpression="'a downgrade to ' + self.spec.version + ' is refused: ' + oldSelf.status.version + ' has already written the data'",fieldPath=".spec.version"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.storage) || !has(oldSelf.spec.storage) || !has(oldSelf.status) || (!has(oldSelf.status.version) && (!has(oldSelf.status.replicas) || oldSelf.status.replicas == 0)) || (has(self.spec.storage.storageClassName) == has(oldSelf.spec.storage.storageClassName) && (!has(self.spec.storage.storageClassName) || self.spec.storage.storageClassName == oldSelf.spec.storage.storageClassName))",message="storageClassName cannot be changed: the volumes exist already",fieldPath=".spec.storage.storageClassName"
// +operator-sdk:csv:customresourcedefinitions:displayName="Redis Cluster",order=1,resources={{StatefulSet,v1},{Pod,v1},{Service,v1},{ConfigMap,v1},{Secret,v1},{PersistentVolumeClaim,v1},{PodDisruptionBudget,v1},{NetworkPolicy,v1},{RedisBackup,v1},{Event,v1}}
type RedisCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	// +kubebuilder:default={}
	// +optional
	Spec RedisClusterSpec `json:"spec"`

	// status is what the operator saw.
	// +optional
	Status RedisClusterStatus `json:"status,omitempty"`
}

// RedisClusterList is a list of RedisClusters.
//
// +kubebuilder:object:root=true
type RedisClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RedisCluster `json:"items"`
}
