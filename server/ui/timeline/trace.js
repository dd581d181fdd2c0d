// A trace as columns of numbers: what each thread ran, and when it waited (taskloom-trace-1, as in analysis/trace.py).
import {plural} from '../format.js';
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
/** @typedef {[number, number]} Edge */
/**
 * From the end of a task to the begin of another, each as its number in a step (see Trace); sent: to the end of the
 * other, which waits for what the first one sends.
 * @typedef {[from: number, to: number, sent?: boolean]} Link
 */
/**
 * A trace as the artifact's JSON has it; of a run of several ranks, that of rank 0 with those of the others.
 * @typedef {object} Stored
 * @property {string} schema
 * @property {Record<'scheduler' | 'sync' | 'threads' | 'batch_slice' | 'token_slice', unknown>} config
 * @property {[string, string][]} call_ops
 * @property {{op: number[], task: number[]}} calls
 * @property {[string, string][]} ops
 * @property {{op: number[], layer: (number | null)[], label: (string | null)[], mean_s: number[]}} tasks
 * @property {number} first_step
 * @property {number[]} step_end_ns
 * @property {string[][]} [flagged]
 * @property {{what: number[], step: number[], gap_ns: number[], duration_ns: number[],
 *   run_delay?: {span: number[], ns: number[]}}[]} threads
 * @property {boolean} complete
 * @property {number[]} nodes
 * @property {Edge[]} edges
 * @property {Edge[]} crossing
 * @property {number} [begin_ns] when the first timed step began, after that of the earliest rank
 * @property {{task: number[], to: number[]}} [sends] tasks that send something to another rank
 * @property {{task: number[], at_ns: number[][]}} [completed] when tasks were that only wait, in each step
 * @property {Stored[]} [ranks] the others
 */
/**
 * A trace; of several ranks with the threads and tasks of all, by the clock of rank 0. Steps and the graph (nodes,
 * edges, path) are those of rank 0, whose tasks come first.
 * begun, ended: of each task in each step; its place is tasks x (step - firstStep) + task. first, last: the thread.
 * @typedef {object} Trace
 * @property {string} title
 * @property {[string, string][]} kinds (op, phase) of calls
 * @property {number[]} callKind
 * @property {number[]} callTask
 * @property {string[]} label of tasks
 * @property {string[]} rows names of threads
 * @property {number} firstStep
 * @property {number[]} stepEnd nanoseconds
 * @property {string[][]} flagged why each step is flagged; empty in older traces
 * @property {Lane[]} threads
 * @property {boolean} complete
 * @property {number} duration nanoseconds
 * @property {number} spans how many there are
 * @property {number[]} nodes a task's number, or -1 for a wait
 * @property {Edge[]} edges
 * @property {number[]} group that of each node; a wait belongs to that of the task before it
 * @property {string[]} groups tasks that follow each other in a phase of one layer, or of none: its name
 * @property {{nodes: number[], s: number}} path the critical one, by the tasks' mean times
 * @property {Edge[][]} before of each task the tasks that it depends on, and how many steps earlier they run
 * @property {Set<number>} waits tasks that follow a wait of all threads
 * @property {Edge[]} messages tasks that send, and those of another rank that wait for it
 * @property {Float64Array} begun
 * @property {Float64Array} ended
 * @property {Int32Array} first
 * @property {Int32Array} last
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
 * @param {number} call the number of its rank's first call
 * @param {number} later nanoseconds from the first step of rank 0 to that of its rank
 * @returns {Lane}
 */
function lane(columns, call, later) {
	const {length} = columns.what;
	const what = Int32Array.from(columns.what, each => (each < 0 ? each : call + each));
	const [begin, end] = [new Float64Array(length), new Float64Array(length)];
	let at = later;
	for (let i = 0; i < length; i += 1) {
		begin[i] = at + columns.gap_ns[i];
		at = end[i] = begin[i] + columns.duration_ns[i];
	}
	/** @type {{span: number[], ns: number[]}} */
	const delays = columns.run_delay ?? {span: [], ns: []};
	const preempted = new Map(delays.span.map((span, i) => [span, delays.ns[i]]));
	const spans = {what, step: new Int32Array(columns.step), begin, end, preempted, length};
	return {...spans, levels: levelsOf(spans)};
}

