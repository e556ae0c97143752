package main

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// claimOf is a claim with a volume, with what it asks for and what it has.
func claimOf(request, capacity string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "volume", Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}},
	}
}

func volumeOf(provisioner, capacity string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume", Annotations: map[string]string{provisionedBy: provisioner}},
		Spec:       corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}},
	}
}

func TestClaimsGetWhatTheyAskFor(t *testing.T) {
	for _, c := range []struct {
		name          string
		claim         *corev1.PersistentVolumeClaim
		volume        *corev1.PersistentVolume
		claims, holds string
	}{
		{"grows", claimOf("128Mi", "64Mi", corev1.ClaimBound), volumeOf(name, "64Mi"), "128Mi", "128Mi"},
		{"goes on after the first half", claimOf("128Mi", "64Mi", corev1.ClaimBound), volumeOf(name, "128Mi"), "128Mi", "128Mi"},
		{"never shrinks", claimOf("64Mi", "128Mi", corev1.ClaimBound), volumeOf(name, "128Mi"), "128Mi", "128Mi"},
		{"not bound yet", claimOf("128Mi", "0", corev1.ClaimPending), volumeOf(name, "64Mi"), "0", "64Mi"},
		{"somebody else's volume", claimOf("128Mi", "64Mi", corev1.ClaimBound), volumeOf("other", "64Mi"), "64Mi", "64Mi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := fake.NewClientset(c.claim, c.volume)
			if err := newResizer(client).resize(t.Context(), cache.MetaObjectToName(c.claim)); err != nil {
				t.Fatal(err)
			}
			claim, err := client.CoreV1().PersistentVolumeClaims("a").Get(t.Context(), "claim", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "volume", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := claim.Status.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse(c.claims)) != 0 {
				t.Errorf("the claim has %s, want %s", got.String(), c.claims)
			}
			if got := volume.Spec.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse(c.holds)) != 0 {
				t.Errorf("the volume holds %s, want %s", got.String(), c.holds)
			}
		})
	}
	if err := newResizer(fake.NewClientset()).resize(t.Context(), cache.NewObjectName("a", "gone")); err != nil {
		t.Errorf("a claim that is gone: %v", err)
	}
}

// TestRunSeesClaimsThatChange: from the event to the new size, until the end.
func TestRunSeesClaimsThatChange(t *testing.T) {
	client := fake.NewClientset(claimOf("64Mi", "64Mi", corev1.ClaimBound), volumeOf(name, "64Mi"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newResizer(client).run(ctx) }()
	claims := client.CoreV1().PersistentVolumeClaims("a")
	if _, err := claims.Update(t.Context(), claimOf("128Mi", "64Mi", corev1.ClaimBound), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := claims.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for deadline := time.After(20 * time.Second); ; {
		claim, err := claims.Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !wantsMore(claim) {
			break
		}
		select {
		case <-watch.ResultChan():
		case <-deadline:
			t.Fatalf("the claim still has %v", claim.Status.Capacity)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
