package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/cuda"
)

// Sink takes the chunks of an image. PutChunk is called from several goroutines, at most once for a digest in one
// snapshot, never for ZeroDigest; data is ChunkSize bytes, valid during the call. Chunks that changed again before the
// freeze may be put although no final digest names them.
type Sink interface {
	PutChunk(d Digest, data []byte) error
}

// Options configures a snapshot.
type Options struct {
	Mode Mode
	// MayCow: the program runs while Drain does, and BeforeWrite is called before it writes.
	MayCow bool
	// Have reports whether the sink has the chunk already, intact. It is called from several goroutines. nil: never.
	Have func(Digest) bool
	// Logger may be nil.
	Logger *slog.Logger
	// Progress is called after each batch of chunks that was drained, one call at a time. nil: not.
	Progress func(Progress)
	// MaxStaging limits the device memory used for staging, in bytes. 0: only by what is free.
	MaxStaging uint64
	// VerifyEvery makes the CPU digest every n-th drained chunk and compare it with what the GPU said. 0: 16;
	// 1: every chunk; negative: none. Staged copies are digested on the GPU once more before the drain in any case.
	VerifyEvery int
}

// Snapshot takes the contents of regions at one moment. See the package comment for its steps. After an error of any
// of them the further ones return that error, and only Close is of use.
type Snapshot struct {
	e     *Engine
	opts  Options
	log   *slog.Logger
	table *chunkTable
	stats Stats

	staging []deviceMemory
	slots   []slot
	staged  map[Digest]int // slot by digest, as a hint: the slot's own digest decides
	home    []int          // of each chunk: the slot that holds its content, -1 for none
	hot     []bool         // of each chunk: changed while Precopy watched
	left    []bool         // of each chunk: Leave takes it out
	final   []Digest       // of each chunk, by Capture

	cow *cow // mode Cow, by Capture

	precopied, captured bool
	broken              error // of the step that failed

	verifyCount atomic.Int64

	mu     sync.Mutex          // the following and stats, while lanes run
	stored map[Digest]struct{} // in the sink, or being put
	had    map[Digest]struct{} // in the sink before
	done   uint64              // for Progress
}

// slot is room for one chunk in staging memory.
type slot struct {
	addr   cuda.DevicePtr
	digest Digest
	refs   int // chunks whose home it is
}

