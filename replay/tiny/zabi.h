/* Code generated from internal/rm and internal/hfx by internal/hfx/gen (make generate); DO NOT EDIT. */
#ifndef HF_ZABI_H
#define HF_ZABI_H
#include <stddef.h>
#include <stdint.h>

#define NV_ESC_CARD_INFO 0xc8u
#define NV_ESC_REGISTER_FD 0xc9u
#define NV_ESC_CHECK_VERSION_STR 0xd2u
#define NV_ESC_RM_ALLOC_MEMORY 0x27u
#define NV_ESC_RM_FREE 0x29u
#define NV_ESC_RM_CONTROL 0x2au
#define NV_ESC_RM_ALLOC 0x2bu
#define NV_ESC_RM_MAP_MEMORY 0x4eu
#define NV_ESC_RM_UNMAP_MEMORY 0x4fu
#define NV_ESC_RM_MAP_MEMORY_DMA 0x57u
#define NV_ESC_RM_UNMAP_MEMORY_DMA 0x58u
#define UVM_INITIALIZE 0x30000001u
#define UVM_REGISTER_GPU_VASPACE 0x19u
#define UVM_UNREGISTER_GPU_VASPACE 0x1au
#define UVM_REGISTER_CHANNEL 0x1bu
#define UVM_UNREGISTER_CHANNEL 0x1cu
#define UVM_MAP_EXTERNAL_ALLOCATION 0x21u
#define UVM_FREE 0x22u
#define UVM_REGISTER_GPU 0x25u
#define UVM_UNREGISTER_GPU 0x26u
#define UVM_CREATE_EXTERNAL_RANGE 0x49u
#define UVM_MM_INITIALIZE 0x4bu
#define UVM_INIT_FLAGS_DISABLE_HMM 0x1u
#define UVM_MAX_GPUS 0x100u
#define UvmGpuMappingTypeReadWriteAtomic 0x1u
#define NV01_ROOT_CLIENT 0x41u
#define NV01_DEVICE_0 0x80u
#define NV20_SUBDEVICE_0 0x2080u
#define NV01_MEMORY_SYSTEM 0x3eu
#define NV01_MEMORY_LOCAL_USER 0x40u
#define NV01_MEMORY_SYSTEM_OS_DESCRIPTOR 0x71u
#define NV01_MEMORY_VIRTUAL 0x70u
#define GT200_DEBUGGER 0x83deu
#define FERMI_CONTEXT_SHARE_A 0x9067u
#define FERMI_VASPACE_A 0x90f1u
#define KEPLER_CHANNEL_GROUP_A 0xa06cu
#define TURING_USERMODE_A 0xc461u
#define AMPERE_USERMODE_A 0xc561u
#define HOPPER_USERMODE_A 0xc661u
#define AMPERE_CHANNEL_GPFIFO_A 0xc56fu
#define HOPPER_CHANNEL_GPFIFO_A 0xc86fu
#define AMPERE_COMPUTE_A 0xc6c0u
#define AMPERE_COMPUTE_B 0xc7c0u
#define ADA_COMPUTE_A 0xc9c0u
#define HOPPER_COMPUTE_A 0xcbc0u
#define AMPERE_DMA_COPY_A 0xc6b5u
#define AMPERE_DMA_COPY_B 0xc7b5u
#define HOPPER_DMA_COPY_A 0xc8b5u
#define NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 0x205u
#define NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2 0x800292u
#define NV2080_CTRL_CMD_GPU_GET_NAME_STRING 0x20800110u
#define NV2080_CTRL_CMD_GPU_GET_GID_INFO 0x2080014au
#define NV2080_CTRL_CMD_PERF_BOOST 0x2080200au
#define NV2080_CTRL_PERF_BOOST_FLAGS_CMD_CLEAR 0x0u
#define NV2080_CTRL_PERF_BOOST_FLAGS_CMD_BOOST_TO_MAX 0x2u
#define NV2080_CTRL_PERF_BOOST_FLAGS_CUDA_YES 0x10u
#define NV2080_CTRL_PERF_BOOST_DURATION_MAX 0xe10u
#define NV2080_CTRL_CMD_GR_GET_INFO 0x20801201u
#define NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE 0x20801210u
#define NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET 0x1u
#define NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA 0x1u
#define NV2080_CTRL_CMD_FB_GET_INFO_V2 0x20801303u
#define NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO 0x83de0328u
#define NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES 0x83de030cu
#define NVA06C_CTRL_CMD_GPFIFO_SCHEDULE 0xa06c0101u
#define NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN 0xc36f0108u
#define NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY 0x2u
#define NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE 0x8u
#define NV2080_CTRL_GR_INFO_INDEX_SM_VERSION 0xcu
#define NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM 0xdu
#define NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT 0x9u
#define NV2080_CTRL_GR_INFO_INDEX_GPU_CORE_COUNT 0x1du
#define NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS 0x14u
#define NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC 0x17u
#define NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC 0x20u
#define NV2080_ENGINE_TYPE_GRAPHICS 0x1u
#define NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED 0x8u
#define NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING 0x40u
#define NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC 0x1u
#define NVOS02_FLAGS_PHYSICALITY_NONCONTIGUOUS 0x10u
#define NVOS02_FLAGS_COHERENCY_CACHED 0x1000u
#define NVOS02_FLAGS_MAPPING_NO_MAP 0x40000000u
#define NVOS32_TYPE_IMAGE 0x0u
#define NVOS32_TYPE_NOTIFIER 0xdu
#define NVOS32_ATTR_PAGE_SIZE_HUGE 0x1800000u
#define NVOS32_ATTR_LOCATION_PCI 0x2000000u
#define NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS 0x8000000u
#define NVOS32_ATTR_PHYSICALITY_CONTIGUOUS 0x10000000u
#define NVOS32_ATTR_PHYSICALITY_ANY 0x18000000u
#define NVOS32_ATTR_COHERENCY_CACHED 0x20000000u
#define NVOS32_ATTR_COHERENCY_WRITE_BACK 0xa0000000u
#define NVOS32_ATTR2_ZBC_PREFER_NO_ZBC 0x1u
#define NVOS32_ATTR2_GPU_CACHEABLE_YES 0x4u
#define NVOS32_ATTR2_GPU_CACHEABLE_NO 0x8u
#define NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB 0x100000u
#define NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT 0x1u
#define NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE 0x100u
#define NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED 0x8000u
#define NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM 0x10000u
#define NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED 0x1000000u
#define NVOS46_FLAGS_CACHE_SNOOP_ENABLE 0x10u
#define NVOS46_FLAGS_PAGE_SIZE_4KB 0x100u
#define NVOS46_FLAGS_PAGE_SIZE_HUGE 0x400u
#define NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE 0x8000u
#define UserdSize 0x200u
#define UserdGPGet 0x88u
#define UserdGPPut 0x8cu
#define UsermodeSize 0x10000u
#define UsermodeDoorbell 0x90u
#define SpaceLimit 0x1ffffffffffffull
#define NV_RM_API_VERSION_CMD_QUERY 0x32u

