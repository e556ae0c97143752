package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// beat is how often a test looks whether something has happened.
const beat = time.Second

// toGo is how long an object may take to go.
const toGo = 2 * time.Minute

// stage is where a test plays: a namespace, and the example in the bundle that new
// clusters are made of.
type stage struct {
	client.Client
	namespace string
	example   *redisv1.RedisCluster
	// patience is how long one step may take.
	patience time.Duration
	// made is what the test has made, to be removed in the end.
	made             []client.Object
	log, suggestions []string
}

// newStage reaches the cluster that this Pod runs in. The bundle is in a folder.
func newStage(namespace, bundle string) (*stage, error) {
	if namespace == "" {
		return nil, fmt.Errorf("%s is not set: this is a test for `operator-sdk scorecard`", namespaceVariable)
	}
	example, err := exampleOf(bundle)
	if err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster's configuration: %w", err)
	}
	config.QPS = -1 // a wait for the client's own limit would be told as the reason
	scheme := runtime.NewScheme()
	if err := errors.Join(autoscalingv1.AddToScheme(scheme), corev1.AddToScheme(scheme), redisv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make a scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return &stage{Client: c, namespace: namespace, example: example, patience: 4 * time.Minute}, nil
}

// exampleOf is the RedisCluster that the bundle offers to begin with.
func exampleOf(bundle string) (*redisv1.RedisCluster, error) {
	const key = "operatorframework.io/initialization-resource"
	files, err := filepath.Glob(filepath.Join(bundle, "manifests", "*.clusterserviceversion.yaml"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("the bundle in %s has %d ClusterServiceVersions, want one", bundle, len(files))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	var csv struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := yaml.Unmarshal(data, &csv); err != nil {
		return nil, fmt.Errorf("read the bundle: %s: %w", files[0], err)
	}
	example := &redisv1.RedisCluster{}
	if err := json.Unmarshal([]byte(csv.Metadata.Annotations[key]), example); err != nil {
		return nil, fmt.Errorf("read the annotation %s of the bundle: %w", key, err)
	}
	return example, nil
}

func (s *stage) say(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// suggest says once what a person can do.
func (s *stage) suggest(format string, args ...any) {
	s.suggestions = append(s.suggestions, fmt.Sprintf(format, args...))
}

// cluster is the bundle's example with another name and size.
func (s *stage) cluster(name string, replicas int32) *redisv1.RedisCluster {
	c := s.example.DeepCopy()
	c.Name, c.Namespace, c.Spec.Replicas = name, s.namespace, &replicas
	return c
}

// create makes an object, after what an earlier run has left of that name is gone.
func (s *stage) create(ctx context.Context, o client.Object) error {
	if err := s.remove(ctx, o); err != nil {
		return err
	}
	if err := s.Create(ctx, o); err != nil {
		return fmt.Errorf("create %s: %w", o.GetName(), err)
	}
	s.made = append(s.made, o)
	s.say("%s is created", o.GetName())
	return nil
}

// remove deletes an object and waits until it is gone.
func (s *stage) remove(ctx context.Context, o client.Object) error {
	gone, isObject := o.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("delete %s: it is no object", o.GetName())
	}
	if err := s.Delete(ctx, gone); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return s.await(ctx, toGo, o.GetName()+" goes", func(ctx context.Context) (string, error) {
		err := s.Get(ctx, client.ObjectKeyFromObject(o), gone)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return fmt.Sprintf("it is there, with the finalizers %q", gone.GetFinalizers()), err
	})
}

// tidyUp removes what the test has made, the last first, also when its time is over.
func (s *stage) tidyUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), toGo)
	defer cancel()
	var errs []error
	for i := len(s.made) - 1; i >= 0; i-- {
		if err := s.remove(ctx, s.made[i]); err != nil {
			errs = append(errs, fmt.Errorf("tidy up: %w", err))
		}
	}
	return errors.Join(errs...)
}

// await looks until nothing is pending. In the end it says what was.
func (s *stage) await(ctx context.Context, patience time.Duration, what string, look func(context.Context) (pending string, err error)) error {
	begin := time.Now()
	pending := "it was not looked at"
	err := wait.PollUntilContextTimeout(ctx, beat, patience, true, func(ctx context.Context) (bool, error) {
		now, err := look(ctx)
		if apierrors.IsForbidden(err) {
			return false, err // it will stay so
		}
		if err != nil {
			now = err.Error()
		}
		if ctx.Err() == nil { // otherwise what was seen before counts
			pending = now
		}
		return pending == "", nil
	})
	switch {
	case err == nil:
		s.say("%s: after %s", what, time.Since(begin).Round(time.Second))
		return nil
	case wait.Interrupted(err):
		return fmt.Errorf("%s: not within %s: %s", what, time.Since(begin).Round(time.Second), pending)
	}
	return fmt.Errorf("%s: %w", what, err)
}
