package bundle

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"sigs.k8s.io/yaml"
)

// TestScorecardConfig: the six tests that come with scorecard, all at once, then the
// project's own, one after the other, from the image of this release.
func TestScorecardConfig(t *testing.T) {
	var config v1alpha3.Configuration
	if err := yaml.UnmarshalStrict([]byte(file(t, "bundle", "tests", "scorecard", "config.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Stages) != 2 || !config.Stages[0].Parallel || config.Stages[1].Parallel {
		t.Fatalf("%d stages, want a parallel one and one that is not: %+v", len(config.Stages), config.Stages)
	}
	version := load(t, current).CSV.Spec.Version.String()
	var got [2][]string
	for i, stage := range config.Stages {
		for _, test := range stage.Tests {
			got[i] = append(got[i], strings.Join(test.Entrypoint, " "))
			if !strings.HasSuffix(test.Labels["test"], "-test") || test.Labels["suite"] == "" {
				t.Errorf("%v has the labels %v", test.Entrypoint, test.Labels)
			}
			want := []string{"quay.io/operator-framework/scorecard-test:v1.42.3", "ghcr.io/example/redis-operator-scorecard:v" + version}[i]
			if test.Image != want {
				t.Errorf("%v runs in %s, want %s", test.Entrypoint, test.Image, want)
			}
		}
		slices.Sort(got[i])
	}
	want := [2][]string{
		{
			"scorecard-test basic-check-spec", "scorecard-test olm-bundle-validation", "scorecard-test olm-crds-have-resources",
			"scorecard-test olm-crds-have-validation", "scorecard-test olm-spec-descriptors", "scorecard-test olm-status-descriptors",
		},
		{"/scorecard backup-restore", "/scorecard cluster-lifecycle"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tests differ (-want +bundle):\n%s", diff)
	}
}
