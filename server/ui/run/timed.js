// A run's trace as a timeline, and its task graph. A trace is opened once for both.
import {html, useEffect, useMemo, useState} from '../vendor/preact.js';
import {address, choose} from '../address.js';
import {useAction} from '../answers.js';
import {asProblem, download, request} from '../api.js';
import {count} from '../format.js';
import {Empty, Refused, Skeleton} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {OP_KINDS, opKind} from '../plots/scale.js';
import {useColours} from '../timeline/paint.js';
import {Panned, Timeline, middle, within} from '../timeline/timeline.js';
import {read} from '../timeline/trace.js';

/** @typedef {import('../api.js').Problem} Problem */

/** @typedef {import('../timeline/timeline.js').View} View */

// The tasks of one step and their dependencies, on a canvas: by depth from left to right.

const HEIGHT = 460;
const MARGIN = 14;
const ALL = {from: 0, to: 1};
const LEAST = 0.01;

/** A part of the graph's width, kept within it. @param {View} view @returns {View} */
function kept({from, to}) {
	const size = Math.min(Math.max(to - from, LEAST), 1);
	const first = Math.min(Math.max(from, 0), 1 - size);
	return {from: first, to: first + size};
}

/** Node positions: x is the depth, y the number at that depth. @param {import('../timeline/trace.js').Trace} trace */
export function layout(trace) {
	const {nodes, edges} = trace;
	const depth = new Int32Array(nodes.length);
	for (const [a, b] of [...edges].sort((one, other) => one[0] - other[0])) depth[b] = Math.max(depth[b], depth[a] + 1);
	/** @type {number[][]} */
	const levels = [];
	depth.forEach((level, node) => (levels[level] ??= []).push(node));
	const widest = Math.max(...levels.map(level => level.length));
	const place = new Float64Array(nodes.length);
	levels.forEach(level =>
		level.forEach((node, i) => {
			place[node] = (i + 0.5 + (widest - level.length) / 2) / widest;
		})
	);
	const ofColour = Map.groupBy(nodes.keys(), node => (nodes[node] < 0 ? 'ink' : opKind(trace.label[nodes[node]])));
	return {depth, place, levels, widest, ofColour};
}

/** @param {{trace: import('../timeline/trace.js').Trace, name: string}} props */
export function TaskGraph({trace, name}) {
	const [view, setView] = useState(ALL);
	const [chosen, choose] = useState(-1);
	const known = useColours();
	const made = useMemo(() => layout(trace), [trace]);
	const radius = Math.max(1.6, Math.min(6, (HEIGHT - 20) / made.widest / 2.4));
	const across = (/** @type {number} */ node) => ((made.depth[node] ?? 0) + 0.5) / made.levels.length;
	const y = (/** @type {number} */ node) => 10 + made.place[node] * (HEIGHT - 20);
	const label = (/** @type {number} */ node) => {
		const task = trace.nodes[node] ?? -1;
		return task < 0 ? 'a wait of all threads' : trace.label[task];
	};

	/** @param {CanvasRenderingContext2D} g @param {number} width */
	const paint = (g, width) => {
		const x = (/** @type {number} */ node) =>
			MARGIN + ((across(node) - view.from) / (view.to - view.from)) * (width - 2 * MARGIN);
		/** @param {[number, number][]} edges @param {string} colour */
		const lines = (edges, colour) => {
			g.strokeStyle = known[colour];
			g.beginPath();
			for (const [a, b] of edges) {
				g.moveTo(x(a), y(a));
				g.lineTo(x(b), y(b));
			}
			g.stroke();
		};
		g.globalAlpha = Math.min(0.6, 500 / trace.edges.length + 0.06);
		g.lineWidth = 0.7;
		lines(trace.edges, 'soft');
		g.globalAlpha = 1;
		g.lineWidth = 1.6;
		lines(needed, 'accent');
		lines(needing, 'ink');
		for (const [colour, nodes] of made.ofColour) {
			g.fillStyle = known[colour];
			g.beginPath();
			for (const node of nodes) {
				const at = x(node);
				if (at < -10 || at > width + 10) continue;
				if (trace.nodes[node] < 0) g.rect(at - 1.5, y(node) - 14, 3, 28);
				else {
					const r = node === chosen ? radius + 2.5 : radius;
					g.moveTo(at + r, y(node));
					g.arc(at, y(node), r, 0, 2 * Math.PI);
				}
			}
			g.fill();
		}
	};

	/** @param {import('../timeline/timeline.js').Spot} spot */
	const nearest = spot => {
		let best = -1;
		let least = 14 ** 2;
		for (let node = 0; node < trace.nodes.length; node += 1) {
			const far = ((across(node) - spot.at) / spot.unit) ** 2 + (y(node) - spot.y) ** 2;
			if (far < least) {
				least = far;
				best = node;
			}
		}
		return best;
	};
	const needed = trace.edges.filter(([, b]) => b === chosen);
	const needing = trace.edges.filter(([a]) => a === chosen);
	const some = (/** @type {number[]} */ nodes) => {
		const names = nodes.slice(0, 6).map(label).join(', ') || 'nothing';
		return nodes.length > 6 ? `${names} and ${nodes.length - 6} more` : names;
	};
	const tasks = trace.nodes.filter(task => task >= 0).length;
	return html`<${Plot}
		title="Task graph of a step"
		name=${name}
		legend=${OP_KINDS}
		paint=${paint}
		height=${HEIGHT}
		rows=${[...trace.nodes.keys()]}
		said=${`${count(tasks)} tasks, ${count(trace.edges.length)} dependencies` +
		`, depth ${count(made.levels.length)}. Left to right by depth; vertical bars are waits of all threads. ` +
		'Click a task to see what it needs; n and p choose the next and the previous task.'}
		fields=${[
			{label: 'node', value: n => n},
			{label: 'task', value: label},
			{label: 'depth', value: n => made.depth[n] ?? 0}
		]}
	>
		<${Panned}
			view=${view}
			whole=${ALL}
			onView=${setView}
			kept=${kept}
			left=${MARGIN}
			right=${MARGIN}
			height=${HEIGHT}
			label="Task graph. The button Table lists its tasks."
			paint=${paint}
			painted=${[trace, known, chosen]}
			said=${`${view.from}-${view.to}`}
			keys=${{
				n: () => choose(Math.min(chosen + 1, trace.nodes.length - 1)),
				p: () => choose(Math.max(chosen - 1, 0)),
				Escape: () => choose(-1)
			}}
			onPress=${spot => choose(nearest(spot))}
		>
			<button onClick=${() => setView(ALL)}>Whole step</button>
		<//>
		<div role="status">
			${chosen >= 0
				? html`
						<strong>${label(chosen)}</strong> needs ${some(needed.map(([a]) => a))}; needed
						by ${some(needing.map(([, b]) => b))}.
					`
				: html`<span class="soft">No task is chosen.</span>`}
		</div>
	<//>`;
}

