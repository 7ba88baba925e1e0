package move

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/internal/cubin"
)

// The cubins are made of the source that stands beside them, and have all kernels.
func TestCode(t *testing.T) {
	sums, err := os.ReadFile("sums.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for line := range strings.Lines(string(sums)) {
		f := strings.Fields(line)
		if len(f) != 2 || len(f[0]) != 2*sha256.Size {
			continue
		}
		b, err := os.ReadFile(f[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != f[0] {
			t.Errorf("%s is %s, sums.txt says %s: run build.sh", f[1], got, f[0])
		}
		files++
	}
	if files != 5 {
		t.Errorf("%d files in sums.txt", files)
	}
	for _, arch := range []int{80, 86, 89, 90} {
		image, err := Code(arch)
		if err != nil {
			t.Fatal(err)
		}
		im, err := cubin.Open(image)
		if err != nil || im.Arch != arch || len(im.Kernels) != 10 {
			t.Errorf("sm_%d: %v", arch, err)
		}
	}
}
