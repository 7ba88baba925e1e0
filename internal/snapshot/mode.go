package snapshot

import "fmt"

// Mode is how a snapshot keeps the stall short.
type Mode int

const (
	// Auto is Stage if there is device memory for all, else Cow if that is possible (Options.MayCow), else Stage as far
	// as there is memory, else Recopy.
	Auto Mode = iota
	// Stage copies aside in device memory: the stall is a digest and a copy at memory speed of what changed.
	Stage
	// Recopy drains while the program runs, and what changed again in the stall. It needs no device memory.
	Recopy
	// Stop drains everything in the stall.
	Stop
	// Cow copies nothing in the stall. Drain takes the memory while the program runs, and what is about to be written
	// (BeforeWrite) is copied aside first.
	Cow
)

// modes is in the order of the constants.
func modes() []string { return []string{"auto", "stage", "recopy", "stop", "cow"} }

// String returns the name used on the command line.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(modes()) {
		return fmt.Sprintf("mode %d", int(m))
	}
	return modes()[m]
}

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error {
	for i, name := range modes() {
		if name == string(text) {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("no mode %q: have %v", text, modes())
}