/** The traces that were opened last. @type {Map<number, import('../timeline/trace.js').Trace>} */
const opened = new Map();

/**
 * The trace of a run, or why there is none.
 * @param {number} id
 * @param {string} name of the file
 */
export function useTrace(id, name = 'trace.json.gz') {
	const [shown, show] = useState(
		/** @type {{id: number, trace: import('../timeline/trace.js').Trace | null, problem: Problem | null}} */ ({
			id,
			trace: opened.get(id) ?? null,
			problem: null
		})
	);
	const [round, again] = useState(0);
	useEffect(() => {
		const known = opened.get(id);
		if (known) {
			show({id, trace: known, problem: null});
			return undefined;
		}
		const stop = new AbortController();
		show({id, trace: null, problem: null});
		request(`runs/${id}/artifacts/${name}`, {signal: stop.signal})
			.then(read)
			.then(trace => {
				opened.set(id, trace);
				if (opened.size > 4) opened.delete(/** @type {number} */ (opened.keys().next().value));
				show({id, trace, problem: null});
			})
			.catch(error => {
				if (!stop.signal.aborted) show({id, trace: null, problem: asProblem(error, 'The trace cannot be read')});
			});
		return () => stop.abort();
	}, [id, name, round]);
	return {trace: shown.id === id ? shown.trace : null, problem: shown.problem, retry: () => again(n => n + 1)};
}

/** Shown for a run without a trace. @param {{problem: Problem, retry: () => void}} props */
export function NoTrace({problem, retry}) {
	if (problem.status !== 404) return html`<${Refused} problem=${problem} retry=${retry} />`;
	return html`<${Empty}>
		<h2>Not traced</h2>
		<p>A run is traced in a separate attempt, if its experiment asks for traces:</p>
		<pre>taskloom submit … --trace-first</pre>
	<//>`;
}

/**
 * The visible part of a trace; the URL holds it in milliseconds.
 * @param {import('../timeline/trace.js').Trace} trace
 * @param {string} [name]
 */
export function useView(trace, name = 't') {
	const said = address.value.params.get(name)?.split('-').map(Number);
	const first =
		said?.length === 2 && said.every(Number.isFinite)
			? within(trace, {from: said[0] * 1e6, to: said[1] * 1e6})
			: middle(trace);
	const [view, setView] = useState(first);
	useEffect(() => {
		const timer = setTimeout(() => {
			// To the nanosecond.
			const text = `${(view.from / 1e6).toFixed(6)}-${(view.to / 1e6).toFixed(6)}`;
			const unchosen = middle(trace);
			const next = view.from === unchosen.from && view.to === unchosen.to ? null : text;
			if ((address.value.params.get(name) ?? null) !== next) choose({[name]: next});
		}, 300);
		return () => clearTimeout(timer);
	}, [view.from, view.to]);
	return /** @type {[typeof view, typeof setView]} */ ([view, setView]);
}

/** @param {{of: import('../schemas').Schemas['RunDetail'], trace: import('../timeline/trace.js').Trace}} props */
function Shown({of, trace}) {
	const [view, setView] = useView(trace);
	const save = useAction(() => download(`runs/${of.id}/trace`, {format: 'chrome'}, `run-${of.id}.json`));
	return html`<section class="panel stack tight">
		<div class="row">
			<button disabled=${save.busy} onClick=${save.run}>Save for Perfetto</button>
			<span class="soft">Then “Open trace file” at ui.perfetto.dev, which reads it in your browser.</span>
		</div>
		${save.problem && html`<${Refused} problem=${save.problem} />`}
		<${Timeline}
			trace=${trace}
			view=${view}
			onView=${setView}
			title="Timeline, as traced"
			name=${`run-${of.id}-timeline`}
		/>
	</section>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Timed({of}) {
	const {trace, problem, retry} = useTrace(of.id);
	if (problem) return html`<${NoTrace} problem=${problem} retry=${retry} />`;
	return trace ? html`<${Shown} key=${of.id} of=${of} trace=${trace} />` : html`<${Skeleton} height=${220} />`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Graph({of}) {
	const {trace, problem, retry} = useTrace(of.id);
	const graph = useMemo(() => trace, [trace]);
	if (problem) return html`<${NoTrace} problem=${problem} retry=${retry} />`;
	return graph
		? html`<section class="panel"><${TaskGraph} trace=${graph} name=${`run-${of.id}-graph`} /></section>`
		: html`<${Skeleton} height=${420} />`;
}
