// A trace as columns of numbers: what each thread ran, and when it waited (taskloom-trace-1, as in analysis/trace.py).

/**
 * A summary of each `size` spans: the index of the longest one, and the time that the thread worked.
 * @typedef {{size: number, longest: Int32Array, worked: Float64Array}} Level
 */
/**
 * A thread's spans. levels: summaries of 4, 16 and 64 spans, so that spans that share a pixel are not read one by one.
 * preempted: the part of each span, in nanoseconds, for which its thread did not run; when within it, is unknown.
 * @typedef {{what: Int32Array, step: Int32Array, begin: Float64Array, end: Float64Array,
 *   preempted: Map<number, number>, length: number, levels: Level[]}} Lane
 */
/** @typedef {{thread: number, index: number}} Place */
/**
 * A trace as the artifact's JSON has it.
 * @typedef {object} Stored
 * @property {string} schema
 * @property {Record<'scheduler' | 'sync' | 'threads' | 'batch_slice' | 'token_slice', unknown>} config
 * @property {[string, string][]} call_ops
 * @property {{op: number[], task: number[]}} calls
 * @property {[string, string][]} ops
 * @property {{op: number[], layer: (number | null)[], label: (string | null)[]}} tasks
 * @property {number[]} cores
 * @property {number} first_step
 * @property {number[]} step_end_ns
 * @property {string[][]} [flagged]
 * @property {{what: number[], step: number[], gap_ns: number[], duration_ns: number[],
 *   run_delay?: {span: number[], ns: number[]}}[]} threads
 * @property {boolean} complete
 * @property {number[]} nodes
 * @property {[number, number][]} edges
 * @property {[number, number][]} crossing
 */
/**
 * @typedef {object} Trace
 * @property {string} title
 * @property {[string, string][]} kinds (op, phase) of calls
 * @property {number[]} callKind
 * @property {number[]} callTask
 * @property {string[]} label of tasks
 * @property {number[]} cores
 * @property {number} firstStep
 * @property {number[]} stepEnd nanoseconds
 * @property {string[][]} flagged why each step is flagged; empty in older traces
 * @property {Lane[]} threads
 * @property {boolean} complete
 * @property {number} duration nanoseconds
 * @property {number} spans how many there are
 * @property {number[]} nodes a task's number, or -1 for a wait
 * @property {[number, number][]} edges
 * @property {[number, number][]} crossing to the next step
 * @property {number[]} taskKind
 */

export const BARRIER = -1;
export const STARVING = -2;
export const IDLE = -3;
export const WAITS = /** @type {Record<number, [string, string]>} */ ({
	[BARRIER]: ['waiting at a barrier', 'at-barrier'],
	[STARVING]: ['nothing is ready', 'starving'],
	[IDLE]: ['idle', 'idle']
});

const PREEMPTED = 'not running within a task';

/** Number of blocks of one level that make one block of the next. */
const FANOUT = 4;
const LEVELS = 3;

/** @param {Omit<Lane, 'step' | 'levels'>} lane @returns {Level[]} */
function levelsOf({what, begin, end, preempted, length}) {
	/** @type {Level[]} */
	const found = [];
	for (let size = FANOUT; found.length < LEVELS; size *= FANOUT) {
		const before = found.at(-1);
		const blocks = Math.ceil(length / size);
		const [longest, worked] = [new Int32Array(blocks), new Float64Array(blocks)];
		const parts = before?.longest.length ?? length;
		let most = -1;
		for (let i = 0; i < parts; i += 1) {
			const block = Math.floor(i / FANOUT);
			const span = before ? before.longest[i] : i;
			const took = end[span] - begin[span];
			if (i % FANOUT === 0) most = -1;
			if (took >= most) {
				most = took;
				longest[block] = span;
			}
			worked[block] = worked[block] + (before ? before.worked[i] : what[i] < 0 ? 0 : took - (preempted.get(i) ?? 0));
		}
		found.push({size, longest, worked});
	}
	return found;
}

/**
 * A thread's spans, each of which begins a gap after the end of the one before.
 * @param {Stored['threads'][number]} columns
 * @returns {Lane}
 */
