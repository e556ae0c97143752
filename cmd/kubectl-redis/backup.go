package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// pollInterval is the beat at which a verb that waits looks again.
const pollInterval = 500 * time.Millisecond

// backupOptions are the flags of `backup`.
type backupOptions struct {
	name    string
	s3      redisv1.S3Destination
	claim   redisv1.ClaimDestination
	verify  bool
	retain  string
	wait    bool
	timeout time.Duration
}

// backupView is what `backup` shows.
type backupView struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Phase     redisv1.BackupPhase `json:"phase,omitempty"`
	Message   string              `json:"message,omitempty"`
	Location  string              `json:"location,omitempty"`
	Size      string              `json:"size,omitempty"`
	Keys      int64               `json:"keys,omitempty"`
}

func newBackup(p *plugin) *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use:   "backup NAME",
		Short: "Take a backup of a cluster now",
		Long: `Take a backup of the cluster NAME now: make a RedisBackup and wait for its end. It goes where spec.backup.destination of
the cluster says, or where the flags say.

Rights: create redisbackups; get redisclusters unless the flags name the destination; get redisbackups unless --wait=false.
Exits with 3 when the backup has failed or the time is up.`,
		Args:              oneName,
		ValidArgsFunction: p.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.backup(cmd.Context(), &o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "Name of the RedisBackup; empty: the cluster's with the time.")
	f.StringVar(&o.claim.ClaimName, "claim", "", "Keep it on this PersistentVolumeClaim.")
	f.StringVar(&o.claim.SubPath, "sub-path", "", "Folder of the claim.")
	f.StringVar(&o.s3.Bucket, "bucket", "", "Keep it in this S3 bucket.")
	f.StringVar(&o.s3.Prefix, "prefix", "", "Prefix in the bucket.")
	f.StringVar(&o.s3.Endpoint, "endpoint", "", "URL of the S3 server; empty: Amazon's.")
	f.StringVar(&o.s3.Region, "region", "", "Region of the bucket.")
	f.BoolVar(&o.s3.PathStyle, "path-style", false, "Put the bucket into the path, as most S3 servers other than Amazon's want.")
	f.StringVar(&o.s3.CredentialsSecretName, "credentials", "", "Secret with accessKeyID and secretAccessKey for the bucket.")
	f.StringVar(&o.s3.CASecretName, "ca", "", "Secret whose ca.crt the S3 server is trusted by.")
	f.BoolVar(&o.verify, "verify", false, "Load the finished backup into a server, to see that it can be restored.")
	f.StringVar(&o.retain, "deletion-policy", "", "Retain or Delete: what becomes of the objects when the RedisBackup is deleted.")
	f.BoolVar(&o.wait, "wait", true, "Wait until the backup has ended.")
	f.DurationVar(&o.timeout, "timeout", time.Hour, "How long to wait; the backup goes on after that.")
	return cmd
}

// destination is what the flags say; false when they say nothing.
func (o *backupOptions) destination() (d redisv1.BackupDestination, said bool, err error) {
	s3, claim := o.s3 != redisv1.S3Destination{}, o.claim != redisv1.ClaimDestination{}
	switch {
	case s3 && claim:
		return d, false, usageError{errors.New("a backup is kept on a claim or in a bucket, not both")}
	case s3 && (o.s3.Bucket == "" || o.s3.CredentialsSecretName == ""):
		return d, false, usageError{errors.New("--bucket and --credentials belong together")}
	case claim && o.claim.ClaimName == "":
		return d, false, usageError{errors.New("--sub-path needs --claim")}
	case s3:
		d.S3 = &o.s3
	case claim:
		d.PersistentVolumeClaim = &o.claim
	}
	return d, s3 || claim, nil
}

func (p *plugin) backup(ctx context.Context, o *backupOptions, name string) error {
	destination, said, err := o.destination()
	if err != nil {
		return err
	}
	c, _, namespace, err := p.connect()
	if err != nil {
		return err
	}
	b := &redisv1.RedisBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name},
		Spec:       redisv1.RedisBackupSpec{ClusterName: name, Destination: destination, DeletionPolicy: redisv1.DeletionPolicy(o.retain)},
	}
	if !said {
		rc, err := cluster(ctx, c, namespace, name)
		if err != nil {
			return err
		}
		if rc.Spec.Backup == nil {
			return usageError{fmt.Errorf("%s has no spec.backup.destination: say where to keep the backup with --bucket or --claim", name)}
		}
		b.Spec.Destination, b.Spec.Compression, b.Spec.Verify = *rc.Spec.Backup.Destination.DeepCopy(), rc.Spec.Backup.Compression, rc.Spec.Backup.Verify
	}
	if b.Name == "" {
		b.Name = name + "-" + time.Now().UTC().Format("20060102-150405")
	}
	if o.verify {
		b.Spec.Verify = redisv1.VerifyRestore
	}
	if err := c.Create(ctx, b); err != nil {
		return fmt.Errorf("create RedisBackup: %w", err)
	}
	if o.wait {
		err = awaitBackup(ctx, c, b, o.timeout)
	}
	v := backupView{Namespace: namespace, Name: b.Name, Phase: b.Status.Phase, Location: b.Status.Location, Size: b.Status.Size, Keys: b.Status.Keys}
	if complete := meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete); complete != nil {
		v.Message = complete.Message
	}
	return errors.Join(p.print(v, func() error { return v.text(p) }), err)
}

func (v *backupView) text(p *plugin) error {
	line := "made"
	if v.Phase != "" {
		line = fmt.Sprintf("%s: %s", v.Phase, v.Message)
	}
	if v.Size != "" {
		line += fmt.Sprintf(" (%s)", v.Size)
	}
	_, err := fmt.Fprintf(p.Out, "redisbackup/%s %s\n", v.Name, line)
	return err
}

// awaitBackup waits for the end of a backup, and keeps what it last saw of it.
func awaitBackup(ctx context.Context, c client.Reader, b *redisv1.RedisBackup, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		latest := &redisv1.RedisBackup{}
		switch err := c.Get(ctx, client.ObjectKeyFromObject(b), latest); {
		case ctx.Err() != nil:
			return notSoError{fmt.Errorf("backup %s has not ended within %s; it goes on", b.Name, limit)}
		case err != nil:
			return fmt.Errorf("get RedisBackup: %w", err)
		}
		*b = *latest
		if b.Status.Phase == redisv1.BackupFailed {
			return notSoError{fmt.Errorf("backup %s has failed", b.Name)}
		}
		if b.Done() {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}
