// Package serve answers the Open Inference Protocol, version 2 (REST), for recordings: JSON and binary tensors,
// health, metadata, statistics, and metrics for Prometheus.
//
// Protocol: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md; binary
// tensors and statistics are extensions that Triton documents (triton-inference-server/server, docs/protocol,
// extension_binary_data.md and extension_statistics.md).
package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// headerLength says how many bytes of a body are JSON; binary tensors follow.
const headerLength = "Inference-Header-Content-Length"

// maxJSON bounds the JSON of a request beyond what its tensors may take.
const maxJSON = 1 << 20

// A Server is an http.Handler for some models.
type Server struct {
	version string
	log     *slog.Logger
	mux     *http.ServeMux
	metrics *metrics.Set
	more    []func(io.Writer)

	mu     sync.RWMutex
	models []*served
}

// A served model has its figures.
type served struct {
	*Model
	stats stats
	done  *metrics.Counter
	wrong *metrics.Counter
	took  *metrics.Histogram
	queue *metrics.Histogram
}

// New serves models, whose names differ. version is that of the program.
func New(models []*Model, version string, log *slog.Logger) (*Server, error) {
	s := &Server{version: version, log: log, mux: http.NewServeMux(), metrics: metrics.NewSet()}
	for _, m := range models {
		if err := s.Add(m); err != nil {
			return nil, err
		}
	}
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /v2":              s.metadata,
		"GET /v2/health/live":  func(http.ResponseWriter, *http.Request) {},
		"GET /v2/health/ready": s.ready,
		"GET /metrics": func(w http.ResponseWriter, _ *http.Request) {
			s.metrics.WritePrometheus(w)
			for _, write := range s.more {
				write(w)
			}
		},
	} {
		s.mux.HandleFunc(pattern, h)
	}
	for _, version := range []string{"", "/versions/{version}"} {
		at := "/v2/models/{model}" + version
		s.mux.HandleFunc("GET "+at, s.named(s.modelMetadata))
		s.mux.HandleFunc("GET "+at+"/ready", s.named(s.modelReady))
		s.mux.HandleFunc("GET "+at+"/stats", s.named(s.modelStats))
		s.mux.HandleFunc("POST "+at+"/infer", s.named(s.infer))
	}
	return s, nil
}

// Add serves one more model.
func (s *Server) Add(m *Model) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.models, func(x *served) bool { return x.Name == m.Name }) {
		return fmt.Errorf("two models are named %s", m.Name)
	}
	label := fmt.Sprintf("{model=%q}", m.Name)
	s.models = append(s.models, &served{Model: m,
		done:  s.metrics.GetOrCreateCounter("holdfast_requests_total" + label),
		wrong: s.metrics.GetOrCreateCounter("holdfast_request_errors_total" + label),
		took:  s.metrics.GetOrCreateHistogram("holdfast_request_seconds" + label),
		queue: s.metrics.GetOrCreateHistogram("holdfast_queue_seconds" + label)})
	return nil
}

// Remove serves a model no more. Its figures stay in the metrics.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = slices.DeleteFunc(slices.Clone(s.models), func(x *served) bool { return x.Name == name })
}

// Models is how many there are.
func (s *Server) Models() int { return len(s.all()) }

func (s *Server) all() []*served {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.models
}

// Metrics adds figures of the caller's to those for Prometheus. It comes before the first request.
func (s *Server) Metrics(write func(io.Writer)) { s.more = append(s.more, write) }

// Handle adds pages of the caller's.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) model(name string) *served {
	all := s.all()
	i := slices.IndexFunc(all, func(m *served) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// modelVersion is the one version that a model has.
const modelVersion = "1"

func (s *Server) named(h func(http.ResponseWriter, *http.Request, *served)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := s.model(r.PathValue("model"))
		if v := r.PathValue("version"); m == nil || v != "" && v != modelVersion {
			answer(w, http.StatusNotFound, failure{fmt.Sprintf("no model %q of that version", r.PathValue("model"))})
			return
		}
		h(w, r, m)
	}
}

type failure struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{"holdfast", s.version, []string{"binary_tensor_data", "statistics"}})
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	for _, m := range s.all() {
		if err := m.answerer.Ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, failure{m.Name + ": " + err.Error()})
			return
		}
	}
}

func (s *Server) modelReady(w http.ResponseWriter, _ *http.Request, m *served) {
	if err := m.answerer.Ready(); err != nil {
		answer(w, http.StatusServiceUnavailable, failure{err.Error()})
	}
}

