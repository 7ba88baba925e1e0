package corpus

import "testing"

// What the launches of regress truly are.
func TestRegress(t *testing.T) {
	apps, err := Load("../../test/corpus/regress")
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := map[string]Truth{"bulk_store": NotIdempotent, "bulk_add": NotIdempotent, "extremes": Idempotent,
		"ticket": NotIdempotent, "exchange": NotIdempotent}
	for i := range apps[0].Launches {
		l := &apps[0].Launches[i]
		f, err := m.Judge(apps[0], l, JudgeOptions{Prefixes: 20, Seed: 1})
		if err != nil {
			t.Errorf("%s: %v", l.Kernel, err)
			continue
		}
		if f.Truth != want[l.Kernel] {
			t.Errorf("%s: %v, %s; want %v", l.Kernel, f.Truth, f.Why, want[l.Kernel])
		}
		delete(want, l.Kernel)
	}
	if len(want) > 0 {
		t.Errorf("not launched: %v", want)
	}
}
