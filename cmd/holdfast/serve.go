package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"holdfast/internal/recording"
	"holdfast/internal/replay"
	"holdfast/internal/serve"

	"github.com/spf13/cobra"
)

const serveLong = `Answer requests for recordings over HTTP, by the Open Inference Protocol (version 2,
REST): any of its clients can be used. A recording is a model, named as its file without
".hfr", or as NAME=FILE says. Of a recording with several entries each is a model,
NAME.ENTRY; --entry serves some of them. They share memory: what one leaves is what the
next one finds, whoever asks.

  /v2/models/NAME/infer    a request: tensors as JSON or as binary data
  /v2/models/NAME          inputs and outputs; with /ready and /stats
  /v2/health/ready, live   whether all models can run, whether the server does
  /metrics                 for Prometheus

Inputs that have a type in the recording must be given. Others, which may be constants
that the program copied, have the bytes of the recording otherwise. A model takes one
request at a time, others wait. What a request leaves in memory is what the next one
finds; with --reset memory is put back before each.

It listens on this machine alone unless --listen says otherwise, and asks nobody who he
is. On SIGINT or SIGTERM it takes no new requests and ends when those under way are
answered, after --grace at the latest. After a fault of the GPU a model is not ready any
more.

Memory of recordings is mostly at the same addresses, so several take --backend raw, where
each has an address space of its own; or they must be relocatable (holdfast record
--relocatable), and are put beside each other.

With --trust-key only recordings that are signed with that key are served ("holdfast
sign"), each with its signature beside it, MODEL.hfr.sig; so it is with those that clients
load by name.`

type serveFlags struct {
	replayFlags
	listen     string
	grace      time.Duration
	pack       bool
	config     string
	repository string
	trusted    func(path string) (*recording.File, error) // opens recordings, by --trust-key
}

func (a *app) serveVerb() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [NAME=]MODEL.hfr… [--listen ADDRESS] [--backend auto|raw|libcuda|soft]",
		Short: "Answer requests for recordings over HTTP",
		Long:  serveLong,
		Example: `  holdfast serve resnet.hfr
  curl -s localhost:8000/v2/models/resnet
  holdfast serve gpt.hfr --entry prefill --entry decode
  holdfast serve a.hfr small=b.hfr --backend raw --listen 0.0.0.0:8000
  holdfast serve --pack resnet.hfr=slo:20ms,instances:2 bert.hfr=slo:50ms,weight:2`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.serve(cmd.Context(), args, f) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8000", "`HOST:PORT`; port 0: any that is free")
	cmd.Flags().BoolVar(&f.Reset, "reset", false, "put memory back before each request")
	cmd.Flags().DurationVar(&f.Timeout, "timeout", time.Minute, "how long one run may take")
	cmd.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "how long requests under way may take at the end")
	cmd.Flags().BoolVar(&f.pack, "pack", false, "have all models share the GPU, under deadlines")
	cmd.Flags().StringVar(&f.config, "config", "", "with --pack: `FILE` of models, in JSON")
	cmd.Flags().StringVar(&f.repository, "repository", "",
		"with --pack: `DIRECTORY` of recordings that clients may load and unload by name")
	entryFlag(cmd, &f.Entries, "which entry, if there are several and not all are wanted; repeatable")
	trustKeyFlag(cmd, &f.Trust)
	backendFlag(cmd, &f.backend)
	return cmd
}