type tensorMetadata struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

func describe(ports []recording.Port) []tensorMetadata {
	out := []tensorMetadata{}
	for _, p := range ports {
		out = append(out, tensorMetadata{p.Name, datatypes[p.DType], p.Shape})
	}
	return out
}

func (s *Server) modelMetadata(w http.ResponseWriter, _ *http.Request, m *served) {
	answer(w, http.StatusOK, struct {
		Name     string           `json:"name"`
		Versions []string         `json:"versions"`
		Platform string           `json:"platform"`
		Inputs   []tensorMetadata `json:"inputs"`
		Outputs  []tensorMetadata `json:"outputs"`
	}{m.Name, []string{modelVersion}, "holdfast_recording", describe(m.Entry.Inputs), describe(m.Entry.Outputs)})
}

type parameters struct {
	Timeout    *int64 `json:"timeout,omitempty"` // µs until the answer is of no use any more; as Triton's
	BinarySize *int64 `json:"binary_data_size,omitempty"`
	Binary     *bool  `json:"binary_data,omitempty"`
	AllBinary  *bool  `json:"binary_data_output,omitempty"`
}

type tensor struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int           `json:"shape"`
	Parameters *parameters     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type request struct {
	ID         string      `json:"id"`
	Parameters *parameters `json:"parameters"`
	Inputs     []tensor    `json:"inputs"`
	Outputs    []struct {
		Name       string      `json:"name"`
		Parameters *parameters `json:"parameters"`
	} `json:"outputs"`
}

type response struct {
	ModelName    string   `json:"model_name"`
	ModelVersion string   `json:"model_version"`
	ID           string   `json:"id,omitempty"`
	Outputs      []tensor `json:"outputs"`
}

func (s *Server) infer(w http.ResponseWriter, r *http.Request, m *served) {
	came := time.Now()
	status, err := s.tryInfer(w, r, m)
	if err == nil {
		m.done.Inc()
		m.took.UpdateDuration(came)
		return
	}
	m.wrong.Inc()
	m.stats.failed(time.Since(came))
	if status >= http.StatusInternalServerError {
		s.log.Error("a request failed", "model", m.Name, "err", err)
	}
	answer(w, status, failure{err.Error()})
}

// tryInfer answers a request, or returns what is wrong and with which status to say so.
func (s *Server) tryInfer(w http.ResponseWriter, r *http.Request, m *served) (int, error) {
	q, in, err := readRequest(w, r, m.Model)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return http.StatusRequestEntityTooLarge, err
		}
		return http.StatusBadRequest, err
	}
	want, binary, err := q.wanted(m.Entry.Outputs)
	if err != nil {
		return http.StatusBadRequest, err
	}
	within, err := q.within(r)
	if err == nil {
		err = m.complete(in)
	}
	if err != nil {
		return http.StatusBadRequest, err
	}
	out, t, err := m.answerer.Answer(r.Context(), in, want, within)
	var refused *Refused
	var wrong *BadRequest
	var fault *engine.Fault
	var late *engine.Timeout
	switch {
	case errors.As(err, &wrong):
		return http.StatusBadRequest, err
	case errors.As(err, &refused):
		return http.StatusTooManyRequests, err
	case errors.Is(err, ErrDead), errors.As(err, &fault), errors.As(err, &late), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, err
	case err != nil:
		return http.StatusInternalServerError, err
	}
	m.stats.succeeded(t)
	m.queue.Update(t.Queue.Seconds())
	return writeResponse(w, q, m.Model, want, binary, out)
}

// deadlineHeader says how long an answer is of use, as Go writes durations: 20ms.
const deadlineHeader = "Inference-Deadline"

