package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdfast/internal/client"
	"holdfast/internal/criu"
	"holdfast/internal/owned"

	"golang.org/x/sys/unix"
)

// A machine is what doctor looks at. Its files are read below root, so that tests can
// show it another machine.
type machine struct {
	root    string // "/"
	uid     int
	client  *client.Client
	dir     string // runtime directory
	cache   string
	release string // of the kernel, as uname -r
}

func (a *app) machine() machine {
	m := machine{root: "/", uid: os.Getuid(), client: &a.client, dir: a.runtimeDir(), cache: cacheDir()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.release = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

func (m machine) read(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(m.root, path))
	return strings.TrimSpace(string(data)), err
}

func (m machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

func result(group, name string, ok bool, otherwise, detail, remedy string) check {
	status := checkOK
	if !ok {
		status = otherwise
	}
	return check{group, name, status, detail, remedy}
}

func (m machine) gpuChecks(kind string) []check {
	const group = "gpu"
	otherwise := checkWarn // a missing driver matters only to those who want the native GPU
	if kind == gpuNative {
		otherwise = checkFail
	}
	var list []check
	version, err := m.read("proc/driver/nvidia/version")
	if err != nil {
		list = append(list, result(group, "kernel driver", false, otherwise, "none loaded",
			"install the NVIDIA driver (570 or newer), or use --gpu=soft"))
	} else {
		line, _, _ := strings.Cut(version, "\n")
		list = append(list, driverCheck(group, otherwise, line))
	}
	if kind != gpuNative && m.root == "/" && findDriver() == "" {
		list = append(list, result(group, "libcuda.so.1", false, otherwise, "not found",
			"install the driver's user-space libraries, or use --gpu=soft"))
	} else if m.root == "/" {
		list = append(list, driverAPIChecks(group, otherwise)...)
	}
	if libs, err := unpackLibraries(); err != nil {
		list = append(list, check{group, "shim", checkFail, err.Error(), "build holdfast with make"})
	} else {
		list = append(list, check{group, "shim", checkOK, libs.Shim, ""})
	}
	return list
}

// minDriver is the first major version whose libcuda checkpoints other processes.
const minDriver = 570

// driverCheck reads a line such as
//
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
func driverCheck(group, otherwise, line string) check {
	for _, word := range strings.Fields(line) {
		majorText, _, dotted := strings.Cut(word, ".")
		major, err := strconv.Atoi(majorText)
		if err != nil || !dotted {
			continue
		}
		return result(group, "kernel driver", major >= minDriver, otherwise, "version "+word,
			fmt.Sprintf("cuCheckpointProcess* need driver %d or newer: upgrade it", minDriver))
	}
	return check{group, "kernel driver", checkWarn, "version not understood: " + line, "report this line"}
}

func (m machine) criuChecks(ctx context.Context) []check {
	const group = "criu"
	const effect = "; without it only --gpu-only, rollback, suspend and resume work"
	tool, err := criu.Find(nil)
	if err != nil {
		return []check{{group, "version", checkFail, err.Error() + effect,
			"install CRIU 4 (docs/criu.md), or run scripts/criu.sh and set HOLDFAST_CRIU"}}
	}
	list := []check{{group, "version", checkOK, tool.Version() + " (" + tool.Path() + ")", ""}}
	if err := tool.Check(); err != nil {
		return append(list, check{group, "criu check", checkFail, err.Error(),
			"see the remedies under privileges and kernel"})
	}
	return append(list, check{group, "criu check", checkOK, "the kernel has what CRIU needs", ""})
}

// The capabilities that CRIU uses, by their bits in linux/capability.h, and what for.
var criuCapabilities = []struct {
	name string
	bit  uint
	must bool
	use  string
}{
	{"CAP_SYS_PTRACE", 19, true, "CRIU stops and reads processes with it"},
	{"CAP_CHECKPOINT_RESTORE", 40, true, "CRIU gives processes their old numbers back with it"},
	{"CAP_SYS_ADMIN", 21, false, "CRIU restores namespaces and mounts with it"},
	{"CAP_SYS_RESOURCE", 24, false,
		"CRIU raises limits back to what they were with it, and the daemon its limit of open files"},
	{"CAP_NET_ADMIN", 12, false, "CRIU restores sockets with it"},
}

// lacksCapability says what to do about a capability that is missing.
func (m machine) lacksCapability(name, use string) string {
	short := strings.TrimPrefix(name, "CAP_")
	if m.uid == 0 {
		// It is root, so something has taken it away: a container's or a unit's list.
		return fmt.Sprintf("%s, for whole-process checkpoints only; this root does not have it: "+
			"start the container with --cap-add %s, or name it in CapabilityBoundingSet= of the systemd unit",
			use, short)
	}
	return fmt.Sprintf("%s, for whole-process checkpoints only; run as root, "+
		"or in a session that has %s as an ambient capability (docs/security.md)", use, name)
}

func (m machine) privilegeChecks() []check {
	const group = "privileges"
	status, err := m.read("proc/self/status")
	if err != nil {
		return []check{{group, "capabilities", checkWarn, err.Error(), "mount /proc"}}
	}
	var caps uint64
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	var list []check
	for _, c := range criuCapabilities {
		otherwise, detail := checkWarn, "have"
		if c.must {
			otherwise = checkFail
		}
		has := caps&(1<<c.bit) != 0
		if !has {
			detail = "missing"
		}
		list = append(list, result(group, c.name, has, otherwise, detail, m.lacksCapability(c.name, c.use)))
	}
	if scope, err := m.read("proc/sys/kernel/yama/ptrace_scope"); err != nil {
		list = append(list, check{group, "ptrace_scope", checkOK, "no yama", ""})
	} else {
		ok := scope == "0" || (scope != "3" && caps&(1<<19) != 0)
		list = append(list, result(group, "ptrace_scope", ok, checkFail, scope,
			"sysctl kernel.yama.ptrace_scope=0 (3 lasts until a reboot)"))
	}
	return list
}

// kernelOptions are what CRIU needs of a kernel. Where no configuration can be read, a
// file that only such a kernel has tells.
var kernelOptions = []struct {
	name, file string
	must       bool
	why        string
}{
	{"CONFIG_CHECKPOINT_RESTORE", "proc/self/map_files", true, "CRIU cannot dump without it"},
	{"CONFIG_NAMESPACES", "proc/self/ns/pid", true, "CRIU cannot dump without it"},
	{"CONFIG_MEMFD_CREATE", "", true, "the shim and the software GPU share memory through memfd"},
	{"CONFIG_MEM_SOFT_DIRTY", "", false, "without it CRIU writes all host memory at every checkpoint"},
	{"CONFIG_UNIX_DIAG", "", false, "CRIU needs it for unix sockets of the program"},
	{"CONFIG_INET_DIAG", "", false, "CRIU needs it for TCP sockets of the program"},
}

func (m machine) kernelChecks() []check {
	const group = "kernel"
	list := []check{{group, "release", checkOK, m.release, ""}}
	config, source := m.kernelConfig()
	for _, o := range kernelOptions {
		otherwise := checkWarn
		if o.must {
			otherwise = checkFail
		}
		remedy := "use a kernel with " + o.name + ": " + o.why
		switch value, known := config[o.name]; {
		case config != nil && (!known || value == "n"):
			list = append(list, check{group, o.name, otherwise, "not set in " + source, remedy})
		case config != nil:
			list = append(list, check{group, o.name, checkOK, value + " in " + source, ""})
		case o.file != "":
			list = append(list, result(group, o.name, m.exists(o.file), otherwise, "by /"+o.file, remedy))
		}
	}
	if config == nil {
		list = append(list, check{group, "configuration", checkOK,
			"not readable: judged by what /proc shows and by criu check", ""})
	}
	return list
}

// kernelConfig returns the options that are set, and where that was read; nil if it
// cannot be read.
func (m machine) kernelConfig() (map[string]string, string) {
	for _, path := range []string{"proc/config.gz", "boot/config-" + m.release,
		"lib/modules/" + m.release + "/config"} {
		f, err := os.Open(filepath.Join(m.root, path))
		if err != nil {
			continue
		}
		defer f.Close()
		r := io.Reader(f)
		if strings.HasSuffix(path, ".gz") {
			z, err := gzip.NewReader(f)
			if err != nil {
				continue
			}
			r = z
		}
		data, err := io.ReadAll(io.LimitReader(r, 8<<20))
		if err != nil {
			continue
		}
		config := make(map[string]string)
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
				config[key] = value
			}
		}
		return config, "/" + path
	}
	return nil, ""
}

