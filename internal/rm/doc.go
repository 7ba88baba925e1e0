// Package rm speaks to NVIDIA's kernel driver through its device files: the resource manager behind /dev/nvidiactl
// and /dev/nvidia0, and unified memory behind /dev/nvidia-uvm. It needs no libcuda and no cgo.
//
// Structures, classes and controls have the vendor's names. Each was written down after the headers of the open
// kernel modules (github.com/NVIDIA/open-gpu-kernel-modules, MIT); files are named below src/common/sdk/nvidia/inc
// where nothing else is said, as of 580.95.05. rmtest/layout.txt is what a compiler makes of those headers, and a
// test compares. What earlier versions have otherwise stands in version.go as differences.
//
// A Client is a client of the resource manager. It is for one goroutine at a time. The device files are an interface,
// Files, so that a test can play the driver (package rmtest).
//
// The package must not import anything of this module.
package rm