#define HFX_Magic "HFXLINK\n"
#define HFX_Trailer "HFXPACK\n"
#define HFX_TrailerSize 0x10u
#define HFX_Version 0x1u
#define HFX_Page 0x1000u
#define HFX_HugePage 0x200000u
#define HFX_MaxTables 0x10000000u
#define HFX_MaxPorts 0x1000u
#define HFX_MaxRing 0x1fffffu
#define HFX_HeaderSize 0x100u
#define HFX_Device 0x0u
#define HFX_Visible 0x1u
#define HFX_Pinned 0x2u
#define HFX_System 0x3u
#define HFX_MemoryControl 0x0u
#define HFX_MemoryHost 0x1u
#define HFX_MemoryNotifier 0x2u
#define HFX_MemoryFixed 0x3u
#define HFX_OpMemory 0x0u
#define HFX_OpSubmit 0x1u
#define HFX_OpTake 0x2u
#define HFX_OpWait 0x3u
#define HFX_In 0x0u
#define HFX_Out 0x1u

typedef struct Nv_ioctl_card_info_t {
	uint8_t Valid;
	uint8_t _1[3];
	uint8_t Pci_info[12];
	uint32_t Gpu_id;
	uint16_t Interrupt_line;
	uint8_t _5[2];
	uint64_t Reg_address;
	uint64_t Reg_size;
	uint64_t Fb_address;
	uint64_t Fb_size;
	uint32_t Minor_number;
	uint8_t Dev_name[10];
	uint8_t _12[2];
} Nv_ioctl_card_info_t;
_Static_assert(offsetof(Nv_ioctl_card_info_t, Valid) == 0, "Valid");
_Static_assert(offsetof(Nv_ioctl_card_info_t, _1) == 1, "_1");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Pci_info) == 4, "Pci_info");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Gpu_id) == 16, "Gpu_id");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Interrupt_line) == 20, "Interrupt_line");
_Static_assert(offsetof(Nv_ioctl_card_info_t, _5) == 22, "_5");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Reg_address) == 24, "Reg_address");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Reg_size) == 32, "Reg_size");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Fb_address) == 40, "Fb_address");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Fb_size) == 48, "Fb_size");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Minor_number) == 56, "Minor_number");
_Static_assert(offsetof(Nv_ioctl_card_info_t, Dev_name) == 60, "Dev_name");
_Static_assert(offsetof(Nv_ioctl_card_info_t, _12) == 70, "_12");
_Static_assert(sizeof(Nv_ioctl_card_info_t) == 72, "size");

typedef struct Nv_ioctl_register_fd_t {
	int32_t Ctl_fd;
} Nv_ioctl_register_fd_t;
_Static_assert(offsetof(Nv_ioctl_register_fd_t, Ctl_fd) == 0, "Ctl_fd");
_Static_assert(sizeof(Nv_ioctl_register_fd_t) == 4, "size");

typedef struct Nv_ioctl_rm_api_version_t {
	uint32_t Cmd;
	uint32_t Reply;
	uint8_t VersionString[64];
} Nv_ioctl_rm_api_version_t;
_Static_assert(offsetof(Nv_ioctl_rm_api_version_t, Cmd) == 0, "Cmd");
_Static_assert(offsetof(Nv_ioctl_rm_api_version_t, Reply) == 4, "Reply");
_Static_assert(offsetof(Nv_ioctl_rm_api_version_t, VersionString) == 8, "VersionString");
_Static_assert(sizeof(Nv_ioctl_rm_api_version_t) == 72, "size");

typedef struct Nv_ioctl_nvos02_parameters_with_fd {
	uint32_t HRoot;
	uint32_t HObjectParent;
	uint32_t HObjectNew;
	uint32_t HClass;
	uint32_t Flags;
	uint32_t _5;
	uint64_t PMemory;
	uint64_t Limit;
	uint32_t Status;
	uint32_t _9;
	int32_t Fd;
	uint32_t _11;
} Nv_ioctl_nvos02_parameters_with_fd;
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, HRoot) == 0, "HRoot");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, HObjectParent) == 4, "HObjectParent");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, HObjectNew) == 8, "HObjectNew");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, HClass) == 12, "HClass");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, Flags) == 16, "Flags");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, _5) == 20, "_5");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, PMemory) == 24, "PMemory");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, Limit) == 32, "Limit");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, Status) == 40, "Status");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, _9) == 44, "_9");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, Fd) == 48, "Fd");
_Static_assert(offsetof(Nv_ioctl_nvos02_parameters_with_fd, _11) == 52, "_11");
_Static_assert(sizeof(Nv_ioctl_nvos02_parameters_with_fd) == 56, "size");

