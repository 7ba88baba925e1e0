// Package qmd makes launch descriptors: the queue metadata (QMD) from which the GPU starts a grid. A version is a
// table of fields (name, highest bit, lowest bit) after NVIDIA's open-gpu-doc at c8607fe576b5: V4 is version 4.0 for
// sm_90 (classes/compute/clcbc0qmd.h), V3 version 3.0 for sm_80, sm_86 and sm_89 (clc6c0qmd.h, clc7c0qmd.h,
// clc9c0qmd.h). V4 is tested on an H200. V3 is tested as bytes only and was never tried.
//
// A descriptor is bytes: the same launch makes the same ones.
//
// The package must not import anything of this module.
package qmd
