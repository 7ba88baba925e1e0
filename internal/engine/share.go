package engine

import "errors"

// ErrNoHost is the error of MapHost where memory of the host cannot be put at an address.
var ErrNoHost = errors.New("memory of the host cannot be put at a device address here")

// A Sharer is a backend on whose GPU several address spaces work at the same time. Each is for one goroutine at a
// time; one goroutine starts parts in all of them. The spaces share their fate: when the work of one fails, the work
// of all has ended.
type Sharer interface {
	Reviver
	// Beside makes another address space on the same GPU. It ends with the one that it was asked of at the latest.
	Beside() (Sharer, error)
	// MapHost puts memory of the host at a device address, as Map does, and returns it as this process sees it; or it
	// returns ErrNoHost.
	MapHost(addr, size uint64) ([]byte, error)
	// Divide prepares words for being run part by part. A part is consecutive words that the GPU goes through by
	// itself; one begins at each word in cuts, and where else the host has to start something.
	Divide(words []Word, cuts []int) (Parts, error)
	// Start begins parts, of whatever spaces, and returns at once.
	Start(parts []Start)
	// Failed is the error that has ended all work, nil if there was none. It costs no call of the driver, and does not
	// say whose work it was.
	Failed() error
}

// Parts is a program in parts.
type Parts interface {
	// Shapes says what each part is.
	Shapes() []Shape
	// Done says whether the part that was started last is complete. It costs no call of the driver.
	Done() bool
	Close() error
}

// A Shape is what is known of a part before it runs.
type Shape struct {
	Word, Words int     // the first, and how many
	Launches    int     // copies and sets that are launches, too
	Width       float64 // the share of the GPU that its launches take, on average: 0 to 1
}

// A Start names a part. The one before must be complete, or nothing of the program under way.
type Start struct {
	Parts Parts
	Part  int
}
