package device

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// counters say what the device did. The maps have a mutex of their own, a leaf.
type counters struct {
	launches, graphs, threadInstructions, bytes, total *atomic.Uint64
	processes                                          uint64 // guarded by server.mu

	mu      *sync.Mutex
	missing map[string]uint64 // calls of functions that are not served, by name
	refusal map[string]uint64 // modules and kernels refused, by reason
}

func newCounters() counters {
	n := func() *atomic.Uint64 { return new(atomic.Uint64) }
	return counters{launches: n(), graphs: n(), threadInstructions: n(), bytes: n(), total: n(),
		mu: new(sync.Mutex), missing: make(map[string]uint64), refusal: make(map[string]uint64)}
}

// Names come from clients: there is room for a bounded number.
const maxCounted = 1024

func count(m map[string]uint64, name string) {
	if _, ok := m[name]; ok || len(m) < maxCounted {
		m[name]++
	}
}

func (k *counters) call(*operation) { k.total.Add(1) }

func (k *counters) unserved(number uint32, op *operation) {
	name := fmt.Sprintf("operation %#x", number)
	if op != nil {
		name = op.name
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	count(k.missing, name)
}

func (k *counters) refused(err error) {
	text := err.Error()
	const longest = 200
	k.mu.Lock()
	defer k.mu.Unlock()
	count(k.refusal, text[:min(len(text), longest)])
}

// Stats is the JSON answer to gpuwire's STATS.
type Stats struct {
	UptimeSeconds      float64           `json:"uptime_seconds"`
	Processes          int               `json:"processes"`       // now
	ProcessesTotal     uint64            `json:"processes_total"` // since the start
	Calls              uint64            `json:"calls"`
	Launches           uint64            `json:"launches"`
	GraphLaunches      uint64            `json:"graph_launches"`
	ThreadInstructions uint64            `json:"thread_instructions"`
	CopiedBytes        uint64            `json:"copied_bytes"`
	MemoryBytes        uint64            `json:"memory_bytes"` // of each device
	UsedBytes          []uint64          `json:"used_bytes"`   // by device
	KeptBytes          uint64            `json:"kept_bytes"`   // of those: only descriptors keep them
	NotServed          map[string]uint64 `json:"not_served,omitempty"`
	Refused            map[string]uint64 `json:"refused,omitempty"`
}

func (s *server) stats() Stats {
	s.mu.Lock()
	kept := s.collect()
	st := Stats{
		UptimeSeconds: time.Since(s.started).Seconds(),
		Processes:     len(s.procs), ProcessesTotal: s.counts.processes,
		MemoryBytes: s.cfg.Memory, KeptBytes: kept, UsedBytes: append([]uint64(nil), s.used...),
	}
	s.mu.Unlock()
	k := &s.counts
	st.Calls, st.Launches, st.GraphLaunches = k.total.Load(), k.launches.Load(), k.graphs.Load()
	st.ThreadInstructions, st.CopiedBytes = k.threadInstructions.Load(), k.bytes.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	st.NotServed, st.Refused = maps.Clone(k.missing), maps.Clone(k.refusal)
	return st
}

func statsCall(c *call) Status {
	b, err := json.Marshal(c.p.srv.stats())
	if err != nil {
		return Unknown
	}
	c.out = b
	return Success
}
