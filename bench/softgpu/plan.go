package main

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/corpus"
	"holdfast/internal/softgpu/probe"
)

// A unit is what a job does at a time: probes that share a module, or an application of the corpus.
type unit struct {
	probes   []*probe.Probe
	app      *corpus.Application
	launches []int // of it
}

func (u unit) family() string {
	if u.app != nil {
		return "corpus: " + u.app.Family
	}
	return u.probes[0].Family
}

func (u unit) describe() string {
	if u.app != nil {
		return fmt.Sprintf("%s: %d launches", u.app.Name, len(u.launches))
	}
	return fmt.Sprintf("%s: %d probes from %s", u.probes[0].Family, len(u.probes), u.probes[0].ID())
}

// plan lists all units of a run. The jobs make the same list: it depends on nothing but the options.
func (o options) plan() ([]unit, error) {
	us := units(o.families, o.only)
	if o.corpus == "" {
		return us, nil
	}
	apps, err := corpus.Load(o.corpus)
	if err != nil {
		return nil, err
	}
	apps = slices.DeleteFunc(apps, func(a *corpus.Application) bool {
		return !wanted(o.families, "corpus: "+a.Family) || !strings.Contains(a.Name, o.only) && o.only != ""
	})
	return append(us, applications(apps)...), nil
}

func wanted(families []string, family string) bool {
	return len(families) == 0 || slices.ContainsFunc(families, func(f string) bool {
		return strings.Contains(family, f)
	})
}

// perModule is how many probes share a module: few enough that a module is assembled in a fraction of a second, many
// enough that its overhead does not count.
const perModule = 50

// units makes the list of probe units in the order in which they are run: what settles open questions first, then by
// family; probes that ptxas 12.4 refuses come last, each in a module of its own, because they may be newer than that
// tool.
func units(families []string, only string) []unit {
	refused := probe.Refused()
	var known, doubtful []*probe.Probe
	for _, p := range probe.All() {
		if !wanted(families, p.Family) || !strings.Contains(p.ID(), only) {
			continue
		}
		why, no := refused[p.ID()]
		switch {
		case !no:
			known = append(known, p)
		case probe.Newer(why):
			doubtful = append(doubtful, p)
		}
	}
	rank := func(p *probe.Probe) int {
		if strings.HasPrefix(p.Family, "carry chains") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(known, func(a, b *probe.Probe) int {
		return 4*(rank(a)-rank(b)) + 2*strings.Compare(a.Family, b.Family) + strings.Compare(a.Target, b.Target)
	})
	var us []unit
	for len(known) > 0 {
		n := 1
		for n < min(perModule, len(known)) && known[n].Target == known[0].Target && known[n].Family == known[0].Family {
			n++
		}
		us = append(us, unit{probes: known[:n]})
		known = known[n:]
	}
	for _, p := range doubtful {
		p.Version = "8.8"
		us = append(us, unit{probes: []*probe.Probe{p}})
	}
	return us
}
