package machine

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/pack"
)

// recover goes on after all work of a device has ended, or has to be ended: it makes the channels anew and does what
// was under way again, one after the other. Who fails again has failed before.
func (m *Machine) recover(device int, why error) {
	m.config.Log.Error("the work of a GPU has ended", "gpu", device, "err", why)
	m.settle()
	var cut []*request
	for _, r := range m.live {
		if r.place != nil && r.place.at == r && r.place.device == device && !r.finished {
			cut = append(cut, r)
		}
	}
	slices.SortFunc(cut, func(a, b *request) int { return cmp.Compare(a.id, b.id) })
	m.running = slices.DeleteFunc(m.running, func(r *request) bool { return r.place.device == device })
	m.loading.Lock()
	defer m.loading.Unlock()
	if err := m.config.GPUs[device].Revive(); err != nil {
		m.die(fmt.Errorf("GPU %d cannot be brought back: %w", device, err))
		return
	}
	for _, r := range cut {
		if m.dead != nil {
			return
		}
		if m.again(r, why); m.live[r.id] == r && r.under {
			m.complete(r, 0)
		}
	}
}

// settle waits until nobody copies inputs or outputs any more. Requests whose outputs have been taken are complete.
func (m *Machine) settle() {
	n := 0
	for _, r := range m.live {
		if r.copying {
			n++
		}
	}
	for ; n > 0; n-- {
		if r := <-m.copied; r.first == 0 {
			r.copying = false
		} else {
			m.goOn(r)
		}
	}
}

// again does a request that was cut short once more.
func (m *Machine) again(r *request, why error) {
	r.finished = true
	if r.t.faulty != nil {
		r.end(fmt.Errorf("%w: %w", ErrFaulty, r.t.faulty))
		return
	}
	err := r.place.copy.Reset()
	if err == nil && r.t.keep {
		r.end(fmt.Errorf("%w: %w", ErrLost, why))
		return
	}
	if err == nil {
		err = r.setInputs()
	}
	for i := range r.t.parts {
		if err == nil {
			_, err = m.runPart(r.place, i)
		}
	}
	if err == nil {
		err = r.collect()
	}
	r.first = max(r.first, r.arrived) // it may not have begun
	r.answer.Queue, r.answer.Run = r.first-r.arrived, m.now()-r.first
	r.end(err)
	if err == nil {
		return
	}
	m.config.Log.Error("a model has failed", "model", r.t.name, "err", err)
	r.t.faulty = err
	m.sched.Drain(r.t.id)
	if err := m.config.GPUs[r.place.device].Revive(); err != nil {
		m.die(fmt.Errorf("GPU %d cannot be brought back: %w", r.place.device, err))
	}
}

// die ends everything.
func (m *Machine) die(why error) {
	m.config.Log.Error("the machine stops", "err", why)
	m.dead = why
	for _, r := range m.live {
		if !r.finished {
			r.finished = true
			r.end(why)
		}
	}
	m.live = map[pack.RequestID]*request{}
	m.running = nil
}
