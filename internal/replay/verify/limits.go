package verify

import (
	"fmt"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// Limits beyond those that a reader has: what no recording of a real program comes near.
const (
	engineUnit = 2 << 20 // in which memory is mapped
	maxWork    = 1 << 22 // pieces of work, in all entries
	maxMemory  = 1 << 40 // bytes of device memory
	topAddress = 1 << 49 // device addresses of sm_60 to sm_90 have 49 bits
	maxBlocks  = 1 << 32 // of one launch
	maxShared  = 256 << 10
	maxParams  = 32764    // bytes of a kernel's parameters (PTX ISA 9.0, section 11.2)
	maxText    = 64 << 20 // bytes of PTX that are analysed
)

// bounded refuses manifests that ask for more than there is.
func bounded(m *recording.Manifest) error {
	total := m.Staging.Bytes
	for i, r := range m.Memory {
		if r.Bytes > maxMemory || total > maxMemory-r.Bytes {
			return fmt.Errorf("more than %d bytes of device memory", int64(maxMemory))
		}
		total += r.Bytes
		if uint64(r.Addr)+uint64(r.Bytes) > topAddress {
			return fmt.Errorf("region %d at %v: there are no such addresses", i, r.Addr)
		}
	}
	if s := m.Staging; s.Bytes > maxMemory || uint64(s.Addr)+uint64(s.Bytes) > topAddress {
		return fmt.Errorf("staging memory: %d bytes at %v", s.Bytes, s.Addr)
	}
	return nil
}

// excess says what of a launch is larger than a GPU takes; "" if nothing is.
func excess(l *trace.Launch) string {
	blocks := uint64(l.Grid[0]) * uint64(l.Grid[1]) // below 2^47
	switch {
	case blocks > maxBlocks || blocks*uint64(l.Grid[2]) > maxBlocks:
		return fmt.Sprintf("its grid %v has more than %d blocks", l.Grid, uint64(maxBlocks))
	case l.Block[2] > 64:
		return fmt.Sprintf("its block is %v", l.Block)
	case l.Shared > maxShared:
		return fmt.Sprintf("it asks for %d bytes of shared memory", l.Shared)
	case len(l.Params) > maxParams:
		return fmt.Sprintf("it has %d bytes of parameters", len(l.Params))
	}
	for i := range l.Grid {
		if l.Grid[i]%l.Cluster[i] != 0 {
			return fmt.Sprintf("its grid %v is not whole clusters of %v", l.Grid, l.Cluster)
		}
	}
	return ""
}
