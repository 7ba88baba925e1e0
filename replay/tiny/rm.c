#include "tiny.h"

#define SIZE(type, g) SIZE_##type((g)->major)

/* request asks something of a device file; what the answer says of itself is the caller's to look at. */
static void request(gpu *g, int fd, u32 nr, void *p, u32 size)
{
	i64 r = sys_ioctl(fd, 3u << 30 | size << 16 | 'F' << 8 | nr, p);
	if (r < 0)
		fail("%s: request %x of the driver: %m", g->doing, (u64)nr, r);
}

static void status(gpu *g, const char *what, u32 number, u32 s)
{
	if (s)
		fail("%s: %s %x: the driver answers with status %x", g->doing, what, (u64)number, (u64)s);
}

static u32 alloc(gpu *g, u32 parent, u32 object, u32 class, void *params, u32 size)
{
	NVOS21_PARAMETERS p = {.HRoot = g->client, .HObjectParent = parent, .HObjectNew = object, .HClass = class,
			       .PAllocParms = (u64)params, .ParamsSize = size};
	request(g, g->control, NV_ESC_RM_ALLOC, &p, sizeof p);
	status(g, "make object of class", class, p.Status);
	return p.HObjectNew;
}

u32 rm_alloc(gpu *g, u32 parent, u32 class, void *params, u32 size)
{
	return alloc(g, parent, ++g->last, class, params, size);
}

void rm_control(gpu *g, u32 object, u32 cmd, void *params, u32 size)
{
	NVOS54_PARAMETERS p = {.HClient = g->client, .HObject = object, .Cmd = cmd, .Params = (u64)params,
			       .ParamsSize = size};
	request(g, g->control, NV_ESC_RM_CONTROL, &p, sizeof p);
	status(g, "control", cmd, p.Status);
}

int rm_control_file(void)
{
	i64 fd = sys_open("/dev/nvidiactl", ReadWrite | CloseOnExec, 0);
	if (fd < 0)
		fail("/dev/nvidiactl: %m: is there an NVIDIA GPU with its driver?", fd);
	return fd;
}

/* rm_device_file opens the GPU's file, which makes the GPU ready, and ties it to this client. */
int rm_device_file(gpu *g)
{
	char path[32] = "/dev/nvidia", digits[10];
	u64 n = length(path), k = 0;
	u32 v = g->minor;
	do
		digits[k++] = '0' + v % 10;
	while (v /= 10);
	while (k)
		path[n++] = digits[--k];
	path[n] = 0;
	i64 fd = sys_open(path, ReadWrite | CloseOnExec, 0);
	if (fd < 0)
		fail("%s: %m", path, fd);
	Nv_ioctl_register_fd_t p = {g->control};
	request(g, fd, NV_ESC_REGISTER_FD, &p, sizeof p);
	return fd;
}

void *rm_map(gpu *g, u32 object, int via, u64 bytes, u32 flags)
{
	Nv_ioctl_nvos33_parameters_with_fd p = {.HClient = g->client, .HDevice = g->device, .HMemory = object,
						.Length = bytes, .Flags = flags, .Fd = via};
	/* The doorbell is an object of the subdevice; the driver wants the device here all the same. */
	request(g, g->control, NV_ESC_RM_MAP_MEMORY, &p, sizeof p);
	status(g, "map object", object, p.Status);
	i64 at = sys_mmap(bytes, ProtRead | ProtWrite, MapShared, via);
	if (at < 0 && at > -4096)
		fail("%s: map %u bytes: %m", g->doing, bytes, at);
	return (void *)at;
}

static void driver_version(gpu *g)
{
	Nv_ioctl_rm_api_version_t p = {.Cmd = NV_RM_API_VERSION_CMD_QUERY};
	request(g, g->control, NV_ESC_CHECK_VERSION_STR, &p, sizeof p);
	p.VersionString[sizeof p.VersionString - 1] = 0;
	const char *s = (const char *)p.VersionString;
	for (; *s >= '0' && *s <= '9' && g->major < 100000; s++)
		g->major = g->major * 10 + (*s - '0');
	if (*s && *s != '.')
		g->major = 0;
	if (!ABI_KNOWN(g->major))
		fail("driver %s: its interface is not known here (known: %s)", (const char *)p.VersionString,
		     ABI_VERSIONS);
}