typedef struct NVOS21_PARAMETERS {
	uint32_t HRoot;
	uint32_t HObjectParent;
	uint32_t HObjectNew;
	uint32_t HClass;
	uint64_t PAllocParms;
	uint32_t ParamsSize;
	uint32_t Status;
} NVOS21_PARAMETERS;
_Static_assert(offsetof(NVOS21_PARAMETERS, HRoot) == 0, "HRoot");
_Static_assert(offsetof(NVOS21_PARAMETERS, HObjectParent) == 4, "HObjectParent");
_Static_assert(offsetof(NVOS21_PARAMETERS, HObjectNew) == 8, "HObjectNew");
_Static_assert(offsetof(NVOS21_PARAMETERS, HClass) == 12, "HClass");
_Static_assert(offsetof(NVOS21_PARAMETERS, PAllocParms) == 16, "PAllocParms");
_Static_assert(offsetof(NVOS21_PARAMETERS, ParamsSize) == 24, "ParamsSize");
_Static_assert(offsetof(NVOS21_PARAMETERS, Status) == 28, "Status");
_Static_assert(sizeof(NVOS21_PARAMETERS) == 32, "size");

typedef struct Nv_ioctl_nvos33_parameters_with_fd {
	uint32_t HClient;
	uint32_t HDevice;
	uint32_t HMemory;
	uint32_t _3;
	uint64_t Offset;
	uint64_t Length;
	uint64_t PLinearAddress;
	uint32_t Status;
	uint32_t Flags;
	int32_t Fd;
	uint32_t _10;
} Nv_ioctl_nvos33_parameters_with_fd;
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, HClient) == 0, "HClient");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, HDevice) == 4, "HDevice");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, HMemory) == 8, "HMemory");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, _3) == 12, "_3");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, Offset) == 16, "Offset");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, Length) == 24, "Length");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, PLinearAddress) == 32, "PLinearAddress");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, Status) == 40, "Status");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, Flags) == 44, "Flags");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, Fd) == 48, "Fd");
_Static_assert(offsetof(Nv_ioctl_nvos33_parameters_with_fd, _10) == 52, "_10");
_Static_assert(sizeof(Nv_ioctl_nvos33_parameters_with_fd) == 56, "size");

typedef struct NVOS46_PARAMETERS {
	uint32_t HClient;
	uint32_t HDevice;
	uint32_t HDma;
	uint32_t HMemory;
	uint64_t Offset;
	uint64_t Length;
	uint32_t Flags;
	uint32_t Flags2;
	uint32_t KindOverride;
	uint32_t _9;
	uint64_t DmaOffset;
	uint32_t Status;
	uint32_t _12;
} NVOS46_PARAMETERS;
_Static_assert(offsetof(NVOS46_PARAMETERS, HClient) == 0, "HClient");
_Static_assert(offsetof(NVOS46_PARAMETERS, HDevice) == 4, "HDevice");
_Static_assert(offsetof(NVOS46_PARAMETERS, HDma) == 8, "HDma");
_Static_assert(offsetof(NVOS46_PARAMETERS, HMemory) == 12, "HMemory");
_Static_assert(offsetof(NVOS46_PARAMETERS, Offset) == 16, "Offset");
_Static_assert(offsetof(NVOS46_PARAMETERS, Length) == 24, "Length");
_Static_assert(offsetof(NVOS46_PARAMETERS, Flags) == 32, "Flags");
_Static_assert(offsetof(NVOS46_PARAMETERS, Flags2) == 36, "Flags2");
_Static_assert(offsetof(NVOS46_PARAMETERS, KindOverride) == 40, "KindOverride");
_Static_assert(offsetof(NVOS46_PARAMETERS, _9) == 44, "_9");
_Static_assert(offsetof(NVOS46_PARAMETERS, DmaOffset) == 48, "DmaOffset");
_Static_assert(offsetof(NVOS46_PARAMETERS, Status) == 56, "Status");
_Static_assert(offsetof(NVOS46_PARAMETERS, _12) == 60, "_12");
_Static_assert(sizeof(NVOS46_PARAMETERS) == 64, "size");

typedef struct NVOS46_PARAMETERS_570 {
	uint32_t HClient;
	uint32_t HDevice;
	uint32_t HDma;
	uint32_t HMemory;
	uint64_t Offset;
	uint64_t Length;
	uint32_t Flags;
	uint32_t _7;
	uint64_t DmaOffset;
	uint32_t Status;
	uint32_t _10;
} NVOS46_PARAMETERS_570;
_Static_assert(offsetof(NVOS46_PARAMETERS_570, HClient) == 0, "HClient");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, HDevice) == 4, "HDevice");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, HDma) == 8, "HDma");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, HMemory) == 12, "HMemory");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, Offset) == 16, "Offset");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, Length) == 24, "Length");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, Flags) == 32, "Flags");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, _7) == 36, "_7");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, DmaOffset) == 40, "DmaOffset");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, Status) == 48, "Status");
_Static_assert(offsetof(NVOS46_PARAMETERS_570, _10) == 52, "_10");
_Static_assert(sizeof(NVOS46_PARAMETERS_570) == 56, "size");

