package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	"sigs.k8s.io/yaml"
)

// edges is the upgrade graph, as docs/release.md has it: by channel each release and
// what it replaces.
var edges = map[string]map[string]string{
	"v0":   {"redis-operator.v0.1.0": "", "redis-operator.v0.2.0": "redis-operator.v0.1.0"},
	"v0.1": {"redis-operator.v0.1.0": ""},
	"v0.2": {"redis-operator.v0.2.0": "redis-operator.v0.1.0"},
}

const (
	defaultChannel = "stable-v0.2"
	bundleImages   = "ghcr.io/example/redis-operator-bundle:v"
)

func catalog(t *testing.T) *declcfg.DeclarativeConfig {
	t.Helper()
	c, err := declcfg.LoadFS(t.Context(), os.DirFS(filepath.Join(root, "catalog", "redis-operator")))
	if err != nil {
		t.Fatalf("read the catalog: %v", err)
	}
	return c
}

// TestCatalogIsValid: as `opm validate` does it.
func TestCatalogIsValid(t *testing.T) {
	model, err := declcfg.ConvertToModel(*catalog(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Validate(); err != nil {
		t.Error(err)
	}
	p := model["redis-operator"]
	if p == nil || len(model) != 1 {
		t.Fatalf("%d packages, want redis-operator alone", len(model))
	}
	if p.DefaultChannel.Name != defaultChannel {
		t.Errorf("the default channel is %s, want %s", p.DefaultChannel.Name, defaultChannel)
	}
	for name, channel := range p.Channels {
		head, err := channel.Head()
		if err != nil {
			t.Errorf("channel %s has no head: %v", name, err)
			continue
		}
		if head.Image == "" || len(head.RelatedImages) == 0 {
			t.Errorf("%s in %s has no image, or no related images", head.Name, name)
		}
	}
}

// TestUpgradeGraph: the channels and edges are the intended ones.
func TestUpgradeGraph(t *testing.T) {
	want, got := map[string]map[string]string{}, map[string]map[string]string{}
	for _, stream := range []string{"candidate", "fast", "stable"} {
		for version, entries := range edges {
			want[stream+"-"+version] = entries
		}
	}
	for _, c := range catalog(t).Channels {
		got[c.Name] = map[string]string{}
		for _, e := range c.Entries {
			if len(e.Skips) > 0 || e.SkipRange != "" {
				t.Errorf("%s in %s skips %v %s, which no release has asked for", e.Name, c.Name, e.Skips, e.SkipRange)
			}
			got[c.Name][e.Name] = e.Replaces
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the upgrade graph differs (-want +catalog):\n%s", diff)
	}
}

// TestCatalogHoldsTheBundles: it was rendered from the bundles as they are now.
func TestCatalogHoldsTheBundles(t *testing.T) {
	c := catalog(t)
	folders := bundles(t)
	if len(c.Bundles) != len(folders) {
		t.Errorf("the catalog has %d bundles, there are %d", len(c.Bundles), len(folders))
	}
	for _, dir := range folders {
		b := load(t, dir)
		i := slices.IndexFunc(c.Bundles, func(x declcfg.Bundle) bool { return x.Name == b.CSV.Name })
		if i < 0 {
			t.Errorf("%s is not in the catalog: add it to catalog/template.yaml and run `make catalog`", b.CSV.Name)
			continue
		}
		rendered := c.Bundles[i]
		version := b.CSV.Spec.Version.String()
		if want := bundleImages + version; rendered.Image != want {
			t.Errorf("%s has the image %s, want %s", b.CSV.Name, rendered.Image, want)
		}
		var gvks []property.Property
		for _, crd := range b.V1CRDs {
			gvks = append(gvks, property.MustBuildGVK(crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Kind))
		}
		want := append(gvks, property.MustBuildPackage("redis-operator", version), property.MustBuildCSVMetadata(*b.CSV))
		if diff := cmp.Diff(byType(t, want), byType(t, rendered.Properties)); diff != "" {
			t.Errorf("%s differs (-bundle +catalog), run `make catalog`:\n%s", b.CSV.Name, diff)
		}
		images := map[string]bool{rendered.Image: true, b.CSV.Annotations["containerImage"]: true}
		for _, r := range b.CSV.Spec.RelatedImages {
			images[r.Image] = true
		}
		got := map[string]bool{}
		for _, r := range rendered.RelatedImages {
			got[r.Image] = true
		}
		if diff := cmp.Diff(images, got); diff != "" {
			t.Errorf("the images of %s differ (-bundle +catalog), run `make catalog`:\n%s", b.CSV.Name, diff)
		}
		var channels []string
		for _, ch := range c.Channels {
			if slices.ContainsFunc(ch.Entries, func(e declcfg.ChannelEntry) bool { return e.Name == b.CSV.Name }) {
				channels = append(channels, ch.Name)
			}
		}
		slices.Sort(channels)
		annotated := slices.Sorted(slices.Values(b.Channels))
		if !slices.Equal(channels, annotated) {
			t.Errorf("%s is in the channels %v, its annotations say %v", b.CSV.Name, channels, annotated)
		}
		if !slices.Contains(channels, b.DefaultChannel) {
			t.Errorf("%s has the default channel %q, which the catalog does not have it in", b.CSV.Name, b.DefaultChannel)
		}
	}
}

// byType brings properties to one order and one form.
func byType(t *testing.T, properties []property.Property) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, p := range properties {
		key := p.Type
		if p.Type == property.TypeGVK {
			key += string(p.Value)
		}
		out[key] = asJSON(t, p.Value)
	}
	return out
}

// TestTemplate: a release is taken out of no channel, and what is stable is in all.
func TestTemplate(t *testing.T) {
	type stream struct {
		Bundles []struct{ Image string } `json:"bundles"`
	}
	var template struct{ Candidate, Fast, Stable stream }
	if err := yaml.Unmarshal([]byte(file(t, "catalog", "template.yaml")), &template); err != nil {
		t.Fatal(err)
	}
	in := func(s stream, image string) bool {
		return slices.ContainsFunc(s.Bundles, func(b struct{ Image string }) bool { return b.Image == image })
	}
	for _, dir := range bundles(t) {
		image := bundleImages + load(t, dir).CSV.Spec.Version.String()
		if !in(template.Candidate, image) {
			t.Errorf("catalog/template.yaml does not have %s in candidate", image)
		}
		if in(template.Stable, image) && !in(template.Fast, image) || in(template.Fast, image) && !in(template.Candidate, image) {
			t.Errorf("catalog/template.yaml promotes %s without the stream before", image)
		}
	}
}
