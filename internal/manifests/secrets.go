package manifests

import (
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// NewPassword makes a password of 52 capital letters and digits from 256 bits
// of the system's secure random source. It cannot fail.
func NewPassword() string { return rand.Text() + rand.Text() }

// AuthSecret builds the Secret with the password of Redis's default user, the
// one that clients use. It is created once and never applied: the password
// would change. It means nothing when spec.auth names a Secret or disables auth.
func AuthSecret(c *redisv1.RedisCluster, password string) *corev1.Secret {
	return secret(c, AuthSecretName(c), map[string][]byte{redisv1.AuthPasswordKey: []byte(password)})
}

// OperatorSecret builds the Secret with the login of the operator and of the
// replicas. The start script accepts letters and digits only in the password.
// It is created once and never applied: the password would change.
func OperatorSecret(c *redisv1.RedisCluster, password string) *corev1.Secret {
	return secret(c, OperatorSecretName(c), map[string][]byte{
		OperatorUserKey:     []byte(OperatorUser),
		OperatorPasswordKey: []byte(password),
	})
}

func secret(c *redisv1.RedisCluster, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       c.Namespace,
			Labels:          Labels(c),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, redisv1.GroupVersion.WithKind("RedisCluster"))},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}