typedef struct NVOS54_PARAMETERS {
	uint32_t HClient;
	uint32_t HObject;
	uint32_t Cmd;
	uint32_t Flags;
	uint64_t Params;
	uint32_t ParamsSize;
	uint32_t Status;
} NVOS54_PARAMETERS;
_Static_assert(offsetof(NVOS54_PARAMETERS, HClient) == 0, "HClient");
_Static_assert(offsetof(NVOS54_PARAMETERS, HObject) == 4, "HObject");
_Static_assert(offsetof(NVOS54_PARAMETERS, Cmd) == 8, "Cmd");
_Static_assert(offsetof(NVOS54_PARAMETERS, Flags) == 12, "Flags");
_Static_assert(offsetof(NVOS54_PARAMETERS, Params) == 16, "Params");
_Static_assert(offsetof(NVOS54_PARAMETERS, ParamsSize) == 24, "ParamsSize");
_Static_assert(offsetof(NVOS54_PARAMETERS, Status) == 28, "Status");
_Static_assert(sizeof(NVOS54_PARAMETERS) == 32, "size");

typedef struct NV0080_ALLOC_PARAMETERS {
	uint32_t DeviceId;
	uint32_t HClientShare;
	uint32_t HTargetClient;
	uint32_t HTargetDevice;
	uint32_t Flags;
	uint32_t _5;
	uint64_t VaSpaceSize;
	uint64_t VaStartInternal;
	uint64_t VaLimitInternal;
	uint32_t VaMode;
	uint32_t _10;
} NV0080_ALLOC_PARAMETERS;
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, DeviceId) == 0, "DeviceId");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, HClientShare) == 4, "HClientShare");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, HTargetClient) == 8, "HTargetClient");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, HTargetDevice) == 12, "HTargetDevice");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, Flags) == 16, "Flags");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, _5) == 20, "_5");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, VaSpaceSize) == 24, "VaSpaceSize");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, VaStartInternal) == 32, "VaStartInternal");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, VaLimitInternal) == 40, "VaLimitInternal");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, VaMode) == 48, "VaMode");
_Static_assert(offsetof(NV0080_ALLOC_PARAMETERS, _10) == 52, "_10");
_Static_assert(sizeof(NV0080_ALLOC_PARAMETERS) == 56, "size");

typedef struct NV2080_ALLOC_PARAMETERS {
	uint32_t SubDeviceId;
} NV2080_ALLOC_PARAMETERS;
_Static_assert(offsetof(NV2080_ALLOC_PARAMETERS, SubDeviceId) == 0, "SubDeviceId");
_Static_assert(sizeof(NV2080_ALLOC_PARAMETERS) == 4, "size");

typedef struct NV_MEMORY_ALLOCATION_PARAMS {
	uint32_t Owner;
	uint32_t Type;
	uint32_t Flags;
	uint32_t Width;
	uint32_t Height;
	int32_t Pitch;
	uint32_t Attr;
	uint32_t Attr2;
	uint32_t Format;
	uint32_t ComprCovg;
	uint32_t ZcullCovg;
	uint32_t _11;
	uint64_t RangeLo;
	uint64_t RangeHi;
	uint64_t Size;
	uint64_t Alignment;
	uint64_t Offset;
	uint64_t Limit;
	uint64_t Address;
	uint32_t CtagOffset;
	uint32_t HVASpace;
	uint32_t Internalflags;
	uint32_t Tag;
	int32_t NumaNode;
	uint32_t _24;
} NV_MEMORY_ALLOCATION_PARAMS;
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Owner) == 0, "Owner");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Type) == 4, "Type");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Flags) == 8, "Flags");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Width) == 12, "Width");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Height) == 16, "Height");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Pitch) == 20, "Pitch");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Attr) == 24, "Attr");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Attr2) == 28, "Attr2");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Format) == 32, "Format");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, ComprCovg) == 36, "ComprCovg");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, ZcullCovg) == 40, "ZcullCovg");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, _11) == 44, "_11");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, RangeLo) == 48, "RangeLo");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, RangeHi) == 56, "RangeHi");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Size) == 64, "Size");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Alignment) == 72, "Alignment");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Offset) == 80, "Offset");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Limit) == 88, "Limit");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Address) == 96, "Address");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, CtagOffset) == 104, "CtagOffset");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, HVASpace) == 108, "HVASpace");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Internalflags) == 112, "Internalflags");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, Tag) == 116, "Tag");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, NumaNode) == 120, "NumaNode");
_Static_assert(offsetof(NV_MEMORY_ALLOCATION_PARAMS, _24) == 124, "_24");
_Static_assert(sizeof(NV_MEMORY_ALLOCATION_PARAMS) == 128, "size");

typedef struct NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS {
	uint64_t Offset;
	uint64_t Limit;
	uint32_t HVASpace;
	uint32_t _3;
} NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS;
_Static_assert(offsetof(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, Offset) == 0, "Offset");
_Static_assert(offsetof(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, Limit) == 8, "Limit");
_Static_assert(offsetof(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, HVASpace) == 16, "HVASpace");
_Static_assert(offsetof(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, _3) == 20, "_3");
_Static_assert(sizeof(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS) == 24, "size");

