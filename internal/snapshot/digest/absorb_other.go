//go:build !amd64

package digest

// absorb feeds chunk to the lanes.
func (s *states) absorb(chunk []byte) { absorbGeneric(s, chunk) }
