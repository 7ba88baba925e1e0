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
	b.dead = fmt.Errorf("raw: the channel is gone: %w", failure)
	if err := b.closeChannel(b.ch); err != nil {
		return errors.Join(failure, err)
	}
	return failure
}

// blame asks the driver at which address, and in which code, the channel failed. It asks the debugger's object, as
// libcuda does, and only about failures of kernels: other questions (NV906F_CTRL_CMD_GET_MMU_FAULT_INFO) were seen to
// hang the GPU's firmware while it was taking a failed copy engine down.
func (b *Backend) blame(p *program, f *engine.Fault) {
	var c *channelError
	if !errors.As(f.Err, &c) || c.code != channelKernel && c.code != channelMMU {
		return
	}
	if b.ch.debugger == 0 {
		return
	}
	sms := rm.NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS{HTargetChannel: uint32(b.ch.handle), NumSMsToRead: 100}
	if err := b.rm.Control(b.ch.debugger, rm.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES, &sms); err != nil {
		return
	}
	if sms.MmuFaultValid != 0 {
		var m rm.NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS
		if err := b.rm.Control(b.ch.debugger, rm.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO, &m); err == nil &&
			m.Count > 0 {
			f.Addr = m.MmuFaultInfoList[0].FaultAddress
		}
	}
	for _, s := range sms.SmErrorStateArray {
		if s.HwwWarpEsr != 0 && p.blameCode(f, s.HwwWarpEsrPc64) {
			return
		}
	}
}

// blameCode names the launch whose code an address is in. Two launches of one kernel: the kernel alone.
func (p *program) blameCode(f *engine.Fault, pc uint64) bool {
	found := false
	for i := range p.blocks {
		bl := &p.blocks[i]
		from := bl.k.c.memory.addr + bl.k.fn.Code
		if pc < from || pc >= from+uint64(bl.k.fn.CodeSize) {
			continue
		}
		if found && f.Place != bl.place {
			f.Place = engine.Place{Word: f.Word, Op: -1, Kernel: bl.k.fn.Name}
			continue
		}
		found = true
		f.Place = bl.place
	}
	return found
}
