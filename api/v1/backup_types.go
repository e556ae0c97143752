package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Compression is how the objects of a backup are compressed.
// +kubebuilder:validation:Enum=Zstd;None
type Compression string

// The compressions.
const (
	CompressionZstd Compression = "Zstd"
	CompressionNone Compression = "None"
)

// DeletionPolicy is what happens to a backup's objects when its RedisBackup is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

// The deletion policies.
const (
	// DeletionRetain leaves the objects in the store.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete removes the objects, the manifest first.
	DeletionDelete DeletionPolicy = "Delete"
)

// Verification is how far a finished backup is checked.
// +kubebuilder:validation:Enum=Checksums;Restore
type Verification string

// The verifications.
const (
	// VerifyChecksums checks the stream and what was written.
	VerifyChecksums Verification = "Checksums"
	// VerifyRestore also loads each shard into a throw-away server and counts its keys.
	VerifyRestore Verification = "Restore"
)

// BackupDestination is where backups are kept.
//
// +kubebuilder:validation:XValidation:rule="[has(self.s3), has(self.persistentVolumeClaim)].filter(x, x).size() == 1",message="exactly one of s3 and persistentVolumeClaim must be set"
type BackupDestination struct {
	// s3 is a bucket of Amazon S3, or of any server that speaks its protocol.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="S3"
	// +optional
	S3 *S3Destination `json:"s3,omitempty"`

	// persistentVolumeClaim is a volume of the same namespace.
	// +operator-sdk:csv:customresourcedefinitions:type=spec
	// +optional
	PersistentVolumeClaim *ClaimDestination `json:"persistentVolumeClaim,omitempty"`
}

// S3Destination is a folder of a bucket.
type S3Destination struct {
	// bucket must exist.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-.a-z0-9]*[a-z0-9]$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	Bucket string `json:"bucket"`

	// prefix is put before each backup's folder, as "redis/production". Slashes at
	// its ends are refused.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// endpoint is the URL of the server, as "https://minio.storage:9000". Left out,
	// that of Amazon for the region.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@ ]+/?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// region of the bucket.
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	Region string `json:"region,omitempty"`

	// pathStyle puts the bucket into the path instead of the host name, which most
	// servers other than Amazon's need.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	// +optional
	PathStyle bool `json:"pathStyle,omitempty"`

	// credentialsSecretName names a Secret of this namespace with the keys
	// accessKeyID, secretAccessKey and, where there is one, sessionToken.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:io.kubernetes:Secret"}
	CredentialsSecretName string `json:"credentialsSecretName"`

	// caSecretName names a Secret of this namespace whose key ca.crt holds PEM
	// certificates to trust beside the well-known ones.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="CA Secret Name",xDescriptors={"urn:alm:descriptor:io.kubernetes:Secret"}
	// +optional
	CASecretName string `json:"caSecretName,omitempty"`
}

// ClaimDestination is a folder of a volume.
type ClaimDestination struct {
	// claimName names a PersistentVolumeClaim of this namespace. It is mounted by
	// one Job at a time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:io.kubernetes:PersistentVolumeClaim"}
	ClaimName string `json:"claimName"`

	// subPath is a folder of the volume; it is made if it does not exist. Left out,
	// the volume's root.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(x, x == '..')",message="subPath is relative to the volume and must not contain '..'"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	SubPath string `json:"subPath,omitempty"`
}

// RedisBackupSpec is what the user asks for. Only deletionPolicy can be changed.
//
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName && self.destination == oldSelf.destination && self.compression == oldSelf.compression && self.verify == oldSelf.verify && self.activeDeadlineSeconds == oldSelf.activeDeadlineSeconds",message="a backup cannot be changed, except for its deletionPolicy: make a new one"
type RedisBackupSpec struct {
	// clusterName names the RedisCluster of this namespace that is backed up.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=48
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,xDescriptors={"urn:alm:descriptor:redis.example.com:v1:RedisCluster"}
	ClusterName string `json:"clusterName"`

	// destination is where the backup is kept.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2
	Destination BackupDestination `json:"destination"`

	// compression of the objects.
	// +kubebuilder:default=Zstd
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Zstd","urn:alm:descriptor:com.tectonic.ui:select:None"}
	// +optional
	Compression Compression `json:"compression,omitempty"`

	// deletionPolicy is what happens to the objects when this RedisBackup is deleted.
	// +kubebuilder:default=Retain
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Retain","urn:alm:descriptor:com.tectonic.ui:select:Delete"}
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// verify is how far the finished backup is checked. Restore loads each shard
	// into a throw-away server in the Job, which takes the memory of the largest.
	// +kubebuilder:default=Checksums
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Checksums","urn:alm:descriptor:com.tectonic.ui:select:Restore"}
	// +optional
	Verify Verification `json:"verify,omitempty"`

	// activeDeadlineSeconds bounds the work, retries included, and before that the
	// waiting for its turn or for what is missing.
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +optional
	ActiveDeadlineSeconds int64 `json:"activeDeadlineSeconds,omitempty"`
}

