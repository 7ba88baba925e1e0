package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/snapshot/digest"
)

// Span is a range of bytes of a region.
type Span struct {
	Region   int // index in the list given to Begin
	Off, Len uint64
}

// MispredictedError says that the program wrote a chunk that had not been kept yet, without BeforeWrite having been
// told: what it held at the freeze is lost. Some other mode has to take the snapshot again.
type MispredictedError struct {
	Region    int
	Off       uint64 // of the chunk in the region
	Want, Got Digest // at the freeze, and when it was copied
}

func (e *MispredictedError) Error() string {
	return fmt.Sprintf("region %d, chunk at offset %#x was written before it was kept: digest %v at the freeze, %v "+
		"when it was copied", e.Region, e.Off, e.Want, e.Got)
}

// cowState is where the content that a chunk had at the freeze is.
type cowState uint8

const (
	cowKept    cowState = iota // in the sink, on the way there, or not needed
	cowPending                 // in the program's memory only
	cowMoving                  // there, and BeforeWrite is copying it into a slot
	cowLeaving                 // there, and a lane is copying it
	// there, and both are copying it: a launch does not wait for what the lane has queued before it
	cowRescue
	cowRescued // in a slot, and a lane is copying what was in the program's memory, which may have changed by then
	cowAside   // in a slot
)

// open reports whether a launch that writes the chunk has to wait.
func (s cowState) open() bool { return s >= cowPending && s <= cowRescue }

// claimable reports whether copying the chunk into a slot would end the wait.
func (s cowState) claimable() bool { return s == cowPending || s == cowLeaving }

// cow is the part of a snapshot in mode Cow that lanes and BeforeWrite share. The lock is never held over a driver
// call.
type cow struct {
	mu       sync.Mutex
	changed  sync.Cond // any of the following
	state    []cowState
	pending  int   // chunks in that state
	moving   int   // chunks that calls of BeforeWrite are copying aside
	aside    []int // chunks in that state that no lane has taken yet
	urgent   []int // pending chunks that a launch waits for
	next     int   // all pending chunks below this index have been looked at
	slot     map[int]int
	free     []int // slots
	finished bool
	err      error // why pending chunks will never be kept
}

func newCow(chunks int, pending, slots []int) *cow {
	c := &cow{state: make([]cowState, chunks), pending: len(pending), slot: map[int]int{}, free: slots}
	c.changed.L = &c.mu
	for _, i := range pending {
		c.state[i] = cowPending
	}
	return c
}

// BeforeWrite returns when what the spans held at the freeze is kept, so that the program may write them. It is called
// after Capture in mode Cow, by any goroutine; once Drain has returned there is nothing to keep and it returns at once.
// An error means that the snapshot failed: the program may go on.
func (s *Snapshot) BeforeWrite(ctx context.Context, spans []Span) error {
	c := s.cow
	if c == nil {
		return nil
	}
	start := time.Now()
	waited := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if waited {
			s.stats.Waits++
			s.stats.AsideNs += time.Since(start)
		}
	}()
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer stop()
	for {
		take, slots, wait := c.claim(s.table, spans)
		if len(take) > 0 {
			waited = true
			if err := s.moveAside(ctx, take, slots); err != nil {
				return err
			}
			continue
		}
		if !wait {
			return nil
		}
		waited = true
		if err := c.await(ctx, s.table, spans); err != nil {
			return err
		}
	}
}

// Kept reports whether BeforeWrite would return at once.
func (s *Snapshot) Kept(spans []Span) bool {
	c := s.cow
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished || c.err != nil {
		return true
	}
	for i := range s.table.chunks(spans) {
		if c.state[i].open() {
			return false
		}
	}
	return true
}

