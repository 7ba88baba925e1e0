package summarise

import "holdfast/internal/footprint"

// hide marks the reads of bytes that their own thread has surely written before: they see
// nothing of what was there when the launch began.
func (cd *code) hide(list []*access) {
	for _, r := range list {
		if r.kind != footprint.IsRead || r.bytes == 0 {
			continue
		}
		for _, w := range list {
			if w.kind == footprint.IsWrite && cd.writesBefore(w, r) {
				r.hidden = true
				break
			}
		}
	}
}

// writesBefore reports whether the thread that executes r has executed w before, at the same
// address. If the block of w dominates that of r, w's last execution used the values that r
// uses: a path that makes one of them anew leads through w again before it comes to r.
func (cd *code) writesBefore(w, r *access) bool {
	if w.f != r.f || len(w.f.checks) > 0 && (w.addr != r.addr || w.addr == noExpr) || w.order >= r.order ||
		w.off > r.off || w.off+w.bytes < r.off+r.bytes {
		return false
	}
	if w.async {
		return false
	}
	if !cd.f.Dom.Dominates(w.block.Index, r.block.Index) {
		return false
	}
	for _, f := range w.facts {
		found := false
		for _, g := range r.facts {
			found = found || f == g
		}
		if !found {
			return false
		}
	}
	return true
}
