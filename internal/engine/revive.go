package engine

// A Reviver is a backend that can go on after work that failed.
type Reviver interface {
	Backend
	// Revive makes work possible again after a failure, or stops what does not end by itself. Memory is as the work
	// has left it, what was under way is lost, and programs and parts can be run again.
	Revive() error
}

// Stateful is code that can say where all of its variables lie that kernels may write, whether they have names or not.
type Stateful interface {
	Code
	Data() []Range
	// Restore puts them back to what they were when the code was loaded.
	Restore() error
}

// A Range is bytes of device memory.
type Range struct{ Addr, Size uint64 }