// RedisBackupStatus is how far the backup is.
type RedisBackupStatus struct {
	// phase is Pending, Running, Succeeded or Failed. The last two are final.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`

	// startTime is when the work began.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the work ended, well or not.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// duration is the time between the two, as "1m4s"; empty before the end.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Duration string `json:"duration,omitempty"`

	// id is the backup's folder in its destination, for spec.restoreFrom.
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Backup ID"
	// +optional
	ID string `json:"id,omitempty"`

	// location is that folder as a URL.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Location string `json:"location,omitempty"`

	// redisVersion is the version of the server that the data came from.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	RedisVersion string `json:"redisVersion,omitempty"`

	// totalBytes is the size of the objects as they are stored.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`

	// size is totalBytes for people, as "1.2 GiB".
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Size string `json:"size,omitempty"`

	// keys is the number of keys in all shards.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Keys int64 `json:"keys,omitempty"`

	// shards is the number of shards; the manifest holds the details of each.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	Shards int32 `json:"shards,omitempty"`

	// manifestSHA256 is the checksum of manifest.json, which holds those of the objects.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ManifestSHA256 string `json:"manifestSHA256,omitempty"`

	// observedGeneration is the generation of the spec that this status is about.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Complete, and Verified when spec.verify is Restore.
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RedisBackup is one backup of a RedisCluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName={rdb},categories={all}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 61",messageExpression="'metadata.name has %d characters, at most 61 are allowed: the names of Jobs are derived from it'.format([size(self.metadata.name)])"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must hold only lower-case letters, digits and dashes: it is the value of a label"
// +operator-sdk:csv:customresourcedefinitions:displayName="Redis Backup",order=2,resources={{Job,v1},{Pod,v1},{Event,v1}}
type RedisBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	Spec RedisBackupSpec `json:"spec"`

	// status is how far it is.
	// +optional
	Status RedisBackupStatus `json:"status,omitempty"`
}

// RedisBackupList is a list of RedisBackups.
//
// +kubebuilder:object:root=true
type RedisBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RedisBackup `json:"items"`
}

// Done tells whether the backup has ended, well or not.
func (b *RedisBackup) Done() bool {
	return b.Status.Phase == BackupSucceeded || b.Status.Phase == BackupFailed
}

// BackupSpec makes RedisBackups of a cluster by a schedule. They have no owner
// reference: backups outlive their cluster.
type BackupSpec struct {
	// schedule is when, in the five fields of cron, as "0 3 * * *", or "@daily".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!self.contains('=')",message="write the time zone into timeZone, not into schedule"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^@ ]+( +[^ ]+){4})$')",message="schedule must have the five fields of cron (minute hour day month weekday), as \"0 3 * * *\", or be @hourly, @daily, @weekly, @monthly or @yearly"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	Schedule string `json:"schedule"`

	// timeZone of the schedule, as "Europe/Berlin". Left out, UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// suspend makes no new backups. What was missed meanwhile is not made up for.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// keepLast is how many of this cluster's scheduled backups that succeeded are
	// kept; older ones are deleted with their objects. Left out, all are kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	// +optional
	KeepLast *int32 `json:"keepLast,omitempty"`

	// destination is where the backups are kept.
	// +operator-sdk:csv:customresourcedefinitions:type=spec
	Destination BackupDestination `json:"destination"`

	// compression of the objects.
	// +kubebuilder:default=Zstd
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Zstd","urn:alm:descriptor:com.tectonic.ui:select:None"}
	// +optional
	Compression Compression `json:"compression,omitempty"`

	// verify is how far each finished backup is checked.
	// +kubebuilder:default=Checksums
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Checksums","urn:alm:descriptor:com.tectonic.ui:select:Restore"}
	// +optional
	Verify Verification `json:"verify,omitempty"`

	// deletionPolicy of the RedisBackups that are made. Delete lets keepLast remove
	// the objects too.
	// +kubebuilder:default=Delete
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Retain","urn:alm:descriptor:com.tectonic.ui:select:Delete"}
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// RestoreSource is the backup that a new cluster starts from.
//
// +kubebuilder:validation:XValidation:rule="has(self.backupName) != (has(self.destination) || has(self.id)) && has(self.destination) == has(self.id)",message="set either backupName, or destination and id"
type RestoreSource struct {
	// backupName names a RedisBackup of this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=61
	// +operator-sdk:csv:customresourcedefinitions:type=spec,xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	BackupName string `json:"backupName,omitempty"`

	// destination is where the backup is kept, also when its RedisBackup is in
	// another namespace or another Kubernetes. Secrets and claims are those of this
	// namespace.
	// +operator-sdk:csv:customresourcedefinitions:type=spec
	// +optional
	Destination *BackupDestination `json:"destination,omitempty"`

	// id is the backup's folder there (status.id of its RedisBackup).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-_.A-Za-z0-9]*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Backup ID",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +optional
	ID string `json:"id,omitempty"`
}

// RestoreStatus is the backup that a cluster starts or has started from.
type RestoreStatus struct {
	// id is the backup's folder in its destination.
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Backup ID"
	ID string `json:"id"`
	// shards is the number of shards in the backup.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	Shards int32 `json:"shards"`
	// manifestSHA256 is the checksum of the backup's manifest.
	// +operator-sdk:csv:customresourcedefinitions:type=status
	// +optional
	ManifestSHA256 string `json:"manifestSHA256,omitempty"`
}