func (a *app) serve(ctx context.Context, args []string, f serveFlags) (err error) {
	log := slog.New(slog.NewTextHandler(a.stderr, nil))
	if f.trusted, err = f.Trust.Opener(); err != nil {
		return err
	}
	if f.pack {
		p, err := a.servePacked(ctx, args, f, log)
		if err != nil {
			return err
		}
		return errors.Join(a.listen(ctx, f, p.server), p.close())
	}
	switch {
	case f.config != "" || f.repository != "":
		return usageErrorf("serve: --config and --repository belong to --pack")
	case len(args) == 0:
		return usageErrorf("serve: no model is named")
	}
	var models []*serve.Model
	var taken []recording.Span
	for _, arg := range args {
		list, end, err := a.serveRecording(ctx, arg, f, &taken)
		if err != nil {
			return err
		}
		defer end()
		models = append(models, list...)
	}
	h, err := serve.New(models, version, log)
	if err != nil {
		return usageErrorf("serve: %v", err)
	}
	return a.listen(ctx, f, h)
}

// listen answers requests until the context ends, and then those that are under way.
func (a *app) listen(ctx context.Context, f serveFlags, h *serve.Server) error {
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "holdfast: %d models at http://%s\n", h.Models(), l.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), server.Close())
	}
	return nil
}

// serveRecording brings up the models of one recording, beside those whose memory is taken. end lets go of them.
func (a *app) serveRecording(ctx context.Context, arg string, f serveFlags, taken *[]recording.Span) (_ []*serve.Model,
	end func(), _ error) {
	name, path, named := strings.Cut(arg, "=")
	if !named {
		name, path = strings.TrimSuffix(filepath.Base(arg), ".hfr"), arg
	}
	file, err := f.trusted(path)
	if err != nil {
		return nil, nil, err
	}
	undo := []func() error{file.Close}
	end = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			if err := undo[i](); err != nil {
				fmt.Fprintf(a.stderr, "holdfast: %s: %v\n", name, err)
			}
		}
	}
	fail := func(err error) ([]*serve.Model, func(), error) {
		end()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	entries := f.Entries
	if len(entries) == 0 {
		for _, e := range file.Manifest.Entries {
			entries = append(entries, e.Name)
		}
	}
	for i := range entries {
		model := modelName(name, file, entries[i])
		if model == "" || strings.ContainsAny(model, "/\"\\ \n") {
			return fail(usageErrorf("serve: %q cannot be a model's name: say NAME=%s, or which entries (--entry)",
				model, path))
		}
	}
	at := file
	if f.backend != backendRaw { // where each has an address space of its own
		if at, err = beside(file, taken); err != nil {
			return fail(err)
		}
	}
	p, err := replay.Read(at, entries...)
	if err != nil {
		return fail(err)
	}
	b, _, err := a.backend(ctx, f.replayFlags)
	if err != nil {
		return fail(err)
	}
	undo = append(undo, b.Close)
	if err := p.Load(b); err != nil {
		return fail(err)
	}
	undo = append(undo, p.Close)
	state := serve.NewState(p.Reset)
	state.Reset = f.Reset
	var models []*serve.Model
	for _, e := range p.Entries {
		m, err := serve.NewModel(modelName(name, file, e.Name), file, e.Entry, serve.Alone(e, state, f.Timeout))
		if err != nil {
			return fail(err)
		}
		models = append(models, m)
	}
	return models, end, nil
}

// beside is the recording where nothing else is, if it can be relocated and is not there already. It adds its place to
// those that are taken.
func beside(f *recording.File, taken *[]recording.Span) (*recording.File, error) {
	const apart = 1 << 30 // what backends reserve addresses by
	m := f.Manifest
	base, size := m.Base(), m.End()-m.Base()
	meets, top := false, recording.Addr(0)
	for _, s := range *taken {
		end := s.Addr + recording.Addr(s.Bytes)
		meets = meets || base < end && s.Addr < base+size
		top = max(top, (end+apart-1)/apart*apart)
	}
	if meets && m.Relocations != nil {
		base = top
	}
	*taken = append(*taken, recording.Span{Addr: base, Bytes: int64(size)})
	return f.At(base)
}

// modelName is what an entry of a recording is called: by the recording, if it has no other.
func modelName(name string, f *recording.File, entry string) string {
	if len(f.Manifest.Entries) == 1 {
		return name
	}
	return name + "." + entry
}
