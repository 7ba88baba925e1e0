package criu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a program in the place of CRIU that writes down how it was called.
func fake(t *testing.T) (path, said string) {
	t.Helper()
	dir := t.TempDir()
	path, said = filepath.Join(dir, "criu"), filepath.Join(dir, "said")
	script := "#!/bin/sh\nexport -p >>" + said + "\necho \"called: $*\" >>" + said + "\necho Version: 4.1\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, said
}

// CRIU gets nothing of our environment, and every call of it that reads a configuration says that there is none.
func TestNothingConfigures(t *testing.T) {
	path, said := fake(t)
	t.Setenv("HOLDFAST_CRIU", path)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CRIU_CONFIG_FILE", "/tmp/evil.conf")
	t.Setenv("LD_LIBRARY_PATH", "/tmp/evil")
	c, err := Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"check", "dump", "restore"} {
		if err := c.run(context.Background(), c.args(verb), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"HOME", "CRIU_CONFIG_FILE", "LD_LIBRARY_PATH", "HOLDFAST_CRIU", "evil"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("CRIU is told %s:\n%s", bad, b)
		}
	}
	for _, verb := range []string{"check", "dump", "restore"} {
		if !strings.Contains(string(b), "called: "+verb+" --no-default-config") {
			t.Errorf("criu %s reads configuration files:\n%s", verb, b)
		}
	}
}

// The real one reads what lies in the home directory unless it is told not to.
func TestDefaultConfiguration(t *testing.T) {
	c := tool(t)
	home := t.TempDir()
	conf := filepath.Join(home, ".criu/default.conf")
	if err := os.MkdirAll(filepath.Dir(conf), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte("no-such-option-of-criu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("CRIU_CONFIG_FILE", conf)
	if err := c.Check(); err != nil {
		t.Errorf("a configuration file in HOME counts: %v", err)
	}
	// With such a HOME, --no-default-config alone has to do as well.
	cmd := c.command(context.Background(), c.args("check")...)
	cmd.Env = append(cmd.Env, "HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("criu reads its default configuration: %v\n%s", err, out)
	}
	cmd = c.command(context.Background(), "check")
	cmd.Env = append(cmd.Env, "HOME="+home)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the configuration of this test is no error to CRIU, so it proves nothing:\n%s", out)
	}
}

// A CRIU that somebody else can change does not run.
func TestForeignCRIU(t *testing.T) {
	path, said := fake(t)
	t.Setenv("HOLDFAST_CRIU", path)
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(nil); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Dir(path), 54321, 54321); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(nil); err == nil || !strings.Contains(err.Error(), "belongs to user 54321") {
			t.Errorf("%v", err)
		}
	}
	if b, err := os.ReadFile(said); err == nil {
		t.Errorf("it ran:\n%s", b)
	}
}
