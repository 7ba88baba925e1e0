#include "tiny.h"

static const char help[] =
	"plays a linked recording on the NVIDIA GPU that it was linked for; needs a driver and nothing else\n"
	"\n"
	"  --in NAME=FILE    data of an input: .npy of its type and shape, or raw bytes; those that are not\n"
	"                    given have the data of the recording\n"
	"  --out NAME=FILE   where an output goes: .npy if it is named so\n"
	"  -n N              how many times; what one run leaves in memory is what the next one finds\n"
	"  --timeout SECONDS how long one run may take (60)\n"
	"  --gpu INDEX       which GPU, in the driver's order (0)\n"
	"  --times           say how long everything took\n"
	"  --verify          check the recording, and do nothing else\n"
	"  --model FILE      another linked recording than the one that belongs to this player\n"
	"\n"
	"Exit status: 0 done, 1 refused or failed, 2 wrong usage.\n";

static port ports[HFX_MaxPorts];

static int same(const char *a, const char *b) { return length(a) == length(b) && !memcmp(a, b, length(a)); }

static int ends(const char *s, const char *with)
{
	u64 n = length(s), k = length(with);
	return n >= k && !memcmp(s + n - k, with, k);
}

/* number reads what stands behind an option. */
static u64 number(const char *option, const char *s, u64 most)
{
	u64 v = 0;
	for (const char *c = s; *c; c++) {
		if (*c < '0' || *c > '9' || v > most)
			usage("%s %s: want a number of at most %u", option, s, most);
		v = v * 10 + (*c - '0');
	}
	if (!*s || v > most)
		usage("%s %s: want a number of at most %u", option, s, most);
	return v;
}

/* next is the byte of an .npy header that counts, from *at on: blanks do not. 0 at the end. */
static char next(const u8 *s, u64 n, u64 *at)
{
	while (*at < n && (s[*at] == ' ' || s[*at] == '\n'))
		++*at;
	return *at < n ? s[(*at)++] : 0;
}

/* open_array finds where the data of an .npy file begin. Its header must say what ours says, blanks apart: that is what
 * NumPy writes. */
static void open_array(const model *m, port *in, i64 size)
{
	static u8 head[10 + 65535];
	const hfx_port *p = in->p;
	if (size < 10)
		fail("%s: it is no .npy file", in->path);
	read_all(in->fd, head, 10, 0, in->path);
	u64 n = head[8] | head[9] << 8;
	if (memcmp(head, "\x93NUMPY\x01", 7) || (u64)size < 10 + n)
		fail("%s: it is no .npy file of format 1", in->path);
	read_all(in->fd, head + 10, n, 10, in->path);
	in->base = 10 + n;
	if (size - in->base != p->Bytes)
		fail("%s: %u bytes of data, input %b has %u", in->path, size - in->base, p->NameBytes, m->text + p->Name,
		     p->Bytes);
	if (p->Untyped)
		return;
	const u8 *ours = (const u8 *)m->text + p->Array;
	u64 a = 10, b = 10, end = 10 + n;
	for (;;) {
		char x = p->ArrayText ? next(ours, p->ArrayText, &a) : 0, y = next(head, end, &b);
		if (x != y || !p->ArrayText)
			fail("%s: input %b is %b; this file is of another type or shape, or not as NumPy writes it: "
			     "give raw bytes",
			     in->path, p->NameBytes, m->text + p->Name, p->TypeBytes, m->text + p->Type);
		if (!x)
			return;
	}
}

static void open_input(const model *m, port *in)
{
	i64 fd = sys_open(in->path, ReadOnly | CloseOnExec, 0);
	if (fd < 0)
		fail("%s: %m", in->path, fd);
	in->fd = fd;
	i64 size = sys_size(fd);
	if (size < 0)
		fail("%s: %m", in->path, size);
	if (ends(in->path, ".npy"))
		return open_array(m, in, size);
	if ((u64)size != in->p->Bytes)
		fail("%s: %u bytes, input %b has %u", in->path, (u64)size, in->p->NameBytes, m->text + in->p->Name,
		     in->p->Bytes);
}

/* output writes what the last run has left. */
static void output(const model *m, port *out)
{
	i64 fd = sys_open(out->path, WriteOnly | Create | Truncate | CloseOnExec, 0666);
	if (fd < 0)
		fail("%s: %m", out->path, fd);
	out->fd = fd;
	const hfx_port *p = out->p;
	for (u64 at = 0; ends(out->path, ".npy") && at < p->ArrayText;) {
		i64 r = sys_write(fd, m->text + p->Array + at, p->ArrayText - at);
		if (r <= 0)
			fail("%s: %m", out->path, r ? r : -5);
		at += r;
	}
	play_group(m, out);
	i64 r = sys_close(fd);
	if (r < 0)
		fail("%s: %m", out->path, r);
}

