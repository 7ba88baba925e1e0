package verify

import (
	"fmt"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
)

// launch looks at a launch. known, which may be nil, is asked for contents of memory that nothing writes.
func (c *checker) launch(x *Item, known *contents) {
	l, k := x.launch, c.kernels[x.Kernel]
	if why := excess(l); why != "" {
		x.refuse("%s", why)
		return
	}
	if k.refused != "" {
		x.refuse("%s", k.refused)
		return
	}
	x.Level, x.Reason = Proven, ""
	x.Reads, x.Writes, x.Relied = nil, nil, nil
	for _, s := range k.summaries {
		c.evaluate(s, l, known)
		in := &c.inst
		// What has bounds must be inside, whatever else there is. Where the kernel goes by what it loads, and that is
		// not known, a bound may be no more than that the number has 32 bits.
		guess := s.HasTables && (len(in.Relied) == 0 || len(in.Wanted) > 0)
		if why := c.outside(in.Reads, in.Writes); why != "" && !guess {
			x.refuse("%s", why)
			return
		} else if why != "" {
			x.Level, x.Reason = ByArguments, "if memory holds something else than it should, "+why
		}
		if why := unbounded(in); why != "" {
			x.Level, x.Reason = ByArguments, why
		}
		x.Reads = append(x.Reads, in.Reads...)
		x.Writes = append(x.Writes, in.Writes...)
		x.Relied = append(x.Relied, in.Relied...)
	}
	if k.doubt != "" {
		x.Level, x.Reason = ByArguments, k.doubt
	}
	if x.Level == Proven {
		x.Reads, x.Writes = footprint.Merge(x.Reads), footprint.Merge(x.Writes)
		x.Relied = footprint.Merge(x.Relied)
		return
	}
	x.Reads, x.Writes, x.Relied = nil, nil, nil
	if at, v, ok := c.stray(l.Params, k.told.Params); ok {
		x.refuse("byte %d of its parameters is %#x, which points to no memory of the recording (%s)", at, v, x.Reason)
	}
}

// evaluate finds the footprint of a launch. Allocations are not given: a bound that rests on them would be no proof.
func (c *checker) evaluate(s *footprint.Summary, l *trace.Launch, known *contents) {
	f := footprint.Launch{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared, Params: l.Params}
	if known == nil {
		s.Evaluate(&f, &c.inst)
		return
	}
	known.evaluate(s, &f, &c.inst)
}

// unbounded says why a launch may touch more than its ranges; "" if it does not. Reads of variables stay in them: they
// are memory of the code.
func unbounded(in *footprint.Instance) string {
	what := ""
	switch {
	case in.WritesUnknown:
		what = "what it writes has no provable bound"
	case in.ReadsUnknown && !in.ReadsVariables:
		what = "what it reads has no provable bound"
	default:
		return ""
	}
	if in.Cause == footprint.NoCause {
		return what
	}
	return fmt.Sprintf("%s (%s)", what, in.Reason())
}
