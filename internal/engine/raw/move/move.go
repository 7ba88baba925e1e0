// Package move has the kernels of the raw backend that copy and set memory, as machine code: move.cu, made by build.sh.
package move

import (
	"embed"
	"fmt"
)

//go:embed *.cubin
var code embed.FS

// Code is the cubin for an architecture, 90 for sm_90.
func Code(arch int) ([]byte, error) { return code.ReadFile(fmt.Sprintf("sm_%d.cubin", arch)) }
