package raw

import (
	"fmt"

	"holdfast/internal/engine"
	"holdfast/internal/hfx"
)

// Known are GPUs whose figures were read from one.
var Known = map[string]GPU{
	"h200": {Name: "NVIDIA H200", Arch: 90, GPCs: 8, TPCsPerGPC: 9, TPCs: 66, SMsPerTPC: 2, Warps: 64},
}

// Link is a backend without a GPU: what it would do on one of a kind is taken down by w, in the same order and to the
// same bytes. What is loaded and prepared on it becomes the program of w; then each Port of w is followed by one Write
// or Read, of an input or an output.
func Link(g GPU, w *hfx.Writer) (*Backend, error) {
	b := &Backend{mapped: map[uint64]*memory{}, programs: map[*program]bool{},
		own: addresses{next: ownBase, end: ownEnd}, sheet: w}
	for _, gen := range generations {
		if gen.arch == g.Arch {
			b.gen = gen
		}
	}
	if b.gen.arch == 0 || g.TPCs == 0 || g.SMsPerTPC == 0 || g.Warps == 0 || g.GPCs*g.TPCsPerGPC < g.TPCs {
		return nil, fmt.Errorf("raw: link: no GPU like this is known: %+v", g)
	}
	b.setGPU(g)
	b.info = engine.Info{Name: g.Name, Arch: g.Arch, Cubin: true}
	h := &w.Header
	h.Arch, h.GPCs, h.TPCsPerGPC, h.SMsPerTPC = uint32(g.Arch), g.GPCs, g.TPCsPerGPC, g.SMsPerTPC
	h.Warps, h.TPCs = g.Warps, g.TPCs
	h.ClassCompute, h.ClassFIFO, h.ClassCopy, h.ClassUser = b.gen.compute, b.gen.fifo, b.gen.copying, b.usermode()
	h.Ring, h.RingEntries, h.USERD = ringAt, ringEntries, userdAt
	h.Ticket, h.Begin, h.End, h.Progress = ticketAt, beginAt, endAt, progressAt
	h.Name, h.NameBytes = w.Text(g.Name)
	b.ch = &channel{}
	if err := b.channelMemory(b.ch); err != nil {
		return nil, err
	}
	if err := b.channelAddresses(b.ch); err != nil {
		return nil, err
	}
	return b, b.startChannel()
}

// Port begins an input or output of a linked recording: small pushbuffers begin anew, since nobody knows which ports
// are done before it.
func (b *Backend) Port(p hfx.Port) {
	b.sheet.Port(p)
	b.ch.push = 0
}
