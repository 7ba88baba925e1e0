package corpus

// Scaled is a launch with fewer blocks, so that it has at most so many threads: the longest dimension of
// the grid is halved until it fits. It reports false if a single cluster has more.
func Scaled(l *Launch, threads uint64) (*Launch, bool) {
	s := *l
	for s.Threads() > threads {
		longest := -1
		for i := range 3 {
			if s.Grid[i] > max(s.Cluster[i], 1) && (longest < 0 || s.Grid[i] > s.Grid[longest]) {
				longest = i
			}
		}
		if longest < 0 {
			return nil, false
		}
		unit := max(s.Cluster[longest], 1)
		s.Grid[longest] = max(s.Grid[longest]/2/unit, 1) * unit
	}
	return &s, true
}
