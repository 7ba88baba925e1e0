package ir

import "fmt"

// A pass changes a function or computes something about it.
type pass struct {
	name string
	run  func(*Func) error
}

// passes is the order in which Analyse runs them.
var passes = []pass{
	{"order", order},
	{"dominators", dominators},
	{"ssa", ssa},
	{"prune", prune},
	{"postdominators", postDominators},
	{"loops", loops},
	{"inductions", inductions},
	{"liveness", liveness},
	{"uniformity", uniformity},
}

// A constraint says that one pass must run before another, and why.
type constraint struct{ before, after, why string }

var constraints = []constraint{
	{"order", "dominators", "every block must be reachable to have a dominator, and block numbers are final after it"},
	{"order", "postdominators", "its tree is indexed by the final block numbers"},
	{"order", "loops", "it expects that headers of outer loops come first"},
	{"dominators", "ssa", "phis go to dominance frontiers, and renaming walks the tree"},
	{"ssa", "prune", "only phis are pruned"},
	{"dominators", "inductions", "an exit counts iterations only if it dominates the way back"},
	{"prune", "inductions", "value numbers are final after it"},
	{"loops", "inductions", "inductions belong to loops"},
	{"prune", "liveness", "a phi that nobody reads would make its arguments live"},
	{"prune", "uniformity", "value numbers are final after it"},
	{"postdominators", "uniformity", "paths from a branch have met at its post-dominator"},
	{"loops", "uniformity", "values that leave a loop in different iterations vary"},
}

// checkOrder reports a constraint that the order of the passes breaks.
func checkOrder(passes []pass, constraints []constraint) error {
	at := map[string]int{}
	for i, p := range passes {
		if _, twice := at[p.name]; twice {
			return fmt.Errorf("pass %s is there twice", p.name)
		}
		at[p.name] = i
	}
	for _, c := range constraints {
		b, ok := at[c.before]
		a, ok2 := at[c.after]
		if !ok || !ok2 {
			return fmt.Errorf("constraint %s before %s names no pass", c.before, c.after)
		}
		if a < b {
			return fmt.Errorf("pass %s must run before %s: %s", c.before, c.after, c.why)
		}
	}
	return nil
}

// Analyse brings a function into SSA form and computes everything that there is to
// know. It runs the checker before the first pass, and after each one if every is set. An
// error that is no *TooLargeError is a defect of this package or of the front end; f is
// then not to be used.
func Analyse(f *Func, every bool) error {
	if err := checkOrder(passes, constraints); err != nil {
		return err
	}
	if f.SSA {
		return fmt.Errorf("function %s is in SSA form already", f.Name)
	}
	if err := Check(f); err != nil {
		return fmt.Errorf("function %s: %w", f.Name, err)
	}
	for i, p := range passes {
		if err := p.run(f); err != nil {
			return err
		}
		if every || i == len(passes)-1 {
			if err := Check(f); err != nil {
				return fmt.Errorf("function %s: after pass %s: %w", f.Name, p.name, err)
			}
		}
	}
	return nil
}
