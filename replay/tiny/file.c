#include "tiny.h"

/* The checks are those of internal/hfx, in the same order; a test compares the two on damaged files. */

static _Noreturn void malformed(const model *m, const char *why)
{
	fail("%s: malformed linked recording: %s", m->path, why);
}

void read_all(int fd, void *to, u64 n, u64 at, const char *path)
{
	for (u8 *p = to; n;) {
		i64 r = sys_pread(fd, p, n, at);
		if (r == -4)
			continue;
		if (r < 0)
			fail("%s: %m", path, r);
		if (r == 0)
			fail("%s: cut short", path);
		p += r, at += r, n -= r;
	}
}

/* need_sums ends the process on a CPU without the instruction for sums. */
static void need_sums(void)
{
	u32 a = 1, b, c = 0, d;
	__asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!(c >> 20 & 1))
		fail("this CPU has no SSE 4.2, which the player needs");
}

static u32 crc(u32 c, const u8 *p, u64 n)
{
	u64 x = c;
	for (; n >= 8; n -= 8, p += 8) {
		u64 v;
		__builtin_memcpy(&v, p, 8);
		x = __builtin_ia32_crc32di(x, v);
	}
	for (; n; n--)
		x = __builtin_ia32_crc32qi(x, *p++);
	return x;
}

u32 sum(const void *at, u64 n)
{
	const u8 *p = at;
	u64 q = n / 4 & ~7ull;
	u64 c[4] = {~0u, ~0u, ~0u, ~0u};
	for (u64 i = 0; i < q; i += 8) /* the four do not wait for each other */
		for (int k = 0; k < 4; k++) {
			u64 v;
			__builtin_memcpy(&v, p + k * q + i, 8);
			c[k] = __builtin_ia32_crc32di(c[k], v);
		}
	c[3] = crc(c[3], p + 4 * q, n - 4 * q);
	u32 parts[4];
	for (int k = 0; k < 4; k++)
		parts[k] = ~(u32)c[k];
	return ~crc(~0u, (const u8 *)parts, sizeof parts);
}

static void check_text(const model *m, u32 at, u32 n)
{
	if ((u64)at + n > m->h.Text)
		malformed(m, "text beyond the end");
}

static void check_header(const model *m, u64 bytes)
{
	const hfx_header *h = &m->h;
	if (memcmp(h->Magic, HFX_Magic, sizeof h->Magic))
		malformed(m, "it is not one");
	if (h->Version != HFX_Version)
		malformed(m, "of another version");
	if (h->HeaderSum != sum((const u8 *)h + 16, sizeof *h - 16))
		malformed(m, "its header is damaged");
	if (h->FileBytes != bytes)
		malformed(m, "not of the size that its header says");
	u64 tables = (u64)h->Memories * sizeof(hfx_memory) + (u64)h->Groups * sizeof(hfx_group) +
		     (u64)h->Ops * sizeof(hfx_op) + (u64)h->Ports * sizeof(hfx_port) + 4 * (u64)h->Words + h->Text;
	if (h->TablesBytes != tables || tables > HFX_MaxTables || h->Tables % HFX_Page || h->Tables < HFX_Page ||
	    h->Tables > h->FileBytes || h->FileBytes - h->Tables != tables)
		malformed(m, "its tables have no place");
	if (h->Memories < HFX_MemoryFixed || h->Groups < 1 || h->Ports > HFX_MaxPorts || h->Groups != h->Ports + 1)
		malformed(m, "it lacks tables");
	u8 used = h->Reserved != 0;
	for (u64 i = 0; i < sizeof h->Unused; i++)
		used |= h->Unused[i];
	if (used)
		malformed(m, "its header has bytes that nothing is known of");
}

