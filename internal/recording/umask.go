package recording

import (
	"bytes"
	"os"
	"strconv"
)

// umask is that of the process. /proc tells it without changing it.
func umask() os.FileMode {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o077
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Umask:")); ok {
			if v, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 8, 32); err == nil {
				return os.FileMode(v)
			}
		}
	}
	return 0o077
}