typedef struct NV_VASPACE_ALLOCATION_PARAMETERS {
	uint32_t Index;
	uint32_t Flags;
	uint64_t VaSize;
	uint64_t VaStartInternal;
	uint64_t VaLimitInternal;
	uint32_t BigPageSize;
	uint32_t _6;
	uint64_t VaBase;
	uint32_t Pasid;
	uint32_t _9;
} NV_VASPACE_ALLOCATION_PARAMETERS;
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, Index) == 0, "Index");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, Flags) == 4, "Flags");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, VaSize) == 8, "VaSize");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, VaStartInternal) == 16, "VaStartInternal");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, VaLimitInternal) == 24, "VaLimitInternal");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, BigPageSize) == 32, "BigPageSize");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, _6) == 36, "_6");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, VaBase) == 40, "VaBase");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, Pasid) == 48, "Pasid");
_Static_assert(offsetof(NV_VASPACE_ALLOCATION_PARAMETERS, _9) == 52, "_9");
_Static_assert(sizeof(NV_VASPACE_ALLOCATION_PARAMETERS) == 56, "size");

typedef struct NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS {
	uint32_t HObjectError;
	uint32_t HObjectEccError;
	uint32_t HVASpace;
	uint32_t EngineType;
	uint8_t BIsCallingContextVgpuPlugin;
	uint8_t _5[3];
} NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS;
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, HObjectError) == 0, "HObjectError");
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, HObjectEccError) == 4, "HObjectEccError");
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, HVASpace) == 8, "HVASpace");
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, EngineType) == 12, "EngineType");
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, BIsCallingContextVgpuPlugin) == 16, "BIsCallingContextVgpuPlugin");
_Static_assert(offsetof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, _5) == 17, "_5");
_Static_assert(sizeof(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS) == 20, "size");

typedef struct NV_CTXSHARE_ALLOCATION_PARAMETERS {
	uint32_t HVASpace;
	uint32_t Flags;
	uint32_t SubctxId;
} NV_CTXSHARE_ALLOCATION_PARAMETERS;
_Static_assert(offsetof(NV_CTXSHARE_ALLOCATION_PARAMETERS, HVASpace) == 0, "HVASpace");
_Static_assert(offsetof(NV_CTXSHARE_ALLOCATION_PARAMETERS, Flags) == 4, "Flags");
_Static_assert(offsetof(NV_CTXSHARE_ALLOCATION_PARAMETERS, SubctxId) == 8, "SubctxId");
_Static_assert(sizeof(NV_CTXSHARE_ALLOCATION_PARAMETERS) == 12, "size");

typedef struct NV_MEMORY_DESC_PARAMS {
	uint64_t Base;
	uint64_t Size;
	uint32_t AddressSpace;
	uint32_t CacheAttrib;
} NV_MEMORY_DESC_PARAMS;
_Static_assert(offsetof(NV_MEMORY_DESC_PARAMS, Base) == 0, "Base");
_Static_assert(offsetof(NV_MEMORY_DESC_PARAMS, Size) == 8, "Size");
_Static_assert(offsetof(NV_MEMORY_DESC_PARAMS, AddressSpace) == 16, "AddressSpace");
_Static_assert(offsetof(NV_MEMORY_DESC_PARAMS, CacheAttrib) == 20, "CacheAttrib");
_Static_assert(sizeof(NV_MEMORY_DESC_PARAMS) == 24, "size");

typedef struct NV_CHANNEL_ALLOC_PARAMS {
	uint32_t HObjectError;
	uint32_t HObjectBuffer;
	uint64_t GpFifoOffset;
	uint32_t GpFifoEntries;
	uint32_t Flags;
	uint32_t HContextShare;
	uint32_t HVASpace;
	uint32_t HUserdMemory[8];
	uint64_t UserdOffset[8];
	uint32_t EngineType;
	uint32_t Cid;
	uint32_t SubDeviceId;
	uint32_t HObjectEccError;
	NV_MEMORY_DESC_PARAMS InstanceMem;
	NV_MEMORY_DESC_PARAMS UserdMem;
	NV_MEMORY_DESC_PARAMS RamfcMem;
	NV_MEMORY_DESC_PARAMS MthdbufMem;
	uint32_t HPhysChannelGroup;
	uint32_t InternalFlags;
	NV_MEMORY_DESC_PARAMS ErrorNotifierMem;
	NV_MEMORY_DESC_PARAMS EccErrorNotifierMem;
	uint32_t ProcessID;
	uint32_t SubProcessID;
	uint32_t EncryptIv[3];
	uint32_t DecryptIv[3];
	uint32_t HmacNonce[8];
	uint32_t TpcConfigID;
	uint32_t _27;
} NV_CHANNEL_ALLOC_PARAMS;
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HObjectError) == 0, "HObjectError");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HObjectBuffer) == 4, "HObjectBuffer");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, GpFifoOffset) == 8, "GpFifoOffset");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, GpFifoEntries) == 16, "GpFifoEntries");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, Flags) == 20, "Flags");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HContextShare) == 24, "HContextShare");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HVASpace) == 28, "HVASpace");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HUserdMemory) == 32, "HUserdMemory");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, UserdOffset) == 64, "UserdOffset");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, EngineType) == 128, "EngineType");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, Cid) == 132, "Cid");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, SubDeviceId) == 136, "SubDeviceId");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HObjectEccError) == 140, "HObjectEccError");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, InstanceMem) == 144, "InstanceMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, UserdMem) == 168, "UserdMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, RamfcMem) == 192, "RamfcMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, MthdbufMem) == 216, "MthdbufMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HPhysChannelGroup) == 240, "HPhysChannelGroup");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, InternalFlags) == 244, "InternalFlags");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, ErrorNotifierMem) == 248, "ErrorNotifierMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, EccErrorNotifierMem) == 272, "EccErrorNotifierMem");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, ProcessID) == 296, "ProcessID");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, SubProcessID) == 300, "SubProcessID");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, EncryptIv) == 304, "EncryptIv");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, DecryptIv) == 316, "DecryptIv");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, HmacNonce) == 328, "HmacNonce");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, TpcConfigID) == 360, "TpcConfigID");
_Static_assert(offsetof(NV_CHANNEL_ALLOC_PARAMS, _27) == 364, "_27");
_Static_assert(sizeof(NV_CHANNEL_ALLOC_PARAMS) == 368, "size");