/** The costliest path through the graph of a step, by the tasks' mean times. @param {Stored} of */
function pathOf({nodes, edges, tasks}) {
	const cost = (/** @type {number} */ node) => tasks.mean_s[nodes[node]] ?? 0;
	const ready = new Float64Array(nodes.length);
	const from = new Int32Array(nodes.length).fill(-1);
	// Edges lead to higher numbers.
	for (const [a, b] of [...edges].sort((one, other) => one[0] - other[0]))
		if (ready[a] + cost(a) > ready[b]) {
			ready[b] = ready[a] + cost(a);
			from[b] = a;
		}
	let [s, last] = [0, -1];
	ready.forEach((before, node) => {
		if (before + cost(node) > s) [s, last] = [before + cost(node), node];
	});
	const path = [];
	for (; last >= 0; last = from[last]) path.unshift(last);
	return {nodes: path, s};
}

/** The groups of a graph's nodes. @param {Stored} of */
function groupsOf({nodes, ops, tasks}) {
	/** @type {string[]} */
	const groups = [];
	const group = nodes.map(task => {
		if (task >= 0) {
			const layer = tasks.layer[task];
			const name = ops[tasks.op[task]][1] + (layer == null ? '' : ` ${layer}`);
			if (name !== groups.at(-1)) groups.push(name);
		}
		return Math.max(groups.length - 1, 0);
	});
	return {group, groups};
}