function lane(columns) {
	const {length} = columns.what;
	const [what, step] = [new Int32Array(columns.what), new Int32Array(columns.step)];
	const [begin, end] = [new Float64Array(length), new Float64Array(length)];
	let at = 0;
	for (let i = 0; i < length; i += 1) {
		begin[i] = at + columns.gap_ns[i];
		at = end[i] = begin[i] + columns.duration_ns[i];
	}
	/** @type {{span: number[], ns: number[]}} */
	const delays = columns.run_delay ?? {span: [], ns: []};
	const preempted = new Map(delays.span.map((span, i) => [span, delays.ns[i]]));
	const spans = {what, step, begin, end, preempted, length};
	return {...spans, levels: levelsOf(spans)};
}

/** The artifact's JSON as columns. Raises Error for another schema. @param {Stored} found @returns {Trace} */
export function traceOf(found) {
	if (found?.schema !== 'taskloom-trace-1') throw new Error(`schema is ${found?.schema}, not taskloom-trace-1`);
	const threads = found.threads.map(lane);
	const {config} = found;
	const taskKind = found.tasks.op;
	return {
		title:
			`${config.scheduler}${config.scheduler === 'task' ? `, sync ${config.sync}` : ''}, ` +
			`${config.threads} thread${config.threads === 1 ? '' : 's'}, slices ${config.batch_slice}×${config.token_slice}`,
		kinds: found.call_ops,
		callKind: found.calls.op,
		callTask: found.calls.task,
		label: taskKind.map((kind, i) =>
			(
				found.ops[kind][0] +
				(found.tasks.layer[i] == null ? '' : `[${found.tasks.layer[i]}]`) +
				` ${found.tasks.label[i] ?? ''}`
			).trim()
		),
		cores: found.cores,
		firstStep: found.first_step,
		stepEnd: found.step_end_ns,
		flagged: found.flagged ?? [],
		threads,
		complete: found.complete,
		duration: Math.max(...found.step_end_ns, ...threads.map(each => each.end[each.length - 1] ?? 0)),
		spans: threads.reduce((sum, each) => sum + each.length, 0),
		nodes: found.nodes,
		edges: found.edges,
		crossing: found.crossing,
		taskKind
	};
}

/** The trace in a file's bytes, compressed or not. @param {Response} response */
export async function read(response) {
	const bytes = new Uint8Array(await response.arrayBuffer());
	const packed = bytes[0] === 0x1f && bytes[1] === 0x8b;
	const stream = packed
		? new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
		: new Blob([bytes]).stream();
	return traceOf(await new Response(stream).json());
}

/** What a span is, in words. @param {Trace} trace @param {Place} place */
export function said(trace, {thread, index}) {
	const of = trace.threads[thread];
	const what = of.what[index];
	if (what < 0) return {name: WAITS[what]?.[0] ?? 'waiting', phase: '', op: '', task: -1};
	const [op, phase] = trace.kinds[trace.callKind[what]];
	const task = trace.callTask[what];
	return {name: trace.label[task] ?? op, phase, op, task};
}

/** The first span of a lane that ends after a time. @param {Lane} of @param {number} time */
export function firstAfter(of, time) {
	let low = 0;
	let high = of.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (of.end[middle] <= time) low = middle + 1;
		else high = middle;
	}
	return low;
}

/**
 * When each task of each step began and ended, and where; computed once per trace.
 * @type {WeakMap<Trace, ReturnType<typeof times>>}
 */
