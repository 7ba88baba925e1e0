package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// A Repository has models that clients may load and unload: Triton's model repository extension
// (triton-inference-server/server, docs/protocol/extension_model_repository.md).
type Repository interface {
	// Models are the names of those that there are, loaded or not.
	Models() ([]string, error)
	// Load serves one, Unload does so no more once what was taken in is answered.
	Load(name string, parameters map[string]string) error
	Unload(name string) error
}

// Manage lets clients load and unload models.
func (s *Server) Manage(r Repository) {
	s.mux.HandleFunc("POST /v2/repository/index", func(w http.ResponseWriter, _ *http.Request) { s.index(w, r) })
	for verb, do := range map[string]func(name string, q loadRequest) error{
		"load":   func(name string, q loadRequest) error { return r.Load(name, q.Parameters) },
		"unload": func(name string, _ loadRequest) error { return r.Unload(name) },
	} {
		s.mux.HandleFunc("POST /v2/repository/models/{model}/"+verb, func(w http.ResponseWriter, q *http.Request) {
			s.change(w, q, r, do)
		})
	}
}

type loadRequest struct {
	Parameters map[string]string `json:"parameters"`
}

type indexed struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
}

func (s *Server) index(w http.ResponseWriter, r Repository) {
	names, err := r.Models()
	if err != nil {
		answer(w, http.StatusInternalServerError, failure{err.Error()})
		return
	}
	for _, m := range s.all() {
		if !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	list := []indexed{}
	for _, name := range names {
		x := indexed{Name: name, State: "UNAVAILABLE"}
		if m := s.model(name); m != nil {
			x.Version, x.State = modelVersion, "READY"
			if err := m.answerer.Ready(); err != nil {
				x.State, x.Reason = "UNAVAILABLE", err.Error()
			}
		}
		list = append(list, x)
	}
	answer(w, http.StatusOK, list)
}

// change loads or unloads a model of the repository.
func (s *Server) change(w http.ResponseWriter, q *http.Request, r Repository,
	do func(string, loadRequest) error) {
	name := q.PathValue("model")
	names, err := r.Models()
	if err == nil && (!slices.Contains(names, name) || strings.ContainsAny(name, "/\\")) {
		answer(w, http.StatusNotFound, failure{fmt.Sprintf("no model %.100q", name)})
		return
	}
	var body loadRequest
	if err == nil {
		err = json.NewDecoder(http.MaxBytesReader(w, q.Body, maxJSON)).Decode(&body)
		if errors.Is(err, io.EOF) { // nothing was said
			err = nil
		}
	}
	if err == nil {
		err = do(name, body)
	}
	if err != nil {
		s.log.Error("a model is not changed", "model", name, "err", err)
		answer(w, http.StatusBadRequest, failure{err.Error()})
	}
}
