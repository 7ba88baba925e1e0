package snapshot

import (
	"context"
	"fmt"

	"holdfast/internal/cuda"
	"holdfast/internal/snapshot/digest"
)

// drainItem is a chunk to be copied to the host and put into the sink.
type drainItem struct {
	src    cuda.DevicePtr
	chunk  int    // for messages: whose content it is
	digest Digest // what it must be, unless live
	live   bool   // the program may be writing it: take what arrives
}

// drain copies the items to the host and puts those into the sink that are not there yet.
func (s *Snapshot) drain(ctx context.Context, sink Sink, step string, items []drainItem) error {
	s.done = 0
	total := uint64(len(items)) * ChunkSize
	at := 0
	return s.e.runBatches(ctx, func() *batch {
		if at == len(items) {
			return nil
		}
		part := items[at:min(at+s.e.batchChunks(), len(items))]
		at += len(part)
		return &batch{
			begin: func(buf []byte, st cuda.Stream) error { return s.e.copyToHost(buf, part, st) },
			end: func(buf []byte) error {
				for n, it := range part {
					if err := s.put(sink, it, buf[n*ChunkSize:(n+1)*ChunkSize:(n+1)*ChunkSize]); err != nil {
						return err
					}
				}
				s.progress(step, len(part), total)
				return nil
			},
		}
	})
}

// maxCopy is the most bytes of one copy to the host: the program's own copies get in between.
const maxCopy = 4 << 20

// copyToHost queues copies of the items into buf, one for a run of neighbours.
func (e *Engine) copyToHost(buf []byte, items []drainItem, st cuda.Stream) error {
	for from := 0; from < len(items); {
		to := from + 1
		for to < len(items) && to-from < maxCopy/ChunkSize && items[to].src == items[to-1].src+ChunkSize {
			to++
		}
		if err := e.drv.CopyDtoH(buf[from*ChunkSize:to*ChunkSize], items[from].src, st); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// put gives one drained chunk to the sink.
func (s *Snapshot) put(sink Sink, it drainItem, data []byte) error {
	d := it.digest
	verify := it.live || s.opts.VerifyEvery > 0 && (s.verifyCount.Add(1)-1)%int64(s.opts.VerifyEvery) == 0
	if verify {
		d = digest.Sum(data)
		if !it.live && d != it.digest {
			return fmt.Errorf("%s: digest of the bytes that arrived %v, on the device %v", s.table.name(it.chunk), d,
				it.digest)
		}
	}
	if !s.claim(d, verify) {
		return nil
	}
	if err := sink.PutChunk(d, data); err != nil {
		return fmt.Errorf("%s: store %v: %w", s.table.name(it.chunk), d, err)
	}
	return nil
}

// claim reports whether the caller is to put d, and counts.
func (s *Snapshot) claim(d Digest, verified bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if verified {
		s.stats.Verified++
	}
	if d.IsZero() || s.isStored(d) {
		return false
	}
	s.stored[d] = struct{}{}
	s.stats.New++
	return true
}

func (s *Snapshot) progress(step string, chunks int, total uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += uint64(chunks) * ChunkSize
	if s.opts.Progress != nil {
		s.opts.Progress(Progress{step, s.done, total})
	}
}
