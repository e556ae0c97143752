package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// literals finds what a pattern matches in the Go files of a folder, tests left out.
func literals(t *testing.T, folder, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", folder, err)
	}
	var out []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, match[1])
		}
	}
	return out
}

// TestLabelSetsAreWhole: each kind of action, each phase and each Redis command that
// there is in the code is a value of its label, and no label has a value twice.
func TestLabelSetsAreWhole(t *testing.T) {
	var clusterCommands []string
	for _, word := range append(literals(t, "../redis", `"CLUSTER", "([A-Z-]+)"`), literals(t, "../redis", `slotsCommand\(ctx, "([A-Z-]+)"`)...) {
		clusterCommands = append(clusterCommands, "CLUSTER "+word)
	}
	for _, c := range []struct {
		label label
		used  []string
		least int
	}{
		{actionLabel, literals(t, "../topology", `Kind = "([A-Za-z]+)"`), 16},
		{phaseLabel, literals(t, "../../api/v1", `Phase[A-Za-z]+ +Phase += "([A-Za-z]+)"`), 9},
		{commandLabel, clusterCommands, 12},
		{commandLabel, literals(t, "../redis", `Cmd\(ctx, "(INFO|COMMAND|FUNCTION|ASKING|UNLINK|TIME|MIGRATE)"`), 6},
	} {
		if len(c.used) < c.least {
			t.Errorf("label %s: only %q found in the code", c.label.name, c.used)
		}
		for _, value := range c.used {
			if c.label.of(value) != value {
				t.Errorf("label %s has no value %q", c.label.name, value)
			}
		}
		for i, value := range c.label.values {
			if slices.Contains(c.label.values[:i], value) {
				t.Errorf("label %s has %q twice", c.label.name, value)
			}
		}
	}
	if commandLabel.of("SHUTDOWN") != Other {
		t.Error("a command outside of the set is not counted as another")
	}
}
