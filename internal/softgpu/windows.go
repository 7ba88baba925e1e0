package softgpu

// The windows of the generic address space (see the package comment). Host
// programs that are not position independent live below them, everything else
// of a host process far above.
const (
	windowStart  = 0x4_0000_0000
	sharedWindow = 0x4_0000_0000
	sharedSize   = 16 << 20
	clusterSize  = (MaxClusterBlocks + 1) * sharedSize // of shared::cluster
	localWindow  = 0x5_0000_0000
	localSize    = 1 << 32
	paramWindow  = 0x6_0000_0000
	paramSize    = 64 << 10
	codeWindow   = 0x7_0000_0000
	codeStep     = 16
	windowEnd    = 0x8_0000_0000
)
