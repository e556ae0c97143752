package v1_test

import (
	"slices"
	"strings"
	"testing"
)

const (
	toClaim = "destination: {persistentVolumeClaim: {claimName: backups}}"
	toS3    = "destination: {s3: {bucket: backups, credentialsSecretName: store}}"
)

func backupManifest(spec string) string {
	return "{kind: RedisBackup, metadata: {name: nightly}, spec: {clusterName: orders, " + spec + "}}"
}

func TestBackupContract(t *testing.T) {
	crd := served(t, "redisbackups.redis.example.com")
	names := crd.Spec.Names
	if names.Kind != "RedisBackup" || names.Singular != "redisbackup" || !slices.Equal(names.ShortNames, []string{"rdb"}) || crd.Spec.Scope != "Namespaced" {
		t.Errorf("%s, names %+v", crd.Spec.Scope, names)
	}
	v1 := crd.Spec.Versions[0]
	if v1.Subresources.Status == nil {
		t.Error("status is no subresource")
	}
	var columns []string
	for _, c := range v1.AdditionalPrinterColumns {
		if c.Priority == 0 {
			columns = append(columns, c.Name)
		}
	}
	if want := []string{"Cluster", "Phase", "Size", "Duration", "Age"}; !slices.Equal(columns, want) {
		t.Errorf("columns %q, want %q", columns, want)
	}
	for _, part := range []string{"spec", "status"} {
		for name, field := range v1.Schema.OpenAPIV3Schema.Properties[part].Properties {
			if len(field.Description) < 10 {
				t.Errorf("%s.%s is described as %q", part, name, field.Description)
			}
		}
	}
}

func TestBackupDefaults(t *testing.T) {
	o := newUser(t).create(backupManifest(toClaim))
	spec := o.Object["spec"].(map[string]any)
	for field, want := range map[string]any{"compression": "Zstd", "deletionPolicy": "Retain", "verify": "Checksums", "activeDeadlineSeconds": int64(3600)} {
		if spec[field] != want {
			t.Errorf("%s is %v, want %v", field, spec[field], want)
		}
	}
}

