// Package v1 holds the API of the operator: the kinds of redis.example.com/v1,
// their validation (schema and CEL, no webhooks), and every condition type,
// reason and phase as an exported constant.
//
// +kubebuilder:object:generate=true
// +groupName=redis.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "redis.example.com", Version: "v1"}

	schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &RedisCluster{}, &RedisClusterList{}, &RedisBackup{}, &RedisBackupList{})
		metav1.AddToGroupVersion(s, GroupVersion)
		return nil
	})

	// AddToScheme registers the kinds of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)
