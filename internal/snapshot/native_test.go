package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/snapshot/digest"
)

// The tests of this file need a driver library and a device; without one they are skipped with the reason.
//
//	HOLDFAST_TEST_LIBCUDA  the library (libcuda.so.1)
//	HOLDFAST_TEST_GIB      size of the memory that rates are measured with (1, on the software GPU 1/32)
//
// go test -v -run Native ./internal/snapshot prints the rates.

// openDevice opens the driver and makes an engine.
func openDevice(t *testing.T) (cuda.Driver, *Engine, uint64) {
	t.Helper()
	path := os.Getenv("HOLDFAST_TEST_LIBCUDA")
	named := path != ""
	if !named {
		path = native.DefaultPath
	}
	skip := t.Skipf
	if named {
		skip = t.Fatalf // who names a library wants to see it used
	}
	drv, err := native.Open(path)
	if err != nil {
		skip("no driver library: %v", err)
	}
	if err := drv.Init(); err != nil {
		skip("no usable device: %v", err)
	}
	dev, err := drv.DeviceGet(0)
	if err != nil {
		skip("no device: %v", err)
	}
	name, err := drv.DeviceName(dev)
	if err != nil {
		t.Fatal(err)
	}
	version, err := drv.DriverVersion()
	if err != nil {
		t.Fatal(err)
	}
	uuid, err := drv.DeviceUUID(dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %v, CUDA %v", name, uuid, version)
	gib := 1.0
	if strings.Contains(name, "software") {
		gib = 1.0 / 32
	}
	if v := os.Getenv("HOLDFAST_TEST_GIB"); v != "" {
		if gib, err = strconv.ParseFloat(v, 64); err != nil || gib <= 0 {
			t.Fatalf("HOLDFAST_TEST_GIB=%q", v)
		}
	}
	start := time.Now()
	e, err := NewEngine(drv, dev, EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("engine in %v", time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return drv, e, max(uint64(gib*(1<<30))/ChunkSize, 8)
}

// hostImage is chunks in a form that costs little host memory: a few contents, each stamped with a number.
type hostImage struct {
	bases   [][]byte
	digests []Digest
	stamp   map[Digest]int
}

func newHostImage(chunks int) *hostImage {
	im := &hostImage{digests: make([]Digest, chunks), stamp: make(map[Digest]int, chunks)}
	r := rand.New(rand.NewPCG(41, 42))
	for range 16 {
		b := make([]byte, ChunkSize)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], r.Uint64())
		}
		im.bases = append(im.bases, b)
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range runtime.NumCPU() {
		wg.Go(func() {
			buf := make([]byte, ChunkSize)
			for i := int(next.Add(1)) - 1; i < chunks; i = int(next.Add(1)) - 1 {
				im.chunk(i, buf)
				im.digests[i] = digest.Sum(buf)
			}
		})
	}
	wg.Wait()
	for i, d := range im.digests {
		im.stamp[d] = i
	}
	return im
}

func (im *hostImage) chunk(i int, buf []byte) {
	copy(buf, im.bases[i%len(im.bases)])
	binary.LittleEndian.PutUint64(buf[ChunkSize/2:], uint64(i))
}

func (im *hostImage) fetch(d Digest, buf []byte) error {
	i, ok := im.stamp[d]
	if !ok {
		return errors.New("not in the image")
	}
	im.chunk(i, buf)
	return nil
}

// discard is a Sink that costs nothing.
type discard struct{ chunks atomic.Int64 }

func (s *discard) PutChunk(Digest, []byte) error { s.chunks.Add(1); return nil }

// copying is a Sink that costs what a copy of the data costs.
type copying struct{ buffers sync.Pool }

func (s *copying) PutChunk(_ Digest, data []byte) error {
	b, _ := s.buffers.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
		*b = make([]byte, ChunkSize)
	}
	copy(*b, data)
	s.buffers.Put(b)
	return nil
}

// rate is what went through in a time, in GB/s.
func rate(bytes uint64, d time.Duration) float64 { return float64(bytes) / max(float64(d), 1) }

