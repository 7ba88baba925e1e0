package raw

import (
	"errors"
	"fmt"

	"holdfast/internal/engine"
	"holdfast/internal/rm"
)

// Failed is the error that the driver has reported for the channel of any address space. On an H200 (580.159) the
// first to have it was not the one whose work had failed, so it says nothing of whose that was: who wants to know runs
// what was under way once more, one after the other.
func (b *Backend) Failed() error {
	if b.beside != nil {
		b = b.beside
	}
	b.listing.Lock()
	defer b.listing.Unlock()
	err := b.failed()
	for i := 0; err == nil && i < len(b.others); i++ {
		err = b.others[i].failed()
	}
	return err
}

func (b *Backend) failed() error {
	if b.dead != nil {
		return b.dead
	}
	if err := b.notified(); err != nil {
		return &engine.Fault{Place: engine.Place{Word: -1, Op: -1}, Err: err}
	}
	return nil
}

// Revive ends all channels of the group and makes new ones. Memory and what was loaded stay.
func (b *Backend) Revive() error {
	if err := b.end(errors.New("it is made anew")); err != nil {
		return fmt.Errorf("raw: revive: %w", err)
	}
	for _, o := range b.spaces() {
		o.dead = nil
		if err := o.revive(); err != nil {
			return fmt.Errorf("raw: revive: %w", errors.Join(err, b.end(err)))
		}
	}
	return nil
}

// revive makes the channel of one address space anew, in the memory that the old one had.
func (b *Backend) revive() error {
	c := b.ch
	clear(c.notifier.host)
	rm.Store64(c.host.host[ticketAt:], 0)
	for at := 0; at < rm.UserdSize; at += 4 {
		rm.Store32(c.control.host[userdAt+at:], 0)
	}
	*c = channel{control: c.control, host: c.host, notifier: c.notifier}
	if err := b.newChannel(c); err != nil {
		return err
	}
	if err := b.startChannel(); err != nil {
		return err
	}
	if err := b.setLocal(b.local.memory, b.local.thread); err != nil {
		return err
	}
	for p := range b.programs {
		if err := p.restore(); err != nil {
			return err
		}
	}
	return nil
}
