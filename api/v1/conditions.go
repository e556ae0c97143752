package v1

// Phase is a summary of a RedisCluster for people.
// +kubebuilder:validation:Enum=Pending;Creating;Restoring;Running;Scaling;Updating;Recovering;Paused;Failed
type Phase string

// The phases. Conditions say more and are the contract.
const (
	// PhasePending: nothing has been made yet, because something outside the
	// cluster is missing or in the way.
	PhasePending Phase = "Pending"
	// PhaseCreating: the cluster has never served all its slots yet.
	PhaseCreating Phase = "Creating"
	// PhaseRunning: the cluster is as the spec asks.
	PhaseRunning Phase = "Running"
	// PhaseScaling: slots are on their way, or nodes are being added or taken away.
	PhaseScaling Phase = "Scaling"
	// PhaseUpdating: Pods are being replaced by those of a new template, or the
	// spec asks for something that cannot be done; Ready says what.
	PhaseUpdating Phase = "Updating"
	// PhaseRecovering: the cluster has served before and is not whole now.
	PhaseRecovering Phase = "Recovering"
	// PhasePaused: spec.paused is set; the operator only looks.
	PhasePaused Phase = "Paused"
	// PhaseFailed: the operator cannot go on by itself; Ready says why.
	PhaseFailed Phase = "Failed"
)

// The condition types of a RedisCluster.
const (
	// ConditionReady is True when the cluster has converged: every node that
	// the spec asks for is ready and holds its role, and all slots are served.
	ConditionReady = "Ready"
	// ConditionAvailable is True when every one of the 16384 slots has a
	// primary that answers, and Unknown when some node did not answer.
	ConditionAvailable = "Available"
	// ConditionPersistent is False when the data lives only in the Pods.
	ConditionPersistent = "Persistent"
	// ConditionNameConflict is True while an object that the operator did not
	// make has a name that the cluster needs. It is removed afterwards.
	ConditionNameConflict = "NameConflict"
	// ConditionProgressing is True while the operator is at work, or waits for
	// something that comes by itself, and False when nothing is left to do or only
	// a person can help.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True while something is wrong, or about to be, that a
	// person should know of although the cluster may serve. Each of its reasons has
	// a page in docs/runbooks. What a change of the cluster takes away for a moment is
	// nothing wrong, and neither is a cluster that is still being made.
	ConditionDegraded = "Degraded"
	// ConditionStalled is True while no waiting helps: the data is in doubt, or the
	// spec asks for what cannot be. It is removed afterwards. Tools that wait by the
	// rules of kstatus (Flux, kpt, cli-utils) take a Ready that is not True for work
	// in progress and wait for their whole time; this is the type by which they give
	// up at once. Problems that mend themselves, as a Pod that no Kubernetes node
	// takes yet, do not set it.
	ConditionStalled = "Stalled"
)

