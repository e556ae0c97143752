package controllers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the operator's name as the field manager of what it applies.
const FieldOwner = "redis-operator"

// cacheLag is how long a missing object that was just made is taken for one
// that the cache does not show yet. After that the API server is asked.
const cacheLag = 5 * time.Second

// NameConflictError says that an object of this name exists and belongs to
// somebody else. It was not touched.
type NameConflictError struct {
	// Kind and Name of the object; it is in the namespace of the owner.
	Kind, Name string
	// Leftover is set when the object belongs to an earlier owner of the same
	// name: the garbage collector is about to remove it.
	Leftover bool
}

// Error says what is in the way.
func (e *NameConflictError) Error() string {
	if e.Leftover {
		return fmt.Sprintf("%s %q of the deleted owner of the same name is still there", e.Kind, e.Name)
	}
	return fmt.Sprintf("%s %q exists and belongs to somebody else", e.Kind, e.Name)
}

// Applier makes objects and keeps them as they are meant, by server-side apply
// with full intent. It sends nothing when nothing would change, and it never
// changes an object whose controller is not the given owner.
//
// The zero value of the unexported fields is ready for use. An Applier may be
// used by several goroutines at once, one at a time for each object.
type Applier struct {
	// Client writes.
	Client client.Client
	// APIReader reads live: what a label-selected cache may not show, and Secrets.
	APIReader client.Reader

	mu      sync.Mutex
	records map[types.NamespacedName]map[childKey]record
	clock   clock
}

// childKey names an object of an owner.
type childKey struct{ kind, name string }

// record is what the last look at an object, or the last write, told. It saves
// requests only: an operator that lost it decides the same.
type record struct {
	owner           types.UID
	uid             types.UID
	resourceVersion string
	// intent is the hash of what was wanted, owned that of what FieldOwner then
	// owned. They differ where the API server fills in defaults inside a field
	// that is applied as a whole.
	intent, owned [sha256.Size]byte
	// shown is set once the cache has shown this object.
	shown bool
	at    time.Time
}

// child is one wanted object.
type child struct {
	owner  client.Object
	gvk    schema.GroupVersionKind
	name   string
	intent []byte
	like   reflect.Type
	// live is set once the object was read past the cache.
	live bool
}

// Apply brings one object to the intent, an apply configuration of any kind
// with name, namespace, kind and owner reference set. cached is the object as
// the cache shows it, with its managed fields, or nil. It reports whether it
// changed anything, and blocks for at most three requests; none when the object
// is as it should be, or when a write is still on its way into the cache.
//
// An object that is being deleted is left alone: the pass that sees it gone
// makes it anew. The error is a *NameConflictError if the object exists and the
// owner is not its controller, and a conflict (apierrors.IsConflict) if it was
// replaced since the cache saw it: then the next pass decides.
func (a *Applier) Apply(ctx context.Context, owner, cached client.Object, intent runtime.ApplyConfiguration) (bool, error) {
	c, err := newChild(owner, intent)
	if err != nil {
		return false, err
	}
	if isNil(cached) {
		if a.unseen(c) {
			return false, nil
		}
		return a.create(ctx, c)
	}
	return a.update(ctx, c, cached)
}

// create makes an object that the cache does not show. The resource version
// that no object has makes the API server refuse if there is one all the same,
// which a forced apply would otherwise take over.
func (a *Applier) create(ctx context.Context, c *child) (bool, error) {
	_, err := a.send(ctx, c, map[string]any{"resourceVersion": "1"}, "")
	if apierrors.IsConflict(err) {
		return a.lookLive(ctx, c, err)
	}
	return err == nil, err
}

// update applies the intent to an object that exists, if something differs.
func (a *Applier) update(ctx context.Context, c *child, existing client.Object) (bool, error) {
	known, stale := a.known(c, existing)
	if known {
		return false, nil
	}
	if err := a.checkController(c.owner, existing, c.gvk.Kind); err != nil {
		return false, err
	}
	if existing.GetDeletionTimestamp() != nil {
		return false, nil
	}
	if !stale { // what an object was before the last write says nothing
		owned, err := c.ownedIn(existing)
		if err != nil {
			return false, err
		}
		if bytes.Equal(owned, c.intent) || a.defaulted(c, existing, owned) {
			a.remember(c, existing, owned, !c.live)
			return false, nil
		}
	}
	// The UID makes the API server refuse if another object has taken the name.
	changed, err := a.send(ctx, c, map[string]any{"uid": string(existing.GetUID())}, existing.GetResourceVersion())
	if apierrors.IsConflict(err) && !c.live {
		return a.lookLive(ctx, c, err)
	}
	return changed, err
}