static void check_memory(const model *m)
{
	static const u32 fixed[HFX_MemoryFixed] = {HFX_Visible, HFX_Pinned, HFX_System};
	u64 total = 0;
	for (u32 i = 0; i < m->h.Memories; i++) {
		const hfx_memory *x = &m->memory[i];
		u64 unit = x->Kind == HFX_System ? HFX_Page : HFX_HugePage;
		if (x->Kind != (i < HFX_MemoryFixed ? fixed[i] : HFX_Device))
			malformed(m, "memory of another kind");
		if (!x->Bytes || x->Bytes % unit || x->Addr % HFX_HugePage || !x->Addr || x->Bytes > 1ull << 48 ||
		    x->Addr > (1ull << 48) - x->Bytes || x->Reserved || (i < HFX_MemoryFixed && x->Bytes > 64 << 20))
			malformed(m, "memory that is no range of whole pages");
		if (x->Kind <= HFX_Visible)
			total += x->Bytes;
		if (total > 1ull << 48)
			malformed(m, "its memory is larger than any GPU's");
	}
	if (total != m->h.DeviceBytes)
		malformed(m, "another amount of memory than its header says");
}

static void check_places(const model *m)
{
	const hfx_header *h = &m->h;
	u64 control = m->memory[HFX_MemoryControl].Bytes, host = m->memory[HFX_MemoryHost].Bytes;
	u64 ring = h->Ring + 8 * (u64)h->RingEntries;
	if (h->RingEntries < 2 || h->RingEntries > 1 << 16 || h->RingEntries & (h->RingEntries - 1) || h->Ring % 8 ||
	    ring > control || h->USERD % UserdSize || h->USERD < ring || (u64)h->USERD + UserdSize > control)
		malformed(m, "its ring has no place");
	const u32 places[] = {h->Ticket, h->Begin, h->End, h->Progress};
	for (int i = 0; i < 4; i++)
		if (places[i] % 16 || (u64)places[i] + 16 > host)
			malformed(m, "its semaphores have no place");
	if (!h->Program || h->Program % 4 || h->Program > 1ull << 40 || !h->ProgramWords ||
	    h->ProgramWords > HFX_MaxRing)
		malformed(m, "it has no program");
	check_text(m, h->Name, h->NameBytes);
}

/* had is how much memory there is before the step. */
static void check_op(const model *m, const hfx_op *o, u32 group, u32 *had)
{
	u64 host = m->memory[HFX_MemoryHost].Bytes, room = m->h.Tables, least = HFX_Page;
	int out = 0, words = o->Words > 0;
	if (group > 0) {
		room = m->ports[group - 1].Bytes, least = 0;
		out = m->ports[group - 1].Way == HFX_Out;
	}
	if (o->Bytes && (o->Data < least || o->Data > room || o->Bytes > room - o->Data ||
			 (u64)o->Stage + o->Bytes > host))
		malformed(m, "data that have no place");
	switch (o->Kind) {
	case HFX_OpMemory:
		if (group > 0 || o->Memory != *had || *had >= m->h.Memories || o->Bytes || words)
			malformed(m, "memory out of its order");
		++*had;
		break;
	case HFX_OpSubmit:
		if (!words || (u64)o->Word + o->Words > m->h.Words || o->Words > HFX_MaxRing || o->Push % 4 ||
		    o->Push + 4 * (u64)o->Words > host || !o->Ticket || !~o->Ticket || (out && o->Bytes))
			malformed(m, "words that have no place");
		break;
	case HFX_OpTake:
		if (!out || words)
			malformed(m, "output of no output");
		break;
	case HFX_OpWait:
		if (o->Bytes || words)
			malformed(m, "a wait that does more");
		break;
	default: malformed(m, "a step of no kind");
	}
}

static void check_ports(const model *m)
{
	for (u32 i = 0; i < m->h.Ports; i++) {
		const hfx_port *p = &m->ports[i];
		if (p->Way > HFX_Out || p->Group != i + 1 || p->Bytes > 1ull << 40 || !p->NameBytes || p->Untyped > 1 ||
		    p->Reserved)
			malformed(m, "a port of no kind");
		check_text(m, p->Name, p->NameBytes);
		check_text(m, p->Type, p->TypeBytes);
		check_text(m, p->Array, p->ArrayText);
		for (u32 k = 0; k < p->NameBytes; k++) {
			char c = m->text[p->Name + k];
			if (c == '=' || c == 0 || c == '\n')
				malformed(m, "a name that cannot be given");
		}
	}
}