typedef struct NvNotification {
	uint32_t Nanoseconds[2];
	uint32_t Info32;
	uint16_t Info16;
	uint16_t Status;
} NvNotification;
_Static_assert(offsetof(NvNotification, Nanoseconds) == 0, "Nanoseconds");
_Static_assert(offsetof(NvNotification, Info32) == 8, "Info32");
_Static_assert(offsetof(NvNotification, Info16) == 12, "Info16");
_Static_assert(offsetof(NvNotification, Status) == 14, "Status");
_Static_assert(sizeof(NvNotification) == 16, "size");

typedef struct NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS {
	uint32_t GpuId;
	uint32_t GpuFlags;
	uint32_t DeviceInstance;
	uint32_t SubDeviceInstance;
	uint32_t SliStatus;
	uint32_t BoardId;
	uint32_t GpuInstance;
	int32_t NumaId;
} NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS;
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, GpuId) == 0, "GpuId");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, GpuFlags) == 4, "GpuFlags");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, DeviceInstance) == 8, "DeviceInstance");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, SubDeviceInstance) == 12, "SubDeviceInstance");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, SliStatus) == 16, "SliStatus");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, BoardId) == 20, "BoardId");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, GpuInstance) == 24, "GpuInstance");
_Static_assert(offsetof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, NumaId) == 28, "NumaId");
_Static_assert(sizeof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS) == 32, "size");

typedef struct NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS {
	uint32_t NumClasses;
	uint32_t ClassList[200];
} NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS;
_Static_assert(offsetof(NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, NumClasses) == 0, "NumClasses");
_Static_assert(offsetof(NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, ClassList) == 4, "ClassList");
_Static_assert(sizeof(NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS) == 804, "size");

typedef struct NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS {
	uint32_t GpuNameStringFlags;
	uint8_t GpuNameString[128];
} NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS;
_Static_assert(offsetof(NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, GpuNameStringFlags) == 0, "GpuNameStringFlags");
_Static_assert(offsetof(NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, GpuNameString) == 4, "GpuNameString");
_Static_assert(sizeof(NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS) == 132, "size");

typedef struct NV2080_CTRL_FB_INFO {
	uint32_t Index;
	uint32_t Data;
} NV2080_CTRL_FB_INFO;
_Static_assert(offsetof(NV2080_CTRL_FB_INFO, Index) == 0, "Index");
_Static_assert(offsetof(NV2080_CTRL_FB_INFO, Data) == 4, "Data");
_Static_assert(sizeof(NV2080_CTRL_FB_INFO) == 8, "size");

typedef struct NV2080_CTRL_FB_GET_INFO_V2_PARAMS {
	uint32_t FbInfoListSize;
	NV2080_CTRL_FB_INFO FbInfoList[128];
} NV2080_CTRL_FB_GET_INFO_V2_PARAMS;
_Static_assert(offsetof(NV2080_CTRL_FB_GET_INFO_V2_PARAMS, FbInfoListSize) == 0, "FbInfoListSize");
_Static_assert(offsetof(NV2080_CTRL_FB_GET_INFO_V2_PARAMS, FbInfoList) == 4, "FbInfoList");
_Static_assert(sizeof(NV2080_CTRL_FB_GET_INFO_V2_PARAMS) == 1028, "size");

typedef struct NV2080_CTRL_GR_INFO {
	uint32_t Index;
	uint32_t Data;
} NV2080_CTRL_GR_INFO;
_Static_assert(offsetof(NV2080_CTRL_GR_INFO, Index) == 0, "Index");
_Static_assert(offsetof(NV2080_CTRL_GR_INFO, Data) == 4, "Data");
_Static_assert(sizeof(NV2080_CTRL_GR_INFO) == 8, "size");

typedef struct NV2080_CTRL_GR_GET_INFO_PARAMS {
	uint32_t GrInfoListSize;
	uint32_t _1;
	uint64_t GrInfoList;
	uint64_t GrRouteInfo[2];
} NV2080_CTRL_GR_GET_INFO_PARAMS;
_Static_assert(offsetof(NV2080_CTRL_GR_GET_INFO_PARAMS, GrInfoListSize) == 0, "GrInfoListSize");
_Static_assert(offsetof(NV2080_CTRL_GR_GET_INFO_PARAMS, _1) == 4, "_1");
_Static_assert(offsetof(NV2080_CTRL_GR_GET_INFO_PARAMS, GrInfoList) == 8, "GrInfoList");
_Static_assert(offsetof(NV2080_CTRL_GR_GET_INFO_PARAMS, GrRouteInfo) == 16, "GrRouteInfo");
_Static_assert(sizeof(NV2080_CTRL_GR_GET_INFO_PARAMS) == 32, "size");

typedef struct NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS {
	uint32_t Flags;
	uint32_t HChannel;
	uint32_t GfxpPreemptMode;
	uint32_t CilpPreemptMode;
	uint64_t GrRouteInfo[2];
} NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS;
_Static_assert(offsetof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, Flags) == 0, "Flags");
_Static_assert(offsetof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, HChannel) == 4, "HChannel");
_Static_assert(offsetof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, GfxpPreemptMode) == 8, "GfxpPreemptMode");
_Static_assert(offsetof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, CilpPreemptMode) == 12, "CilpPreemptMode");
_Static_assert(offsetof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, GrRouteInfo) == 16, "GrRouteInfo");
_Static_assert(sizeof(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS) == 32, "size");