// The reasons of conditions, and of the Events that go with them.
const (
	// ReasonConverged: everything is as the spec asks (Ready).
	ReasonConverged = "Converged"
	// ReasonPodsNotReady: Pods are missing, starting or not ready yet (Ready).
	ReasonPodsNotReady = "PodsNotReady"
	// ReasonForming: nodes are being joined, given slots or attached (Ready).
	ReasonForming = "Forming"
	// ReasonWaiting: the operator waits for Redis itself, as for gossip (Ready).
	ReasonWaiting = "Waiting"
	// ReasonPaused: spec.paused is set and the cluster is not whole (Ready).
	ReasonPaused = "Paused"
	// ReasonUnsafe: going on by itself could lose data; the message says what
	// was seen and what a person can do (Ready, Degraded, Stalled).
	ReasonUnsafe = "Unsafe"
	// ReasonOperatorError: a call to Kubernetes or Redis failed, and is tried again (Ready).
	ReasonOperatorError = "OperatorError"

	// ReasonNameConflict: a stranger's object has a name that is needed.
	ReasonNameConflict = "NameConflict"
	// ReasonSecretNotFound: the Secret of spec.auth.secretName does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretInvalid: a Secret lacks the key "password", or it is empty.
	ReasonSecretInvalid = "SecretInvalid"
	// ReasonStorageClassNotFound: the StorageClass does not exist, or none is default.
	ReasonStorageClassNotFound = "StorageClassNotFound"
	// ReasonStorageNotExpandable: spec.storage.size was raised, and the
	// StorageClass does not let volumes grow.
	ReasonStorageNotExpandable = "StorageNotExpandable"
	// ReasonStorageResizeFailed: a volume could not be grown.
	ReasonStorageResizeFailed = "StorageResizeFailed"
	// ReasonImagePullFailed: the image of a Pod cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonUnschedulable: no Kubernetes node takes a Pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonContainerFailed: a container cannot be made or ends at once.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonRejected: the API server refused an object that the operator makes,
	// for example because of a quota or an admission policy.
	ReasonRejected = "Rejected"

	// ReasonConfigRefused: a server refuses a directive of spec.config (Ready,
	// Degraded, Stalled).
	ReasonConfigRefused = "ConfigRefused"
	// ReasonMigrationFailed: a server refuses to move slots (Ready, Degraded).
	ReasonMigrationFailed = "MigrationFailed"

	// ReasonCreating: the cluster is being made (Progressing).
	ReasonCreating = "Creating"
	// ReasonMovingSlots: slots are on their way between nodes, which a backup waits
	// for (Progressing).
	ReasonMovingSlots = "MovingSlots"
	// ReasonScaling: the cluster changes its shape (Progressing, Ready).
	ReasonScaling = "Scaling"
	// ReasonUpdating: Pods are being replaced (Progressing, Ready).
	ReasonUpdating = "Updating"
	// ReasonRecovering: what was lost is being brought back (Progressing).
	ReasonRecovering = "Recovering"
	// ReasonSettled: nothing is left to do (Progressing).
	ReasonSettled = "Settled"
	// ReasonStalled: only a person can help; Ready and Degraded say how (Progressing).
	ReasonStalled = "Stalled"

	// ReasonHealthy: nothing is wrong (Degraded).
	ReasonHealthy = "Healthy"
	// ReasonSlotsNotServed: some slots have no primary that serves them (Degraded).
	ReasonSlotsNotServed = "SlotsNotServed"
	// ReasonShardWithoutReplica: a shard that should have replicas has none in sync,
	// so that the loss of one more Pod is a loss of data (Degraded).
	ReasonShardWithoutReplica = "ShardWithoutReplica"
	// ReasonNodeLost: a node is missing, does not answer or is not in its role, and
	// its shard has another one in sync (Degraded).
	ReasonNodeLost = "NodeLost"
	// ReasonUnknownNode: a node that is no Pod of the cluster takes part in it (Degraded).
	ReasonUnknownNode = "UnknownNode"
	// ReasonRollStopped: a Pod of the new template does not come up, and no other is
	// replaced before it does (Degraded).
	ReasonRollStopped = "RollStopped"
	// ReasonInterruptionAhead: the only Pod of a shard is about to be replaced, or is
	// being replaced (Degraded).
	ReasonInterruptionAhead = "InterruptionAhead"
	// ReasonBlocked: something outside keeps the operator from what the spec asks for;
	// Ready has the reason (Degraded).
	ReasonBlocked = "Blocked"

	// ReasonSlotsServed: all slots have a primary that answers (Available).
	ReasonSlotsServed = "SlotsServed"
	// ReasonSlotsMissing: some slots have no primary (Available).
	ReasonSlotsMissing = "SlotsMissing"
	// ReasonNodesUnknown: some node did not answer, so nothing is known (Available).
	ReasonNodesUnknown = "NodesUnknown"

	// ReasonVolumes: the data is on PersistentVolumes (Persistent).
	ReasonVolumes = "Volumes"
	// ReasonNoStorage: spec.storage is left out (Persistent).
	ReasonNoStorage = "NoStorage"
)

// The reasons of Events that go with no condition.
const (
	// EventCreated: the cluster serves for the first time.
	EventCreated = "Created"
	// EventFormedAnew: all nodes came back empty; the cluster was formed again
	// without the data that it had.
	EventFormedAnew = "FormedAnew"
	// EventRecovered: the cluster is whole again.
	EventRecovered = "Recovered"
	// EventScaling: slots begin to move, or nodes to come or go; EventScaled: all are
	// where they should be.
	EventScaling = "Scaling"
	EventScaled  = "Scaled"
	// EventUpdating: Pods begin to be replaced; EventUpdated: all of them have been.
	EventUpdating = "Updating"
	EventUpdated  = "Updated"
	// EventHandedOver: a replica was asked to take the place of its primary, which lives.
	EventHandedOver = "HandedOver"
	// EventFailedOver: a replica was made to take the place of a primary that has ended.
	EventFailedOver = "FailedOver"
	// EventVolumesGrow: claims ask for a larger spec.storage.size.
	EventVolumesGrow = "VolumesGrow"
	// EventPaused: spec.paused was set.
	EventPaused = "Paused"
	// EventRestored: a cluster that was filled from a backup is whole.
	EventRestored = "Restored"
)
