package digest

import _ "embed"

// PTX is the module with the digest's kernels. All their parameters are 8 bytes: device addresses of tables of 8-byte
// device addresses of chunks, and of a table of digests. A table has one entry per block.
//
//go:embed digest.ptx
var PTX []byte

// The kernels of PTX and the number of threads in each block of a launch.
const (
	Kernel     = "holdfast_digest"      // (sources, digests)
	CopyKernel = "holdfast_copy_digest" // (sources, destinations, digests)
	BlockSize  = lanes
)