/* device finds the GPU and makes the client's device of it. */
static void device(gpu *g, u32 index)
{
	Nv_ioctl_card_info_t cards[32];
	memset(cards, 0, sizeof cards);
	request(g, g->control, NV_ESC_CARD_INFO, cards, sizeof cards);
	u32 n = 0;
	const Nv_ioctl_card_info_t *card = 0;
	for (u32 i = 0; i < 32; i++)
		if (cards[i].Valid && n++ == index)
			card = &cards[i];
	if (!card)
		fail("no GPU %u: the machine has %u", (u64)index, (u64)n);
	g->minor = card->Minor_number;
	g->dev = rm_device_file(g);
	NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS id = {.GpuId = card->Gpu_id};
	rm_control(g, g->client, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &id, SIZE(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, g));
	NV0080_ALLOC_PARAMETERS d = {.DeviceId = id.DeviceInstance, .HClientShare = g->client};
	g->device = rm_alloc(g, g->client, NV01_DEVICE_0, &d, SIZE(NV0080_ALLOC_PARAMETERS, g));
	NV2080_ALLOC_PARAMETERS s = {id.SubDeviceInstance};
	g->subdevice = rm_alloc(g, g->device, NV20_SUBDEVICE_0, &s, SIZE(NV2080_ALLOC_PARAMETERS, g));
}

/* identify refuses a GPU that is another than the one that was linked for. */
static void identify(gpu *g, const model *m)
{
	const hfx_header *h = &m->h;
	const char *want = m->text + h->Name;
	NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS list = {0};
	rm_control(g, g->device, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, &list,
		   SIZE(NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, g));
	NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS name = {0};
	rm_control(g, g->subdevice, NV2080_CTRL_CMD_GPU_GET_NAME_STRING, &name,
		   SIZE(NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, g));
	name.GpuNameString[sizeof name.GpuNameString - 1] = 0;
	const char *is = (const char *)name.GpuNameString;
	const u32 classes[] = {h->ClassCompute, h->ClassFIFO, h->ClassCopy};
	for (int i = 0; i < 3; i++) {
		u32 k = 0, n = (SIZE(NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, g) - 4) / 4;
		if (list.NumClasses < n)
			n = list.NumClasses;
		while (k < n && list.ClassList[k] != classes[i])
			k++;
		if (k == n)
			fail("%s: linked for %b (sm_%u), this is %s, which lacks class %x: link it for this GPU", m->path,
			     h->NameBytes, want, (u64)h->Arch, is, (u64)classes[i]);
	}
	NV2080_CTRL_FB_GET_INFO_V2_PARAMS fb = {.FbInfoListSize = 1};
	fb.FbInfoList[0].Index = NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE;
	rm_control(g, g->subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, &fb, SIZE(NV2080_CTRL_FB_GET_INFO_V2_PARAMS, g));
	if (((u64)fb.FbInfoList[0].Data << 10) < h->DeviceBytes)
		fail("%s needs %u bytes of device memory, %s has %u", m->path, h->DeviceBytes, is,
		     (u64)fb.FbInfoList[0].Data << 10);
	NV2080_CTRL_GR_INFO gr[] = {{NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS, 0},
				    {NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC, 0},
				    {NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC, 0},
				    {NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM, 0},
				    {NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT, 0}};
	const u32 figures[] = {h->GPCs, h->TPCsPerGPC, h->SMsPerTPC, h->Warps, h->TPCs};
	NV2080_CTRL_GR_GET_INFO_PARAMS ask = {.GrInfoListSize = 5, .GrInfoList = (u64)gr};
	rm_control(g, g->subdevice, NV2080_CTRL_CMD_GR_GET_INFO, &ask, SIZE(NV2080_CTRL_GR_GET_INFO_PARAMS, g));
	for (int i = 0; i < 5; i++)
		if (gr[i].Data != figures[i])
			fail("%s: linked for %b, this is %s, which is another (figure %x is %u, not %u): "
			     "link it for this GPU",
			     m->path, h->NameBytes, want, is, (u64)gr[i].Index, (u64)gr[i].Data, (u64)figures[i]);
}

void gpu_open(gpu *g, u32 index, const model *m)
{
	g->doing = "client";
	g->control = rm_control_file();
	g->last = 0x5c000000;
	driver_version(g);
	g->client = alloc(g, 0, 0, NV01_ROOT_CLIENT, 0, 0); /* the driver picks the handle */
	g->doing = "device";
	device(g, index);
	identify(g, m);
	g->doing = "address space";
	NV_VASPACE_ALLOCATION_PARAMETERS v = {0};
	g->vaspace = rm_alloc(g, g->device, FERMI_VASPACE_A, &v, SIZE(NV_VASPACE_ALLOCATION_PARAMETERS, g));
	NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS r = {.Limit = SpaceLimit, .HVASpace = g->vaspace};
	g->range = rm_alloc(g, g->device, NV01_MEMORY_VIRTUAL, &r, SIZE(NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, g));
}

