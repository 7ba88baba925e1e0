package rm

// Every field is as wide as in C, and what a C compiler leaves out for alignment is a blank field here. An address
// that a structure holds is P64: the value is filled in when the call is made (Pointer).

// P64 is where an address stands.
type P64 uint64

// Nv_ioctl_card_info_t is one of the cards of NV_ESC_CARD_INFO (nv-ioctl.h).
type Nv_ioctl_card_info_t struct {
	Valid          uint8
	_              [3]byte
	Pci_info       [12]byte
	Gpu_id         uint32
	Interrupt_line uint16
	_              [2]byte
	Reg_address    uint64
	Reg_size       uint64
	Fb_address     uint64
	Fb_size        uint64
	Minor_number   uint32
	Dev_name       [10]byte
	_              [2]byte
}

// Nv_ioctl_register_fd_t ties a device's file to a control file (nv-ioctl.h).
type Nv_ioctl_register_fd_t struct{ Ctl_fd int32 }

// Nv_ioctl_rm_api_version_t asks for the driver's version (nv-ioctl.h).
type Nv_ioctl_rm_api_version_t struct {
	Cmd, Reply    uint32
	VersionString [64]byte
}

// NV_RM_API_VERSION_CMD_QUERY asks without comparing (nv-ioctl.h).
const NV_RM_API_VERSION_CMD_QUERY = '2'

// NVOS00_PARAMETERS frees an object (nvos.h).
type NVOS00_PARAMETERS struct {
	HRoot, HObjectParent, HObjectOld uint32
	Status                           uint32
}

// Nv_ioctl_nvos02_parameters_with_fd makes a memory object of pages that are there: NVOS02_PARAMETERS (nvos.h) with a
// descriptor (nv-unix-nvos-params-wrappers.h).
type Nv_ioctl_nvos02_parameters_with_fd struct {
	HRoot, HObjectParent, HObjectNew uint32
	HClass, Flags                    uint32
	_                                uint32
	PMemory                          P64
	Limit                            uint64
	Status                           uint32
	_                                uint32
	Fd                               int32
	_                                uint32
}

// NVOS21_PARAMETERS makes an object (nvos.h).
type NVOS21_PARAMETERS struct {
	HRoot, HObjectParent, HObjectNew uint32
	HClass                           uint32
	PAllocParms                      P64
	ParamsSize                       uint32
	Status                           uint32
}

// Nv_ioctl_nvos33_parameters_with_fd prepares a mapping: NVOS33_PARAMETERS (nvos.h) with the descriptor that is to be
// mapped (nv-unix-nvos-params-wrappers.h).
type Nv_ioctl_nvos33_parameters_with_fd struct {
	HClient, HDevice, HMemory uint32
	_                         uint32
	Offset, Length            uint64
	PLinearAddress            P64
	Status, Flags             uint32
	Fd                        int32
	_                         uint32
}

// NVOS46_PARAMETERS maps memory at a device address (nvos.h).
type NVOS46_PARAMETERS struct {
	HClient, HDevice, HDma, HMemory uint32
	Offset, Length                  uint64
	Flags, Flags2, KindOverride     uint32
	_                               uint32
	DmaOffset                       uint64
	Status                          uint32
	_                               uint32
}

// NVOS46_PARAMETERS_570 is NVOS46_PARAMETERS before 580, which has put Flags2 and KindOverride in.
type NVOS46_PARAMETERS_570 struct {
	HClient, HDevice, HDma, HMemory uint32
	Offset, Length                  uint64
	Flags                           uint32
	_                               uint32
	DmaOffset                       uint64
	Status                          uint32
	_                               uint32
}

// NVOS47_PARAMETERS ends a mapping at a device address (nvos.h).
type NVOS47_PARAMETERS struct {
	HClient, HDevice, HDma, HMemory uint32
	Flags                           uint32
	_                               uint32
	DmaOffset, Size                 uint64
	Status                          uint32
	_                               uint32
}

// NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS makes a range of an address space to map into (class/cl0070.h).
type NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS struct {
	Offset, Limit uint64
	HVASpace      uint32
	_             uint32
}

