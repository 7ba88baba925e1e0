package raw

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/rm"
)

// fail ends the channel after a run that did not complete, and names the work. The backend is dead from then on: its
// memory can be closed, and the process goes on.
func (b *Backend) fail(p *program, err error, timeout time.Duration) error {
	progress := int(rm.Load64(b.ch.host.host[progressAt:]))
	place := engine.Place{Word: progress, Op: -1}
	if progress < len(p.places) {
		place = p.places[progress]
	}
	var failure error
	if errors.Is(err, errTimeout) {
		failure = &engine.Timeout{Place: place, After: timeout}
	} else {
		f := &engine.Fault{Place: place, Err: err}
		b.blame(p, f)
		failure = f
	}
	return errors.Join(failure, b.end(failure))
}

// end ends the work of all address spaces.
func (b *Backend) end(why error) error {
	var errs []error
	all := b.spaces()
	for i := len(all) - 1; i >= 0; i-- {
		all[i].dead = fmt.Errorf("raw: the channel is gone: %w", why)
		errs = append(errs, all[i].closeChannel(all[i].ch))
	}
	return errors.Join(errs...)
}

// blame asks the driver at which address, and in which code, the channel failed. It asks the debugger's object, and
// only about failures of kernels: another question (NV906F_CTRL_CMD_GET_MMU_FAULT_INFO) went unanswered for 45 s
// while the GPU's firmware was taking a failed copy engine down, and the GPU was lost.
func (b *Backend) blame(p *program, f *engine.Fault) {
	var c *channelError
	if !errors.As(f.Err, &c) || c.code != channelKernel && c.code != channelMMU {
		return
	}
	if b.ch.debugger == 0 {
		return
	}
	faulted := false
	for sm := uint32(0); sm < b.sms; sm += smsAtOnce {
		states := rm.NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS{HTargetChannel: uint32(b.ch.handle),
			NumSMsToRead: min(b.sms-sm, smsAtOnce), StartingSM: sm}
		if err := b.rm.Control(b.ch.debugger, rm.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES, &states); err != nil {
			return
		}
		if states.MmuFaultValid != 0 && !faulted {
			faulted = true
			b.faultAddress(f)
		}
		for _, s := range states.SmErrorStateArray {
			if s.HwwWarpEsr != 0 && p.blameCode(f, s.HwwWarpEsrPc64) {
				return
			}
		}
	}
}

// smsAtOnce is how many multiprocessors one question is about.
const smsAtOnce = 100

// faultAddress asks which access failed.
func (b *Backend) faultAddress(f *engine.Fault) {
	var m rm.NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS
	err := b.rm.Control(b.ch.debugger, rm.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO, &m)
	if err == nil && m.Count > 0 {
		f.Addr = m.MmuFaultInfoList[0].FaultAddress
	}
}

// blameCode names the launch of the word whose code an address is in. Two launches of one kernel: the kernel alone.
func (p *program) blameCode(f *engine.Fault, pc uint64) bool {
	word, found := f.Word, false
	for i := range p.blocks {
		bl := &p.blocks[i]
		from := bl.k.c.memory.addr + bl.k.fn.Code
		// A word that is counted down counts as begun when the first launch of the word before is complete.
		before := bl.place.Word == word-1 && p.countedDown(word)
		if bl.place.Word != word && !before || pc < from || pc >= from+uint64(bl.k.fn.CodeSize) {
			continue
		}
		if found {
			f.Place = engine.Place{Word: word, Op: -1, Kernel: bl.place.Kernel}
			return true
		}
		found = true
		f.Place = bl.place
	}
	return found
}