typedef struct NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS {
	uint8_t BEnable;
	uint8_t BSkipSubmit;
	uint8_t BSkipEnable;
} NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS;
_Static_assert(offsetof(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, BEnable) == 0, "BEnable");
_Static_assert(offsetof(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, BSkipSubmit) == 1, "BSkipSubmit");
_Static_assert(offsetof(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, BSkipEnable) == 2, "BSkipEnable");
_Static_assert(sizeof(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS) == 3, "size");

typedef struct NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS {
	uint32_t WorkSubmitToken;
} NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS;
_Static_assert(offsetof(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS, WorkSubmitToken) == 0, "WorkSubmitToken");
_Static_assert(sizeof(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS) == 4, "size");

typedef struct hfx_header {
	uint8_t Magic[8];
	uint32_t Version;
	uint32_t HeaderSum;
	uint64_t FileBytes;
	uint64_t Tables;
	uint64_t TablesBytes;
	uint32_t TablesSum;
	uint32_t Arch;
	uint32_t ClassCompute;
	uint32_t ClassFIFO;
	uint32_t ClassCopy;
	uint32_t ClassUser;
	uint32_t GPCs;
	uint32_t TPCsPerGPC;
	uint32_t SMsPerTPC;
	uint32_t Warps;
	uint32_t TPCs;
	uint32_t Memories;
	uint32_t Groups;
	uint32_t Ops;
	uint32_t Ports;
	uint32_t Words;
	uint32_t Text;
	uint32_t Ring;
	uint32_t RingEntries;
	uint32_t USERD;
	uint32_t Ticket;
	uint32_t Begin;
	uint32_t End;
	uint32_t Progress;
	uint32_t ProgramWords;
	uint32_t Name;
	uint32_t NameBytes;
	uint32_t Reserved;
	uint64_t Program;
	uint64_t DeviceBytes;
	uint8_t Unused[88];
} hfx_header;
_Static_assert(offsetof(hfx_header, Magic) == 0, "Magic");
_Static_assert(offsetof(hfx_header, Version) == 8, "Version");
_Static_assert(offsetof(hfx_header, HeaderSum) == 12, "HeaderSum");
_Static_assert(offsetof(hfx_header, FileBytes) == 16, "FileBytes");
_Static_assert(offsetof(hfx_header, Tables) == 24, "Tables");
_Static_assert(offsetof(hfx_header, TablesBytes) == 32, "TablesBytes");
_Static_assert(offsetof(hfx_header, TablesSum) == 40, "TablesSum");
_Static_assert(offsetof(hfx_header, Arch) == 44, "Arch");
_Static_assert(offsetof(hfx_header, ClassCompute) == 48, "ClassCompute");
_Static_assert(offsetof(hfx_header, ClassFIFO) == 52, "ClassFIFO");
_Static_assert(offsetof(hfx_header, ClassCopy) == 56, "ClassCopy");
_Static_assert(offsetof(hfx_header, ClassUser) == 60, "ClassUser");
_Static_assert(offsetof(hfx_header, GPCs) == 64, "GPCs");
_Static_assert(offsetof(hfx_header, TPCsPerGPC) == 68, "TPCsPerGPC");
_Static_assert(offsetof(hfx_header, SMsPerTPC) == 72, "SMsPerTPC");
_Static_assert(offsetof(hfx_header, Warps) == 76, "Warps");
_Static_assert(offsetof(hfx_header, TPCs) == 80, "TPCs");
_Static_assert(offsetof(hfx_header, Memories) == 84, "Memories");
_Static_assert(offsetof(hfx_header, Groups) == 88, "Groups");
_Static_assert(offsetof(hfx_header, Ops) == 92, "Ops");
_Static_assert(offsetof(hfx_header, Ports) == 96, "Ports");
_Static_assert(offsetof(hfx_header, Words) == 100, "Words");
_Static_assert(offsetof(hfx_header, Text) == 104, "Text");
_Static_assert(offsetof(hfx_header, Ring) == 108, "Ring");
_Static_assert(offsetof(hfx_header, RingEntries) == 112, "RingEntries");
_Static_assert(offsetof(hfx_header, USERD) == 116, "USERD");
_Static_assert(offsetof(hfx_header, Ticket) == 120, "Ticket");
_Static_assert(offsetof(hfx_header, Begin) == 124, "Begin");
_Static_assert(offsetof(hfx_header, End) == 128, "End");
_Static_assert(offsetof(hfx_header, Progress) == 132, "Progress");
_Static_assert(offsetof(hfx_header, ProgramWords) == 136, "ProgramWords");
_Static_assert(offsetof(hfx_header, Name) == 140, "Name");
_Static_assert(offsetof(hfx_header, NameBytes) == 144, "NameBytes");
_Static_assert(offsetof(hfx_header, Reserved) == 148, "Reserved");
_Static_assert(offsetof(hfx_header, Program) == 152, "Program");
_Static_assert(offsetof(hfx_header, DeviceBytes) == 160, "DeviceBytes");
_Static_assert(offsetof(hfx_header, Unused) == 168, "Unused");
_Static_assert(sizeof(hfx_header) == 256, "size");

typedef struct hfx_memory {
	uint64_t Addr;
	uint64_t Bytes;
	uint32_t Kind;
	uint32_t Reserved;
} hfx_memory;
_Static_assert(offsetof(hfx_memory, Addr) == 0, "Addr");
_Static_assert(offsetof(hfx_memory, Bytes) == 8, "Bytes");
_Static_assert(offsetof(hfx_memory, Kind) == 16, "Kind");
_Static_assert(offsetof(hfx_memory, Reserved) == 20, "Reserved");
_Static_assert(sizeof(hfx_memory) == 24, "size");

