package daemon

import (
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
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.driver(kind)
}

func (g *gpus) driver(kind uint32) (cuda.Driver, error) {
	if drv := g.drivers[kind]; drv != nil {
		return drv, nil
	}
	path := "libcuda.so.1"
	if kind == wire.GPUSoft {
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
