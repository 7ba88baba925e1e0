package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"holdfast/internal/fatbin"
	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/foresee"
	"holdfast/internal/trace"
	"holdfast/ptx"

	"github.com/spf13/cobra"
)

const analyzeLong = `Say of every kernel in some files for which of its launches holdfast can tell that they
are idempotent: always, conditionally (it depends on the arguments: holdfast verdict),
never, or unknown, with the reason and the line of the PTX that is the cause.

A FILE is PTX (- for standard input), a cubin, a fat binary, an executable or a shared
object, with all images embedded in it, compressed ones too, or a trace of "holdfast
trace". A cubin that ptxas made with line numbers (-lineinfo; Triton's are) holds the PTX
that it was assembled from. A kernel of which a file has machine code only is listed
without a class.

--explain prints how the range of each access was found, from the instruction to the
formula.`

const analyzeExample = `  holdfast analyze kernels.ptx
  holdfast analyze --kernel 'triton_poi_fused_add_0' --explain kernels.ptx
  holdfast analyze --json libmodel.so | jq '.kernels[] | select(.class == "unknown")'`

func (a *app) analyzeVerb() *cobra.Command {
	var f analyzeFlags
	cmd := &cobra.Command{
		Use:     "analyze FILE...",
		Short:   "Say for which launches kernels are idempotent",
		Long:    analyzeLong,
		Example: analyzeExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("analyze: FILE is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.analyze(args, f)
		},
	}
	cmd.Flags().StringVar(&f.kernel, "kernel", "", "only the kernels of this name")
	cmd.Flags().BoolVar(&f.explain, "explain", false, "print how the range of each access was found")
	return cmd
}

type analyzeFlags struct {
	kernel  string
	explain bool
}

// An analyzedKernel is a kernel of a file.
type analyzedKernel struct {
	File   string `json:"file"`
	Image  string `json:"image,omitempty"` // where in the file, or its digest in a trace; "" = the file is PTX
	Kernel string `json:"kernel"`
	Target string `json:"target"`
	// ptx, also that in a cubin, or elf: machine code, with PTX beside it only in a trace
	Code    string `json:"code"`
	Class   string `json:"class"`            // always, conditionally, never, unknown
	Reason  string `json:"reason,omitempty"` // why not always
	Line    int    `json:"line,omitempty"`   // of the PTX
	When    string `json:"condition"`        // on what the verdict depends
	Explain string `json:"explain,omitempty"`
}

// An analysis is what was found in some files.
type analysis struct {
	analyzeFlags
	Kernels []*analyzedKernel `json:"kernels"`
}

func (a *app) analyze(files []string, f analyzeFlags) error {
	x := &analysis{analyzeFlags: f, Kernels: []*analyzedKernel{}}
	for _, file := range files {
		if err := a.analyzeFile(x, file); err != nil {
			return err
		}
	}
	if f.kernel != "" && len(x.Kernels) == 0 {
		return fmt.Errorf("no kernel %q in %s", f.kernel, strings.Join(files, ", "))
	}
	if a.json {
		return a.printJSON(x)
	}
	return a.printAnalysis(x, len(files) > 1)
}

func (a *app) printAnalysis(x *analysis, many bool) error {
	if x.explain {
		for _, k := range x.Kernels {
			if _, err := fmt.Fprintf(a.stdout, "%s\n", k.Explain); err != nil {
				return err
			}
		}
		return nil
	}
	head := []string{"KERNEL", "TARGET", "CLASS", "WHY"}
	if many {
		head = append([]string{"FILE"}, head...)
	}
	t := newTable(head...)
	for _, k := range x.Kernels {
		why := k.Reason
		if k.Line > 0 {
			why = fmt.Sprintf("%s (line %d)", why, k.Line)
		}
		if why == "" && k.Class == footprint.Conditionally.String() {
			why = shorten(k.When, maxCondition)
		}
		row := []string{k.Kernel, k.Target, k.Class, why}
		if many {
			row = append([]string{k.File}, row...)
		}
		t.add(row...)
	}
	return t.print(a.stdout)
}

// maxCondition is how much of a condition the table shows, in characters. --json has all of it.
const maxCondition = 120