/* name finds the port of NAME=FILE. */
static void name(const model *m, const char *option, char *text, u32 way)
{
	u64 n = 0;
	while (text[n] && text[n] != '=')
		n++;
	if (!n || !text[n] || !text[n + 1])
		usage("%s %s: want NAME=FILE", option, text);
	for (u32 i = 0; i < m->h.Ports; i++) {
		const hfx_port *p = &m->ports[i];
		if (p->Way != way || p->NameBytes != n || memcmp(m->text + p->Name, text, n))
			continue;
		if (ports[i].path)
			usage("%s %s: given twice", option, text);
		ports[i].path = text + n + 1;
		if (way == HFX_Out && ends(ports[i].path, ".npy") && !p->ArrayText)
			usage("%s %s: .npy files have no type for it", option, text);
		return;
	}
	say("%s %s: there is no such; there are:", option, text);
	for (u32 i = 0; i < m->h.Ports; i++)
		if (m->ports[i].Way == way)
			say(" %b (%b)", m->ports[i].NameBytes, m->text + m->ports[i].Name, m->ports[i].TypeBytes,
			    m->text + m->ports[i].Type);
	usage("");
}

typedef struct { u64 runs, timeout, index; const char *model; int times, verify; } options;

/* parse reads options; those of ports wait until there is a model. */
static options parse(int argc, char **argv)
{
	options o = {.runs = 1, .timeout = 60};
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		if (same(a, "--help") || same(a, "-h")) {
			say("%s", help);
			leave(0);
		}
		if (same(a, "--times")) {
			o.times = 1;
			continue;
		}
		if (same(a, "--verify")) {
			o.verify = 1;
			continue;
		}
		const char *v = argv[i + 1];
		int known = same(a, "--in") || same(a, "--out") || same(a, "-n") || same(a, "--timeout") ||
			    same(a, "--gpu") || same(a, "--model");
		if (!known)
			usage("%s: no such option (--help)", a);
		if (!v)
			usage("%s: its value is missing", a);
		if (same(a, "-n") && !(o.runs = number(a, v, 1u << 30)))
			usage("-n 0: at least 1");
		if (same(a, "--timeout"))
			o.timeout = number(a, v, 1000000);
		if (same(a, "--gpu"))
			o.index = number(a, v, 31);
		if (same(a, "--model"))
			o.model = v;
		i++;
	}
	return o;
}

static void find(model *m, const char *path)
{
	if (!path)
		return model_find(m);
	i64 fd = sys_open(path, ReadOnly | CloseOnExec, 0);
	if (fd < 0)
		fail("%s: %m", path, fd);
	i64 size = sys_size(fd);
	if (size < 0)
		fail("%s: %m", path, size);
	m->fd = fd;
	model_open(m, path, 0, size);
}

static int run(int argc, char **argv)
{
	static model m;
	options o = parse(argc, argv);
	u64 t[5] = {now()};
	find(&m, o.model);
	if (o.verify) {
		model_verify(&m);
		return 0;
	}
	for (u32 i = 0; i < m.h.Ports; i++)
		ports[i].p = &m.ports[i], ports[i].fd = -1;
	for (int i = 1; i < argc; i++) {
		if (same(argv[i], "--in"))
			name(&m, argv[i], argv[i + 1], HFX_In);
		if (same(argv[i], "--out"))
			name(&m, argv[i], argv[i + 1], HFX_Out);
		if (!same(argv[i], "--times"))
			i++;
	}
	for (u32 i = 0; i < m.h.Ports; i++)
		if (ports[i].path && m.ports[i].Way == HFX_In)
			open_input(&m, &ports[i]);
	play_start(&m, o.index);
	t[1] = now();
	play_group(&m, 0);
	for (u32 i = 0; i < m.h.Ports; i++)
		if (ports[i].fd >= 0)
			play_group(&m, &ports[i]);
	t[2] = now();
	u64 first = 0, least = ~0ull;
	for (u64 i = 0, begun = t[2]; i < o.runs; i++) {
		play_run(&m, o.timeout * 1000000000);
		u64 end = now();
		if (!i)
			first = end - begun;
		if (end - begun < least)
			least = end - begun;
		begun = end;
	}
	t[3] = now();
	for (u32 i = 0; i < m.h.Ports; i++)
		if (ports[i].path && m.ports[i].Way == HFX_Out)
			output(&m, &ports[i]);
	t[4] = now();
	if (o.times)
		say("device %u us, contents %u us, first run %u us, fastest run %u us, outputs %u us\n", (t[1] - t[0]) / 1000,
		    (t[2] - t[1]) / 1000, first / 1000, least / 1000, (t[4] - t[3]) / 1000);
	return 0;
}

/* begin is called with what the kernel has put on the stack. */
__attribute__((used)) static _Noreturn void begin(u64 *stack)
{
	leave(run(stack[0], (char **)(stack + 1)));
}

__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call begin\n");
