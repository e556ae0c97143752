// Package backup is the data plane of RedisBackup: it reads a Redis Cluster as
// a replica does and streams it into a store (Run), and puts what is there in
// front of a Redis server that has not started yet (Restore). It runs in Jobs
// and init containers, and knows nothing of Kubernetes.
package backup

import (
	"encoding/json"
	"time"
)

// TaskVariable names the environment variable in which the operator hands a
// Task, as JSON, to the subcommands `backup` and `restore`. A Task holds no
// secret: those are files.
const TaskVariable = "REDIS_BACKUP_TASK"

// Operation is what a Task asks for.
type Operation string

const (
	// OperationBackup writes a backup. Subcommand `backup`.
	OperationBackup Operation = "Backup"
	// OperationDelete removes a backup's objects, the manifest first. What is
	// gone already is no error. Subcommand `backup`.
	OperationDelete Operation = "Delete"
	// OperationInspect checks, before a restore changes anything, that a backup
	// is whole and that the target can read it: manifest, objects and their
	// sizes, engine and version. Subcommand `restore`.
	OperationInspect Operation = "Inspect"
	// OperationSeed puts one shard, verified, into an empty data folder, in an
	// init container before the server's first start. A folder that holds a
	// nodes.conf is left as it is. Subcommand `restore`.
	OperationSeed Operation = "Seed"
	// OperationServe hands the objects of a backup in a directory to Remote, until
	// it is told to end. Subcommand `restore`.
	OperationServe Operation = "Serve"
)

// Verification is how far a finished backup is checked.
type Verification string

const (
	// VerifyChecksums checks the stream: the RDB's own CRC64, SHA-256 of what
	// was written, the number of keys, the cover of the slots. The zero value
	// means this.
	VerifyChecksums Verification = "Checksums"
	// VerifyRestore also starts a throw-away server on each shard's RDB and
	// compares its number of keys with the manifest's.
	VerifyRestore Verification = "Restore"
)

// Task is one piece of work of the data plane.
type Task struct {
	Operation   Operation   `json:"operation"`
	Destination Destination `json:"destination"`
	// ID is the backup's own folder below the destination, unique in it.
	ID string `json:"id"`

	// Cluster is the namespace/name that the manifest notes. Backup only.
	Cluster string `json:"cluster,omitempty"`
	// Seeds are host:port of any nodes of the cluster; DNS names with several
	// addresses are tried address by address. Backup only.
	Seeds []string `json:"seeds,omitempty"`
	// Username and PasswordFile authenticate at every node. Empty: no AUTH. Serve asks
	// them of its clients.
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	// Compression is "Zstd" (also when empty) or "None". Backup only.
	Compression string       `json:"compression,omitempty"`
	Verify      Verification `json:"verify,omitempty"`

	// Engine ("Redis", "Valkey") and Version are those of the server that is to
	// read the backup. Inspect and Seed only.
	Engine  string `json:"engine,omitempty"`
	Version string `json:"version,omitempty"`
	// Shard is the manifest's shard to seed. Seed only.
	Shard int `json:"shard"`
	// DataDir is the server's data folder, AppendOnly whether it runs with an
	// append-only file. Seed only.
	DataDir    string `json:"dataDir,omitempty"`
	AppendOnly bool   `json:"appendOnly,omitempty"`
	// OnlyPod is the one Pod that is seeded: where the environment's POD_NAME
	// differs, nothing is done and that is a success. Empty: any. Seed only.
	OnlyPod string `json:"onlyPod,omitempty"`
}

// Destination is where backups are kept: exactly one of its fields is set.
type Destination struct {
	S3 *S3 `json:"s3,omitempty"`
	// Directory is a mounted volume's folder.
	Directory string `json:"directory,omitempty"`
	// Remote is one backup that somebody serves (OperationServe). It can only be read.
	Remote *Remote `json:"remote,omitempty"`
}