// lookLive decides by the object as it is now, after a conflict with what the
// cache showed.
func (a *Applier) lookLive(ctx context.Context, c *child, conflict error) (bool, error) {
	c.live = true
	existing, err := a.object(c)
	if err != nil {
		return false, err
	}
	key := client.ObjectKey{Namespace: c.owner.GetNamespace(), Name: c.name}
	if err := a.APIReader.Get(ctx, key, existing); apierrors.IsNotFound(err) {
		return false, conflict // deleted in between: the next pass makes it
	} else if err != nil {
		return false, fmt.Errorf("get %s %s: %w", c.gvk.Kind, c.name, err)
	}
	return a.update(ctx, c, existing)
}

// send applies the intent with some more metadata and remembers the answer. It
// reports whether the object is another than at resource version was.
func (a *Applier) send(ctx context.Context, c *child, metadata map[string]any, was string) (bool, error) {
	data, err := c.patch(metadata)
	if err != nil {
		return false, err
	}
	applied, err := a.object(c)
	if err != nil {
		return false, err
	}
	applied.SetNamespace(c.owner.GetNamespace())
	applied.SetName(c.name)
	err = a.Client.Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner(FieldOwner))
	if otherUID(err) {
		err = apierrors.NewConflict(schema.GroupResource{Group: c.gvk.Group, Resource: c.gvk.Kind}, c.name, err)
	}
	if err != nil {
		return false, fmt.Errorf("apply %s %s: %w", c.gvk.Kind, c.name, err)
	}
	wrote(c.owner.GetName(), applied)
	owned, err := c.ownedIn(applied)
	if err != nil {
		return false, err
	}
	a.remember(c, applied, owned, false)
	return applied.GetResourceVersion() != was, nil
}

// EnsureSecret makes a Secret unless it exists and returns the one that there
// is. It is never written again: wanted usually holds a password that is new at
// each call. It reads live, Secrets are not cached. The error is a
// *NameConflictError if the Secret exists and the owner is not its controller.
func (a *Applier) EnsureSecret(ctx context.Context, owner client.Object, wanted *corev1.Secret) (*corev1.Secret, error) {
	key := client.ObjectKeyFromObject(wanted)
	existing := &corev1.Secret{}
	err := a.APIReader.Get(ctx, key, existing)
	if apierrors.IsNotFound(err) {
		made := wanted.DeepCopy()
		if err = a.Client.Create(ctx, made, client.FieldOwner(FieldOwner)); err == nil {
			return made, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create Secret %s: %w", key.Name, err)
		}
		err = a.APIReader.Get(ctx, key, existing)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key.Name, err)
	}
	if err := a.checkController(owner, existing, "Secret"); err != nil {
		return nil, err
	}
	return existing, nil
}

// Forget drops what is remembered of an owner that is gone.
func (a *Applier) Forget(owner types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, owner)
}

// checkController gives a *NameConflictError unless the owner is the object's
// controller, by UID: names and labels prove nothing.
func (a *Applier) checkController(owner, obj client.Object, kind string) error {
	ref := metav1.GetControllerOf(obj)
	if ref != nil && ref.UID == owner.GetUID() {
		return nil
	}
	conflict := &NameConflictError{Kind: kind, Name: obj.GetName()}
	if gvk, err := apiutil.GVKForObject(owner, a.Client.Scheme()); err == nil && ref != nil {
		conflict.Leftover = ref.APIVersion == gvk.GroupVersion().String() && ref.Kind == gvk.Kind && ref.Name == owner.GetName()
	}
	return conflict
}