const known = new WeakMap();
/** @param {Trace} trace */
function times(trace) {
	const tasks = trace.label.length;
	const steps = trace.stepEnd.length + 2;
	const begun = new Float64Array(tasks * steps).fill(Infinity);
	const ended = new Float64Array(tasks * steps).fill(-1);
	const where = new Int32Array(tasks * steps).fill(-1);
	trace.threads.forEach((of, thread) => {
		for (let i = 0; i < of.length; i += 1) {
			const what = of.what[i];
			if (what < 0) continue;
			const key = of.step[i] * tasks + trace.callTask[what];
			if (of.begin[i] < begun[key]) begun[key] = of.begin[i];
			if (of.end[i] > ended[key]) {
				ended[key] = of.end[i];
				where[key] = thread;
			}
		}
	});
	/** @type {[number, number][][]} */
	const before = Array.from({length: tasks}, () => []);
	const waits = new Set();
	for (const [back, edges] of /** @type {[number, [number, number][]][]} */ ([
		[0, trace.edges],
		[1, trace.crossing]
	])) {
		for (const [a, b] of edges) {
			const [from, to] = [trace.nodes[a], trace.nodes[b]];
			if (from >= 0 && to >= 0) before[to]?.push([from, back]);
			else if (to >= 0) waits.add(to);
		}
	}
	return {tasks, begun, ended, where, before, waits};
}

/**
 * Why a task did not start earlier: the dependency that ended last, and what its thread did meanwhile.
 * @param {Trace} trace @param {Place} place
 */
export function why(trace, place) {
	const of = trace.threads[place.thread];
	const {task} = said(trace, place);
	if (task < 0) return '';
	if (!known.has(trace)) known.set(trace, times(trace));
	const {tasks, begun, ended, where, before, waits} = /** @type {ReturnType<typeof times>} */ (known.get(trace));
	const step = of.step[place.index];
	const began = begun[step * tasks + task];
	let last = -1;
	let ready = -1;
	for (const [other, back] of before[task] ?? []) {
		const key = (step - back) * tasks + other;
		if (step - back >= 0 && ended[key] > ready) {
			ready = ended[key];
			last = key;
		}
	}
	const us = (/** @type {number} */ ns) => `${(ns / 1000).toLocaleString('en-US', {maximumFractionDigits: 1})} µs`;
	const lost = of.preempted.get(place.index);
	const away = lost ? `Another process had the core for ${us(lost)} of this span; when within it is unknown. ` : '';
	if (last < 0)
		return (
			away +
			(waits.has(task)
				? 'It could start when the wait before it ended: a barrier, or the start of the step.'
				: 'It depends on no other task of the trace.')
		);
	const thread = where[last];
	const name = trace.label[last % tasks];
	const gap = Math.max(0, began - ready);
	const there = thread === place.thread ? 'on the same thread' : `on thread ${thread}`;
	const meanwhile =
		gap < 2000 ? 'it started as soon as it could.' : 'until then its thread was busy, or had not found it.';
	const also = waits.has(task) ? ' It also follows a wait of all threads.' : '';
	return `${away}It depends on ${name}, which ended ${there}, ${us(gap)} before it started: ${meanwhile}${also}`;
}

/** Time by op, over all threads, the longest first. @param {Trace} trace */
export function totals(trace) {
	// They are -1, -2, ...: first in the sums.
	const waits = Object.keys(WAITS).length;
	const calls = new Float64Array(waits + trace.callKind.length);
	const ns = new Float64Array(calls.length);
	let lost = 0;
	for (const {what, begin, end, preempted, length} of trace.threads) {
		for (let i = 0; i < length; i += 1) {
			const at = waits + what[i];
			const away = preempted.get(i) ?? 0;
			calls[at] = calls[at] + 1;
			ns[at] = ns[at] + end[i] - begin[i] - away;
			lost += away;
		}
	}
	/** @type {Map<string, {name: string, phase: string, calls: number, ns: number}>} */
	const sums = new Map();
	calls.forEach((count, at) => {
		if (!count) return;
		const kind = trace.kinds[trace.callKind[at - waits]];
		const [name, phase] = kind ?? [WAITS[at - waits]?.[0] ?? 'waiting', 'waiting'];
		const sum = sums.get(`${name} ${phase}`) ?? {name, phase, calls: 0, ns: 0};
		sum.calls += count;
		sum.ns += ns[at];
		sums.set(`${name} ${phase}`, sum);
	});
	const preemptions = trace.threads.reduce((sum, {preempted}) => sum + preempted.size, 0);
	if (preemptions) sums.set(PREEMPTED, {name: PREEMPTED, phase: 'waiting', calls: preemptions, ns: lost});
	return [...sums.values()].sort((a, b) => b.ns - a.ns);
}
