package native

import (
	"strings"
	"testing"
)

func TestOpenNamesWhatIsMissing(t *testing.T) {
	if _, err := Open("/nonexistent/libcuda.so.1"); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/libcuda.so.1") {
		t.Errorf("no library: %v", err)
	}
	if _, err := Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "libc.so.6 has no cuCtxSetCurrent") {
		t.Errorf("another library: %v", err)
	}
}
