package serve

import (
	"net/http"
	"sync"
	"time"
)

// A duration is how often something happened, and how long it Took in all.
type duration struct {
	Count       uint64 `json:"count"`
	Nanoseconds uint64 `json:"ns"`
}

func (d *duration) add(t time.Duration) {
	d.Count++
	d.Nanoseconds += uint64(t)
}

// figures are what the statistics extension tells.
type figures struct {
	Success duration `json:"success"`
	Fail    duration `json:"fail"`
	Queue   duration `json:"queue"`
	Input   duration `json:"compute_input"`
	Run     duration `json:"compute_infer"`
	Output  duration `json:"compute_output"`
}

type stats struct {
	mu   sync.Mutex
	all  figures
	last time.Time
}

func (s *stats) succeeded(t Took) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	s.all.Success.add(t.Queue + t.Input + t.Run + t.Output)
	s.all.Queue.add(t.Queue)
	s.all.Input.add(t.Input)
	s.all.Run.add(t.Run)
	s.all.Output.add(t.Output)
}

func (s *stats) failed(t time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Fail.add(t)
}

type modelStatistics struct {
	Name       string  `json:"name"`
	Version    string  `json:"version"`
	Last       int64   `json:"last_inference"` // milliseconds since 1970; 0: none yet
	Inferences uint64  `json:"inference_count"`
	Executions uint64  `json:"execution_count"`
	Stats      figures `json:"inference_stats"`
}

func (s *Server) modelStats(w http.ResponseWriter, _ *http.Request, m *served) {
	m.stats.mu.Lock()
	one := modelStatistics{Name: m.Name, Version: modelVersion, Inferences: m.stats.all.Success.Count,
		Executions: m.stats.all.Success.Count, Stats: m.stats.all}
	if !m.stats.last.IsZero() {
		one.Last = m.stats.last.UnixMilli()
	}
	m.stats.mu.Unlock()
	answer(w, http.StatusOK, struct {
		Models []modelStatistics `json:"model_stats"`
	}{[]modelStatistics{one}})
}
