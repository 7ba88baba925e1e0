'use strict';
// Asks for the state and a trace each second and shows both. Everything from the server is set as text, never as
// markup.

const every = 1000; // ms between refreshes
const patience = 5000; // ms until a server that does not answer counts as gone
const span = 0.25; // seconds of lanes
const most = 200; // lanes that are drawn

const none = '–';
const byId = id => document.getElementById(id);

function element(name, text, className) {
	const e = document.createElement(name);
	if (text !== undefined) e.textContent = text;
	if (className) e.className = className;
	return e;
}

// A status is said once, so that it is not read aloud each second.
function say(text, gone) {
	const e = byId('status');
	if (e.textContent !== text) e.textContent = text;
	e.className = gone ? 'gone' : '';
	document.body.className = gone ? 'gone-too' : '';
}

const ms = seconds => (seconds * 1000).toFixed(3) + ' ms';
const percent = share => (share * 100).toFixed(1) + ' %';
const perSecond = x => x.toFixed(1);

function bound(x) { return x === null ? none : ms(x); }

// latency is an upper bound; those in the last bucket are only known to be longer.
function latency(l, x) { return x === null && l.count > 0 ? '> ' + ms(l.up_to) : bound(x); }

// rate is how fast something grew between two states; null if that cannot be said.
function rate(now, before, of) {
	const time = before ? now.now_seconds - before.now_seconds : 0;
	const from = time > 0 ? of(before) : undefined;
	const grew = from === undefined ? -1 : of(now) - from;
	return grew >= 0 ? grew / time : null; // what has shrunk belongs to another server, or to another model
}

function show(x, as) { return x === null ? none : as(x); }

function showMachine(s, before) {
	const full = rate(s, before, x => x.filled_seconds);
	const busy = rate(s, before, x => x.busy_seconds);
	const share = s.gpus > 0 && full !== null ? full / s.gpus : null;
	const meter = document.createElement('meter');
	meter.value = share === null ? 0 : share;
	meter.setAttribute('aria-label', 'How full the GPUs are');
	const list = [
		['GPUs', s.gpus],
		['Full', show(share, percent)],
		['Busy', show(s.gpus > 0 && busy !== null ? busy / s.gpus : null, percent)],
		['Parts/s', show(rate(s, before, x => x.parts), perSecond)],
		['Parts under way', s.parts_under_way],
		['Requests outstanding', s.outstanding],
		['Capacity, as learnt', s.capacity.toFixed(2)],
		['Up', s.now_seconds.toFixed(1) + ' s'],
	].map(([name, value]) => {
		const group = element('div');
		group.append(element('dt', name), element('dd', value));
		if (name === 'Full') group.lastChild.prepend(meter);
		return group;
	});
	byId('machine').replaceChildren(...list);
}

function showTenants(s, before) {
	const rows = s.tenants.map(t => {
		const row = element('tr');
		const name = element('th', t.name);
		name.scope = 'row';
		const arrivals = rate(s, before, x => x.tenants.find(y => y.name === t.name)?.arrived);
		row.append(name, ...[show(arrivals, perSecond), t.met, t.missed, t.complete].map(x => element('td', x)),
			refused(t), ...[t.failed, t.waiting, t.outstanding, latency(t.latency_seconds, t.latency_seconds.p50),
				latency(t.latency_seconds, t.latency_seconds.p99), bound(t.slack_seconds.p1),
				bound(t.slack_seconds.p50)].map(x => element('td', x)),
			element('td', t.faulty === '' ? 'serving' : 'failed: ' + t.faulty, t.faulty === '' ? 'text' : 'text bad'));
		return row;
	});
	byId('tenants').tBodies[0].replaceChildren(...rows);
}

function refused(t) {
	const reasons = Object.entries(t.refused).filter(([, n]) => n > 0);
	const cell = element('td', reasons.reduce((sum, [, n]) => sum + n, 0));
	cell.append(...reasons.map(([why, n]) => element('small', `${n}: ${why}`)));
	return cell;
}