func TestBackupIsRefused(t *testing.T) {
	cases := map[string]struct{ spec, says string }{
		"no destination":           {"compression: None", "spec.destination: Required value"},
		"an empty one":             {"destination: {}", "exactly one of s3 and persistentVolumeClaim must be set"},
		"two of them":              {"destination: {persistentVolumeClaim: {claimName: a}, s3: {bucket: abc, credentialsSecretName: b}}", "exactly one of s3 and persistentVolumeClaim must be set"},
		"no credentials":           {"destination: {s3: {bucket: backups}}", "spec.destination.s3.credentialsSecretName: Required value"},
		"a bucket in capitals":     {"destination: {s3: {bucket: Backups, credentialsSecretName: b}}", "spec.destination.s3.bucket"},
		"an endpoint without URL":  {"destination: {s3: {bucket: backups, credentialsSecretName: b, endpoint: 'minio:9000'}}", "spec.destination.s3.endpoint"},
		"an endpoint with a path":  {"destination: {s3: {bucket: backups, credentialsSecretName: b, endpoint: 'http://minio:9000/x'}}", "spec.destination.s3.endpoint"},
		"a prefix with slashes":    {"destination: {s3: {bucket: backups, credentialsSecretName: b, prefix: /redis/}}", "spec.destination.s3.prefix"},
		"a path out of the volume": {"destination: {persistentVolumeClaim: {claimName: a, subPath: ../x}}", "subPath is relative to the volume"},
		"another compression":      {toClaim + ", compression: Gzip", "spec.compression: Unsupported value"},
		"another verification":     {toClaim + ", verify: None", "spec.verify: Unsupported value"},
		"no time":                  {toClaim + ", activeDeadlineSeconds: 1", "spec.activeDeadlineSeconds"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			err := u.Create(t.Context(), u.object(backupManifest(tt.spec)))
			if got := strings.Join(refusal(err), "\n"); !strings.Contains(got, tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
	for name, says := range map[string]string{
		strings.Repeat("n", 62): "metadata.name has 62 characters, at most 61 are allowed",
		"a.b":                   "only lower-case letters, digits and dashes",
	} {
		u := newUser(t)
		o := u.object(backupManifest(toClaim))
		o.SetName(name)
		if got := strings.Join(refusal(u.Create(t.Context(), o)), "\n"); !strings.Contains(got, says) {
			t.Errorf("%s: %s, want %q", name, got, says)
		}
	}
}

func TestBackupCannotBeChanged(t *testing.T) {
	const fixed = "a backup cannot be changed, except for its deletionPolicy"
	cases := map[string]struct{ edit, says string }{
		"the cluster":         {"{spec: {clusterName: other}}", fixed},
		"the destination":     {"{spec: {destination: {persistentVolumeClaim: {claimName: other}}}}", fixed},
		"the compression":     {"{spec: {compression: None}}", fixed},
		"the verification":    {"{spec: {verify: Restore}}", fixed},
		"the time":            {"{spec: {activeDeadlineSeconds: 60}}", fixed},
		"the deletion policy": {"{spec: {deletionPolicy: Delete}}", ""},
		"labels":              {"{metadata: {labels: {a: b}}}", ""},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			err := u.edit(u.create(backupManifest(toClaim)), tt.edit)
			if got := strings.Join(refusal(err), "\n"); !strings.Contains(got, tt.says) || tt.says == "" && err != nil {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

func TestScheduleAndRestoreAreRefused(t *testing.T) {
	cases := map[string]struct{ spec, says string }{
		"no schedule":                   {"backup: {" + toS3 + "}", "spec.backup.schedule: Required value"},
		"four fields":                   {"backup: {schedule: '0 3 * *', " + toS3 + "}", "five fields of cron"},
		"every hour and a half":         {"backup: {schedule: '@every 90m', " + toS3 + "}", "five fields of cron"},
		"a zone in the schedule":        {"backup: {schedule: 'CRON_TZ=Europe/Berlin 0 3 * * *', " + toS3 + "}", "timeZone, not into schedule"},
		"nothing is kept":               {"backup: {schedule: '0 3 * * *', keepLast: 0, " + toS3 + "}", "spec.backup.keepLast"},
		"a restore from nothing":        {"restoreFrom: {}", "set either backupName, or destination and id"},
		"a restore from two":            {"restoreFrom: {backupName: a, id: b, " + toS3 + "}", "set either backupName, or destination and id"},
		"a restore without an id":       {"restoreFrom: {" + toS3 + "}", "set either backupName, or destination and id"},
		"a restore from an id nowhere":  {"restoreFrom: {id: b}", "set either backupName, or destination and id"},
		"a restore from another folder": {"restoreFrom: {id: ../b, " + toS3 + "}", "spec.restoreFrom.id"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			err := u.Create(t.Context(), u.object("{spec: {"+tt.spec+"}}"))
			if got := strings.Join(refusal(err), "\n"); !strings.Contains(got, tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
	edits := map[string]struct{ before, edit, says string }{
		"a restore added":   {"{spec: {}}", "{spec: {restoreFrom: {backupName: a}}}", "restoreFrom is for a new cluster"},
		"a restore removed": {"{spec: {restoreFrom: {backupName: a}}}", "{spec: {restoreFrom: null}}", "restoreFrom is for a new cluster"},
		"another restore":   {"{spec: {restoreFrom: {backupName: a}}}", "{spec: {restoreFrom: {backupName: b}}}", "restoreFrom is for a new cluster"},
		"a schedule added":  {"{spec: {}}", "{spec: {backup: {schedule: '@daily', " + toS3 + "}}}", ""},
	}
	for name, tt := range edits {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			err := u.edit(u.create(tt.before), tt.edit)
			if got := strings.Join(refusal(err), "\n"); !strings.Contains(got, tt.says) || tt.says == "" && err != nil {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}
