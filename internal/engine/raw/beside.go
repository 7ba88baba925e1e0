package raw

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/engine"
)

var _ engine.Sharer = (*Backend)(nil)

// Beside makes another address space on the same GPU, with a channel of its own in the channel group of b: what both
// run, they run at the same time, and neither can name the other's memory. It ends with b at the latest. The channels
// of a group share their fate: the driver ends all of them when one fails.
func (b *Backend) Beside() (engine.Sharer, error) {
	if b.dead != nil {
		return nil, b.dead
	}
	if b.beside != nil {
		return b.beside.Beside()
	}
	o := &Backend{rm: b.rm, files: b.files, dev: b.dev, minor: b.minor, device: b.device, sub: b.sub, gen: b.gen,
		info: b.info, user: b.user, options: b.options, beside: b, mapped: map[uint64]*memory{},
		programs: map[*program]bool{}, own: addresses{next: ownBase, end: ownEnd}}
	o.setGPU(b.GPU)
	for _, step := range []func(Options) error{o.addressSpace, o.openChannel} {
		if err := step(o.options); err != nil {
			return nil, errors.Join(fmt.Errorf("raw: %w", err), o.Close())
		}
	}
	b.listing.Lock()
	defer b.listing.Unlock()
	b.others = append(b.others, o)
	return o, nil
}

// spaces are b and those beside it, the one that has the group first.
func (b *Backend) spaces() []*Backend {
	if b.beside != nil {
		b = b.beside
	}
	b.listing.Lock()
	defer b.listing.Unlock()
	return append([]*Backend{b}, b.others...)
}

// leave takes b out of the list of whom it is beside.
func (b *Backend) leave() {
	if p := b.beside; p != nil {
		p.listing.Lock()
		defer p.listing.Unlock()
		p.others = slices.DeleteFunc(p.others, func(o *Backend) bool { return o == b })
	}
}
