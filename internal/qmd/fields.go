package qmd

import "fmt"

// A Field is one that descriptors of both versions have, or only one.
type Field uint8

// Fields, named as in the headers.
const (
	GroupID Field = iota
	Type
	DependenceCounter
	ReleaseEnable // indexed
	ReleaseStructureSize
	ReleaseMembarType
	ReleasePayload64B
	ReleaseReduction
	ReleaseReductionOp
	ReleaseAddrLower
	ReleaseAddrUpper
	ReleasePayloadLower
	ReleasePayloadUpper
	DependentEnable // indexed
	DependentAction
	DependentPrefetch
	DependentPointer
	BankValid // indexed
	BankPrefetch
	BankInvalidate
	BankAddrLower
	BankAddrUpper
	BankSize
	LocalLowSize
	LocalHighSize
	SassVersion
	APIVisibleCallLimit
	SamplerIndex
	MinorVersion
	MajorVersion
	SharedSize
	InvalidateTextureHeader
	InvalidateTextureSampler
	InvalidateTextureData
	InvalidateShaderData
	InvalidateInstruction
	InvalidateShaderConstant
	MinSMConfig
	MaxSMConfig
	TargetSMConfig
	SharedAllocationEnable
	GridWidth
	GridHeight
	GridDepth
	CWDMembarType
	CTALaunchQueue
	FreeCTASlotsEmptySM
	EnableProgramPreExit
	PreExitAtLastCTALaunch
	ThreadsX
	ThreadsY
	ThreadsZ
	Registers
	Barriers
	ProgramLower
	ProgramUpper
	PrefetchAddrLower
	PrefetchAddrUpper
	PrefetchSize
	PrefetchType
	ClusterWidth
	ClusterHeight
	ClusterDepth
	ClusterDistribution
	SMGlobalCaching
	RequireSchedulingPCAS
	OccupancyMaxWarp
	OccupancyMaxRegister
	OccupancyMaxShared
	OccupancyThresholdWarp
	OccupancyThresholdRegister
	OccupancyThresholdShared
	numFields
)

// A span is where a field stands: bits high to low, stride bits further for each index.
type span struct{ high, low, stride int }

func (s span) missing() bool { return s == span{} }

// A Version is one kind of descriptor.
type Version struct {
	Name  string
	Size  int // bytes
	spans [numFields]span
}

// Has says whether descriptors of a version have a field.
func (v *Version) Has(f Field) bool { return !v.spans[f].missing() }

// A Descriptor is the bytes of a launch.
type Descriptor struct {
	V *Version
	B []byte
}

// Set writes a field. It fails if the version has no such field, or if the value does not fit.
func (d Descriptor) Set(f Field, i int, value uint64) error {
	s := d.V.spans[f]
	if s.missing() {
		return fmt.Errorf("descriptor %s has no field %d", d.V.Name, f)
	}
	low, width := s.low+i*s.stride, s.high-s.low+1
	if i > 0 && s.stride == 0 || low+width > 8*d.V.Size {
		return fmt.Errorf("descriptor %s has no field %d, index %d", d.V.Name, f, i)
	}
	if width < 64 && value>>width != 0 {
		return fmt.Errorf("descriptor %s: %#x does not fit the %d bits of field %d", d.V.Name, value, width, f)
	}
	for n := 0; n < width; {
		bit := low + n
		take := min(8-bit%8, width-n)
		mask := byte(1<<take-1) << (bit % 8)
		d.B[bit/8] = d.B[bit/8]&^mask | byte(value>>n)<<(bit%8)&mask
		n += take
	}
	return nil
}

// Get reads a field.
func (d Descriptor) Get(f Field, i int) uint64 {
	s := d.V.spans[f]
	low, width := s.low+i*s.stride, s.high-s.low+1
	if s.missing() {
		return 0
	}
	var value uint64
	for n := range width {
		bit := low + n
		value |= uint64(d.B[bit/8]>>(bit%8)&1) << n
	}
	return value
}
