package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/internal/embedded"
)

// The kinds of GPU that a program may see.
const (
	gpuNative = "native"
	gpuSoft   = "soft"
)

// gpuKind resolves --gpu.
func gpuKind(flag string) (string, error) {
	switch flag {
	case gpuNative, gpuSoft:
		return flag, nil
	case "auto":
		if _, err := os.Stat("/dev/nvidiactl"); err == nil && findDriver() != "" {
			return gpuNative, nil
		}
		return gpuSoft, nil
	}
	return "", usageErrorf("--gpu=%s: auto, native or soft", flag)
}

// driverDirs are where distributions put libcuda.so.1, for the case that ldconfig cannot
// be asked.
var driverDirs = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
}

// findDriver returns the path of the machine's libcuda.so.1, or "".
func findDriver() string {
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if path := filepath.Join(dir, embedded.StubName); filepath.IsAbs(path) && exists(path) {
			return path
		}
	}
	for _, tool := range []string{"ldconfig", "/sbin/ldconfig"} {
		out, err := exec.Command(tool, "-p").Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			// "	libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1"
			if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == embedded.StubName {
				if _, path, ok := strings.Cut(rest, "=> "); ok && exists(path) {
					return path
				}
			}
		}
		break
	}
	for _, dir := range driverDirs {
		if path := filepath.Join(dir, embedded.StubName); exists(path) {
			return path
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cacheDir is where libraries are unpacked. Images name the libraries by this path, so
// it should outlive a reboot.
func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	if os.Getuid() == 0 {
		return "/var/cache"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-%d", os.Getuid()), "cache")
}

func unpackLibraries() (embedded.Libraries, error) {
	l, err := embedded.Unpack(cacheDir())
	if err == nil && strings.ContainsAny(l.Shim, " :\t\n") {
		err = fmt.Errorf("the loader cannot preload %q: a blank or colon in the path; set XDG_CACHE_HOME to a "+
			"directory without", l.Shim)
	}
	return l, err
}
