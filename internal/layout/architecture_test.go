package layout

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architecture = "../../docs/architecture.md"

// The page has every package, and each imports only what stands below it there.
func TestArchitecture(t *testing.T) {
	page, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range misplaced(string(page), moduleImports(t)) {
		t.Errorf("docs/architecture.md: %s", bad)
	}
}

func TestArchitectureBites(t *testing.T) {
	page := "| title | |\n|---|---|\n| `internal/a` | one |\n| `internal/b`, `internal/c` | two |\n"
	bad := misplaced(page, map[string][]string{
		"internal/a": {"internal/b"},
		"internal/c": {"internal/a"},
		"internal/d": nil,
	})
	want := "internal/c stands below internal/a, which it imports; internal/d is not there"
	if got := strings.Join(bad, "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// misplaced says which packages are not in the tables of a page, or above what imports them.
func misplaced(page string, imports map[string][]string) (bad []string) {
	at := map[string]int{}
	var order []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(line[2:], "|")
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			at[m[1]] = len(order)
			order = append(order, m[1])
		}
	}
	for i, pkg := range order {
		for _, dep := range imports[pkg] {
			if j, ok := at[dep]; ok && j < i {
				bad = append(bad, pkg+" stands below "+dep+", which it imports")
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if _, ok := at[pkg]; !ok {
			bad = append(bad, pkg+" is not there")
		}
	}
	return bad
}