typedef struct hfx_group {
	uint32_t First;
	uint32_t Count;
} hfx_group;
_Static_assert(offsetof(hfx_group, First) == 0, "First");
_Static_assert(offsetof(hfx_group, Count) == 4, "Count");
_Static_assert(sizeof(hfx_group) == 8, "size");

typedef struct hfx_op {
	uint32_t Kind;
	uint32_t Memory;
	uint64_t Wait;
	uint64_t Ticket;
	uint32_t Word;
	uint32_t Words;
	uint32_t Push;
	uint32_t Stage;
	uint64_t Data;
	uint32_t Bytes;
	uint32_t Sum;
} hfx_op;
_Static_assert(offsetof(hfx_op, Kind) == 0, "Kind");
_Static_assert(offsetof(hfx_op, Memory) == 4, "Memory");
_Static_assert(offsetof(hfx_op, Wait) == 8, "Wait");
_Static_assert(offsetof(hfx_op, Ticket) == 16, "Ticket");
_Static_assert(offsetof(hfx_op, Word) == 24, "Word");
_Static_assert(offsetof(hfx_op, Words) == 28, "Words");
_Static_assert(offsetof(hfx_op, Push) == 32, "Push");
_Static_assert(offsetof(hfx_op, Stage) == 36, "Stage");
_Static_assert(offsetof(hfx_op, Data) == 40, "Data");
_Static_assert(offsetof(hfx_op, Bytes) == 48, "Bytes");
_Static_assert(offsetof(hfx_op, Sum) == 52, "Sum");
_Static_assert(sizeof(hfx_op) == 56, "size");

typedef struct hfx_port {
	uint64_t Addr;
	uint64_t Bytes;
	uint32_t Way;
	uint32_t Group;
	uint32_t Name;
	uint32_t NameBytes;
	uint32_t Type;
	uint32_t TypeBytes;
	uint32_t Array;
	uint32_t ArrayText;
	uint32_t Untyped;
	uint32_t Reserved;
} hfx_port;
_Static_assert(offsetof(hfx_port, Addr) == 0, "Addr");
_Static_assert(offsetof(hfx_port, Bytes) == 8, "Bytes");
_Static_assert(offsetof(hfx_port, Way) == 16, "Way");
_Static_assert(offsetof(hfx_port, Group) == 20, "Group");
_Static_assert(offsetof(hfx_port, Name) == 24, "Name");
_Static_assert(offsetof(hfx_port, NameBytes) == 28, "NameBytes");
_Static_assert(offsetof(hfx_port, Type) == 32, "Type");
_Static_assert(offsetof(hfx_port, TypeBytes) == 36, "TypeBytes");
_Static_assert(offsetof(hfx_port, Array) == 40, "Array");
_Static_assert(offsetof(hfx_port, ArrayText) == 44, "ArrayText");
_Static_assert(offsetof(hfx_port, Untyped) == 48, "Untyped");
_Static_assert(offsetof(hfx_port, Reserved) == 52, "Reserved");
_Static_assert(sizeof(hfx_port) == 56, "size");

#define ABI_KNOWN(major) ((major) == 570 || (major) == 575 || (major) == 580)
#define ABI_VERSIONS "570, 575, 580"
#define SIZE_Nv_ioctl_card_info_t(major) (72u)
#define SIZE_Nv_ioctl_register_fd_t(major) (4u)
#define SIZE_Nv_ioctl_rm_api_version_t(major) (72u)
#define SIZE_Nv_ioctl_nvos02_parameters_with_fd(major) (56u)
#define SIZE_NVOS21_PARAMETERS(major) (32u)
#define SIZE_Nv_ioctl_nvos33_parameters_with_fd(major) (56u)
#define SIZE_NVOS46_PARAMETERS(major) (64u)
#define SIZE_NVOS46_PARAMETERS_570(major) (56u)
#define SIZE_NVOS54_PARAMETERS(major) (32u)
#define SIZE_NV0080_ALLOC_PARAMETERS(major) (56u)
#define SIZE_NV2080_ALLOC_PARAMETERS(major) (4u)
#define SIZE_NV_MEMORY_ALLOCATION_PARAMS(major) (128u)
#define SIZE_NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS(major) (24u)
#define SIZE_NV_VASPACE_ALLOCATION_PARAMETERS(major) ((major) == 570 ? 48u : (major) == 575 ? 48u : 56u)
#define SIZE_NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS(major) (20u)
#define SIZE_NV_CTXSHARE_ALLOCATION_PARAMETERS(major) (12u)
#define SIZE_NV_MEMORY_DESC_PARAMS(major) (24u)
#define SIZE_NV_CHANNEL_ALLOC_PARAMS(major) (368u)
#define SIZE_NvNotification(major) (16u)
#define SIZE_NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS(major) (32u)
#define SIZE_NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS(major) ((major) == 570 ? 404u : (major) == 575 ? 404u : 804u)
#define SIZE_NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS(major) (132u)
#define SIZE_NV2080_CTRL_FB_INFO(major) (8u)
#define SIZE_NV2080_CTRL_FB_GET_INFO_V2_PARAMS(major) ((major) == 570 ? 460u : (major) == 575 ? 460u : 1028u)
#define SIZE_NV2080_CTRL_GR_INFO(major) (8u)
#define SIZE_NV2080_CTRL_GR_GET_INFO_PARAMS(major) (32u)
#define SIZE_NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS(major) (32u)
#define SIZE_NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS(major) ((major) == 570 ? 2u : 3u)
#define SIZE_NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS(major) (4u)

#endif