// NVOS54_PARAMETERS is a control of an object (nvos.h).
type NVOS54_PARAMETERS struct {
	HClient, HObject uint32
	Cmd, Flags       uint32
	Params           P64
	ParamsSize       uint32
	Status           uint32
}

// NV0080_ALLOC_PARAMETERS makes a device (class/cl0080.h).
type NV0080_ALLOC_PARAMETERS struct {
	DeviceId                                      uint32
	HClientShare, HTargetClient, HTargetDevice    uint32
	Flags                                         uint32
	_                                             uint32
	VaSpaceSize, VaStartInternal, VaLimitInternal uint64
	VaMode                                        uint32
	_                                             uint32
}

// NV2080_ALLOC_PARAMETERS makes a subdevice (class/cl2080.h).
type NV2080_ALLOC_PARAMETERS struct{ SubDeviceId uint32 }

// NV_MEMORY_ALLOCATION_PARAMS makes memory (nvos.h).
type NV_MEMORY_ALLOCATION_PARAMS struct {
	Owner, Type, Flags             uint32
	Width, Height                  uint32
	Pitch                          int32
	Attr, Attr2                    uint32
	Format, ComprCovg, ZcullCovg   uint32
	_                              uint32
	RangeLo, RangeHi               uint64
	Size, Alignment, Offset, Limit uint64
	Address                        P64
	CtagOffset, HVASpace           uint32
	Internalflags, Tag             uint32
	NumaNode                       int32
	_                              uint32
}

// NV_VASPACE_ALLOCATION_PARAMETERS makes an address space (nvos.h).
type NV_VASPACE_ALLOCATION_PARAMETERS struct {
	Index, Flags                             uint32
	VaSize, VaStartInternal, VaLimitInternal uint64
	BigPageSize                              uint32
	_                                        uint32
	VaBase                                   uint64
	Pasid                                    uint32 // since 580
	_                                        uint32
}

// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS makes a channel group (nvos.h).
type NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS struct {
	HObjectError, HObjectEccError, HVASpace uint32
	EngineType                              uint32
	BIsCallingContextVgpuPlugin             uint8
	_                                       [3]byte
}

// NV_CTXSHARE_ALLOCATION_PARAMETERS makes a context share of a channel group (nvos.h).
type NV_CTXSHARE_ALLOCATION_PARAMETERS struct{ HVASpace, Flags, SubctxId uint32 }

// NV_MEMORY_DESC_PARAMS is memory inside NV_CHANNEL_ALLOC_PARAMS (alloc/alloc_channel.h).
type NV_MEMORY_DESC_PARAMS struct {
	Base, Size                uint64
	AddressSpace, CacheAttrib uint32
}

// NV_CHANNEL_ALLOC_PARAMS makes a channel (alloc/alloc_channel.h).
type NV_CHANNEL_ALLOC_PARAMS struct {
	HObjectError, HObjectBuffer                 uint32
	GpFifoOffset                                uint64
	GpFifoEntries, Flags                        uint32
	HContextShare, HVASpace                     uint32
	HUserdMemory                                [8]uint32
	UserdOffset                                 [8]uint64
	EngineType, Cid, SubDeviceId                uint32
	HObjectEccError                             uint32
	InstanceMem, UserdMem, RamfcMem, MthdbufMem NV_MEMORY_DESC_PARAMS
	HPhysChannelGroup, InternalFlags            uint32
	ErrorNotifierMem, EccErrorNotifierMem       NV_MEMORY_DESC_PARAMS
	ProcessID, SubProcessID                     uint32
	EncryptIv, DecryptIv                        [3]uint32
	HmacNonce                                   [8]uint32
	TpcConfigID                                 uint32
	_                                           uint32
}

// NvNotification is one entry of an error notifier (nvos.h: Nv4kNotification's forerunner, NvNotification).
type NvNotification struct {
	Nanoseconds    [2]uint32
	Info32         uint32
	Info16, Status uint16
}

// NV83DE_ALLOC_PARAMETERS makes a debugger (class/cl83de.h).
type NV83DE_ALLOC_PARAMETERS struct{ HDebuggerClient_Obsolete, HAppClient, HClass3dObject uint32 }

// NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS says which device instance a GPU is (ctrl/ctrl0000/ctrl0000gpu.h).
type NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS struct {
	GpuId, GpuFlags, DeviceInstance, SubDeviceInstance uint32
	SliStatus, BoardId, GpuInstance                    uint32
	NumaId                                             int32
}

// NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS lists the classes of a device (ctrl/ctrl0080/ctrl0080gpu.h). Before 580 the
// list had room for 100.
type NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS struct {
	NumClasses uint32
	ClassList  [200]uint32
}

// NV2080_CTRL_GPU_GET_GID_INFO_PARAMS is the UUID of a GPU (ctrl/ctrl2080/ctrl2080gpu.h).
type NV2080_CTRL_GPU_GET_GID_INFO_PARAMS struct {
	Index, Flags, Length uint32
	Data                 [256]byte
}

// NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS is the name of a GPU (ctrl/ctrl2080/ctrl2080gpu.h).
type NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS struct {
	GpuNameStringFlags uint32
	GpuNameString      [128]byte
}

// NV2080_CTRL_FB_INFO is a question and its answer (ctrl/ctrl2080/ctrl2080fb.h).
type NV2080_CTRL_FB_INFO struct{ Index, Data uint32 }

// NV2080_CTRL_FB_GET_INFO_V2_PARAMS asks about device memory (ctrl/ctrl2080/ctrl2080fb.h). Before 580 the list had
// room for 57.
type NV2080_CTRL_FB_GET_INFO_V2_PARAMS struct {
	FbInfoListSize uint32
	FbInfoList     [128]NV2080_CTRL_FB_INFO
}

// NV2080_CTRL_GR_INFO is a question and its answer (ctrl/ctrl2080/ctrl2080gr.h).
type NV2080_CTRL_GR_INFO struct{ Index, Data uint32 }

// NV2080_CTRL_GR_GET_INFO_PARAMS asks about the compute engine (ctrl/ctrl2080/ctrl2080gr.h).
type NV2080_CTRL_GR_GET_INFO_PARAMS struct {
	GrInfoListSize uint32
	_              uint32
	GrInfoList     P64
	GrRouteInfo    [2]uint64
}

// NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS says how kernels of a channel are interrupted
// (ctrl/ctrl2080/ctrl2080gr.h).
type NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS struct {
	Flags, HChannel, GfxpPreemptMode, CilpPreemptMode uint32
	GrRouteInfo                                       [2]uint64
}

// NV2080_CTRL_PERF_BOOST_PARAMS asks for higher clocks, for so many seconds (ctrl/ctrl2080/ctrl2080perf.h).
type NV2080_CTRL_PERF_BOOST_PARAMS struct{ Flags, Duration uint32 }

// NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS lets a channel group run (ctrl/ctrla06c.h, of ctrla06f.h). BSkipEnable is there
// since 575.
type NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS struct{ BEnable, BSkipSubmit, BSkipEnable uint8 }

// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS is what a channel's doorbell is rung with (ctrl/ctrlc36f.h).
type NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS struct{ WorkSubmitToken uint32 }

// NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY is one failed access (ctrl/ctrl83de/ctrl83dedebug.h).
type NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY struct {
	FaultAddress          uint64
	FaultType, AccessType uint32
}

// NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS lists failed accesses (ctrl/ctrl83de/ctrl83dedebug.h).
type NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS struct {
	MmuFaultInfoList [4]NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY
	Count            uint32
	_                uint32
}

// NV83DE_SM_ERROR_STATE_REGISTERS says why a multiprocessor stopped (ctrl/ctrl83de/ctrl83dedebug.h).
type NV83DE_SM_ERROR_STATE_REGISTERS struct {
	HwwGlobalEsr, HwwWarpEsr, HwwWarpEsrPc       uint32
	HwwGlobalEsrReportMask, HwwWarpEsrReportMask uint32
	_                                            uint32
	HwwEsrAddr, HwwWarpEsrPc64                   uint64
	HwwCgaEsr, HwwCgaEsrReportMask               uint32
}

// NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS says why multiprocessors stopped (ctrl/ctrl83de/ctrl83dedebug.h).
type NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS struct {
	HTargetChannel, NumSMsToRead uint32
	SmErrorStateArray            [100]NV83DE_SM_ERROR_STATE_REGISTERS
	MmuFaultInfo                 uint32
	MmuFaultValid                uint8
	_                            [3]byte
	MmuFaultFaultInfo            uint32
	StartingSM                   uint32
}

// UVM_INITIALIZE_PARAMS comes first on a file of unified memory (uvm_linux_ioctl.h).
type UVM_INITIALIZE_PARAMS struct {
	Flags    uint64
	RmStatus uint32
	_        uint32
}

// UVM_MM_INITIALIZE_PARAMS ties a process's memory to another file (uvm_ioctl.h).
type UVM_MM_INITIALIZE_PARAMS struct {
	UvmFd    int32
	RmStatus uint32
}

// UVM_REGISTER_GPU_PARAMS (uvm_ioctl.h).
type UVM_REGISTER_GPU_PARAMS struct {
	Gpu_uuid             [16]byte
	NumaEnabled          uint8
	_                    [3]byte
	NumaNodeId, RmCtrlFd int32
	HClient, HSmcPartRef uint32
	RmStatus             uint32
}

// UVM_UNREGISTER_GPU_PARAMS (uvm_ioctl.h).
type UVM_UNREGISTER_GPU_PARAMS struct {
	Gpu_uuid [16]byte
	RmStatus uint32
}

// UVM_REGISTER_GPU_VASPACE_PARAMS hands an address space to unified memory (uvm_ioctl.h).
type UVM_REGISTER_GPU_VASPACE_PARAMS struct {
	GpuUuid           [16]byte
	RmCtrlFd          int32
	HClient, HVaSpace uint32
	RmStatus          uint32
}

// UVM_UNREGISTER_GPU_VASPACE_PARAMS (uvm_ioctl.h).
type UVM_UNREGISTER_GPU_VASPACE_PARAMS struct {
	GpuUuid  [16]byte
	RmStatus uint32
}

// UVM_REGISTER_CHANNEL_PARAMS hands a channel to unified memory, with addresses for the engine's own buffers
// (uvm_ioctl.h).
type UVM_REGISTER_CHANNEL_PARAMS struct {
	GpuUuid           [16]byte
	RmCtrlFd          int32
	HClient, HChannel uint32
	_                 uint32
	Base, Length      uint64
	RmStatus          uint32
	_                 uint32
}

// UVM_UNREGISTER_CHANNEL_PARAMS (uvm_ioctl.h).
type UVM_UNREGISTER_CHANNEL_PARAMS struct {
	GpuUuid           [16]byte
	HClient, HChannel uint32
	RmStatus          uint32
}

// UVM_CREATE_EXTERNAL_RANGE_PARAMS sets addresses aside (uvm_ioctl.h).
type UVM_CREATE_EXTERNAL_RANGE_PARAMS struct {
	Base, Length uint64
	RmStatus     uint32
	_            uint32
}

// UvmGpuMappingAttributes (uvm_types.h).
type UvmGpuMappingAttributes struct {
	GpuUuid                        [16]byte
	GpuMappingType, GpuCachingType uint32
	GpuFormatType, GpuElementBits  uint32
	GpuCompressionType             uint32
}

// UVM_MAP_EXTERNAL_ALLOCATION_PARAMS maps memory of the resource manager (uvm_ioctl.h).
type UVM_MAP_EXTERNAL_ALLOCATION_PARAMS struct {
	Base, Length, Offset uint64
	PerGpuAttributes     [UVM_MAX_GPUS]UvmGpuMappingAttributes
	GpuAttributesCount   uint64
	RmCtrlFd             int32
	HClient, HMemory     uint32
	RmStatus             uint32
}

// UVM_FREE_PARAMS ends a range (uvm_ioctl.h).
type UVM_FREE_PARAMS struct {
	Base, Length uint64
	RmStatus     uint32
	_            uint32
}