// known tells, from memory alone, that an object is as it should be: it is the
// very one that was compared last, or it is older than a write of the same
// intent. stale is set if it is older than the last write of any intent.
func (a *Applier) known(c *child, obj client.Object) (known, stale bool) {
	r, ok := a.recall(c)
	if !ok {
		return false, false
	}
	same := r.intent == sha256.Sum256(c.intent)
	if obj.GetUID() == r.uid && obj.GetResourceVersion() == r.resourceVersion {
		if !r.shown && !c.live {
			r.shown = true
			a.store(c, r)
		}
		return same, false
	}
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), r.resourceVersion)
	stale = err == nil && order < 0
	return same && stale, stale
}

// unseen tells that an object is missing in the cache only because it was made
// a moment ago.
func (a *Applier) unseen(c *child) bool {
	r, ok := a.recall(c)
	return ok && !r.shown && r.intent == sha256.Sum256(c.intent) && a.clock.now().Sub(r.at) < cacheLag
}

// defaulted tells that what is owned is what the same intent led to before.
func (a *Applier) defaulted(c *child, obj client.Object, owned []byte) bool {
	r, ok := a.recall(c)
	return ok && r.uid == obj.GetUID() && r.intent == sha256.Sum256(c.intent) && r.owned == sha256.Sum256(owned)
}

func (a *Applier) recall(c *child) (record, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.records[client.ObjectKeyFromObject(c.owner)][c.key()]
	return r, ok && r.owner == c.owner.GetUID()
}

func (a *Applier) remember(c *child, obj client.Object, owned []byte, shown bool) {
	a.store(c, record{
		owner: c.owner.GetUID(), uid: obj.GetUID(), resourceVersion: obj.GetResourceVersion(),
		intent: sha256.Sum256(c.intent), owned: sha256.Sum256(owned), shown: shown, at: a.clock.now(),
	})
}

func (a *Applier) store(c *child, r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	owner := client.ObjectKeyFromObject(c.owner)
	if a.records == nil {
		a.records = map[types.NamespacedName]map[childKey]record{}
	}
	if a.records[owner] == nil {
		a.records[owner] = map[childKey]record{}
	}
	a.records[owner][c.key()] = r
}

// object is an empty object of a child's kind.
func (a *Applier) object(c *child) (client.Object, error) {
	obj, err := a.Client.Scheme().New(c.gvk)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", c.gvk.Kind, err)
	}
	o, ok := obj.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %s is no object with metadata", c.gvk.Kind)
	}
	return o, nil
}

// newChild reads what Apply needs from an apply configuration.
func newChild(owner client.Object, intent runtime.ApplyConfiguration) (*child, error) {
	ac, ok := intent.(interface {
		GetName() *string
		GetKind() *string
		GetAPIVersion() *string
	})
	if !ok || ac.GetName() == nil || ac.GetKind() == nil || ac.GetAPIVersion() == nil {
		return nil, fmt.Errorf("apply: a %T needs a name, a kind and an API version", intent)
	}
	data, err := json.Marshal(intent)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", *ac.GetKind(), *ac.GetName(), err)
	}
	return &child{
		owner: owner, gvk: schema.FromAPIVersionAndKind(*ac.GetAPIVersion(), *ac.GetKind()),
		name: *ac.GetName(), intent: data, like: reflect.TypeOf(intent).Elem(),
	}, nil
}

func (c *child) key() childKey { return childKey{kind: c.gvk.Kind, name: c.name} }

// patch is the intent with some more metadata.
func (c *child) patch(metadata map[string]any) ([]byte, error) {
	var content map[string]any
	if err := json.Unmarshal(c.intent, &content); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", c.gvk.Kind, c.name, err)
	}
	meta, _ := content["metadata"].(map[string]any)
	for name, value := range metadata {
		meta[name] = value
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", c.gvk.Kind, c.name, err)
	}
	return data, nil
}

// ownedIn is what FieldOwner owns in an object, in the form of the intent.
func (c *child) ownedIn(obj client.Object) ([]byte, error) {
	owned, err := ownedFields(obj, c.gvk, FieldOwner, c.like)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.gvk.Kind, err)
	}
	return owned, nil
}

// otherUID tells that the API server refused an apply because the object of
// that name has another UID, which it reports as an invalid change of the UID.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// isNil tells whether an object is missing, be it a nil interface or the nil
// pointer that a map of a kind's objects gives for an unknown name.
func isNil(obj client.Object) bool {
	return obj == nil || reflect.ValueOf(obj).IsNil()
}
