package kube

import (
	"context"
	"fmt"
	"net"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

const (
	// StoreImage is an S3 server (versitygw), which must have been loaded.
	StoreImage = "versitygw:e2e"
	// StoreBucket is the bucket that a Store has.
	StoreBucket = "backups"

	storeName   = "s3"
	storePort   = "7070"
	storeKey    = "operator"
	storeSecret = "not-a-secret"
)

// Store is an S3 server in a namespace, at http://s3:7070, with an empty bucket and a
// Secret "s3" that holds its login.
type Store struct {
	// Client talks to it from here.
	Client *minio.Client
	// Pod is the server's.
	Pod *corev1.Pod
}

// StartStore makes a Store and blocks until it serves, or the context ends.
func (k *Kube) StartStore(ctx context.Context, namespace string) (*Store, error) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: storeName, Labels: map[string]string{"app": storeName}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: storeName, Image: StoreImage, ImagePullPolicy: corev1.PullNever,
			Args:           []string{"--port", ":" + storePort, "--access", storeKey, "--secret", storeSecret, "posix", "--sidecar", "/meta", "/data"},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.Parse(storePort)}}, PeriodSeconds: 1},
			VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "meta", MountPath: "/meta"}},
		}},
		Volumes: []corev1.Volume{{Name: "data"}, {Name: "meta"}},
	}}
	Restrict(&pod.Spec)
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: meta.Labels, Ports: []corev1.ServicePort{{Port: intstr.Parse(storePort).IntVal}}}}
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"accessKeyID": storeKey, "secretAccessKey": storeSecret}}
	for _, o := range []client.Object{pod, service, secret} {
		if err := k.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("make the S3 server: %w", err)
		}
	}
	err := Await(ctx, nil, "the S3 server is ready", func(ctx context.Context) (string, error) {
		if err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return "", fmt.Errorf("get the Pod of the S3 server: %w", err)
		}
		if !Ready(pod) {
			return string(pod.Status.Phase), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	c, err := minio.New(net.JoinHostPort(pod.Status.PodIP, storePort), &minio.Options{
		Creds: credentials.NewStaticV4(storeKey, storeSecret, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
	})
	if err == nil {
		err = c.MakeBucket(ctx, StoreBucket, minio.MakeBucketOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("make a bucket: %w", err)
	}
	return &Store{Client: c, Pod: pod}, nil
}

// Restrict makes a Pod meet the Pod Security Standard "restricted".
func Restrict(pod *corev1.PodSpec) {
	id := int64(999)
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: &id, FSGroup: &id, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for i := range pod.Containers {
		pod.Containers[i].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
}

// Destination is the bucket for backups.
func (s *Store) Destination() redisv1.BackupDestination {
	return redisv1.BackupDestination{S3: &redisv1.S3Destination{
		Bucket: StoreBucket, Prefix: "some/prefix", Endpoint: "http://" + storeName + ":" + storePort, PathStyle: true, CredentialsSecretName: storeName,
	}}
}
