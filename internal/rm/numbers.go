package rm

// Requests of the resource manager (src/nvidia/arch/nvalloc/unix/include/nv-ioctl-numbers.h, nv_escape.h).
const (
	NV_ESC_CARD_INFO           = 200
	NV_ESC_REGISTER_FD         = 201
	NV_ESC_CHECK_VERSION_STR   = 210
	NV_ESC_RM_ALLOC_MEMORY     = 0x27
	NV_ESC_RM_FREE             = 0x29
	NV_ESC_RM_CONTROL          = 0x2a
	NV_ESC_RM_ALLOC            = 0x2b
	NV_ESC_RM_MAP_MEMORY       = 0x4e
	NV_ESC_RM_UNMAP_MEMORY     = 0x4f
	NV_ESC_RM_MAP_MEMORY_DMA   = 0x57
	NV_ESC_RM_UNMAP_MEMORY_DMA = 0x58
)

// Requests of unified memory: the numbers are the requests themselves (kernel-open/nvidia-uvm/uvm_ioctl.h,
// uvm_linux_ioctl.h).
const (
	UVM_INITIALIZE              = 0x30000001
	UVM_REGISTER_GPU_VASPACE    = 25
	UVM_UNREGISTER_GPU_VASPACE  = 26
	UVM_REGISTER_CHANNEL        = 27
	UVM_UNREGISTER_CHANNEL      = 28
	UVM_MAP_EXTERNAL_ALLOCATION = 33
	UVM_FREE                    = 34
	UVM_REGISTER_GPU            = 37
	UVM_UNREGISTER_GPU          = 38
	UVM_CREATE_EXTERNAL_RANGE   = 73
	UVM_MM_INITIALIZE           = 75

	UVM_INIT_FLAGS_DISABLE_HMM = 1
	UVM_MAX_GPUS               = 256 // uvm_types.h: NV_MAX_DEVICES * UVM_PARENT_ID_MAX_SUB_PROCESSORS

	UvmGpuMappingTypeReadWriteAtomic = 1 // uvm_types.h
)

// Classes (class/cl*.h).
const (
	NV01_ROOT_CLIENT                 = 0x41
	NV01_DEVICE_0                    = 0x80
	NV20_SUBDEVICE_0                 = 0x2080
	NV01_MEMORY_SYSTEM               = 0x3e
	NV01_MEMORY_LOCAL_USER           = 0x40
	NV01_MEMORY_SYSTEM_OS_DESCRIPTOR = 0x71
	NV01_MEMORY_VIRTUAL              = 0x70
	GT200_DEBUGGER                   = 0x83de
	FERMI_CONTEXT_SHARE_A            = 0x9067
	FERMI_VASPACE_A                  = 0x90f1
	KEPLER_CHANNEL_GROUP_A           = 0xa06c

	TURING_USERMODE_A = 0xc461
	AMPERE_USERMODE_A = 0xc561
	HOPPER_USERMODE_A = 0xc661

	AMPERE_CHANNEL_GPFIFO_A = 0xc56f
	HOPPER_CHANNEL_GPFIFO_A = 0xc86f

	AMPERE_COMPUTE_A = 0xc6c0
	AMPERE_COMPUTE_B = 0xc7c0
	ADA_COMPUTE_A    = 0xc9c0
	HOPPER_COMPUTE_A = 0xcbc0

	AMPERE_DMA_COPY_A = 0xc6b5
	AMPERE_DMA_COPY_B = 0xc7b5
	HOPPER_DMA_COPY_A = 0xc8b5
)

