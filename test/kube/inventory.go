package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Inventory is every object of a namespace, of any kind that can be listed, by
// "resource/name", with its resourceVersion. Events are left out, and what
// Kubernetes itself puts into each namespace.
func (k *Kube) Inventory(ctx context.Context, namespace string) (map[string]string, error) {
	kinds, err := k.listable()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, kind := range kinds {
		list, err := k.Metadata.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue // a kind that has just been removed
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			if key := kind.Resource + "/" + list.Items[i].Name; !givenToEach[key] {
				found[key] = list.Items[i].ResourceVersion
			}
		}
	}
	return found, nil
}

// givenToEach are the objects that Kubernetes makes in each namespace.
var givenToEach = map[string]bool{"configmaps/kube-root-ca.crt": true, "serviceaccounts/default": true}

// listable are the namespaced resources, each once.
func (k *Kube) listable() ([]schema.GroupVersionResource, error) {
	groups, err := k.Set.Discovery().ServerPreferredNamespacedResources()
	// An API service that is down hides its own kinds only.
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return nil, fmt.Errorf("list the kinds: %w", err)
	}
	var kinds []schema.GroupVersionResource
	for _, group := range groups {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("list the kinds: %w", err)
		}
		for _, r := range group.APIResources {
			if slices.Contains(r.Verbs, "list") && r.Name != "events" && !strings.Contains(r.Name, "/") {
				kinds = append(kinds, gv.WithResource(r.Name))
			}
		}
	}
	return kinds, nil
}

// Changes says in one line each what is new, gone or written to between two
// inventories.
func Changes(before, after map[string]string) []string {
	var changes []string
	for key, version := range after {
		switch old, ok := before[key]; {
		case !ok:
			changes = append(changes, key+" is new")
		case old != version:
			changes = append(changes, key+" was written to")
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			changes = append(changes, key+" is gone")
		}
	}
	slices.Sort(changes)
	return changes
}
