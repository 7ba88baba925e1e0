package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// doctor does not tell root to become root.
func TestMissingCapability(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o755); err != nil {
		t.Fatal(err)
	}
	// All but CAP_SYS_RESOURCE, as many containers have it.
	if err := os.WriteFile(filepath.Join(root, "proc/self/status"), []byte("Name:\tx\nCapEff:\t000001fffeffffff\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: "--cap-add SYS_RESOURCE", 1000: "run as root"} {
		m := machine{root: root, uid: uid}
		missing := 0
		for _, c := range m.privilegeChecks() {
			if c.Status == checkOK {
				continue
			}
			missing++
			if c.Name != "CAP_SYS_RESOURCE" || c.Status != checkWarn || c.Detail != "missing" ||
				!strings.Contains(c.Remedy, want) ||
				!strings.Contains(c.Remedy, "limit of open files") {
				t.Errorf("user %d: %+v", uid, c)
			}
			if uid == 0 && strings.Contains(c.Remedy, "run as root") {
				t.Errorf("root is told to run as root: %s", c.Remedy)
			}
		}
		if missing != 1 {
			t.Errorf("user %d: %d are missing", uid, missing)
		}
	}
}