/* place maps a memory object at its device address. */
static void place(gpu *g, u32 object, const hfx_memory *m)
{
	u32 flags = NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE | NVOS46_FLAGS_PAGE_SIZE_HUGE;
	if (m->Kind >= HFX_Pinned)
		flags = NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE | NVOS46_FLAGS_PAGE_SIZE_4KB | NVOS46_FLAGS_CACHE_SNOOP_ENABLE;
	u64 at;
	u32 answer;
	if (g->major < 580) {
		NVOS46_PARAMETERS_570 p = {.HClient = g->client, .HDevice = g->device, .HDma = g->range,
					   .HMemory = object, .Length = m->Bytes, .Flags = flags,
					   .DmaOffset = m->Addr};
		request(g, g->control, NV_ESC_RM_MAP_MEMORY_DMA, &p, sizeof p);
		at = p.DmaOffset, answer = p.Status;
	} else {
		NVOS46_PARAMETERS p = {.HClient = g->client, .HDevice = g->device, .HDma = g->range,
				       .HMemory = object, .Length = m->Bytes, .Flags = flags, .DmaOffset = m->Addr};
		request(g, g->control, NV_ESC_RM_MAP_MEMORY_DMA, &p, sizeof p);
		at = p.DmaOffset, answer = p.Status;
	}
	if (answer || at != m->Addr)
		fail("%s: map %u bytes at %x: status %x", g->doing, m->Bytes, m->Addr, (u64)answer);
}

static u32 pin(gpu *g, void *pages, u64 bytes)
{
	Nv_ioctl_nvos02_parameters_with_fd p = {.HRoot = g->client, .HObjectParent = g->device,
		.HObjectNew = ++g->last, .HClass = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, .PMemory = (u64)pages,
		.Limit = bytes - 1, .Fd = -1, .Flags = NVOS02_FLAGS_PHYSICALITY_NONCONTIGUOUS |
			NVOS02_FLAGS_COHERENCY_CACHED | NVOS02_FLAGS_MAPPING_NO_MAP};
	request(g, g->dev, NV_ESC_RM_ALLOC_MEMORY, &p, sizeof p);
	status(g, "pin memory, class", p.HClass, p.Status);
	return p.HObjectNew;
}

u32 rm_memory(gpu *g, const hfx_memory *m, u8 **host)
{
	NV_MEMORY_ALLOCATION_PARAMS p = {.Owner = g->client, .Size = m->Bytes, .Limit = m->Bytes - 1, .Format = 6,
		.Flags = NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED | NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE |
			NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT};
	u32 object;
	*host = 0;
	if (m->Kind == HFX_Pinned) {
		i64 at = sys_mmap(m->Bytes, ProtRead | ProtWrite, MapShared | MapAnonymous, -1);
		if (at < 0 && at > -4096)
			fail("%s: %u bytes: %m", g->doing, m->Bytes, at);
		*host = (u8 *)at;
		object = pin(g, *host, m->Bytes);
	} else if (m->Kind == HFX_System) {
		p.Type = NVOS32_TYPE_NOTIFIER, p.Alignment = HFX_Page;
		p.Attr = NVOS32_ATTR_PHYSICALITY_ANY | NVOS32_ATTR_LOCATION_PCI;
		p.Attr2 = NVOS32_ATTR2_GPU_CACHEABLE_NO | NVOS32_ATTR2_ZBC_PREFER_NO_ZBC;
		object = rm_alloc(g, g->device, NV01_MEMORY_SYSTEM, &p, SIZE(NV_MEMORY_ALLOCATION_PARAMS, g));
		*host = rm_map(g, object, rm_control_file(), m->Bytes, 0);
	} else {
		p.Type = NVOS32_TYPE_IMAGE, p.Alignment = HFX_HugePage;
		p.Attr = NVOS32_ATTR_PAGE_SIZE_HUGE | (m->Kind == HFX_Visible ? NVOS32_ATTR_PHYSICALITY_CONTIGUOUS
									       : NVOS32_ATTR_PHYSICALITY_ANY);
		p.Attr2 = NVOS32_ATTR2_GPU_CACHEABLE_YES | NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB |
			NVOS32_ATTR2_ZBC_PREFER_NO_ZBC;
		p.Flags |= NVOS32_ALLOC_FLAGS_PERSISTENT_VIDMEM;
		object = rm_alloc(g, g->device, NV01_MEMORY_LOCAL_USER, &p, SIZE(NV_MEMORY_ALLOCATION_PARAMS, g));
		if (m->Kind == HFX_Visible)
			*host = rm_map(g, object, rm_device_file(g), m->Bytes, NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED);
	}
	place(g, object, m);
	return object;
}
