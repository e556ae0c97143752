package v1

// BackupPhase is a summary of a RedisBackup for people.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type BackupPhase string

// The phases of a RedisBackup. Succeeded and Failed are final.
const (
	// BackupPending: it waits for its turn, or for something that is missing.
	BackupPending BackupPhase = "Pending"
	// BackupRunning: its Job works.
	BackupRunning BackupPhase = "Running"
	// BackupSucceeded: the backup is whole and checked.
	BackupSucceeded BackupPhase = "Succeeded"
	// BackupFailed: there is no backup; the condition Complete says why.
	BackupFailed BackupPhase = "Failed"
)

// PhaseRestoring: the cluster starts from a backup and serves nothing yet.
const PhaseRestoring Phase = "Restoring"

// The condition types of backups and restores.
const (
	// ConditionComplete of a RedisBackup is True when it succeeded. Otherwise its
	// reason and message say what is waited for, or why it failed.
	ConditionComplete = "Complete"
	// ConditionVerified of a RedisBackup with spec.verify Restore is True when every
	// shard was loaded into a server and held the keys that the manifest says.
	ConditionVerified = "Verified"
	// ConditionRestored of a RedisCluster with spec.restoreFrom is True once every
	// shard of the backup was seen in its place. It never becomes False again: from
	// then on no Pod is filled from the backup any more.
	ConditionRestored = "Restored"
	// ConditionBackupScheduled of a RedisCluster with spec.backup tells whether its
	// schedule can be followed.
	ConditionBackupScheduled = "BackupScheduled"
)

// The reasons of the conditions above. When a Job fails, the reason is that of
// the data plane (AccessDenied, NoSuchBucket, StoreUnavailable, StoreFull,
// ClusterNotReady, SlotsMoved, SourceFailed, BackupNotFound, BackupDamaged,
// Incompatible, VerificationFailed, InvalidTask).
const (
	// ReasonSucceeded: the backup is whole (Complete, Verified).
	ReasonSucceeded = "Succeeded"
	// ReasonInProgress: the Job works (Complete, Verified).
	ReasonInProgress = "InProgress"
	// ReasonQueued: another backup of the cluster has its turn first (Complete).
	ReasonQueued = "Queued"
	// ReasonSlotsMoving: slots of the cluster are being moved, which a backup waits for (Complete).
	ReasonSlotsMoving = "SlotsMoving"
	// ReasonClusterNotFound: the RedisCluster does not exist (Complete).
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonClusterNotServing: the cluster does not serve all its slots (Complete).
	ReasonClusterNotServing = "ClusterNotServing"
	// ReasonClaimNotFound: the PersistentVolumeClaim does not exist (Complete, Restored).
	ReasonClaimNotFound = "ClaimNotFound"
	// ReasonNoOperatorImage: the operator does not know its own image (Complete, Restored).
	ReasonNoOperatorImage = "NoOperatorImage"
	// ReasonDeadlineExceeded: it took longer than spec.activeDeadlineSeconds (Complete).
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonJobFailed: the Job ended without saying why (Complete, Restored).
	ReasonJobFailed = "JobFailed"

	// ReasonRestoring: the shards are being filled from the backup (Restored, Ready).
	ReasonRestoring = "Restoring"
	// ReasonInspecting: the backup is being looked at before anything is made (Restored).
	ReasonInspecting = "Inspecting"
	// ReasonSeeded: every shard of the backup was seen in its place, and no Pod that
	// is made from now on may be filled from it (Restored).
	ReasonSeeded = "Seeded"
	// ReasonRestored: every shard of the backup is in its place (Restored).
	ReasonRestored = "Restored"
	// ReasonVolumesExist: volumes of an earlier cluster of this name are there, which
	// a restore would have to overwrite (Restored).
	ReasonVolumesExist = "VolumesExist"
	// ReasonBackupNotReady: the RedisBackup of spec.restoreFrom does not exist or
	// has not succeeded (Restored).
	ReasonBackupNotReady = "BackupNotReady"

	// ReasonScheduled: backups are made by the schedule (BackupScheduled).
	ReasonScheduled = "Scheduled"
	// ReasonSuspended: spec.backup.suspend is set (BackupScheduled).
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: spec.backup.schedule is no cron expression, or has no
	// time at all (BackupScheduled).
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone: spec.backup.timeZone is not known (BackupScheduled).
	ReasonUnknownTimeZone = "UnknownTimeZone"
)

// The reasons of Events of backups that go with no condition.
const (
	// EventBackupMade: the schedule of a RedisCluster made a RedisBackup;
	// EventBackupExpired: retention deleted one; EventBackupRefused: the API server
	// refuses one.
	EventBackupMade    = "BackupMade"
	EventBackupExpired = "BackupExpired"
	EventBackupRefused = "BackupRefused"
	// EventObjectsLeft: a RedisBackup with deletionPolicy Delete is gone, and its
	// objects may still be in the store.
	EventObjectsLeft = "ObjectsLeft"
)

const (
	// LabelBackup holds the name of the RedisBackup that a Job and its Pods work for.
	LabelBackup = "redis.example.com/backup"
	// LabelBackupOf holds, on these, the name of the RedisCluster that is backed up.
	LabelBackupOf = "redis.example.com/backup-of"
	// LabelRestoreOf holds the name of the RedisCluster that is to be filled, on the
	// Job that looks at its backup and on that Job's Pods.
	LabelRestoreOf = "redis.example.com/restore-of"
	// LabelScheduledBy holds the name of the RedisCluster whose schedule made a RedisBackup.
	LabelScheduledBy = "redis.example.com/scheduled-by"
	// LabelScheduledByUID holds the UID of that RedisCluster: retention never counts
	// the backups of an earlier cluster of the same name.
	LabelScheduledByUID = "redis.example.com/scheduled-by-uid"
	// FinalizerObjects is on a RedisBackup with deletionPolicy Delete.
	FinalizerObjects = "redis.example.com/objects"
)

// The keys of the Secrets that a destination names.
const (
	S3AccessKeyIDKey     = "accessKeyID"
	S3SecretAccessKeyKey = "secretAccessKey"
	S3SessionTokenKey    = "sessionToken"
	S3CAKey              = "ca.crt"
)