// claim takes the chunks of the spans that are in the program's memory only, as far as there are slots, to be copied
// there. Pending ones without a slot become urgent. wait says that some chunk of the spans is not kept yet and not
// taken here.
func (c *cow) claim(t *chunkTable, spans []Span) (take, slots []int, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished || c.err != nil {
		return nil, nil, c.err != nil // await returns the error
	}
	for i := range t.chunks(spans) {
		st := c.state[i]
		n := len(c.free)
		switch {
		case st.claimable() && n > 0:
			take, slots = append(take, i), append(slots, c.free[n-1])
			c.free = c.free[:n-1]
			c.moving++
			c.state[i] = cowRescue
			if st == cowPending {
				c.state[i] = cowMoving
				c.pending--
			}
			continue
		case st == cowPending && !slices.Contains(c.urgent, i):
			c.urgent = append(c.urgent, i)
		}
		wait = wait || st.open()
	}
	return take, slots, wait
}

// await waits for a change that claim may make use of.
func (c *cow) await(ctx context.Context, t *chunkTable, spans []Span) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.err != nil:
			return c.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.finished:
			return nil
		}
		open, claimable := false, false
		for i := range t.chunks(spans) {
			open = open || c.state[i].open()
			claimable = claimable || c.state[i].claimable()
		}
		if !open || claimable && len(c.free) > 0 {
			return nil
		}
		c.changed.Wait()
	}
}

// moveAside copies chunks, which claim took, into slots.
func (s *Snapshot) moveAside(ctx context.Context, chunks, slots []int) error {
	dst := make([]cuda.DevicePtr, len(chunks))
	for n := range chunks {
		dst[n] = s.slots[slots[n]].addr
	}
	got, err := s.e.copyChunks(ctx, s.addresses(chunks), dst, true)
	c := s.cow
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	c.moving -= len(chunks)
	for n, i := range chunks {
		// If a lane has kept the chunk meanwhile, the program may have written it since.
		if err == nil && c.state[i] != cowKept && got[n] != s.final[i] {
			err = s.mispredicted(i, got[n])
		}
	}
	if err != nil {
		c.giveUp(err)
		return err
	}
	c.moved(chunks, slots)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Aside += len(chunks)
	return nil
}

// moved records that chunks are in slots, with the lock held.
func (c *cow) moved(chunks, slots []int) {
	for n, i := range chunks {
		switch c.state[i] {
		case cowKept:
			c.free = append(c.free, slots[n])
			continue
		case cowMoving:
			c.state[i] = cowAside
			c.aside = append(c.aside, i)
		case cowRescue:
			c.state[i] = cowRescued
		}
		c.slot[i] = slots[n]
	}
}

func (s *Snapshot) mispredicted(i int, got Digest) error {
	r, n := s.table.where(i)
	return &MispredictedError{Region: r, Off: uint64(n) * ChunkSize, Want: s.final[i], Got: got}
}

// fail ends all waiting, and no copying aside begins any more.
func (c *cow) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp(err)
}

// giveUp is fail with the lock held.
func (c *cow) giveUp(err error) {
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// close fails what is unfinished and returns when nobody uses the slots.
func (c *cow) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished {
		c.giveUp(errors.New("the snapshot was given up"))
	}
	for c.moving > 0 {
		c.changed.Wait()
	}
}

// drainCow moves what was pending at the freeze to the sink while the program runs.
func (s *Snapshot) drainCow(ctx context.Context, sink Sink) error {
	c := s.cow
	s.done = 0
	c.mu.Lock()
	total := uint64(c.pending+len(c.aside)) * ChunkSize
	c.mu.Unlock()
	for {
		err := s.e.runBatches(ctx, func() *batch {
			if chunks := c.take(s.e.batchChunks()); len(chunks) > 0 {
				return s.cowBatch(sink, chunks, total)
			}
			return nil
		})
		if err != nil {
			c.fail(err)
			return err
		}
		// All that was pending is in the sink or was taken by BeforeWrite.
		if done, err := c.settle(); done || err != nil {
			return err
		}
	}
}

