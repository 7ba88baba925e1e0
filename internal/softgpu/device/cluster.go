package device

import (
	"holdfast/internal/softgpu"
)

// What one cluster may have of blocks: everywhere, and with the function's
// non-portable attribute set.
const (
	portableCluster = 8
	largestCluster  = softgpu.MaxClusterBlocks
)

// clusterOf is the cluster that a launch runs with: what it asks for, else what was set for the function, else what
// the kernel was compiled with. Zero is none.
func clusterOf(asked [3]uint32, info *softgpu.KernelInfo, set map[uint64]int32) [3]uint32 {
	none := [3]uint32{}
	if asked == none {
		for i := range asked {
			asked[i] = uint32(set[funcClusterWidth+uint64(i)])
		}
	}
	if asked == none {
		asked = info.Cluster
	}
	return asked
}

// clusterLimit is the most blocks of a cluster of this kernel.
func clusterLimit(info *softgpu.KernelInfo, set map[uint64]int32) uint64 {
	limit := uint64(portableCluster)
	if set[funcClusterNonPortable] != 0 {
		limit = largestCluster
	}
	if info.MaxCluster > 0 {
		limit = min(limit, uint64(info.MaxCluster))
	}
	return limit
}

// checkCluster checks a launch's cluster against its grid and its kernel.
func checkCluster(cluster, grid [3]uint32, info *softgpu.KernelInfo, set map[uint64]int32) Status {
	none := [3]uint32{}
	if cluster == none {
		if info.NeedsCluster {
			return InvalidClusterSize
		}
		return Success
	}
	blocks := uint64(1)
	for i, n := range cluster {
		if n == 0 || grid[i]%n != 0 {
			return InvalidClusterSize
		}
		blocks *= uint64(min(n, largestCluster+1))
	}
	// A kernel that was compiled for a large cluster has said that it is not portable.
	if cluster == info.Cluster && blocks <= largestCluster {
		return Success
	}
	if info.Cluster != none || blocks > clusterLimit(info, set) {
		return InvalidClusterSize
	}
	return Success
}

// clusterConfig is a launch as the occupancy calls describe it: function, grid, block, shared bytes; launch attributes.
func (c *call) clusterConfig() (info softgpu.KernelInfo, set map[uint64]int32, cluster [3]uint32, perSM int) {
	info, set = c.kernelInfo(c.args[0])
	o, st := launchAttributes(c.blob())
	if st != Success {
		panic(st)
	}
	_, ok1 := dims(c.args[1:])
	block, ok2 := dims(c.args[4:])
	if !ok1 || !ok2 || c.args[7] > sharedPerBlockMax {
		panic(InvalidValue)
	}
	threads := uint64(block[0]) * uint64(min(block[1], maxThreadsPerBlock+1)) *
		uint64(min(block[2], maxThreadsPerBlock+1))
	perSM = occupancy(info, int(min(threads, maxThreadsPerBlock+1)), c.args[7])
	return info, set, clusterOf(o.Cluster, &info, set), perSM
}

// occupancyClusterSize is the largest cluster with which a kernel can be launched.
func occupancyClusterSize(c *call) Status {
	info, set, _, perSM := c.clusterConfig()
	if perSM == 0 {
		return InvalidValue
	}
	if info.Cluster != [3]uint32{} {
		return c.ret(uint64(info.Cluster[0]) * uint64(info.Cluster[1]) * uint64(info.Cluster[2]))
	}
	return c.ret(clusterLimit(&info, set))
}

// occupancyClusters is how many clusters of a launch can be on the device at once. The blocks of one lie in one
// graphics processing cluster of the hardware.
func occupancyClusters(c *call) Status {
	const (
		gpcs      = 8
		gpcBlocks = multiprocessors / gpcs // multiprocessors of one
	)
	info, set, cluster, perSM := c.clusterConfig()
	if cluster == [3]uint32{} {
		return InvalidClusterSize
	}
	if st := checkCluster(cluster, cluster, &info, set); st != Success {
		return st
	}
	blocks := int(cluster[0] * cluster[1] * cluster[2])
	return c.ret(uint64(gpcs * (gpcBlocks * perSM / blocks)))
}