/** The artifact's JSON as columns. Raises Error for another schema. @param {Stored} found @returns {Trace} */
export function traceOf(found) {
	if (found?.schema !== 'taskloom-trace-1') throw new Error(`schema is ${found?.schema}, not taskloom-trace-1`);
	const {config, first_step: firstStep, step_end_ns: stepEnd} = found;
	const ranks = [found, ...(found.ranks ?? [])];
	const shift = ranks.map(of => (of.begin_ns ?? 0) - (found.begin_ns ?? 0));
	/** @type {number[]} */
	const firsts = [];
	/** @type {string[]} */
	const rows = [];
	/** @type {Lane[]} */
	const threads = [];
	/** @type {Edge[][]} */
	const before = [];
	/** @type {Edge[]} */
	const messages = [];
	const waits = new Set();
	let {label, kinds, callKind, callTask} = /** @type {Pick<Trace, 'label' | 'kinds' | 'callKind' | 'callTask'>} */ ({
		label: [],
		kinds: [],
		callKind: [],
		callTask: []
	});
	ranks.forEach((of, rank) => {
		const [task, kind, call] = [label.length, kinds.length, callKind.length];
		firsts.push(task);
		label = [
			...label,
			...of.tasks.op.map((op, i) =>
				(of.ops[op][0] + (of.tasks.layer[i] == null ? '' : `[${of.tasks.layer[i]}]`) + ` ${of.tasks.label[i] ?? ''}`).trim()
			)
		];
		kinds = [...kinds, ...of.call_ops];
		callKind = [...callKind, ...of.calls.op.map(op => kind + op)];
		callTask = [...callTask, ...of.calls.task.map(each => task + each)];
		of.threads.forEach((columns, thread) => {
			rows.push(`${ranks.length > 1 ? `rank ${rank}, ` : ''}thread ${thread}`);
			threads.push(lane(columns, call, shift[rank]));
		});
		[of.edges, of.crossing].forEach((edges, back) =>
			edges.forEach(([a, b]) => {
				const [from, to] = [of.nodes[a], of.nodes[b]];
				if (to < 0) return;
				if (from < 0) waits.add(task + to);
				else (before[task + to] ??= []).push([task + from, back]);
			})
		);
	});
	ranks.forEach(({sends}, rank) =>
		sends?.task.forEach((each, i) => {
			const task = firsts[rank] + each;
			const to = sends.to[i];
			const wait = label.indexOf(label[task].replace('_send', '_arrived'), firsts[to]);
			if (wait >= 0 && wait < (firsts[to + 1] ?? label.length)) messages.push([task, wait]);
		})
	);
	const tasks = label.length;
	const begun = new Float64Array(tasks * stepEnd.length).fill(Infinity);
	const ended = new Float64Array(begun.length).fill(-Infinity);
	const [first, last] = [new Int32Array(begun.length), new Int32Array(begun.length)];
	threads.forEach((of, thread) => {
		for (let i = 0; i < of.length; i += 1) {
			if (of.what[i] < 0) continue;
			const key = tasks * (of.step[i] - firstStep) + callTask[of.what[i]];
			if (of.begin[i] < begun[key]) {
				begun[key] = of.begin[i];
				first[key] = thread;
			}
			if (of.end[i] > ended[key]) {
				ended[key] = of.end[i];
				last[key] = thread;
			}
		}
	});
	ranks.forEach(({completed}, rank) =>
		completed?.task.forEach((task, i) =>
			completed.at_ns[i].forEach((at, step) => {
				ended[tasks * step + firsts[rank] + task] = at + shift[rank];
			})
		)
	);
	return {
		title:
			`${config.scheduler}${config.scheduler === 'task' ? `, sync ${config.sync}` : ''}, ` +
			`${plural(Number(config.threads), 'thread')}, slices ${config.batch_slice}×${config.token_slice}` +
			(ranks.length > 1 ? `, ${ranks.length} ranks` : ''),
		kinds,
		callKind,
		callTask,
		label,
		rows,
		firstStep,
		stepEnd,
		flagged: (found.flagged ?? []).map((_, step) => [...new Set(ranks.flatMap(of => of.flagged?.[step] ?? []))]),
		threads,
		complete: ranks.every(of => of.complete),
		duration: Math.max(...stepEnd, ...threads.map(each => each.end[each.length - 1] ?? 0)),
		spans: threads.reduce((sum, each) => sum + each.length, 0),
		nodes: found.nodes,
		edges: found.edges,
		...groupsOf(found),
		path: pathOf(found),
		before,
		waits,
		messages,
		begun,
		ended,
		first,
		last
	};
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

/** The place of a span's step among the tasks of all steps. @param {Trace} trace @param {Place} place */
const stepAt = (trace, {thread, index}) => trace.label.length * (trace.threads[thread].step[index] - trace.firstStep);

/**
 * What a span's task depends on, and what depends on it, in the steps around it.
 * @param {Trace} trace
 * @param {Place} place
 */
export function linksOf(trace, place) {
	const {task} = said(trace, place);
	const step = stepAt(trace, place);
	/** @type {Link[]} */
	const found = [];
	trace.before.forEach((edges, to) =>
		edges.forEach(([from, back]) => {
			const between = trace.label.length * back;
			if (to === task) found.push([step + from - between, step + to]);
			if (from === task) found.push([step + from, step + to + between]);
		})
	);
	for (const [from, to] of trace.messages) if (from === task || to === task) found.push([step + from, step + to, true]);
	return found;
}

/**
 * Why a task did not start earlier: the dependency that ended last, and what its thread did meanwhile.
 * @param {Trace} trace @param {Place} place
 */
export function why(trace, place) {
	const {begun, ended, label, rows, waits} = trace;
	const of = trace.threads[place.thread];
	const {task} = said(trace, place);
	if (task < 0) return '';
	const step = stepAt(trace, place);
	let [last, ready] = [-1, -Infinity];
	for (const [other, back] of trace.before[task] ?? []) {
		const key = step - back * label.length + other;
		if (ended[key] > ready) {
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
	const thread = trace.last[last];
	const gap = Math.max(0, begun[step + task] - ready);
	const there = thread === place.thread ? 'on the same thread' : `on ${rows[thread]}`;
	const meanwhile =
		gap < 2000 ? 'it started as soon as it could.' : 'until then its thread was busy, or had not found it.';
	const also = waits.has(task) ? ' It also follows a wait of all threads.' : '';
	const name = label[last % label.length];
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