// write stores value in the words at offset off of every chunk of r, as a program would.
func write(t *testing.T, e *Engine, r *Region, off uint64, value uint32, every int) {
	t.Helper()
	err := e.gpu.do(func() error {
		for c := 0; c < r.Chunks(); c += every {
			if err := e.drv.SetD32(r.mem.base+cuda.DevicePtr(uint64(c)*ChunkSize+off), value, 1, e.stream); err != nil {
				return err
			}
		}
		return e.wait(false)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNativeDigest compares the kernels with digest.Sum on contents of all kinds.
func TestNativeDigest(t *testing.T) {
	_, e, _ := openDevice(t)
	r := rand.New(rand.NewPCG(1, 1))
	random := make([]byte, ChunkSize)
	for i := 0; i < len(random); i += 8 {
		binary.LittleEndian.PutUint64(random[i:], r.Uint64())
	}
	flipped := bytes.Clone(random)
	flipped[ChunkSize-1] ^= 0x80
	contents := [][]byte{make([]byte, ChunkSize), bytes.Repeat([]byte{0xff}, ChunkSize),
		bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, ChunkSize/4), random, flipped}
	var digests []Digest
	byDigest := map[Digest][]byte{}
	for _, c := range contents {
		d := digest.Sum(c)
		digests = append(digests, d)
		byDigest[d] = c
	}
	region, fd, err := e.Create(uint64(len(contents)) * ChunkSize)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	// Fill itself compares the kernel's digests with those of the CPU.
	if _, err := e.Fill(t.Context(), []*Region{region}, [][]Digest{digests}, func(d Digest, buf []byte) error {
		copy(buf, byDigest[d])
		return nil
	}, FillOptions{}); err != nil {
		t.Fatal(err)
	}
	// The same memory through its descriptor, and through a copy.
	imported, err := e.Import(fd, region.Size())
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		t.Fatal(err)
	}
	defer imported.Close()
	other, fd, err := e.Create(region.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	syscall.Close(fd)
	from, to := newChunkTable([]*Region{imported}), newChunkTable([]*Region{other})
	copied, err := e.copyChunks(t.Context(), from.addr, to.addr, true)
	if err != nil {
		t.Fatal(err)
	}
	back, err := e.digestChunks(t.Context(), to.addr, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range contents {
		if copied[i] != digests[i] || back[i] != digests[i] {
			t.Errorf("content %d: the copy kernel says %v, the copy has %v, the CPU says %v", i, copied[i], back[i],
				digests[i])
		}
	}
}

// TestNativeImage takes images of memory that is being written, and compares them with the memory at the freeze.
func TestNativeImage(t *testing.T) {
	_, e, _ := openDevice(t)
	const chunks = 12
	im := newHostImage(chunks)
	region, fd, err := e.Create(chunks * ChunkSize)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	syscall.Close(fd)
	regions := []*Region{region}
	if _, err := e.Fill(t.Context(), regions, [][]Digest{im.digests}, im.fetch, FillOptions{}); err != nil {
		t.Fatal(err)
	}
	sink := newStore()
	for round, mode := range []Mode{Stage, Recopy, Stop, Stage} {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		running := func() {
			wg.Go(func() {
				for n := uint32(round + 1); ; n += 8 {
					select {
					case <-stop:
						return
					default:
						write(t, e, region, uint64(n%1000)*4, n, 5)
					}
				}
			})
		}
		freeze := func() { close(stop); wg.Wait(); stop = make(chan struct{}) }
		s := e.Begin(regions, Options{Mode: mode, Have: sink.Have, VerifyEvery: 1})
		running()
		err := s.Precopy(t.Context(), sink)
		freeze()
		if err != nil {
			t.Fatal(err)
		}
		frozen, err := e.Digest(t.Context(), regions)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Capture(t.Context(), sink); err != nil {
			t.Fatal(err)
		}
		running()
		err = s.Drain(t.Context(), sink)
		freeze()
		if err != nil {
			t.Fatal(err)
		}
		for c, d := range s.Digests(0) {
			if d != frozen[0][c] {
				t.Errorf("%v: chunk %d is %v in the image, %v at the freeze", mode, c, d, frozen[0][c])
			}
			if !d.IsZero() && !sink.Have(d) {
				t.Errorf("%v: chunk %d (%v) is not in the store", mode, c, d)
			}
		}
		t.Logf("%+v", s.Stats())
		// And back.
		if _, err := e.Fill(t.Context(), regions, frozen, sink.fetch, FillOptions{Compare: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNativeRates prints what each step costs.
func TestNativeRates(t *testing.T) {
	drv, e, n := openDevice(t)
	chunks := int(n)
	start := time.Now()
	im := newHostImage(chunks)
	t.Logf("%.1f GiB; CPU digest of them in %v", float64(chunks)*ChunkSize/(1<<30),
		time.Since(start).Round(time.Millisecond))
	var regions []*Region
	var digests [][]Digest
	const parts = 4
	for p := range parts {
		from, to := p*chunks/parts, (p+1)*chunks/parts
		r, fd, err := e.Create(uint64(to-from) * ChunkSize)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		syscall.Close(fd)
		regions = append(regions, r)
		digests = append(digests, im.digests[from:to])
	}
	bytes := uint64(chunks) * ChunkSize
	for round := range 2 {
		st, err := e.Fill(t.Context(), regions, digests, im.fetch, FillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("fill %d: %.1f GB/s to the device (%v), verify %v", round, rate(bytes, st.CopyNs), st.CopyNs,
			st.VerifyNs)
	}
	for range 3 {
		start := time.Now()
		if _, err := e.Digest(t.Context(), regions); err != nil {
			t.Fatal(err)
		}
		d := time.Since(start)
		t.Logf("digest: %v, %.0f GB/s", d, rate(bytes, d))
	}
	var free, total uint64
	if err := e.gpu.do(func() (err error) { free, total, err = drv.MemInfo(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Logf("device memory: %.1f of %.1f GiB free", float64(free)/(1<<30), float64(total)/(1<<30))
	for _, c := range []struct {
		name    string
		mode    Mode
		sink    Sink
		changed int // every n-th chunk, 0: none
	}{
		{"stage, nothing changes", Stage, &discard{}, 0},
		{"stage, every 10th chunk changes", Stage, &discard{}, 10},
		{"stage, all changes, sink copies", Stage, &copying{}, 1},
		{"recopy, every 10th chunk changes", Recopy, &discard{}, 10},
		{"stop", Stop, &discard{}, 0},
	} {
		s := e.Begin(regions, Options{Mode: c.mode})
		if err := s.Precopy(t.Context(), c.sink); err != nil {
			t.Fatal(err)
		}
		if c.changed > 0 {
			for _, r := range regions {
				write(t, e, r, 512, rand.Uint32(), c.changed)
			}
		}
		if err := s.Capture(t.Context(), c.sink); err != nil {
			t.Fatal(err)
		}
		if err := s.Drain(t.Context(), c.sink); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		size := func(chunks int) uint64 { return uint64(chunks) * ChunkSize }
		t.Logf("%s (%s): %d zero, %d new", c.name, st.Why, st.Zero, st.New)
		t.Logf("  precopy %v: digest %v, have %v, reserve %v, stage %v (%.0f GB/s), drain %v (%.1f GB/s)", st.PrecopyNs,
			st.PrecopyDigestNs, st.PrecopyHaveNs,
			st.PrecopyReserveNs, st.PrecopyStageNs, rate(size(st.Staged), st.PrecopyStageNs), st.PrecopyDrainNs,
			rate(size(st.Predrained), st.PrecopyDrainNs))
		t.Logf("  STALL %v: hot %v, digest %v, plan %v, copy %v (%d chunks), drain %v (%.1f GB/s)", st.CaptureNs,
			st.CaptureHotNs, st.CaptureDigestNs,
			st.CapturePlanNs, st.CaptureCopyNs, st.CaptureCopied, st.CaptureDrainNs,
			rate(size(st.CaptureDrain), st.CaptureDrainNs))
		t.Logf("  drain %v: verify %v, %.1f GB/s, %d of %d checked on the CPU", st.DrainNs, st.DrainVerifyNs,
			rate(size(st.Drained), st.DrainNs-st.DrainVerifyNs), st.Verified, st.New)
		if st.New == 0 {
			t.Errorf("%s stored nothing", c.name)
		}
	}
}
