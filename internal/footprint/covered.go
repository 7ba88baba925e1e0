package footprint

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// covered reports whether all that an access may read was written before by its block.
func (m *machine) covered(j int) bool {
	r := &m.p.Accs[j]
	if r.Cover == 0 || r.Kind == IsWrite || m.results[j].state != boxed || m.results[j].whole {
		return false
	}
	for i := range m.p.Accs {
		if w := &m.p.Accs[i]; w.Kind == IsWrite && w.Cover == r.Cover && m.results[i].state == boxed &&
			!m.results[i].whole && m.covers(w, r, j) {
			return true
		}
	}
	return false
}

func (m *machine) covers(w, r *Access, j int) bool {
	fw, fr := &m.p.Forms[w.Form], &m.p.Forms[r.Form]
	if fw.Sym != fr.Sym || w.Bytes <= 0 || w.Span != w.Bytes {
		return false
	}
	site := &m.plan.sites[m.plan.siteOf[j]]
	terms := m.p.Terms[site.t0:site.t1]
	vars := m.snap[site.snap:][:len(terms)]
	// What the write writes: at, and piece bytes from there.
	at, piece := int64(0), w.Bytes
	var threads [3]struct{ k, n int64 }
	mine := uint32(0) // terms of the read that the write has as well
	for _, t := range m.p.Terms[fw.T0:fw.T1] {
		v := &m.p.Vars[t.V]
		k := m.regs[t.Coef]
		if v.Kind != form.KindThread || k <= -Largest || k >= Largest {
			return false
		}
		if v.Imm <= form.TidZ {
			threads[v.Imm].k, threads[v.Imm].n = k, int64(m.launch.Block[v.Imm])
			continue
		}
		i := slices.IndexFunc(terms, func(u Term) bool { return u.V == t.V && m.regs[u.Coef] == k })
		if i < 0 {
			return false
		}
		mine |= 1 << i
	}
	if w.Lone {
		threads[form.TidX].n = 1
	}
	slices.SortFunc(threads[:], func(a, b struct{ k, n int64 }) int {
		return int(min(max(max(a.k, -a.k)-max(b.k,
			-b.k), -1), 1))
	})
	for _, x := range threads {
		if x.k == 0 || x.n <= 1 {
			continue
		}
		if max(x.k, -x.k) > piece {
			return false // there are gaps
		}
		at += min(x.k, 0) * (x.n - 1)
		if piece += max(x.k, -x.k) * (x.n - 1); piece >= Largest {
			return false
		}
	}
	in := interval.Bounds{}
	for i, t := range terms {
		if mine&(1<<i) == 0 {
			in = in.Plus(vars[i].Times(interval.Clamp(m.regs[t.Coef])))
		}
	}
	d := m.regs[fr.C] + r.Off - (m.regs[fw.C] + w.Off)
	if d <= -Largest/2 || d >= Largest/2 || in.Lo <= -Largest/2 || in.Hi >= Largest/2 || r.Span <= 0 {
		return false
	}
	return d+in.Lo >= at && d+in.Hi+r.Span <= at+piece
}
