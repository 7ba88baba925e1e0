// Package criu checkpoints and restores the CPU side of a process tree with CRIU 4 (https://criu.org).
//
// It drives the criu command line. Not go-criu: its released API cannot hand descriptors to the restored program
// (inherit-fd with ExtraFiles), cannot be given up on by context, and would add protobuf as a dependency, while what
// has to be read from and written to CRIU's images here is a handful of fields (image.go, after CRIU's images/*.proto,
// 4.1.1). With `restore --restore-detached --restore-sibling` the restored root is a child of the calling process, just
// as it would be through go-criu's swrk.
//
// Standard streams. A pipe, a terminal or a unix socket that leads out of the tree cannot be dumped: its other end
// belongs to somebody else. Dump therefore replaces every descriptor of the tree that leads to such an object by one of
// three slots (0, 1, 2), and Restore puts the files it is given into the slots (stdio.go). Everything else is CRIU's.
//
// Dump freezes by ptrace. CRIU must not be killed while it works: it runs code in the frozen threads, and a thread
// that is caught in between does not come back (the parasite of the main thread cures itself when CRIU goes away; the
// short visits to other threads do not). So a context that ends does not kill a dump at once, see DumpOptions.Grace.
//
// CRIU runs with the caller's rights and does what its configuration says (action scripts, plugins), so it gets none
// but our command line: a clean environment and no configuration files. It must be a file that no other user can
// change.
//
// The package imports the standard library, x/sys and owned, and nothing else of holdfast.
package criu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/internal/owned"
)

// MinMajor is the oldest major version of CRIU that is used: 3.x does not start on kernels since 6.12 or so (it cannot
// parse their vDSO).
const MinMajor = 4

// Tool is a CRIU that was found and runs. It is safe for concurrent use.
type Tool struct {
	path    string
	version string
	log     *slog.Logger
	work    string // parent of the work directories; "": that of temporary files

	checking sync.Mutex
	checked  bool // Check has succeeded, under checking
}

// workPrefix begins the names of CRIU's work directories: a log, statistics.
const workPrefix = "holdfast-criu-"

// WorkIn makes dir the place of work directories from now on, and removes those that a process left there which died
// before it could. The CRIU processes that it left have a while to end; of those that cannot, see endAbandoned.
func (t *Tool) WorkIn(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	t.work = dir
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var abandoned []string
	for _, e := range left {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), workPrefix) {
			continue
		}
		if abandoned = append(abandoned, e.Name()); time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if len(abandoned) > 0 {
		go t.endAbandoned(abandoned, abandonedFor)
	}
	return nil
}

// NotFoundError says that no usable CRIU was found, and what was looked at.
type NotFoundError struct {
	Tried []string // "PATH: why not"
}

func (e *NotFoundError) Error() string {
	return "no CRIU " + strconv.Itoa(MinMajor) + " or newer (" + strings.Join(e.Tried, "; ") +
		"): install the package criu, or run scripts/criu.sh DIR and set HOLDFAST_CRIU=DIR/criu (docs/criu.md)"
}

// Find looks for CRIU: $HOLDFAST_CRIU (which then must work), PREFIX/libexec/holdfast/criu beside the running
// executable in PREFIX/bin, the user's cache directory (holdfast/criu/criu), PATH, /usr/local/sbin, /usr/sbin. One that
// another user could change is passed over.
func Find(logger *slog.Logger) (*Tool, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	var tried []string
	try := func(path string) *Tool {
		t := &Tool{path: path, log: logger}
		err := owned.Check(path)
		var v string
		if err == nil {
			v, err = t.probe()
		}
		if err != nil {
			tried = append(tried, path+": "+err.Error())
			return nil
		}
		t.version = v
		logger.Debug("found criu", "path", path, "version", v)
		return t
	}
	if p := os.Getenv("HOLDFAST_CRIU"); p != "" {
		if t := try(p); t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("HOLDFAST_CRIU: %w", &NotFoundError{Tried: tried})
	}
	seen := map[string]bool{}
	for _, p := range candidates() {
		if seen[p] {
			continue
		}
		seen[p] = true
		if st, err := os.Stat(p); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			continue
		}
		if t := try(p); t != nil {
			return t, nil
		}
	}
	if len(tried) == 0 {
		tried = []string{"none installed"}
	}
	return nil, &NotFoundError{Tried: tried}
}

func candidates() []string {
	var c []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		c = append(c, filepath.Join(filepath.Dir(filepath.Dir(exe)), "libexec", "holdfast", "criu"))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		c = append(c, filepath.Join(cache, "holdfast", "criu", "criu"))
	}
	if p, err := exec.LookPath("criu"); err == nil {
		if abs, err := filepath.Abs(p); err == nil {
			c = append(c, abs)
		}
	}
	return append(c, "/usr/local/sbin/criu", "/usr/sbin/criu", "/usr/bin/criu")
}

// probe runs `criu --version` and refuses what is too old.
func (t *Tool) probe() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := t.command(ctx, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("does not run: %w: %s", err, firstLine(out))
	}
	for line := range strings.Lines(string(out)) {
		v, ok := strings.CutPrefix(strings.TrimSpace(line), "Version:")
		if !ok {
			continue
		}
		v = strings.TrimSpace(v)
		major, err := strconv.Atoi(strings.SplitN(v, ".", 2)[0])
		if err != nil {
			break
		}
		if major < MinMajor {
			return "", fmt.Errorf("version %s is too old", v)
		}
		return v, nil
	}
	return "", fmt.Errorf("prints no version: %s", firstLine(out))
}

// Path returns the executable.
func (t *Tool) Path() string { return t.path }

// Version returns what `criu --version` says, such as "4.1.1".
func (t *Tool) Version() string { return t.version }

// Check asks whether this process may use CRIU here, and whether the kernel has what CRIU needs (`criu check`).
func (t *Tool) Check() error {
	if err := privileged(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := t.command(ctx, t.args("check")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s check: %w: %s", t.path, err, bytes.TrimSpace(out))
	}
	return nil
}

// privileged says whether this process may dump and restore.
func privileged() error {
	if os.Geteuid() == 0 {
		return nil
	}
	caps, err := effectiveCaps("/proc/self/status")
	if err != nil {
		return err
	}
	const checkpointRestore, ptrace = 40, 19 // linux/capability.h
	if caps&(1<<checkpointRestore) != 0 && caps&(1<<ptrace) != 0 {
		return nil
	}
	return errors.New("CRIU needs root, or the capabilities CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE: " +
		"run the daemon as root (checkpoints of GPU data alone, --gpu-only, do not need it)")
}

func effectiveCaps(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, fmt.Errorf("%s has no CapEff", path)
}

// environment is the whole environment of CRIU. Besides HOME and CRIU_CONFIG_FILE, which name files that it obeys,
// whoever has influence on the environment could preload libraries or put another iptables into its PATH.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// command is a call of CRIU. ctx may only end what changes no process.
func (t *Tool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.path, args...)
	cmd.Env = environment
	return cmd
}

// args puts the options that every call shares behind the verb.
func (t *Tool) args(verb string, more ...string) []string {
	a := []string{verb, "--no-default-config"}
	if os.Geteuid() != 0 {
		a = append(a, "--unprivileged")
	}
	return append(a, more...)
}

func firstLine(b []byte) string {
	s, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return s
}