func (m machine) limitChecks() []check {
	const group = "limits"
	var list []check
	list = append(list, m.spaceCheck(group, "/dev/shm", "dev/shm", 1<<30,
		"the software GPU keeps device memory in shared memory: mount a larger tmpfs there"))
	list = append(list, m.spaceCheck(group, "cache directory", m.cache, 64<<20,
		"free some space, or set XDG_CACHE_HOME"))
	if wd, err := os.Getwd(); err == nil && m.root == "/" {
		list = append(list, m.spaceCheck(group, "this directory", wd, 4<<30,
			"an image is as large as what it holds: write images where there is space"))
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil {
		list = append(list, result(group, "locked memory", r.Max >= 64<<20 || m.uid == 0, checkWarn,
			limitText(r.Max, true), "ulimit -l unlimited: buffers for copies are pinned"))
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		list = append(list, result(group, "open files", r.Max >= 4096, checkWarn, limitText(r.Max, false),
			"ulimit -n 65536: the daemon holds a descriptor per allocation"))
	}
	if text, err := m.read("proc/sys/kernel/pid_max"); err == nil {
		n, _ := strconv.Atoi(text)
		list = append(list, result(group, "pid_max", n >= 1<<16, checkWarn, text,
			"sysctl kernel.pid_max=4194304: a restored program needs its old PID, and few PIDs are reused soon"))
	}
	return list
}

func limitText(n uint64, bytes bool) string {
	switch {
	case n == unix.RLIM_INFINITY:
		return "unlimited"
	case bytes:
		return bytesText(n)
	}
	return strconv.FormatUint(n, 10)
}

// spaceCheck looks at the file system of path, or of its nearest parent that exists.
func (m machine) spaceCheck(group, name, path string, want uint64, remedy string) check {
	if !filepath.IsAbs(path) {
		path = filepath.Join(m.root, path)
	}
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	for at := path; errors.Is(err, fs.ErrNotExist) && at != "/" && at != "."; {
		at = filepath.Dir(at)
		err = unix.Statfs(at, &st)
	}
	if err != nil {
		return check{group, name, checkWarn, fmt.Sprintf("%s: %v", path, err), remedy}
	}
	free := st.Bavail * uint64(st.Bsize)
	return result(group, name, free >= want, checkWarn, fmt.Sprintf("%s free in %s", bytesText(free), path), remedy)
}

func (m machine) daemonChecks(ctx context.Context) []check {
	const group = "daemon"
	var list []check
	if info, err := os.Stat(m.dir); errors.Is(err, fs.ErrNotExist) {
		list = append(list, check{group, "runtime directory", checkOK, m.dir + " (made on demand)", ""})
	} else if err != nil {
		list = append(list, check{group, "runtime directory", checkFail, err.Error(),
			"set HOLDFAST_DIR to a directory of your own"})
	} else {
		open := info.Mode().Perm()&0o077 != 0
		if err := owned.Check(m.dir); err != nil && !open {
			return append(list, check{group, "runtime directory", checkFail, err.Error(),
				"set HOLDFAST_DIR to a directory of your own"})
		}
		list = append(list, result(group, "runtime directory", !open, checkFail,
			fmt.Sprintf("%s, mode %04o", m.dir, info.Mode().Perm()), "chmod 700 "+m.dir))
	}
	v, err := m.client.Version(ctx)
	switch {
	case errors.Is(err, client.ErrNoDaemon):
		list = append(list, check{group, "daemon", checkOK, "not running (started on demand)", ""})
	case err != nil:
		list = append(list, check{group, "daemon", checkFail, err.Error(), "see " + filepath.Join(m.dir, "daemon.log")})
	default:
		same := v.Version == version
		list = append(list, result(group, "daemon", same, checkWarn,
			fmt.Sprintf("PID %d, version %s, %d held", v.PID, v.Version, v.Held),
			"this holdfast is version "+version+": restart the daemon (holdfast daemon stop); held programs are "+
				"taken over"))
	}
	return list
}
