package measure

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"holdfast/internal/corpus"
)

// TestVerdicts compares verdicts with what executing launches shows: no launch may be said to be idempotent that is
// not, none not to be that is, and no access may be missing from what was foreseen. It takes a sample of the corpus
// that is the same every day; HOLDFAST_CORPUS=all takes everything, as bench/foresee/verdicts -oracle does, and
// HOLDFAST_CORPUS=NAME one application. HOLDFAST_CORPUS_REPORT=FILE keeps the report.
func TestVerdicts(t *testing.T) {
	apps, err := corpus.Load("../../../test/corpus")
	if err != nil {
		t.Fatal(err)
	}
	which := os.Getenv("HOLDFAST_CORPUS")
	o := Defaults()
	o.Oracle, o.Workers = true, 2
	sample := which == ""
	if sample {
		o.Prefixes, o.MutantPrefixes, o.Mutants, o.Instructions = 3, 2, 4, 4<<20
	}
	r := rand.New(rand.NewPCG(1, 2))
	m := New(o)
	for _, a := range apps {
		if !sample && which != "all" && which != a.Name {
			continue
		}
		if sample {
			r.Shuffle(len(a.Launches), func(i, k int) { a.Launches[i], a.Launches[k] = a.Launches[k], a.Launches[i] })
			a.Launches = a.Launches[:min(len(a.Launches), 8)]
		}
		if err := m.Application(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	rep := m.Report()
	if file := os.Getenv("HOLDFAST_CORPUS_REPORT"); file != "" {
		text, err := json.MarshalIndent(rep, "", " ")
		if err == nil {
			err = os.WriteFile(file, text, 0o666)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, x := range rep.FalsePositives {
		t.Errorf("%s, launch of %s, %s: said to be idempotent, and it %s", x.Application, x.Kernel, x.Mutant, x.Why)
	}
	for _, x := range rep.Missed {
		t.Errorf("%s, launch of %s, %s: not foreseen: it %s", x.Application, x.Kernel, x.Mutant, x.Why)
	}
	for _, x := range rep.Refuted {
		t.Errorf("%s, launch of %s, %s: said not to be idempotent: %s; and it %s", x.Application, x.Kernel, x.Mutant,
			x.Reason, x.Why)
	}
	truth := rep.Total.Truth.Total() + rep.Total.Mutants.Total()
	t.Logf("%d kernels; %d instances executed, %d of them truly not idempotent; %d of %d idempotent ones not known "+
		"to be",
		rep.Total.Kernels, truth, rep.Total.Truth.NotIdempotent+rep.Total.Mutants.NotIdempotent,
		rep.Total.Truth.FalseNegatives, rep.Total.Truth.Idempotent)
	if sample && (truth < 500 || rep.Total.Truth.Idempotent == rep.Total.Truth.FalseNegatives) {
		t.Error("the sample shows nothing")
	}
}
