package softgpu

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"

	"holdfast/ptx"
)

// A cluster is a set of blocks that see one another's shared memory. All its
// blocks run in turns in one goroutine; without clusters it is one block. The shared memory of a block
// stays readable until the last block of the cluster has ended.
//
// In the shared::cluster window an address is rank+1 in bits 24 and up, and the
// offset in that block's shared memory below; 0 there is the block itself.
type cluster struct {
	blocks  []*block
	running *block
	alone   [1]*block // place for blocks, where there is one

	// barrier.cluster: threads that have arrived in this phase, and that have not exited
	arrived, live int
}

// MaxClusterBlocks is the largest cluster, with the non-portable size allowed.
const MaxClusterBlocks = 16

const (
	rankShift  = 24
	offsetMask = 1<<rankShift - 1
)

// clusterDims checks the cluster of a launch; 1,1,1 = none.
func (l *launch) clusterDims() error {
	c := l.cfg.Cluster
	if c == ([3]uint32{}) {
		c = l.prog.cluster
	} else if r := l.prog.cluster; r != ([3]uint32{}) && r != c {
		return fmt.Errorf("cluster %v, the kernel requires %v", c, r)
	}
	l.explicitCluster = c != [3]uint32{}
	if !l.explicitCluster {
		if l.prog.explicitCluster {
			return errors.New("the kernel wants to be launched with a cluster size")
		}
		c = [3]uint32{1, 1, 1}
	}
	n := uint64(1)
	for i := range 3 {
		if c[i] == 0 || l.cfg.Grid[i]%c[i] != 0 {
			return fmt.Errorf("grid %v is no multiple of cluster %v", l.cfg.Grid, c)
		}
		n *= uint64(min(c[i], MaxClusterBlocks+1))
	}
	limit := uint64(MaxClusterBlocks)
	if m := l.prog.maxCluster; m > 0 {
		limit = min(limit, uint64(m))
	}
	if n > limit {
		return fmt.Errorf("cluster %v has more than %d blocks", c, limit)
	}
	l.cluster, l.perCluster = c, int(n)
	return nil
}

// clusterDirectives reads .reqnctapercluster, .explicitcluster and .maxclusterrank.
func (p *program) clusterDirectives(f *ptx.Func) {
	for _, d := range f.Perf {
		switch d.Name {
		case ".reqnctapercluster":
			p.cluster = [3]uint32{1, 1, 1}
			for i, a := range d.Args {
				if n, err := strconv.ParseUint(a, 0, 16); err == nil && i < 3 {
					p.cluster[i] = uint32(n)
				}
			}
		case ".explicitcluster":
			p.explicitCluster = true
		case ".maxclusterrank":
			if len(d.Args) > 0 {
				if n, err := strconv.ParseUint(d.Args[0], 0, 16); err == nil {
					p.maxCluster = int(n)
				}
			}
		}
	}
}

func (l *launch) newCluster() *cluster {
	c := &cluster{}
	c.blocks = c.alone[:0]
	for rank := range l.perCluster {
		b := l.newBlock()
		b.cluster, b.rank = c, uint32(rank)
		c.blocks = append(c.blocks, b)
	}
	return c
}

func (c *cluster) bytes() int { return len(c.blocks) * c.blocks[0].bytes() }

// begin makes c cluster number i of the grid.
func (c *cluster) begin(i uint64) {
	l := c.blocks[0].launch
	d := l.cluster
	nx, ny := uint64(l.cfg.Grid[0]/d[0]), uint64(l.cfg.Grid[1]/d[1])
	at := [3]uint32{uint32(i%nx) * d[0], uint32(i/nx%ny) * d[1], uint32(i/nx/ny) * d[2]}
	c.arrived, c.live = 0, l.threads*len(c.blocks)
	for rank, b := range c.blocks {
		r := uint32(rank)
		b.begin([3]uint32{at[0] + r%d[0], at[1] + r/d[0]%d[1], at[2] + r/d[0]/d[1]})
	}
}

// run runs the blocks in turn until all have ended, and reports true, or until the
// cluster should give way to another one.
func (c *cluster) run() bool {
	if len(c.blocks) == 1 {
		c.running = c.blocks[0]
		return c.running.run()
	}
	moved := false
	for _, b := range c.blocks {
		if b.live == 0 {
			continue
		}
		c.running = b
		b.run()
		moved = moved || !b.stuck
		if b.launch.stop.Load() {
			return false
		}
	}
	if c.live == 0 {
		return true
	}
	if !moved {
		for _, b := range c.blocks {
			c.running = b
			b.deadlock()
		}
	}
	return false
}

// A clusterOp is barrier.cluster.arrive or wait.
type clusterOp struct{ wait bool }

// clusterBarrier runs barrier.cluster for the lanes of mask.
func (w *warp) clusterBarrier(in *inst, mask uint32) {
	c := w.block.cluster
	if !in.x.(*clusterOp).wait {
		if twice := mask & (w.clusterIn | w.clusterPast); twice != 0 {
			w.fault(FaultBarrier, in, bits.TrailingZeros32(twice), 0,
				"barrier.cluster.arrive twice without barrier.cluster.wait")
		}
		w.clusterIn |= mask
		c.arrived += bits.OnesCount32(mask)
		w.groups[w.cur].pc++
		c.tryRelease()
		return
	}
	if early := mask &^ (w.clusterIn | w.clusterPast); early != 0 {
		w.fault(FaultBarrier, in, bits.TrailingZeros32(early), 0, "barrier.cluster.wait without barrier.cluster.arrive")
	}
	g := w.detach(mask)
	ready := mask & w.clusterPast
	w.clusterPast &^= ready
	if ready == mask {
		g.pc++
		return
	}
	g.mask &^= ready
	g.wait = waitCluster
	if ready != 0 {
		w.groups = append(w.groups, group{pc: g.pc + 1, mask: ready, fr: g.fr, stamp: g.stamp})
	}
}

// tryRelease ends the phase of the cluster's barrier if every thread that has not exited is there.
func (c *cluster) tryRelease() {
	if c.arrived == 0 || c.arrived < c.live {
		return
	}
	c.arrived = 0
	for _, b := range c.blocks {
		for _, w := range b.warps {
			w.clusterPast |= w.clusterIn
			w.clusterIn = 0
			for i := range w.groups {
				g := &w.groups[i]
				if g.wait == waitCluster {
					w.clusterPast &^= g.mask
					g.wait = waitNone
					g.pc++
				}
			}
		}
	}
}

// exited takes threads that have exited out of the barrier.
func (c *cluster) exited(w *warp, mask uint32) {
	c.live -= bits.OnesCount32(mask)
	c.arrived -= bits.OnesCount32(mask & w.clusterIn)
	w.clusterIn &^= mask
	w.clusterPast &^= mask
	c.tryRelease()
}

// peer gives n bytes at an address of the shared::cluster window that is not the block's own; nil = there are none.
func (b *block) peer(addr uint64) (*block, uint64) {
	rank := addr>>rankShift - 1
	if rank >= uint64(len(b.cluster.blocks)) {
		return nil, 0
	}
	return b.cluster.blocks[rank], addr & offsetMask
}
