package manifests

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// clusters are the ones whose objects are kept in testdata/<name>. Only the
// first one has all its objects there, the others what differs.
var clusters = []struct {
	name    string
	all     bool
	cluster *redisv1.RedisCluster
}{
	{"minimal", true, newCluster(func(*redisv1.RedisClusterSpec) {})},
	{"storage", false, newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Storage = &redisv1.StorageSpec{Size: resource.MustParse("8Gi"), StorageClassName: new("fast"), Retain: new(false)}
		s.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("4Gi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")},
		}
	})},
	{"valkey", false, newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Engine, s.Version = redisv1.EngineValkey, "9.1"
		s.Config = map[string]redisv1.ConfigValue{"maxmemory-policy": "allkeys-lru", "save": "", "client-output-buffer-limit": "pubsub 64mb 16mb 60"}
	})},
	{"auth-disabled", false, newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Auth = &redisv1.AuthSpec{Disabled: true}
	})},
	{"auth-secret", false, newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Auth = &redisv1.AuthSpec{SecretName: "team-login"}
	})},
	{"scheduling", false, newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Image, s.ImagePullPolicy = "registry.internal:5000/mirror/redis@sha256:0123", corev1.PullAlways
		s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "other"}}
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}},
			}}},
		}}
		s.NodeSelector = map[string]string{"pool": "redis", "arch": "amd64"}
		s.Tolerations = []corev1.Toleration{{Key: "redis", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(30))}}
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule},
			{MaxSkew: 2, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
		}
		s.PriorityClassName = "databases"
		s.PodLabels = map[string]redisv1.LabelValue{"team": "a", LabelInstance: "never"}
		s.PodAnnotations = map[string]string{"example.org/scrape": "true", "example.org/about": "Redis"}
		s.PodSecurityContext = &corev1.PodSecurityContext{}
	})},
}

// newBackup is a backup of newCluster's cluster, to a bucket.
func newBackup(verify redisv1.Verification) *redisv1.RedisBackup {
	return &redisv1.RedisBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "shop", UID: "99999999-2222-3333-4444-555555555555"},
		Spec: redisv1.RedisBackupSpec{
			ClusterName: "orders", Compression: redisv1.CompressionZstd, Verify: verify,
			Destination: redisv1.BackupDestination{S3: &redisv1.S3Destination{
				Bucket: "backups", Prefix: "a/b", Endpoint: "https://minio:9000", Region: "eu", PathStyle: true, CredentialsSecretName: "login", CASecretName: "authority",
			}},
		},
	}
}

func newCluster(set func(*redisv1.RedisClusterSpec)) *redisv1.RedisCluster {
	c := &redisv1.RedisCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "11111111-2222-3333-4444-555555555555"},
		Spec:       redisv1.RedisClusterSpec{Replicas: new(int32(6)), Version: "8.0", Engine: redisv1.EngineRedis},
	}
	set(&c.Spec)
	return c
}

// built are the objects of a cluster, by the name of their golden file.
func built(c *redisv1.RedisCluster, all bool) map[string]any {
	objects := map[string]any{
		"statefulset": StatefulSet(c, 1, 2, ""),
		"configmap":   ConfigMap(c, UserDirectives(&c.Spec), ""),
	}
	if all {
		objects["service-client"] = ClientService(c)
		objects["service-headless"] = HeadlessService(c)
		objects["poddisruptionbudget"] = PodDisruptionBudget(c, 1)
		objects["networkpolicy"] = NetworkPolicy(c)
		objects["secret-auth"] = AuthSecret(c, "PASSWORD")
		objects["secret-operator"] = OperatorSecret(c, "PASSWORD")
	}
	maps.Copy(objects, tasks(c, all))
	return objects
}

// tasks are what backs a cluster up and what fills it from a backup.
func tasks(c *redisv1.RedisCluster, all bool) map[string]any {
	const image = "operator:1"
	b := newBackup(redisv1.VerifyRestore)
	objects := map[string]any{"job-backup-verified": BackupJob(b, c, image, 3600)}
	if all {
		volume := Seeding{ID: "nightly-99999999", Image: image, Destination: &redisv1.BackupDestination{
			PersistentVolumeClaim: &redisv1.ClaimDestination{ClaimName: "backups", SubPath: "redis"},
		}}
		bucket := Seeding{ID: volume.ID, Image: image, Destination: &b.Spec.Destination}
		serve := ServeJob(c, volume)
		objects["job-backup"] = BackupJob(newBackup(redisv1.VerifyChecksums), c, image, 3600)
		objects["job-delete"] = DeleteJob(b, nil, image)
		objects["job-inspect"] = InspectJob(c, bucket)
		objects["job-serve"] = serve
		objects["service-serve"] = ServeService(c, serve)
		for name, s := range map[string]Seeding{"bucket": bucket, "volume": volume} {
			set := StatefulSet(c, 1, 2, "")
			s.Seed(set, c, 1)
			objects["statefulset-seeded-from-"+name] = set
		}
	}
	return objects
}

func TestGolden(t *testing.T) {
	for _, test := range clusters {
		t.Run(test.name, func(t *testing.T) {
			before := test.cluster.DeepCopy()
			again := built(test.cluster.DeepCopy(), test.all)
			for name, object := range built(test.cluster, test.all) {
				got := toYAML(t, object)
				if second := toYAML(t, again[name]); !bytes.Equal(got, second) {
					t.Errorf("%s differs when it is built again:\n%s\n%s", name, got, second)
				}
				compare(t, filepath.Join("testdata", test.name, name+".yaml"), got)
			}
			if !reflect.DeepEqual(before, test.cluster) {
				t.Errorf("the builders changed the cluster: %+v", test.cluster)
			}
		})
	}
}

// toYAML is an object as it would be sent, with the scripts by name only.
func toYAML(t *testing.T, object any) []byte {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := yaml.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	if plain["kind"] == "ConfigMap" {
		files := plain["data"].(map[string]any)
		for name, text := range map[string]string{startFile: startScript, guardFile: guardScript, readyFile: readyScript, preStopFile: preStopScript} {
			if files[name] != text {
				t.Errorf("%s of the ConfigMap is not scripts/%s", name, name)
			}
			files[name] = "scripts/" + name
		}
	}
	if data, err = yaml.Marshal(plain); err != nil {
		t.Fatal(err)
	}
	return data
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./internal/manifests -update writes the golden files)", err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s differs; if that is meant, go test ./internal/manifests -update:\n%s", file, firstDifference(string(want), string(got)))
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "want " + a[i] + "\ngot  " + b[i]
		}
	}
	return "one of the two is longer"
}

// TestNoStrayGoldenFile fails on a file that no test reads any more.
func TestNoStrayGoldenFile(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, test := range clusters {
		for name := range built(test.cluster, test.all) {
			read[filepath.Join("testdata", test.name, name+".yaml")] = true
		}
	}
	for _, file := range files {
		if !read[file] {
			t.Errorf("%s belongs to no object", file)
		}
	}
	if len(files) != len(read) {
		t.Errorf("%d golden files, want %d", len(files), len(read))
	}
}
