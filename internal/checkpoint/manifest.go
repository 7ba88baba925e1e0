package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/internal/image"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
)

// describe makes the manifest of what was captured, while the programs are still frozen, so that
// it says what they hold at that moment and nothing later.
func (c *capture) describe() error {
	m := &image.Manifest{
		Version: image.Version, Kind: c.res.Kind, Created: time.Now().UTC().Round(time.Second), Tool: c.env.Tool,
		Caveats: c.res.Warnings, GPU: image.GPU{Driver: c.programs[0].Identity().Driver}, Parent: c.programs[0].Image(),
	}
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails (crypto/rand, Go 1.24)
	m.Nonce = hex.EncodeToString(nonce[:])
	if c.res.Kind == image.KindFull {
		m.Root = c.programs[0].Identity().PID
	}
	where := map[*process.Alloc]image.Region{}
	for _, d := range c.snaps {
		for i, ref := range d.refs {
			where[ref.alloc] = image.Region{Digests: d.snap.Digests(i)}
		}
	}
	for i, p := range c.programs {
		id := p.Identity()
		m.Programs = append(m.Programs, image.Program{
			PID: id.PID, StartTime: id.StartTime, ControlTID: id.ControlTID, GPU: id.GPU, Name: id.Name, Exe: id.Exe,
			Command: id.Command, Devices: id.Devices, Token: id.Token,
		})
		for _, a := range p.Allocs() {
			r, ok := where[a]
			if !ok {
				return fmt.Errorf("process %d announced %d bytes at %#x although it is frozen", id.PID, a.Size, a.VA)
			}
			r.Program, r.ID, r.VA, r.Size, r.Used, r.Device, r.Kind, r.Access = i, a.ID, a.VA, a.Size, a.Used, a.Device,
				a.Kind, 3
			m.Regions = append(m.Regions, r)
		}
	}
	c.m, c.order = m, newOrder(m)
	return nil
}

// commit adds up the figures and makes the image durable.
func (c *capture) commit() error {
	if c.m.Kind == image.KindFull {
		for _, path := range c.env.Libraries {
			if err := c.w.AddLibrary(path); err != nil {
				return err
			}
		}
	}
	r := c.res
	var waited time.Duration
	for _, d := range c.snaps {
		st := d.snap.Stats()
		r.Chunks += st.Chunks
		r.ChunksZero += st.Zero
		r.ChunksReused += st.Had
		r.ChunksRecopied += st.Changed
		r.ChunksAside += st.Aside
		r.Waits += st.Waits
		waited += st.AsideNs
		if r.Mode != snapshot.Cow.String() {
			r.Mode, r.ModeReason = st.Mode.String(), st.Why
		}
		c.env.Log.Debug("snapshot", "stats", st)
	}
	r.WaitedMS = api.Millis(waited)
	for _, w := range c.watches {
		guesses, known := w.foresight()
		r.Guesses, r.Known = r.Guesses+guesses, r.Known+known
	}
	if len(c.snaps) == 0 {
		r.Mode, r.ModeReason = c.opt.Mode.String(), "no device memory"
	}
	r.ChunksNew, _ = c.w.Written()
	r.BytesNew = uint64(r.ChunksNew) * snapshot.ChunkSize
	r.Bytes, r.Digest = c.m.Bytes(), c.m.Digest()
	c.m.Order = c.order.runs()
	return c.w.Commit(c.m)
}