// Begin starts a snapshot of the regions, which stay open until Close. It touches no device yet.
func (e *Engine) Begin(regions []*Region, opts Options) *Snapshot {
	s := &Snapshot{
		e: e, opts: opts, log: opts.Logger, table: newChunkTable(regions),
		staged: map[Digest]int{}, stored: map[Digest]struct{}{}, had: map[Digest]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.VerifyEvery == 0 {
		s.opts.VerifyEvery = 16
	}
	n := len(s.table.addr)
	s.home = slices.Repeat([]int{-1}, n)
	s.hot = make([]bool, n)
	s.left = make([]bool, n)
	s.stats.Mode = opts.Mode
	s.stats.Why = "asked for"
	s.stats.Chunks = n
	s.stats.Bytes = uint64(n) * ChunkSize
	return s
}

// cowShare is the part of the memory for which mode Cow takes room to copy aside.
const cowShare = 16

// Precopy digests all chunks while the program runs and gets a copy of those that the sink does not have: in
// staging memory, or in the sink.
func (s *Snapshot) Precopy(ctx context.Context, sink Sink) error {
	if s.opts.Mode == Stop {
		return nil
	}
	return s.step("precopy", func() error { return s.precopy(ctx, sink) })
}

// step runs a step, unless one before it failed: what that one left, claims to chunks that were never stored for
// one, must not get into an image.
func (s *Snapshot) step(name string, run func() error) error {
	if s.broken != nil {
		return fmt.Errorf("%s of a failed snapshot: %w", name, s.broken)
	}
	if err := run(); err != nil {
		s.broken = fmt.Errorf("%s: %w", name, err)
	}
	return s.broken
}

func (s *Snapshot) precopy(ctx context.Context, sink Sink) error {
	s.precopied = true
	start := time.Now()
	defer func() { s.stats.PrecopyNs += time.Since(start) }()
	t := start
	before, err := s.e.digestChunks(ctx, s.table.addr, false)
	if err != nil {
		return err
	}
	s.stats.PrecopyDigestNs += lap(&t)
	need, err := s.unstored(ctx, before)
	if err != nil {
		return err
	}
	s.stats.PrecopyHaveNs += lap(&t)
	if s.opts.Mode == Auto && s.opts.MayCow {
		room, err := s.room()
		if err != nil {
			return err
		}
		if room < len(need) {
			s.stats.Mode, s.stats.Why = Cow, fmt.Sprintf("free device memory holds %d of %d chunks that must be kept",
				room, len(need))
		}
	}
	if s.stats.Mode == Cow {
		err := s.addSlots(min(len(need), len(before)/cowShare+1))
		s.stats.PrecopyReserveNs += lap(&t)
		return err
	}
	if s.opts.Mode != Recopy {
		// Room for what must be kept, and for some of the rest in case it changes.
		if err := s.addSlots(len(need) + (len(before)-len(need))/8 + 1); err != nil {
			return err
		}
		s.stats.PrecopyReserveNs += lap(&t)
		s.chooseMode(len(need))
	}
	if s.stats.Mode == Recopy {
		err = s.precopyDrain(ctx, sink, need, before)
	} else {
		err = s.precopyStage(ctx, sink, need, before)
	}
	return err
}

// chooseMode settles on Stage or Recopy after the room for staging is known.
func (s *Snapshot) chooseMode(need int) {
	switch {
	case len(s.slots) >= need:
		s.stats.Mode = Stage
		if s.opts.Mode == Auto {
			s.stats.Why = "free device memory holds a copy of all that must be kept"
		}
	case len(s.slots) > 0:
		s.stats.Mode = Stage
		s.stats.Why = fmt.Sprintf("free device memory holds %d of %d chunks that must be kept; the rest is drained "+
			"first", len(s.slots), need)
	default:
		s.stats.Mode = Recopy
		s.stats.Why = "no free device memory to stage in"
	}
	s.log.Debug("precopy", "mode", s.stats.Mode, "why", s.stats.Why, "need", need, "slots", len(s.slots))
}

// unstored returns one chunk for each of the digests that is neither zero nor stored nor what the sink has. It
// records what the sink has.
func (s *Snapshot) unstored(ctx context.Context, digests []Digest) ([]int, error) {
	var need []int
	seen := map[Digest]struct{}{}
	for i, d := range digests {
		if d.IsZero() || s.isStored(d) {
			continue
		}
		if _, dup := seen[d]; !dup {
			seen[d] = struct{}{}
			need = append(need, i)
		}
	}
	ask := make([]Digest, len(need))
	for n, i := range need {
		ask[n] = digests[i]
	}
	had, err := s.askHave(ctx, ask)
	if err != nil {
		return nil, err
	}
	rest := need[:0]
	for n, i := range need {
		if !had[n] {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// askHave asks Have about the digests, in parallel because the answer may mean to read and check a file, and records
// what the sink has.
func (s *Snapshot) askHave(ctx context.Context, digests []Digest) ([]bool, error) {
	have := make([]bool, len(digests))
	if s.opts.Have == nil {
		return have, nil
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(cap(s.e.batches), len(digests)) {
		wg.Go(func() {
			giveWay()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(digests) {
					return
				}
				have[i] = s.opts.Have(digests[i])
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i, d := range digests {
		if have[i] {
			s.stored[d] = struct{}{}
			s.had[d] = struct{}{}
		}
	}
	return have, nil
}

func (s *Snapshot) isStored(d Digest) bool {
	_, ok := s.stored[d]
	return ok
}

// precopyStage copies the chunks of need aside; where the room does not suffice, those that change all the time,
// because the others can be drained now and will most likely still be the same at the freeze.
func (s *Snapshot) precopyStage(ctx context.Context, sink Sink, need []int, before []Digest) error {
	t := time.Now()
	stage, drain := need, []int(nil)
	if len(need) > len(s.slots) {
		again, err := s.e.digestChunks(ctx, s.addresses(need), false)
		if err != nil {
			return err
		}
		s.stats.PrecopyDigestNs += lap(&t)
		var hot, cold []int
		for n, i := range need {
			if again[n] != before[i] {
				hot = append(hot, i)
			} else {
				cold = append(cold, i)
			}
		}
		order := append(hot, cold...)
		room := len(s.slots) - len(s.slots)/8 // the spare eighth is for drained chunks that change after all
		stage, drain = order[:room], order[room:]
		slices.Sort(stage) // neighbours get neighbouring slots, so that they drain in one copy
		slices.Sort(drain)
	}
	if err := s.drainLive(ctx, sink, drain); err != nil {
		return err
	}
	s.stats.PrecopyDrainNs += lap(&t)
	dst := make([]cuda.DevicePtr, len(stage))
	for n := range stage {
		dst[n] = s.slots[n].addr
	}
	copied, err := s.e.copyChunks(ctx, s.addresses(stage), dst, false)
	if err != nil {
		return err
	}
	for n, i := range stage {
		s.setSlot(n, copied[n])
		s.slots[n].refs = 1
		s.home[i] = n
		s.hot[i] = copied[n] != before[i]
	}
	for i, d := range before { // chunks with the same content share a slot
		if s.home[i] < 0 {
			s.adopt(i, d)
		}
	}
	s.stats.Staged += len(stage)
	s.stats.PrecopyStageNs += lap(&t)
	return nil
}

// precopyDrain drains the chunks of need, and then what changed meanwhile as long as that is getting less. Chunks that
// change all the time will most likely change again before the stall, in which they then have to be drained in any
// case: those seen changing in the moment before the first drain, or during two drains, are skipped.
func (s *Snapshot) precopyDrain(ctx context.Context, sink Sink, need []int, before []Digest) error {
	const rounds = 3
	seen := make([]int, len(before)) // changing
	for round := 1; ; round++ {
		t := time.Now()
		now, err := s.e.digestChunks(ctx, s.table.addr, false)
		if err != nil {
			return err
		}
		for i, d := range now {
			if d != before[i] {
				seen[i]++
			}
			s.hot[i] = seen[i] > 1 || round == 1 && seen[i] > 0 || s.hot[i]
		}
		before = now
		s.stats.PrecopyDigestNs += lap(&t)
		if round > 1 {
			changed, err := s.unstored(ctx, now)
			if err != nil {
				return err
			}
			s.stats.PrecopyHaveNs += lap(&t)
			if len(changed) > len(need)/2 {
				return nil
			}
			need = changed
		}
		all := len(need)
		need = slices.DeleteFunc(need, func(i int) bool { return s.hot[i] })
		s.stats.Skipped = all - len(need)
		if len(need) == 0 {
			return nil
		}
		if err := s.drainLive(ctx, sink, need); err != nil {
			return err
		}
		s.stats.PrecopyDrainNs += lap(&t)
		if round == rounds {
			return nil
		}
	}
}

// drainLive drains chunks that the program may be writing: the digest is that of the bytes that arrived.
func (s *Snapshot) drainLive(ctx context.Context, sink Sink, chunks []int) error {
	items := make([]drainItem, len(chunks))
	for n, i := range chunks {
		items[n] = drainItem{src: s.table.addr[i], chunk: i, live: true}
	}
	s.stats.Predrained += len(items)
	return s.drain(ctx, sink, "precopy", items)
}

// Leave takes region i out of the state that Capture will take: the program has freed it. Its copies are given up,
// its digests are those of zeros, and after Capture it may be closed.
func (s *Snapshot) Leave(i int) {
	for c := s.table.first[i]; c < s.table.first[i+1]; c++ {
		if s.left[c] {
			continue
		}
		s.left[c] = true
		s.stats.Chunks--
		s.stats.Bytes -= ChunkSize
		if h := s.home[c]; h >= 0 {
			s.slots[h].refs--
			s.home[c] = -1
		}
	}
}

// Capture digests all chunks of the frozen program and takes again what changed since Precopy. Without Precopy it
// takes everything. When it returns nil the program may run: Digests is final, and each content is in the sink or in
// staging memory.
func (s *Snapshot) Capture(ctx context.Context, sink Sink) error {
	return s.step("capture", func() error { return s.capture(ctx, sink) })
}

func (s *Snapshot) capture(ctx context.Context, sink Sink) error {
	start := time.Now()
	defer func() { s.stats.CaptureNs = time.Since(start) }()
	if err := s.digestFrozen(ctx); err != nil {
		return err
	}
	t := time.Now()
	missing, same := s.plan()
	if s.stats.Mode == Cow {
		s.cow = newCow(len(s.final), missing, s.freeSlots(len(s.slots)))
		s.stats.CapturePlanNs = lap(&t)
		s.captured = true
		return nil
	}
	free := s.freeSlots(len(missing))
	if s.opts.Mode == Auto && s.stats.Mode == Auto {
		s.stats.Mode, s.stats.Why = Stage, "no precopy; all is copied aside in the stall"
	}
	if s.stats.Mode == Stage && len(free) < len(missing) {
		if err := s.addSlots(len(missing) - len(free)); err != nil {
			return err
		}
		free = s.freeSlots(len(missing))
	}
	if s.stats.Mode == Stage && !s.precopied && len(s.slots) == 0 && len(missing) > 0 {
		s.stats.Mode, s.stats.Why = Stop, "no free device memory to stage in, and no precopy"
	}
	s.stats.CapturePlanNs = lap(&t)
	stage, drain := missing[:len(free)], missing[len(free):]
	if err := s.stageFrozen(ctx, stage, free); err != nil {
		return err
	}
	s.stats.CaptureCopyNs = lap(&t)
	if err := s.drainFrozen(ctx, sink, drain); err != nil {
		return err
	}
	s.stats.CaptureDrainNs = lap(&t)
	for _, i := range same {
		if !s.isStored(s.final[i]) && !s.adopt(i, s.final[i]) {
			return fmt.Errorf("%s: content %v was lost", s.table.name(i), s.final[i]) // a defect of plan
		}
	}
	s.captured = true
	return nil
}

// digestFrozen fills s.final. Chunks that are known to change all the time and have a slot of their own are copied into
// it by the same pass over memory.
func (s *Snapshot) digestFrozen(ctx context.Context) error {
	t := time.Now()
	s.final = make([]Digest, len(s.home))
	var hot, rest []int
	for i := range s.final {
		switch {
		case s.left[i]:
			s.final[i] = ZeroDigest
		case s.hot[i] && s.home[i] >= 0 && s.slots[s.home[i]].refs == 1:
			hot = append(hot, i)
		default:
			rest = append(rest, i)
		}
	}
	dst := make([]cuda.DevicePtr, len(hot))
	for n, i := range hot {
		dst[n] = s.slots[s.home[i]].addr
	}
	digests, err := s.e.copyChunks(ctx, s.addresses(hot), dst, true)
	if err != nil {
		return err
	}
	for n, i := range hot {
		s.final[i] = digests[n]
		if s.slots[s.home[i]].digest != digests[n] {
			s.stats.Changed++
		}
		s.setSlot(s.home[i], digests[n])
	}
	s.stats.CaptureCopied += len(hot)
	s.stats.CaptureHotNs = lap(&t)
	if digests, err = s.e.digestChunks(ctx, s.addresses(rest), true); err != nil {
		return err
	}
	for n, i := range rest {
		s.final[i] = digests[n]
	}
	s.stats.CaptureDigestNs = lap(&t)
	return nil
}

// plan compares s.final with what is held. It returns one chunk for each content that is held nowhere, and the further
// chunks with such a content.
func (s *Snapshot) plan() (missing, same []int) {
	var changed []int
	for i, d := range s.final {
		if s.left[i] {
			continue
		}
		if d.IsZero() {
			s.stats.Zero++
		}
		if h := s.home[i]; h >= 0 {
			if s.slots[h].digest == d {
				continue
			}
			s.slots[h].refs--
			s.home[i] = -1
			s.stats.Changed++
		}
		changed = append(changed, i)
	}
	seen := map[Digest]struct{}{}
	for _, i := range changed {
		d := s.final[i]
		if d.IsZero() || s.isStored(d) || s.adopt(i, d) {
			continue
		}
		if _, dup := seen[d]; dup {
			same = append(same, i)
			continue
		}
		seen[d] = struct{}{}
		missing = append(missing, i)
	}
	return missing, same
}

// adopt makes the slot that holds d, if there is one, the home of chunk i.
func (s *Snapshot) adopt(i int, d Digest) bool {
	h, ok := s.staged[d]
	if !ok || s.slots[h].digest != d {
		return false
	}
	s.slots[h].refs++
	s.home[i] = h
	return true
}

// setSlot records that slot n holds d.
func (s *Snapshot) setSlot(n int, d Digest) {
	s.slots[n].digest = d
	s.staged[d] = n
}

// freeSlots returns up to n slots that are no chunk's home.
func (s *Snapshot) freeSlots(n int) []int {
	var free []int
	for i := range s.slots {
		if len(free) == n {
			break
		}
		if s.slots[i].refs == 0 {
			free = append(free, i)
		}
	}
	return free
}

// stageFrozen copies chunks of the frozen program into the slots.
func (s *Snapshot) stageFrozen(ctx context.Context, chunks, slots []int) error {
	dst := make([]cuda.DevicePtr, len(chunks))
	for n := range chunks {
		dst[n] = s.slots[slots[n]].addr
	}
	copied, err := s.e.copyChunks(ctx, s.addresses(chunks), dst, true)
	if err != nil {
		return err
	}
	for n, i := range chunks {
		if copied[n] != s.final[i] {
			return fmt.Errorf("%s changed while the program was frozen: digest %v, then %v", s.table.name(i),
				s.final[i], copied[n])
		}
		s.setSlot(slots[n], copied[n])
		s.slots[slots[n]].refs = 1
		s.home[i] = slots[n]
	}
	s.stats.CaptureCopied += len(chunks)
	return nil
}

// drainFrozen drains chunks of the frozen program.
func (s *Snapshot) drainFrozen(ctx context.Context, sink Sink, chunks []int) error {
	if len(chunks) == 0 {
		return nil
	}
	ask := make([]Digest, len(chunks))
	for n, i := range chunks {
		ask[n] = s.final[i]
	}
	have, err := s.askHave(ctx, ask)
	if err != nil {
		return err
	}
	var items []drainItem
	for n, i := range chunks {
		if !have[n] {
			items = append(items, drainItem{src: s.table.addr[i], chunk: i, digest: s.final[i]})
		}
	}
	s.stats.CaptureDrain += len(items)
	return s.drain(ctx, sink, "capture", items)
}

// Drain moves the staged copies to the sink while the program runs, and frees the staging memory.
func (s *Snapshot) Drain(ctx context.Context, sink Sink) error {
	return s.step("drain", func() error { return s.drainStaged(ctx, sink) })
}

func (s *Snapshot) drainStaged(ctx context.Context, sink Sink) error {
	if !s.captured {
		return errors.New("nothing was captured")
	}
	start := time.Now()
	defer func() { s.stats.DrainNs = time.Since(start) }()
	if s.cow != nil {
		if err := s.drainCow(ctx, sink); err != nil {
			return err
		}
		return s.Close()
	}
	items, err := s.stagedItems(ctx)
	if err != nil {
		return err
	}
	t := time.Now()
	if err := s.verifyStaged(ctx, items); err != nil {
		return err
	}
	s.stats.DrainVerifyNs = lap(&t)
	if err := s.drain(ctx, sink, "drain", items); err != nil {
		return err
	}
	s.stats.Drained = len(items)
	return s.Close()
}

// stagedItems lists the slots that hold content of the final state which the sink lacks.
func (s *Snapshot) stagedItems(ctx context.Context) ([]drainItem, error) {
	chunkOf := slices.Repeat([]int{-1}, len(s.slots))
	for i, h := range s.home {
		if h >= 0 {
			chunkOf[h] = i
		}
	}
	var items []drainItem
	var ask []Digest
	seen := map[Digest]struct{}{}
	for n, sl := range s.slots {
		if sl.refs == 0 || sl.digest.IsZero() || s.isStored(sl.digest) {
			continue
		}
		if _, dup := seen[sl.digest]; dup {
			continue
		}
		seen[sl.digest] = struct{}{}
		items = append(items, drainItem{src: sl.addr, chunk: chunkOf[n], digest: sl.digest})
		ask = append(ask, sl.digest)
	}
	have, err := s.askHave(ctx, ask)
	if err != nil {
		return nil, err
	}
	n := -1
	return slices.DeleteFunc(items, func(drainItem) bool { n++; return have[n] }), nil
}

// verifyStaged digests the staged copies once more: they lay in device memory beside running programs.
func (s *Snapshot) verifyStaged(ctx context.Context, items []drainItem) error {
	src := make([]cuda.DevicePtr, len(items))
	for n := range items {
		src[n] = items[n].src
	}
	now, err := s.e.digestChunks(ctx, src, false)
	if err != nil {
		return err
	}
	for n, it := range items {
		if now[n] != it.digest {
			return fmt.Errorf("%s: the staged copy at %#x was damaged: digest %v, captured %v", s.table.name(it.chunk),
				it.src, now[n], it.digest)
		}
	}
	return nil
}

// Digests returns the digests of the chunks of region i at the freeze. Valid after Capture.
func (s *Snapshot) Digests(i int) []Digest { return split(s.table, s.final, i) }

// Stats returns what was done so far.
func (s *Snapshot) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	for _, d := range s.final {
		if _, ok := s.had[d]; ok {
			st.Had++
		}
	}
	return st
}

// Close frees the staging memory. It may be called at any point, again too; the regions stay open.
func (s *Snapshot) Close() error {
	if s.cow != nil {
		s.cow.close()
	}
	if len(s.staging) == 0 {
		return nil
	}
	staging := s.staging
	s.staging, s.slots = nil, nil
	err := s.e.gpu.do(func() error {
		var errs []error
		for _, m := range staging {
			errs = append(errs, s.e.release(m))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("free staging memory: %w", err)
	}
	return nil
}

// addSlots allocates room for n more chunks, or for as many as there is memory for.
func (s *Snapshot) addSlots(n int) error {
	// Blocks, so that memory can be used up to a little when others allocate at the same time.
	const blockChunks = (4 << 30) / ChunkSize
	room, err := s.room()
	if err != nil {
		return err
	}
	return s.e.gpu.do(func() error {
		for n = min(n, room); n > 0; {
			chunks := min(n, blockChunks)
			m, err := s.e.allocate(uint64(chunks) * ChunkSize)
			if errors.Is(err, cuda.ErrOutOfMemory) {
				n = chunks / 2
				continue
			}
			if err != nil {
				return err
			}
			s.staging = append(s.staging, m)
			s.stats.StagingBytes += m.size
			for c := range chunks {
				s.slots = append(s.slots, slot{addr: m.base + cuda.DevicePtr(c)*ChunkSize})
			}
			n -= chunks
		}
		return nil
	})
}

// room is for how many chunks there is device memory to stage in.
func (s *Snapshot) room() (chunks int, err error) {
	room, err := s.e.Room()
	if s.opts.MaxStaging > 0 {
		room = min(room, s.opts.MaxStaging-min(s.opts.MaxStaging, s.stats.StagingBytes))
	}
	return int(room / ChunkSize), err
}

// addresses returns where the chunks are.
func (s *Snapshot) addresses(chunks []int) []cuda.DevicePtr {
	a := make([]cuda.DevicePtr, len(chunks))
	for n, i := range chunks {
		a[n] = s.table.addr[i]
	}
	return a
}