// settle waits for calls of BeforeWrite that are copying. It is done if they left nothing to drain: then nothing is
// pending any more.
func (c *cow) settle() (done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.moving > 0 {
		c.changed.Wait()
	}
	if c.err != nil {
		return false, c.err
	}
	c.finished = len(c.aside) == 0 && c.pending == 0
	c.changed.Broadcast()
	return c.finished, nil
}

// take gives a lane the next chunks to drain: first those aside, whose slots are needed again, then those that launches
// wait for, then the others. It returns none when nothing is left to take.
func (c *cow) take(most int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var chunks []int
	for len(chunks) < most && len(c.aside) > 0 {
		chunks = append(chunks, c.aside[0])
		c.aside = c.aside[1:]
	}
	for len(chunks) < most && len(c.urgent) > 0 {
		chunks = c.leave(chunks, c.urgent[0])
		c.urgent = c.urgent[1:]
	}
	if len(chunks) > 0 {
		return chunks // launches that wait should not wait for more than these
	}
	for len(chunks) < most && c.next < len(c.state) {
		chunks = c.leave(chunks, c.next)
		c.next++
	}
	return chunks
}

// leave adds chunk i to those that a lane copies, if it is pending.
func (c *cow) leave(chunks []int, i int) []int {
	if c.state[i] != cowPending {
		return chunks
	}
	c.state[i] = cowLeaving
	c.pending--
	return append(chunks, i)
}

func (s *Snapshot) cowBatch(sink Sink, chunks []int, total uint64) *batch {
	items := make([]drainItem, len(chunks))
	c := s.cow
	c.mu.Lock()
	for n, i := range chunks {
		items[n] = drainItem{src: s.table.addr[i], chunk: i, digest: s.final[i]}
		if c.state[i] == cowAside {
			items[n].src = s.slots[c.slot[i]].addr
		}
	}
	c.mu.Unlock()
	return &batch{
		begin: func(buf []byte, st cuda.Stream) error { return s.e.copyToHost(buf, items, st) },
		end: func(buf []byte) error {
			c.arrived(chunks)
			done := 0
			for n, it := range items {
				data := buf[n*ChunkSize : (n+1)*ChunkSize : (n+1)*ChunkSize]
				// Only their own digest can tell that these are the bytes of the freeze.
				d := digest.Sum(data)
				if good := d == it.digest; c.checked(it.chunk, good) {
					continue // written while it was copied
				} else if !good {
					return s.mispredicted(it.chunk, d)
				}
				if err := s.putCow(sink, it, data); err != nil {
					return err
				}
				done++
			}
			s.progress("drain", done, total)
			return nil
		},
	}
}

// arrived records that a lane has brought chunks to host memory.
func (c *cow) arrived(chunks []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range chunks {
		if c.state[i] != cowRescued { // what arrived may have been overwritten
			c.keep(i)
		}
	}
	c.changed.Broadcast()
}

// keep marks a chunk as kept, with the lock held. A copy that is still being made finds that mark.
func (c *cow) keep(i int) {
	if slot, ok := c.slot[i]; ok {
		c.free = append(c.free, slot)
		delete(c.slot, i)
	}
	c.state[i] = cowKept
}

// checked records whether the copy of chunk i that a lane brought was good. If it was not, and the chunk is in a slot
// as well, the slot is drained instead.
func (c *cow) checked(i int, good bool) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[i] != cowRescued {
		return false
	}
	defer c.changed.Broadcast()
	if good {
		c.keep(i)
		return false
	}
	c.state[i] = cowAside
	c.aside = append(c.aside, i)
	return true
}

// putCow gives a chunk to the sink.
func (s *Snapshot) putCow(sink Sink, it drainItem, data []byte) error {
	if !s.claim(it.digest, true) {
		return nil
	}
	if err := sink.PutChunk(it.digest, data); err != nil {
		return fmt.Errorf("%s: store %v: %w", s.table.name(it.chunk), it.digest, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Drained++
	return nil
}
