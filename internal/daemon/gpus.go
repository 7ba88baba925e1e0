package daemon

import (
	"errors"
	"fmt"
	"sync"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/snapshot"
	"holdfast/internal/wire"
)

// gpus opens drivers and engines when they are first needed: the daemon itself
// takes no GPU memory before a first checkpoint.
type gpus struct {
	cfg Config

	mu      sync.Mutex
	drivers map[uint32]cuda.Driver
	engines map[engineKey]*snapshot.Engine
}

type engineKey struct {
	kind uint32
	uuid [16]byte
}

func newGPUs(cfg Config) *gpus {
	return &gpus{cfg: cfg, drivers: map[uint32]cuda.Driver{}, engines: map[engineKey]*snapshot.Engine{}}
}

// Driver returns the driver of a kind of GPU, initialised.
func (g *gpus) Driver(kind uint32) (cuda.Driver, error) {
	g.forgetLost(kind)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.driver(kind)
}

// forgetLost drops the driver of a software GPU that has died: another one may serve by now. A driver that has lost
// its device is of no more use, in the daemon as in any program, and handles of the old device mean nothing to the
// new one. So another copy of the library is loaded, and whatever still uses the old one gets errors. Its engines are
// not closed, because operations that are just failing still use them.
func (g *gpus) forgetLost(kind uint32) {
	g.mu.Lock()
	drv := g.drivers[kind]
	g.mu.Unlock()
	if kind != wire.GPUSoft || drv == nil {
		return
	}
	if _, err := drv.DeviceCount(); !errors.Is(err, cuda.ErrUnavailable) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drivers[kind] != drv {
		return // another call has done it already
	}
	g.cfg.Log.Warn("the software GPU was lost: the next one is looked for")
	delete(g.drivers, kind)
	for key := range g.engines {
		if key.kind == kind {
			delete(g.engines, key)
		}
	}
}

func (g *gpus) driver(kind uint32) (cuda.Driver, error) {
	if drv := g.drivers[kind]; drv != nil {
		return drv, nil
	}
	path := "libcuda.so.1"
	if kind == wire.GPUSoft {
		if g.cfg.SoftGPU != nil {
			if err := g.cfg.SoftGPU(); err != nil {
				return nil, fmt.Errorf("start the software GPU: %w", err)
			}
		}
		p, err := g.cfg.SoftDriver()
		if err != nil {
			return nil, err
		}
		path = p
	}
	drv, err := native.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the %s driver: %w", gpuName(kind), err)
	}
	if err := drv.Init(); err != nil {
		return nil, fmt.Errorf("initialise the %s driver: %w", gpuName(kind), err)
	}
	g.drivers[kind] = drv
	return drv, nil
}

// Engine returns the engine of a device, which it finds by its UUID.
func (g *gpus) Engine(kind uint32, uuid [16]byte) (*snapshot.Engine, error) {
	g.forgetLost(kind)
	g.mu.Lock()
	defer g.mu.Unlock()
	key := engineKey{kind, uuid}
	if e := g.engines[key]; e != nil {
		return e, nil
	}
	drv, err := g.driver(kind)
	if err != nil {
		return nil, err
	}
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, err
	}
	for i := range n {
		dev, err := drv.DeviceGet(i)
		if err != nil {
			return nil, err
		}
		u, err := drv.DeviceUUID(dev)
		if err != nil {
			return nil, err
		}
		if u != cuda.UUID(uuid) {
			continue
		}
		e, err := snapshot.NewEngine(drv, dev, snapshot.EngineOptions{Logger: g.cfg.Log})
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		g.engines[key] = e
		return e, nil
	}
	return nil, fmt.Errorf("no device %s here: %s", cuda.UUID(uuid), gpuName(kind))
}

func (g *gpus) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, e := range g.engines {
		e.Close()
		delete(g.engines, k)
	}
}
