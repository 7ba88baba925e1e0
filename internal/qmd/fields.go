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
	TaskChasing
	SelfCopy
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

// names are those of the headers, as version 4.0 has them; of fields with an index, the first one's.
var names = [numFields]string{
	GroupID:                    "QMD_GROUP_ID",
	Type:                       "QMD_TYPE",
	DependenceCounter:          "DEPENDENCE_COUNTER",
	ReleaseEnable:              "RELEASE_ENABLE",
	ReleaseStructureSize:       "RELEASE_STRUCTURE_SIZE",
	ReleaseMembarType:          "RELEASE_MEMBAR_TYPE",
	ReleasePayload64B:          "RELEASE_PAYLOAD64B",
	ReleaseReduction:           "RELEASE_REDUCTION_ENABLE",
	ReleaseReductionOp:         "RELEASE_REDUCTION_OP",
	ReleaseAddrLower:           "RELEASE_SEMAPHORE0_ADDR_LOWER",
	ReleaseAddrUpper:           "RELEASE_SEMAPHORE0_ADDR_UPPER",
	ReleasePayloadLower:        "RELEASE_SEMAPHORE0_PAYLOAD_LOWER",
	ReleasePayloadUpper:        "RELEASE_SEMAPHORE0_PAYLOAD_UPPER",
	DependentEnable:            "DEPENDENT_QMD_ENABLE",
	DependentAction:            "DEPENDENT_QMD_ACTION",
	DependentPrefetch:          "DEPENDENT_QMD_PREFETCH",
	DependentPointer:           "DEPENDENT_QMD0_POINTER",
	TaskChasing:                "CWD_MEMBAR_TASK_CHASING_ENABLE",
	SelfCopy:                   "SELF_COPY_ON_COMPLETION",
	BankValid:                  "CONSTANT_BUFFER_VALID",
	BankPrefetch:               "CONSTANT_BUFFER_PREFETCH",
	BankInvalidate:             "CONSTANT_BUFFER_INVALIDATE",
	BankAddrLower:              "CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6",
	BankAddrUpper:              "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6",
	BankSize:                   "CONSTANT_BUFFER_SIZE_SHIFTED4",
	LocalLowSize:               "SHADER_LOCAL_MEMORY_LOW_SIZE",
	LocalHighSize:              "SHADER_LOCAL_MEMORY_HIGH_SIZE",
	SassVersion:                "SASS_VERSION",
	APIVisibleCallLimit:        "API_VISIBLE_CALL_LIMIT",
	SamplerIndex:               "SAMPLER_INDEX",
	MinorVersion:               "QMD_MINOR_VERSION",
	MajorVersion:               "QMD_MAJOR_VERSION",
	SharedSize:                 "SHARED_MEMORY_SIZE",
	InvalidateTextureHeader:    "INVALIDATE_TEXTURE_HEADER_CACHE",
	InvalidateTextureSampler:   "INVALIDATE_TEXTURE_SAMPLER_CACHE",
	InvalidateTextureData:      "INVALIDATE_TEXTURE_DATA_CACHE",
	InvalidateShaderData:       "INVALIDATE_SHADER_DATA_CACHE",
	InvalidateInstruction:      "INVALIDATE_INSTRUCTION_CACHE",
	InvalidateShaderConstant:   "INVALIDATE_SHADER_CONSTANT_CACHE",
	MinSMConfig:                "MIN_SM_CONFIG_SHARED_MEM_SIZE",
	MaxSMConfig:                "MAX_SM_CONFIG_SHARED_MEM_SIZE",
	TargetSMConfig:             "TARGET_SM_CONFIG_SHARED_MEM_SIZE",
	SharedAllocationEnable:     "SHARED_ALLOCATION_ENABLE",
	GridWidth:                  "GRID_WIDTH",
	GridHeight:                 "GRID_HEIGHT",
	GridDepth:                  "GRID_DEPTH",
	CWDMembarType:              "CWD_MEMBAR_TYPE",
	CTALaunchQueue:             "CTA_LAUNCH_QUEUE",
	FreeCTASlotsEmptySM:        "FREE_CTA_SLOTS_EMPTY_SM",
	EnableProgramPreExit:       "ENABLE_PROGRAM_PRE_EXIT",
	PreExitAtLastCTALaunch:     "PRE_EXIT_AT_LAST_CTA_LAUNCH",
	ThreadsX:                   "CTA_THREAD_DIMENSION0",
	ThreadsY:                   "CTA_THREAD_DIMENSION1",
	ThreadsZ:                   "CTA_THREAD_DIMENSION2",
	Registers:                  "REGISTER_COUNT",
	Barriers:                   "BARRIER_COUNT",
	ProgramLower:               "PROGRAM_ADDRESS_LOWER",
	ProgramUpper:               "PROGRAM_ADDRESS_UPPER",
	PrefetchAddrLower:          "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED",
	PrefetchAddrUpper:          "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED",
	PrefetchSize:               "PROGRAM_PREFETCH_SIZE",
	PrefetchType:               "PROGRAM_PREFETCH_TYPE",
	ClusterWidth:               "GPC_CGA_WIDTH",
	ClusterHeight:              "GPC_CGA_HEIGHT",
	ClusterDepth:               "GPC_CGA_DEPTH",
	ClusterDistribution:        "CGA_CTA_DISTRIBUTION_MODE",
	SMGlobalCaching:            "SM_GLOBAL_CACHING_ENABLE",
	RequireSchedulingPCAS:      "REQUIRE_SCHEDULING_PCAS",
	OccupancyMaxWarp:           "OCCUPANCY_MAX_WARP",
	OccupancyMaxRegister:       "OCCUPANCY_MAX_REGISTER",
	OccupancyMaxShared:         "OCCUPANCY_MAX_SHARED_MEM",
	OccupancyThresholdWarp:     "OCCUPANCY_THRESHOLD_WARP",
	OccupancyThresholdRegister: "OCCUPANCY_THRESHOLD_REGISTER",
	OccupancyThresholdShared:   "OCCUPANCY_THRESHOLD_SHARED_MEM",
}

func (f Field) String() string { return names[f] }

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
		return fmt.Errorf("descriptor %s has no %v", d.V.Name, f)
	}
	low, width := s.low+i*s.stride, s.high-s.low+1
	if i > 0 && s.stride == 0 || low+width > 8*d.V.Size {
		return fmt.Errorf("descriptor %s has no %v, index %d", d.V.Name, f, i)
	}
	if width < 64 && value>>width != 0 {
		return fmt.Errorf("descriptor %s: %#x does not fit the %d bits of %v", d.V.Name, value, width, f)
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