// within is how long the answer may take, by the header or else by the parameter; 0 if neither is there.
func (q *request) within(r *http.Request) (time.Duration, error) {
	if text := r.Header.Get(deadlineHeader); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return 0, bad("%s: %.40q is no time", deadlineHeader, text)
		}
		return d, nil
	}
	if q.Parameters == nil || q.Parameters.Timeout == nil {
		return 0, nil
	}
	us := *q.Parameters.Timeout
	if us < 0 || us > int64(time.Hour/time.Microsecond) {
		return 0, bad("a timeout of %d us", us)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// readRequest reads the inputs of a request.
func readRequest(w http.ResponseWriter, r *http.Request, m *Model) (*request, map[string][]byte, error) {
	limit := int64(maxJSON)
	for _, p := range m.Entry.Inputs {
		limit += 32 * p.Bytes // digits, a sign, an exponent, a comma
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, nil, err
	}
	rest := []byte{}
	if text := r.Header.Get(headerLength); text != "" {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil || n > uint64(len(body)) {
			return nil, nil, bad("%s: %.40q of %d bytes", headerLength, text, len(body))
		}
		body, rest = body[:n], body[n:]
	}
	q := &request{}
	if err := json.Unmarshal(body, q); err != nil {
		return nil, nil, bad("the request is not JSON of the protocol: %v", err)
	}
	in := map[string][]byte{}
	for i := range q.Inputs {
		t := &q.Inputs[i]
		if _, twice := in[t.Name]; twice {
			return nil, nil, bad("input %s comes twice", t.Name)
		}
		if in[t.Name], rest, err = t.bytes(m.Entry.Inputs, rest); err != nil {
			return nil, nil, bad("input %.100s: %v", t.Name, err)
		}
	}
	if len(rest) > 0 {
		return nil, nil, bad("%d bytes of binary data belong to no input", len(rest))
	}
	return q, in, nil
}

// bytes is the contents of an input, and what is left of the binary data.
func (t *tensor) bytes(ports []recording.Port, rest []byte) (b, left []byte, err error) {
	p, err := recording.FindPort(ports, t.Name)
	if err != nil {
		return nil, nil, errors.New("the model has no such input")
	}
	if t.Datatype != datatypes[p.DType] || !slices.Equal(t.Shape, p.Shape) {
		return nil, nil, fmt.Errorf("%.20s %v, want %s %v", t.Datatype, t.Shape, datatypes[p.DType], p.Shape)
	}
	if t.Parameters != nil && t.Parameters.BinarySize != nil {
		n := *t.Parameters.BinarySize
		if n != p.Bytes || n > int64(len(rest)) {
			return nil, nil, fmt.Errorf("%d bytes of binary data of the %d that are there, want %d", n, len(rest),
				p.Bytes)
		}
		return rest[:n], rest[n:], nil
	}
	elements := 1
	for _, d := range p.Shape {
		elements *= d
	}
	b, err = fromJSON(p.DType, t.Data, elements)
	return b, rest, err
}

// wanted is the outputs that a request asks for, and which of them as binary data. None named: all.
func (q *request) wanted(ports []recording.Port) (names []string, binary map[string]bool, err error) {
	binary = map[string]bool{}
	all := q.Parameters != nil && q.Parameters.AllBinary != nil && *q.Parameters.AllBinary
	if len(q.Outputs) == 0 {
		for _, p := range ports {
			names = append(names, p.Name)
			binary[p.Name] = all
		}
		return names, binary, nil
	}
	for _, o := range q.Outputs {
		if _, err := recording.FindPort(ports, o.Name); err != nil {
			return nil, nil, bad("the model has no output %.100q", o.Name)
		}
		if slices.Contains(names, o.Name) {
			return nil, nil, bad("output %s is asked for twice", o.Name)
		}
		names = append(names, o.Name)
		binary[o.Name] = all
		if o.Parameters != nil && o.Parameters.Binary != nil {
			binary[o.Name] = *o.Parameters.Binary
		}
	}
	return names, binary, nil
}

func writeResponse(w http.ResponseWriter, q *request, m *Model, names []string, binary map[string]bool,
	out map[string][]byte) (int, error) {
	res := response{ModelName: m.Name, ModelVersion: modelVersion, ID: q.ID, Outputs: []tensor{}}
	var tail bytes.Buffer
	for _, name := range names {
		p, err := recording.FindPort(m.Entry.Outputs, name)
		if err != nil {
			return http.StatusInternalServerError, err
		}
		t := tensor{Name: name, Datatype: datatypes[p.DType], Shape: p.Shape}
		if binary[name] {
			n := int64(len(out[name]))
			t.Parameters = &parameters{BinarySize: &n}
			tail.Write(out[name])
		} else {
			if t.Data, err = toJSON(p.DType, out[name]); err != nil {
				return http.StatusBadRequest, fmt.Errorf("output %s: %w", name, err)
			}
		}
		res.Outputs = append(res.Outputs, t)
	}
	head, err := json.Marshal(res)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	w.Header().Set("Content-Type", "application/json")
	if tail.Len() > 0 {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(headerLength, strconv.Itoa(len(head)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+tail.Len()))
	w.Write(head)
	w.Write(tail.Bytes())
	return http.StatusOK, nil
}