// Remote is where a backup is served.
type Remote struct {
	// URL of the backup's folder, without a slash at its end.
	URL string `json:"url"`
	// Username and PasswordFile are what OperationServe was given.
	Username     string `json:"username"`
	PasswordFile string `json:"passwordFile"`
}

// S3 is a bucket of an S3 server. The credentials are the files
// accessKeyID, secretAccessKey and, where there is one, sessionToken in
// CredentialsDir.
type S3 struct {
	Bucket string `json:"bucket"`
	// Prefix is put before the backup's folder, without slashes at its ends.
	Prefix string `json:"prefix,omitempty"`
	// Endpoint is an http or https URL. Empty: that of AWS for Region.
	Endpoint       string `json:"endpoint,omitempty"`
	Region         string `json:"region,omitempty"`
	PathStyle      bool   `json:"pathStyle,omitempty"`
	CredentialsDir string `json:"credentialsDir,omitempty"`
	// CAFile holds PEM certificates to trust beside the system's own.
	CAFile string `json:"caFile,omitempty"`
}

// Result is what the subcommand writes, as JSON of at most 4096 bytes, into the
// container's termination message, also when it failed.
type Result struct {
	// Reason is empty when the work succeeded, otherwise one of the Reason
	// constants, and Message says it to a person, with what to do.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Permanent says that trying again cannot help.
	Permanent bool `json:"permanent,omitempty"`

	// Location is the backup's folder as a URL: s3://bucket/prefix/id or file://….
	Location     string    `json:"location,omitempty"`
	Engine       string    `json:"engine,omitempty"`
	RedisVersion string    `json:"redisVersion,omitempty"`
	StartTime    time.Time `json:"startTime,omitzero"`
	// TotalBytes is the size of the objects as they are stored.
	TotalBytes int64 `json:"totalBytes,omitempty"`
	Keys       int64 `json:"keys,omitempty"`
	// Shards is the number of shards in the manifest.
	Shards         int    `json:"shards,omitempty"`
	ManifestSHA256 string `json:"manifestSHA256,omitempty"`
	// Verified says that VerifyRestore was done and agreed.
	Verified bool `json:"verified,omitempty"`
}

// Reason is why work of the data plane failed, in one word.
type Reason string

const (
	// ReasonAccessDenied: the store refuses the credentials.
	ReasonAccessDenied Reason = "AccessDenied"
	// ReasonNoBucket: the bucket does not exist.
	ReasonNoBucket Reason = "NoSuchBucket"
	// ReasonStoreUnavailable: the store cannot be reached or answers errors.
	ReasonStoreUnavailable Reason = "StoreUnavailable"
	// ReasonStoreFull: there is no room in the store.
	ReasonStoreFull Reason = "StoreFull"
	// ReasonClusterNotReady: the slots are not all served, or no node answers.
	ReasonClusterNotReady Reason = "ClusterNotReady"
	// ReasonSlotsMoved: slots moved during every attempt.
	ReasonSlotsMoved Reason = "SlotsMoved"
	// ReasonSourceFailed: a node broke off or sent what is no sound RDB.
	ReasonSourceFailed Reason = "SourceFailed"
	// ReasonNotFound: there is no backup (no manifest) of that id.
	ReasonNotFound Reason = "BackupNotFound"
	// ReasonDamaged: an object is missing, cut short or altered.
	ReasonDamaged Reason = "BackupDamaged"
	// ReasonIncompatible: the target's engine or version cannot read it.
	ReasonIncompatible Reason = "Incompatible"
	// ReasonVerificationFailed: the drill's count differs from the manifest's.
	ReasonVerificationFailed Reason = "VerificationFailed"
	// ReasonInvalid: the Task itself is wrong.
	ReasonInvalid Reason = "InvalidTask"
)

// Encode gives the task as the value of TaskVariable.
func (t *Task) Encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // it holds nothing that cannot be
	}
	return string(data)
}