static void check(const model *m)
{
	check_memory(m);
	check_places(m);
	u32 had = HFX_MemoryFixed, next = 0;
	for (u32 g = 0; g < m->h.Groups; g++) {
		if (m->groups[g].First != next || m->groups[g].Count > m->h.Ops - next)
			malformed(m, "a group has steps that are not its own");
		for (u32 i = 0; i < m->groups[g].Count; i++)
			check_op(m, &m->ops[next + i], g, &had);
		next += m->groups[g].Count;
	}
	if (next != m->h.Ops || had != m->h.Memories)
		malformed(m, "some steps or memory are of no group");
	check_ports(m);
}

void model_open(model *m, const char *path, u64 base, u64 bytes)
{
	need_sums();
	m->path = path, m->base = base;
	if (bytes < sizeof m->h)
		malformed(m, "cut short");
	read_all(m->fd, &m->h, sizeof m->h, base, path);
	check_header(m, bytes);
	sys_soon(m->fd);
	i64 at = sys_mmap(m->h.TablesBytes, ProtRead | ProtWrite, MapPrivate | MapAnonymous, -1);
	if (at < 0 && at > -4096)
		fail("%s: %u bytes of tables: %m", path, m->h.TablesBytes, at);
	u8 *p = (u8 *)at;
	read_all(m->fd, p, m->h.TablesBytes, base + m->h.Tables, path);
	if (sum(p, m->h.TablesBytes) != m->h.TablesSum)
		malformed(m, "its tables are damaged");
	m->memory = (void *)p, p += m->h.Memories * sizeof(hfx_memory);
	m->groups = (void *)p, p += m->h.Groups * sizeof(hfx_group);
	m->ops = (void *)p, p += m->h.Ops * sizeof(hfx_op);
	m->ports = (void *)p, p += m->h.Ports * sizeof(hfx_port);
	m->words = (void *)p, p += 4 * (u64)m->h.Words;
	m->text = (void *)p;
	check(m);
}

/* model_find takes what stands behind the player in its file, or the file beside it with .hfx behind its name. */
void model_find(model *m)
{
	static char path[4096 + 8];
	i64 n = sys_readlink("/proc/self/exe", path, 4096);
	if (n <= 0 || n >= 4096)
		fail("/proc/self/exe: %m; name the linked recording: --model FILE", n < 0 ? n : -22);
	i64 fd = sys_open(path, ReadOnly | CloseOnExec, 0);
	if (fd < 0)
		fail("%s: %m", path, fd);
	i64 size = sys_size(fd);
	struct { char magic[8]; u64 base; } t;
	if (size > HFX_TrailerSize) {
		read_all(fd, &t, sizeof t, size - sizeof t, path);
		if (!memcmp(t.magic, HFX_Trailer, sizeof t.magic)) {
			if (t.base > (u64)size - sizeof t)
				fail("%s: damaged: its recording would begin behind its end", path);
			m->fd = fd;
			return model_open(m, path, t.base, size - sizeof t - t.base);
		}
	}
	sys_close(fd);
	memcpy(path + n, ".hfx", 5);
	if ((fd = sys_open(path, ReadOnly | CloseOnExec, 0)) < 0)
		fail("%s: %m; it belongs beside the player", path, fd);
	m->fd = fd;
	model_open(m, path, 0, sys_size(fd));
}

void model_verify(const model *m)
{
	u64 most = 1;
	for (u32 i = 0; i < m->groups[0].Count; i++)
		if (m->ops[i].Bytes > most)
			most = m->ops[i].Bytes;
	i64 at = sys_mmap(most, ProtRead | ProtWrite, MapPrivate | MapAnonymous, -1);
	if (at < 0 && at > -4096)
		fail("%s: a piece of %u bytes: %m", m->path, most, at);
	for (u32 i = 0; i < m->groups[0].Count; i++) {
		const hfx_op *o = &m->ops[i];
		if (!o->Bytes)
			continue;
		read_all(m->fd, (void *)at, o->Bytes, m->base + o->Data, m->path);
		if (sum((void *)at, o->Bytes) != o->Sum)
			malformed(m, "its contents are damaged");
	}
}