// lanesOf groups the parts of a trace by lane, in the order of the trace's threads.
function lanesOf(trace) {
	const gpus = new Map(), lanes = new Map();
	for (const e of trace.traceEvents) {
		if (e.ph === 'M' && e.name === 'process_name') gpus.set(e.pid, e.args.name);
		if (e.ph === 'M' && e.name === 'thread_name') {
			lanes.set(e.tid, {gpu: gpus.get(e.pid), name: e.args.name, parts: []});
		}
		if (e.ph === 'X') lanes.get(e.tid).parts.push({model: e.name, from: e.ts / 1e6, to: (e.ts + e.dur) / 1e6});
	}
	return [...lanes.values()];
}

function showLanes(s, trace) {
	const lanes = lanesOf(trace);
	let to = s.now_seconds;
	for (const l of lanes) for (const p of l.parts) to = Math.max(to, p.to);
	const from = to - span;
	let parts = 0;
	const rows = lanes.map(l => {
		const busy = l.parts.reduce((sum, p) => sum + p.to - Math.max(p.from, from), 0);
		parts += l.parts.length;
		const row = element('tr');
		const name = element('th', l.name);
		name.scope = 'row';
		row.append(element('td', l.gpu), name, element('td', l.parts.length), element('td', percent(busy / span)));
		return row;
	});
	byId('lanes-table').tBodies[0].replaceChildren(...rows);
	const more = lanes.length > most ? ` The first ${most} are drawn.` : '';
	byId('lanes-text').textContent = `${parts} parts in ${lanes.length} lanes ended in the last ${span * 1000} ms.${more}`;
	draw(lanes.slice(0, most), s.tenants.map(t => t.name), from, to);
}

// draw puts each part where it was in time, in the colour of its model.
function draw(lanes, models, from, to) {
	const canvas = byId('lanes'), style = getComputedStyle(document.documentElement);
	const colour = name => style.getPropertyValue(name);
	const scale = window.devicePixelRatio || 1, height = 20, width = canvas.clientWidth, left = Math.min(220, width / 3);
	canvas.width = width * scale;
	canvas.height = lanes.length * height * scale;
	const c = canvas.getContext('2d');
	c.scale(scale, scale);
	c.font = '12px system-ui, sans-serif';
	c.textBaseline = 'middle';
	const hue = new Map(models.map((m, i) => [m, i * 137.5 % 360])); // the golden angle keeps neighbours apart
	lanes.forEach((l, i) => {
		const y = i * height;
		c.fillStyle = colour('--lane');
		c.fillRect(left, y + 2, width - left, height - 4);
		c.fillStyle = colour('--text');
		c.fillText(`${l.gpu} ${l.name}`, 0, y + height / 2, left - 8);
		for (const p of l.parts) {
			const x = Math.max(0, (p.from - from) / (to - from)), end = (p.to - from) / (to - from);
			c.fillStyle = `hsl(${hue.get(p.model) ?? 0} ${colour('--saturation')} ${colour('--lightness')})`;
			c.fillRect(left + x * (width - left), y + 2, Math.max(0.5, (end - x) * (width - left)), height - 4);
		}
	});
}

async function ask(path) {
	const answer = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(patience)});
	if (!answer.ok) throw new Error((await answer.json()).error);
	return answer.json();
}

let before = null, answered = null;

async function refresh() {
	try {
		const state = await ask('state');
		const trace = await ask(`trace?last=${span * 1000}ms`);
		showMachine(state, before);
		showTenants(state, before);
		showLanes(state, trace);
		before = state;
		answered = new Date();
		say('The machine is at work; refreshed each second.', false);
	} catch (e) {
		const since = answered === null ? '' : ` What is shown is of ${answered.toLocaleTimeString()}.`;
		say(`The server does not answer (${e.message}).${since}`, true);
	}
}

// A page that nobody sees asks for nothing: each answer costs the machine time.
async function run() {
	if (!document.hidden) await refresh();
	setTimeout(run, every);
}

run();