func shorten(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// sniff is how much of a file tells what it is, in bytes.
const sniff = 64 << 10

func (a *app) analyzeFile(x *analysis, name string) error {
	if name == "-" {
		return a.analyzePTX(x, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, sniff)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("%s: %w", name, err)
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte(trace.Magic)):
		return x.trace(f, name)
	case fatbin.Detect(head) == fatbin.Text || strings.HasSuffix(name, ".ptx"):
		return a.analyzePTX(x, name)
	case fatbin.Detect(head) == fatbin.Unknown:
		return fmt.Errorf("%s: offset 0: this is neither PTX nor a cubin, a fat binary, an ELF file or a trace", name)
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	for e, err := range fatbin.Files(f, st.Size()) {
		if err == nil {
			err = a.analyzeEmbedded(x, name, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (a *app) analyzePTX(x *analysis, file string) error {
	m, err := a.checkedPTX(file)
	if err != nil {
		return err
	}
	return x.module(file, "", m)
}

// module adds the kernels of a PTX module.
func (x *analysis) module(file, image string, m *ptx.Module) error {
	list, err := summarise.Module(m)
	if err != nil {
		return err
	}
	for _, s := range list {
		k := &analyzedKernel{File: file, Image: image, Kernel: s.Name, Target: strings.Join(m.Target, ","), Code: "ptx",
			Class: s.Class.String()}
		if s.Class != footprint.Always {
			k.Reason, k.Line = s.Cause.String(), s.At
		}
		x.add(k, s)
	}
	return nil
}

// add lists a kernel if it is wanted.
func (x *analysis) add(k *analyzedKernel, s *footprint.Summary) {
	if x.kernel != "" && k.Kernel != x.kernel {
		return
	}
	k.When = s.Condition()
	if x.explain {
		var b strings.Builder
		s.Explain(nil, &b) // a Builder takes everything
		k.Explain = b.String()
	}
	x.Kernels = append(x.Kernels, k)
}

// trace adds the kernels of a trace, each once, with what the PTX in the trace says of it.
func (x *analysis) trace(f *os.File, name string) error {
	r, err := foresee.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	seen := map[analyzedKernel]bool{}
	for {
		rec, p, err := r.Next()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if rec == nil {
			return nil
		}
		told, ok := rec.(*trace.Kernel)
		if !ok {
			continue
		}
		_, s, exact := p.Kernel(told.ID)
		k := analyzedKernel{File: name, Kernel: told.Name, Code: "elf", Class: s.Class.String()}
		if s.Class != footprint.Always {
			k.Reason, k.Line = s.Cause.String(), s.At
		}
		if exact {
			k.Code = "ptx"
		}
		if im := p.State().Image(told.Module); im != nil {
			k.Image = im.Digest.Short()
			if n := len(im.Texts); n > 0 && im.Texts[n-1].Arch != 0 {
				k.Target = fmt.Sprintf("sm_%d", im.Texts[n-1].Arch)
			}
		}
		if !seen[k] {
			seen[k] = true
			x.add(&k, s)
		}
	}
}

// analyzeEmbedded adds the kernels of a piece of GPU code. Where there is PTX of a kernel, its machine code
// is not listed.
func (a *app) analyzeEmbedded(x *analysis, file string, e *fatbin.Embedded) error {
	if e.Format == fatbin.Object {
		return x.cubin(file, fmt.Sprintf("%#x", e.Offset), e.Data, nil)
	}
	f, err := fatbin.Open(e.Data)
	if err != nil {
		return fmt.Errorf("offset %#x: %w", e.Offset, err)
	}
	known := map[string]bool{}
	for _, kind := range []fatbin.Kind{fatbin.PTX, fatbin.ELF} {
		for _, entry := range f.Entries {
			if entry.Kind != kind {
				continue
			}
			image := fmt.Sprintf("%#x", e.Offset+int64(entry.Offset))
			data, err := entry.Data()
			if err != nil {
				return fmt.Errorf("offset %#x: %w", e.Offset, err)
			}
			if kind == fatbin.ELF {
				err = x.cubin(file, image, data, known)
			} else {
				err = a.embeddedPTX(x, file, image, data, known)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) embeddedPTX(x *analysis, file, image string, text []byte, known map[string]bool) error {
	m, err := ptx.Parse(file+"@"+image, text)
	if err == nil {
		err = ptx.Check(m)
	}
	if err != nil {
		return a.ptxErrors(err)
	}
	for _, d := range m.Decls {
		if f, ok := d.(*ptx.Func); ok && f.Entry {
			known[f.Name] = true
		}
	}
	return x.module(file, image, m)
}

// cubin adds the kernels of machine code that are not known.
func (x *analysis) cubin(file, image string, data []byte, known map[string]bool) error {
	c, err := fatbin.OpenCubin(data)
	if err != nil {
		return fmt.Errorf("offset %s: %w", image, err)
	}
	target := fmt.Sprintf("sm_%d", c.Arch)
	if c.Specific {
		target += "a"
	}
	summaries := assembled(c)
	for _, k := range c.Kernels {
		if !k.Entry || known[k.Name] {
			continue
		}
		if s := summaries[k.Name]; s != nil {
			x.add(&analyzedKernel{File: file, Image: image, Kernel: k.Name, Target: target, Code: "ptx",
				Class: s.Class.String(), Reason: s.Cause.String()}, s)
			continue
		}
		s := footprint.Opaque(k.Name, cubinParams(k))
		out := &analyzedKernel{File: file, Image: image, Kernel: k.Name, Target: target, Code: "elf",
			Class: s.Class.String(), Reason: s.Cause.String()}
		x.add(out, s)
	}
	return nil
}

// assembled are the summaries of the PTX that a cubin holds, if it holds any that can be read.
func assembled(c *fatbin.Cubin) map[string]*footprint.Summary {
	m, err := ptx.Parse("", c.PTX())
	if err != nil {
		return nil
	}
	list, err := summarise.Module(m)
	if err != nil {
		return nil
	}
	out := map[string]*footprint.Summary{}
	for _, s := range list {
		out[s.Name] = s
	}
	return out
}

func cubinParams(k fatbin.Kernel) []footprint.Param {
	var out []footprint.Param
	for _, p := range k.Params {
		out = append(out, footprint.Param{Name: fmt.Sprint(p.Ordinal), Off: p.Offset, Size: p.Size})
	}
	return out
}
