package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryDegradationHasARunbook, and every runbook is of one.
func TestEveryDegradationHasARunbook(t *testing.T) {
	const dir = "../../docs/runbooks"
	var reasons []string
	for _, d := range degradations {
		reasons = append(reasons, d.reason)
		page, err := os.ReadFile(filepath.Join(dir, d.reason+".md"))
		if err != nil {
			t.Errorf("%s: %v", d.reason, err)
			continue
		}
		for _, part := range []string{"# " + d.reason + "\n", "**What it means.** ", "**What the operator does.** ", "**What you do.** ",
			"\nkubectl "} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s.md has no %q", d.reason, part)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !slices.Contains(reasons, strings.TrimSuffix(filepath.Base(page), ".md")) {
			t.Errorf("%s is about no reason of Degraded", page)
		}
	}
}
