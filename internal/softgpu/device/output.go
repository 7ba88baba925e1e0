package device

import (
	"bytes"
	"sync"

	"holdfast/internal/softgpu/gpuwire"
)

// output is what kernels print.
type output struct {
	*owner
	printMu sync.Mutex
	printed bytes.Buffer
}

// Write takes kernel printf output; beyond a limit it is dropped, as the
// device's buffer would overflow.
func (o *output) Write(b []byte) (int, error) {
	const printLimit = 1 << 20
	o.printMu.Lock()
	defer o.printMu.Unlock()
	if room := printLimit - o.printed.Len(); room < len(b) {
		o.printed.Write(b[:max(room, 0)])
	} else {
		o.printed.Write(b)
	}
	return len(b), nil
}

// flush hands printf output to the program. Called without p.mu.
func (o *output) flush() {
	o.printMu.Lock()
	text := bytes.Clone(o.printed.Bytes())
	o.printed.Reset()
	o.printMu.Unlock()
	if len(text) > 0 {
		_, _ = o.control.call(gpuwire.OpPrint, nil, text)
	}
}