// Controls (ctrl/ctrl*.h).
const (
	NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2                      = 0x205
	NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2                    = 0x800292
	NV2080_CTRL_CMD_GPU_GET_NAME_STRING                     = 0x20800110
	NV2080_CTRL_CMD_GPU_GET_GID_INFO                        = 0x2080014a
	NV2080_CTRL_CMD_PERF_BOOST                              = 0x2080200a
	NV2080_CTRL_PERF_BOOST_FLAGS_CMD_CLEAR                  = 0
	NV2080_CTRL_PERF_BOOST_FLAGS_CMD_BOOST_TO_MAX           = 2
	NV2080_CTRL_PERF_BOOST_FLAGS_CUDA_YES                   = 1 << 4
	NV2080_CTRL_PERF_BOOST_DURATION_MAX                     = 3600 // seconds
	NV2080_CTRL_CMD_GR_GET_INFO                             = 0x20801201
	NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE            = 0x20801210
	NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET = 1
	NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA       = 1
	NV2080_CTRL_CMD_FB_GET_INFO_V2                          = 0x20801303
	NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO               = 0x83de0328
	NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES          = 0x83de030c
	NVA06C_CTRL_CMD_GPFIFO_SCHEDULE                         = 0xa06c0101
	NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN            = 0xc36f0108
	NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY          = 2
	NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE                = 0x08 // KiB
	NV2080_CTRL_GR_INFO_INDEX_SM_VERSION                    = 0x0c
	NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM              = 0x0d
	NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT         = 0x09
	NV2080_CTRL_GR_INFO_INDEX_GPU_CORE_COUNT                = 0x1d
	NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS               = 0x14
	NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC        = 0x17
	NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC         = 0x20
	NV2080_ENGINE_TYPE_GRAPHICS                             = 1 // class/cl2080.h
)

// Flags of allocations.
const (
	NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED  = 1 << 3 // nvos.h
	NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING = 1 << 6
	NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC    = 1

	// NVOS02_FLAGS: pages anywhere, cached, no mapping made (nvos.h).
	NVOS02_FLAGS_PHYSICALITY_NONCONTIGUOUS = 1 << 4
	NVOS02_FLAGS_COHERENCY_CACHED          = 1 << 12
	NVOS02_FLAGS_MAPPING_NO_MAP            = 1 << 30

	// NVOS32: what memory is allocated (nvos.h).
	NVOS32_TYPE_IMAGE                        = 0
	NVOS32_TYPE_NOTIFIER                     = 13
	NVOS32_ATTR_PAGE_SIZE_HUGE               = 3 << 23
	NVOS32_ATTR_LOCATION_PCI                 = 1 << 25
	NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS    = 1 << 27
	NVOS32_ATTR_PHYSICALITY_CONTIGUOUS       = 2 << 27
	NVOS32_ATTR_PHYSICALITY_ANY              = 3 << 27 // _ALLOW_NONCONTIGUOUS
	NVOS32_ATTR_COHERENCY_CACHED             = 1 << 29
	NVOS32_ATTR_COHERENCY_WRITE_BACK         = 5 << 29
	NVOS32_ATTR2_ZBC_PREFER_NO_ZBC           = 1
	NVOS32_ATTR2_GPU_CACHEABLE_YES           = 1 << 2
	NVOS32_ATTR2_GPU_CACHEABLE_NO            = 2 << 2
	NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB          = 1 << 20
	NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT = 1
	NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE       = 0x100
	NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED      = 0x8000
	NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM     = 0x10000

	NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED = 2 << 23

	// NVOS46: how memory is mapped for the GPU (nvos.h).
	NVOS46_FLAGS_CACHE_SNOOP_ENABLE    = 1 << 4
	NVOS46_FLAGS_PAGE_SIZE_4KB         = 1 << 8
	NVOS46_FLAGS_PAGE_SIZE_HUGE        = 4 << 8
	NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE = 1 << 15
)

// Where a channel's control words stand in its USERD (class/clc86f.h, Nvc86fControl).
const (
	UserdSize  = 512
	UserdGPGet = 0x88
	UserdGPPut = 0x8c
)

// The doorbell in the usermode region (class/clc361.h, NVC361_NOTIFY_CHANNEL_PENDING).
const (
	UsermodeSize     = 0x10000
	UsermodeDoorbell = 0x90
)

// SpaceLimit is the last address of an address space.
const SpaceLimit = 1<<49 - 1
