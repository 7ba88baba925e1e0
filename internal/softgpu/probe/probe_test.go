package probe

import (
	"bytes"
	"testing"

	"holdfast/ptx"
)

// Every probe has a name of its own, is PTX, and its inputs repeat.
func TestProbes(t *testing.T) {
	names := map[string]string{}
	families := map[string]int{}
	ps := All()
	for i, p := range ps {
		if other := names[p.Name]; other != "" {
			t.Errorf("%s and %s are both named %s", other, p.ID(), p.Name)
		}
		names[p.Name] = p.ID()
		families[p.Family]++
		if _, err := ptx.Parse(p.Name, []byte(Module([]*Probe{p}))); err != nil {
			t.Fatalf("%s: %v\n%s", p.ID(), err, p.Source)
		}
		if p.OutStride == 0 || p.Rounds == 0 {
			t.Errorf("%s: writes %d bytes a thread in %d rounds", p.ID(), p.OutStride, p.Rounds)
		}
		if i%97 == 0 {
			if a, b := p.Input(1, 1), p.Input(1, 1); !bytes.Equal(a, b) {
				t.Errorf("%s: the same seed gives two inputs", p.ID())
			}
		}
	}
	t.Logf("%d probes: %v", len(ps), families)
}
