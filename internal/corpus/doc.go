// Package corpus is the truth that verdicts about kernels are measured against: applications
// (kernels with the launches that real programs made of them), and an oracle that executes a launch
// on the software GPU and says what it really read and wrote and whether it can be run again.
//
// An application is one JSON file, NAME.app.json, beside its PTX modules; Load reads a tree of
// them. The files are written by the recipes beside them. They are decoded strictly and within limits:
// a name that is not known, a launch without its buffer or an argument of two kinds is an error.
//
//	{"application": "saxpy", "family": "cuda", "target": "sm_90", "made": "nvcc 12.4, recipe make.sh",
//	 "modules": {"m": "saxpy.ptx"},
//	 "buffers": {"x": {"bytes": 4096, "init": "f32"}, "y": {"bytes": 4096, "init": "f32"}},
//	 "launches": [{"module": "m", "kernel": "saxpy", "grid": [4,1,1], "block": [256,1,1],
//	               "args": [{"s32": 1024}, {"f32": 2}, {"buf": "x"}, {"buf": "y", "offset": 0}], "count": 7}]}
//
// A module may be compressed (m.ptx.gz). A launch without a module is of a kernel whose PTX nobody
// has. count says how often the program made exactly this launch. "order":"any" says that the result
// depends on the order of blocks and warps, "spin":true that blocks wait for one another.
//
// The arguments are the kernel's parameters in order: buf and offset make a pointer; u8 to u64, s8 to s64,
// f16, f32 and f64 a number (floats also "nan", "inf", "-inf"); bytes anything else, in
// hexadecimal, into which "patch":[{"at":8,"buf":"x","offset":0}] puts pointers.
//
// A buffer is one allocation, aligned to 512 bytes. init says what it holds:
//
//	"zero"                             zeros (also: no init)
//	"f32" "f16" "bf16" "f64"           uniform in [-1, 1)
//	"u32" "u8"                         random bits
//	{"index":"s32","below":N}          random indices, or s64
//	{"iota":"s32"}                     0, 1, 2, …, or s64
//	{"s32":[…]}                        these numbers (u8 to u64, s8 to s64, f32, f64), then zeros
//	{"hex":"…"} {"gz":"…"}             these bytes (gz: compressed, in base64), then zeros
//	{"pointers":[{"buf":"x"},null]}    64-bit pointers, then zeros
//
// Random contents are seeded by the names of application and buffer, so that runs repeat.
//
// The package executes with internal/softgpu and compares with internal/footprint; neither of those
// imports the other.
package corpus
