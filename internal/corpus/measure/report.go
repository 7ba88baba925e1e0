package measure

import "holdfast/internal/footprint"

// Verdicts counts verdicts.
type Verdicts struct {
	Idempotent    int `json:"idempotent"`
	NotIdempotent int `json:"not_idempotent"`
	Unknown       int `json:"unknown"`
}

func (v *Verdicts) add(x footprint.Verdict) {
	switch x {
	case footprint.Idempotent:
		v.Idempotent++
	case footprint.NotIdempotent:
		v.NotIdempotent++
	default:
		v.Unknown++
	}
}

// Total is the number of instances.
func (v Verdicts) Total() int { return v.Idempotent + v.NotIdempotent + v.Unknown }

// Checked counts instances that were executed, by what they truly are (package corpus defines it), and how often the
// verdict was wrong.
type Checked struct {
	Idempotent    int `json:"idempotent"`
	NotIdempotent int `json:"not_idempotent"`
	Undecided     int `json:"undecided"`
	// nothing is clobbered, but the kernel does what is never idempotent by definition
	Excluded       int `json:"excluded"`
	FalsePositives int `json:"false_positives"` // said to be idempotent, and not shown to be
	FalseNegatives int `json:"false_negatives"` // idempotent, and not said to be
	// of them, those that stay if contents of memory are known (known.go)
	FalseNegativesKnown int `json:"false_negatives_known"`
	Refuted             int `json:"refuted"`       // said not to be idempotent, and nothing is clobbered
	Missed              int `json:"missed_ranges"` // accessed a byte that was not foreseen
	Reexecutions        int `json:"reexecutions"`
}

// Total is the number of instances.
func (c Checked) Total() int { return c.Idempotent + c.NotIdempotent + c.Undecided + c.Excluded }

// A Row is what was measured of one application, of the processes of a trace, or of all together. An instance is a
// launch that differs from all others in kernel, configuration, arguments or the buffers that they point to.
type Row struct {
	Application string `json:"application"`
	Family      string `json:"family"`
	Kernels     int    `json:"kernels"`     // that differ in their code
	Conditional int    `json:"conditional"` // of them, those whose verdict depends on the arguments
	// of them, those with instances of both verdicts, mutants not counted
	Both     int            `json:"both"`
	Launches uint64         `json:"launches"` // as the program made them
	Verdicts Verdicts       `json:"verdicts"` // of instances
	Causes   map[string]int `json:"causes"`   // of instances that are not known to be idempotent
	// instances of machine code that lies beside the PTX that was analysed: of traces
	Beside int `json:"beside"`

	Executed    int            `json:"executed"`         // instances, as they are,
	Smaller     int            `json:"executed_smaller"` // with fewer blocks,
	NotExecuted map[string]int `json:"not_executed"`     // or not, and why
	Stray       int            `json:"stray"`            // executed, and left the buffers that they were given
	Truth       Checked        `json:"truth"`            // of the instances that were executed
	Mutants     Checked        `json:"mutants"`          // of launches made from them
	Excluded    map[string]int `json:"excluded"`         // of both, those that are excluded, and why

	kernels map[digest]*kernelRow
}

type digest [32]byte

// A kernelRow is what is known of a kernel.
type kernelRow struct {
	class footprint.Class
	saw   [3]bool // verdicts
}

func newRow(name, family string) *Row {
	return &Row{Application: name, Family: family, Causes: map[string]int{}, NotExecuted: map[string]int{},
		Excluded: map[string]int{}, kernels: map[digest]*kernelRow{}}
}

// instance counts launches of a kernel, and their instance if it is fresh.
func (r *Row) instance(d digest, c footprint.Class, launches uint64, in *footprint.Instance, fresh bool) {
	r.Launches += launches
	k := r.kernels[d]
	if k == nil {
		k = &kernelRow{class: c}
		r.kernels[d] = k
	}
	k.saw[in.Verdict] = true
	if !fresh {
		return
	}
	r.Verdicts.add(in.Verdict)
	if in.Verdict != footprint.Idempotent {
		r.Causes[in.Cause.Key()]++
	}
}

// finish counts the kernels.
func (r *Row) finish() {
	r.Kernels, r.Conditional, r.Both = len(r.kernels), 0, 0
	for _, k := range r.kernels {
		if k.class == footprint.Conditionally {
			r.Conditional++
		}
		if k.saw[footprint.Idempotent] && k.saw[footprint.NotIdempotent] {
			r.Both++
		}
	}
}

// A Mistake is an instance whose verdict or ranges are not the truth.
type Mistake struct {
	Application string `json:"application"`
	Kernel      string `json:"kernel"`
	Launch      int    `json:"launch"`
	Mutant      string `json:"mutant,omitempty"`
	Verdict     string `json:"verdict"`
	Cause       string `json:"cause"`
	Reason      string `json:"reason"`
	Truth       string `json:"truth"`
	Why         string `json:"why"`
	Known       bool   `json:"known,omitempty"`     // contents of memory were
	Instances   int    `json:"instances,omitempty"` // of the kernel, with this reason; Launch is the first
}

// A Report is everything that was measured.
type Report struct {
	Applications        []*Row     `json:"applications"`
	Total               *Row       `json:"total"`       // of kernels with PTX
	Opaque              *Row       `json:"without_ptx"` // of kernels without
	Latency             Latency    `json:"latency"`
	FalsePositives      []*Mistake `json:"false_positives"`
	Refuted             []*Mistake `json:"refuted"`
	FalseNegatives      []*Mistake `json:"false_negatives"`       // mutants left out; one of each kernel and reason
	FalseNegativesKnown []*Mistake `json:"false_negatives_known"` // the same with contents of memory known
	LatencyKnown        Latency    `json:"latency_known"`         // of instances of which some memory is known
	Missed              []*Mistake `json:"missed_ranges"`

	LatencyRecorded LatencyRecorded `json:"latency_recorded"` // of launches, by footprint.Recent
}

// Latency is how long it takes to evaluate an instance of which nothing is remembered, in nanoseconds. Each was
// evaluated in batches; the mean of its best batch counts, so that other work on the machine does not.
type Latency struct {
	Instances   int     `json:"instances"`
	P50         float64 `json:"p50_ns"`
	P99         float64 `json:"p99_ns"`
	Max         float64 `json:"max_ns"`
	Slowest     string  `json:"slowest"`
	Allocations float64 `json:"allocations"` // of one evaluation
}

// LatencyRecorded is how long the launches of programs take in the order in which they were made: each program with a
// footprint.Recent that begins with nothing. Each launch is timed by itself, the clock included; the best of several
// rounds counts. A trace of the corpus has equal launches of a program once, with their number: they count as made
// right after the first one.
type LatencyRecorded struct {
	All              Distribution `json:"all"`
	Remembered       Distribution `json:"remembered"` // of them, those that needed no evaluation,
	Others           Distribution `json:"others"`     // and the others, which are evaluated and written down
	Second           Distribution `json:"second"`     // all, when the program makes all of its launches a second time
	SecondRemembered uint64       `json:"second_remembered"`
	Allocations      float64      `json:"allocations"` // of one
}

// A Distribution is that of the times of launches, in nanoseconds.
type Distribution struct {
	Launches uint64  `json:"launches"`
	P50      float64 `json:"p50_ns"`
	P99      float64 `json:"p99_ns"`
	Max      float64 `json:"max_ns"`
	Slowest  string  `json:"slowest"`
}
