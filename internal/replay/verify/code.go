package verify

import (
	"fmt"
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/ir/fromptx"
	"holdfast/internal/recording"
	"holdfast/ptx"
)

// A kernel is what the recording's code says of one of its kernels.
type kernel struct {
	told      *recording.Kernel
	summaries []*footprint.Summary // of each image with PTX: a backend may take any of them
	doubt     string               // why no launch is proven
	refused   string               // why every launch is refused
}

// unsure notes why no launch is proven, unless there is a reason already.
func (k *kernel) unsure(format string, args ...any) {
	if k.doubt == "" {
		k.doubt = fmt.Sprintf(format, args...)
	}
}

// code reads what there is of the code of each kernel. Only what can be read counts: a backend that takes machine code
// runs that, whatever the PTX beside it says.
func (c *checker) code() error {
	byCode := make([][]*kernel, len(c.m.Code))
	for i := range c.m.Kernels {
		k := &kernel{told: &c.m.Kernels[i]}
		c.kernels = append(c.kernels, k)
		byCode[k.told.Code] = append(byCode[k.told.Code], k)
	}
	for i := range c.m.Code {
		if len(byCode[i]) == 0 {
			continue
		}
		for _, g := range c.m.Code[i].Images {
			if err := c.image(g, byCode[i]); err != nil {
				return fmt.Errorf("code %d: %w", i, err)
			}
		}
	}
	return nil
}

func (c *checker) image(g recording.Image, kernels []*kernel) error {
	doubt := ""
	switch {
	case g.Kind != recording.PTX:
		doubt = "it may run as machine code, which is not read"
	case g.Contents.Bytes > maxText:
		doubt = fmt.Sprintf("its PTX has %d bytes, too many to be read", g.Contents.Bytes)
	}
	if doubt != "" {
		for _, k := range kernels {
			k.unsure("%s", doubt)
		}
		return nil
	}
	b, err := c.f.Read(g.Contents)
	if err != nil {
		return err
	}
	m, err := ptx.Parse("", b)
	if err == nil {
		err = ptx.Check(m) // of a name that is there twice, nobody says which one is meant
	}
	if err == nil {
		var list []*footprint.Summary
		if list, err = summarise.Module(m); err == nil {
			j := newJudge(fromptx.Module(m))
			for _, k := range kernels {
				k.read(list, j)
			}
			return nil
		}
	}
	for _, k := range kernels {
		k.unsure("its PTX cannot be read: %v", err)
	}
	return nil
}

// read takes what one image says of a kernel.
func (k *kernel) read(list []*footprint.Summary, j *judge) {
	i := slices.IndexFunc(list, func(s *footprint.Summary) bool { return s.Name == k.told.Name })
	if i < 0 {
		k.unsure("its PTX has no kernel of that name")
		return
	}
	s := list[i]
	same := slices.EqualFunc(s.Params, k.told.Params, func(a footprint.Param, b recording.Param) bool {
		return a.Off == b.Offset && a.Size == b.Size
	})
	if !same {
		k.unsure("its PTX has other parameters than the recording says")
		return
	}
	refused, doubt := j.judge(s.Name)
	if refused != "" {
		k.refused = refused
	}
	if doubt != "" {
		k.unsure("%s", doubt)
	}
	k.summaries = append(k.summaries, s)
}
