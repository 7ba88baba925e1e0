#include "tiny.h"

#define SIZE(type) SIZE_##type(g.major)

static gpu g;
static u8 *control, *host, *notifier; /* what this process sees of them */
static u32 objects[HFX_MemoryFixed];
static volatile u32 *doorbell;
static u32 token, entries; /* entries of the ring written so far */

/* Everything written before is there before what is written after, write-combined memory of the device too. */
static void fence(void) { __asm__ volatile("mfence" : : : "memory"); }

static u64 load(u32 at) { return *(volatile u64 *)(host + at); }

static void channel(const model *m)
{
	const hfx_header *h = &m->h;
	g.doing = "doorbell";
	u32 user = rm_alloc(&g, g.subdevice, h->ClassUser, 0, 0);
	u8 *registers = rm_map(&g, user, rm_device_file(&g), UsermodeSize, 0);
	doorbell = (volatile u32 *)(registers + UsermodeDoorbell);
	g.doing = "memory of the channel";
	u8 **seen[] = {&control, &host, &notifier};
	for (u32 i = 0; i < HFX_MemoryFixed; i++)
		objects[i] = rm_memory(&g, &m->memory[i], seen[i]);
	g.doing = "channel";
	NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS gp = {.EngineType = NV2080_ENGINE_TYPE_GRAPHICS};
	u32 group = rm_alloc(&g, g.device, KEPLER_CHANNEL_GROUP_A, &gp, SIZE(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS));
	NV_CTXSHARE_ALLOCATION_PARAMETERS sp = {.HVASpace = g.vaspace,
						.Flags = NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC};
	u32 share = rm_alloc(&g, group, FERMI_CONTEXT_SHARE_A, &sp, SIZE(NV_CTXSHARE_ALLOCATION_PARAMETERS));
	NV_CHANNEL_ALLOC_PARAMS cp = {.HObjectError = objects[HFX_MemoryNotifier],
				      .GpFifoOffset = m->memory[HFX_MemoryControl].Addr + h->Ring,
				      .GpFifoEntries = h->RingEntries, .HContextShare = share};
	cp.HUserdMemory[0] = objects[HFX_MemoryControl], cp.UserdOffset[0] = h->USERD;
	u32 handle = rm_alloc(&g, group, h->ClassFIFO, &cp, SIZE(NV_CHANNEL_ALLOC_PARAMS));
	rm_alloc(&g, handle, h->ClassCompute, 0, 0);
	rm_alloc(&g, handle, h->ClassCopy, 0, 0);
	NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS pp = {
		.Flags = NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET, .HChannel = handle,
		.CilpPreemptMode = NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA};
	rm_control(&g, g.subdevice, NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, &pp,
		   SIZE(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS));
	NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS ep = {.BEnable = 1};
	rm_control(&g, group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &ep, SIZE(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS));
	NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS tp = {0};
	rm_control(&g, handle, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, &tp,
		   SIZE(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS));
	token = tp.WorkSubmitToken;
}

void play_start(const model *m, u32 index)
{
	gpu_open(&g, index, m);
	channel(m);
	g.doing = "memory";
}

/* ring hands words at a device address to the channel. */
static void ring(const model *m, u64 addr, u32 words)
{
	u32 n = m->h.RingEntries;
	volatile u64 *entry = (volatile u64 *)(control + m->h.Ring) + entries % n;
	volatile u32 *put = (volatile u32 *)(control + m->h.USERD + UserdGPPut);
	*entry = (addr & ~3ull) | (u64)words << 42;
	entries++;
	fence();
	*put = entries % n;
	/* A write to the GPU's memory can be overtaken by the doorbell's, which finds nothing new then. A read waits for
	 * the writes before it. */
	fence();
	(void)*put;
	fence();
	*doorbell = token;
	fence();
}

/* failed ends the process if the driver has reported an error of the channel. */
static void failed(const model *m)
{
	const volatile NvNotification *e = (const volatile NvNotification *)notifier;
	if (e->Status)
		fail("%s: channel error %u at word %u (the kernel's log says more: Xid %u)", m->path, (u64)e->Info32,
		     load(m->h.Progress), (u64)e->Info32);
}

/* until waits for a number in the host memory: at first without a pause, since most work is short. */
static void until(const model *m, u32 at, u64 value, u64 limit)
{
	u64 begun = 0;
	for (u32 n = 1; load(at) < value; n++) {
		if (n % 256)
			continue;
		failed(m);
		u64 t = now();
		if (!begun)
			begun = t;
		if (t - begun > limit)
			fail("%s: not complete in time, at word %u", m->path, load(m->h.Progress));
		if (t - begun > 5000000)
			nap(50000);
	}
	fence();
}

static const u64 patience = 30000000000ull;

static void write_all(const port *p, const u8 *from, u64 n)
{
	while (n) {
		i64 r = sys_write(p->fd, from, n);
		if (r == -4)
			continue;
		if (r <= 0)
			fail("%s: %m", p->path, r ? r : -5);
		from += r, n -= r;
	}
}

void play_group(const model *m, const port *p)
{
	const hfx_group *group = &m->groups[p ? p->p->Group : 0];
	for (u32 i = 0; i < group->Count; i++) {
		const hfx_op *o = &m->ops[group->First + i];
		if (o->Wait)
			until(m, m->h.Ticket, o->Wait, patience);
		switch (o->Kind) {
		case HFX_OpMemory: {
			u8 *none;
			rm_memory(&g, &m->memory[o->Memory], &none);
			break;
		}
		case HFX_OpSubmit:
			if (o->Bytes && p) {
				read_all(p->fd, host + o->Stage, o->Bytes, p->base + o->Data, p->path);
			} else if (o->Bytes) {
				read_all(m->fd, host + o->Stage, o->Bytes, m->base + o->Data, m->path);
				if (sum(host + o->Stage, o->Bytes) != o->Sum)
					fail("%s: malformed linked recording: its contents are damaged", m->path);
			}
			memcpy(host + o->Push, m->words + o->Word, 4 * (u64)o->Words);
			ring(m, m->memory[HFX_MemoryHost].Addr + o->Push, o->Words);
			break;
		case HFX_OpTake: write_all(p, host + o->Stage, o->Bytes); break;
		}
	}
}

void play_run(const model *m, u64 limit)
{
	*(volatile u64 *)(host + m->h.End) = 0;
	ring(m, m->h.Program, m->h.ProgramWords);
	until(m, m->h.End, 1, limit);
}
