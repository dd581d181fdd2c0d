// A run's trace as a timeline, and its task graph. A trace is opened once for both.
import {html, useEffect, useMemo, useState} from '../vendor/preact.js';
import {address, choose as go} from '../address.js';
import {useAction} from '../answers.js';
import {asProblem, download, request} from '../api.js';
import {count, plural} from '../format.js';
import {Empty, Refused, Skeleton} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {OP_KINDS, opKind} from '../plots/scale.js';
import {useColours} from '../timeline/colours.js';
import {Light, Panned, Timeline, middle, useLit, within} from '../timeline/timeline.js';
import {traceOf} from '../timeline/trace.js';

/** @typedef {import('../api.js').Problem} Problem */

/** @typedef {import('../timeline/timeline.js').View} View */

// The tasks of one step and their dependencies, on a canvas: by depth from left to right. A layer's tasks of a phase
// are one vertex until it is opened.

const HEIGHT = 460;
const MARGIN = 14;
const ALL = {from: 0, to: 1};
const LEAST = 0.01;
/** Half the side of a square that stands for a layer's tasks. */
const SQUARE = 8;

/** @typedef {import('../timeline/trace.js').Trace} Trace */
/** @typedef {import('../timeline/trace.js').Edge} Edge */

/** A part of the graph's width, kept within it. @param {View} view @returns {View} */
function kept({from, to}) {
	const size = Math.min(Math.max(to - from, LEAST), 1);
	const first = Math.min(Math.max(from, 0), 1 - size);
	return {from: first, to: first + size};
}

/** The length of the longest path to each node. @param {number} size @param {Edge[]} edges by their begins */
function depthsOf(size, edges) {
	const depth = new Int32Array(size);
	for (const [a, b] of edges) depth[b] = Math.max(depth[b], depth[a] + 1);
	return depth;
}

/**
 * The graph with some groups open. vertex: that of each node; members: the nodes of each vertex; links: edges between
 * vertices; x is the depth, `place` the number at that depth; ofColour: vertices.
 * @param {Trace} trace
 * @param {Set<number>} open
 */
export function layout(trace, open) {
	const {nodes, group, groups} = trace;
	const edges = [...trace.edges].sort((one, other) => one[0] - other[0]);
	const members = [
		...Map.groupBy(nodes.keys(), node => (open.has(group[node]) ? groups.length + node : group[node])).values()
	];
	const vertex = new Int32Array(nodes.length);
	members.forEach((each, i) => each.forEach(node => (vertex[node] = i)));
	const links = /** @type {Edge[]} */ ([
		...new Map(edges.map(each => each.map(node => vertex[node])).map(each => [String(each), each])).values()
	]).filter(([a, b]) => a !== b);
	const depth = depthsOf(members.length, links);
	/** @type {number[][]} */
	const levels = [];
	depth.forEach((level, i) => (levels[level] ??= []).push(i));
	const widest = Math.max(...levels.map(level => level.length));
	const place = new Float64Array(members.length);
	levels.forEach(level =>
		level.forEach((each, i) => {
			place[each] = (i + 0.5 + (widest - level.length) / 2) / widest;
		})
	);
	const ofColour = Map.groupBy(members.keys(), i => {
		const [node, ...more] = members[i];
		return more.length ? 'edge' : nodes[node] < 0 ? 'ink' : opKind(trace.label[nodes[node]]);
	});
	return {vertex, members, links, depth, place, levels, widest, ofColour, depths: depthsOf(nodes.length, edges)};
}

/** @param {{trace: Trace, name: string}} props */
export function TaskGraph({trace, name}) {
	const [view, setView] = useState(ALL);
	const [node, choose] = useState(-1);
	const known = useColours();
	const lit = useLit(trace);
	const {params} = address.value;
	const said = params.get('open') ?? '';
	const open = useMemo(() => new Set(said ? said.split(',').map(Number) : []), [said]);
	const path = params.has('path') ? trace.path.nodes : [];
	const made = useMemo(() => layout(trace, open), [trace, open]);
	const {members, links, depth, place, levels, vertex} = made;
	const chosen = vertex[node] ?? -1;
	const radius = Math.max(1.6, Math.min(6, (HEIGHT - 20) / made.widest / 2.4));
	const across = (/** @type {number} */ i) => ((depth[i] ?? 0) + 0.5) / levels.length;
	const y = (/** @type {number} */ i) => 10 + place[i] * (HEIGHT - 20);
	const task = (/** @type {number} */ each) =>
		trace.nodes[each] < 0 ? 'a wait of all threads' : trace.label[trace.nodes[each]];
	const label = (/** @type {number} */ i) => {
		const [first, ...more] = members[i];
		const tasks = members[i].filter(each => trace.nodes[each] >= 0).length;
		return more.length ? `${trace.groups[trace.group[first]]} (${plural(tasks, 'task')})` : task(first);
	};
	/** Open the group of a node, or fold it. @param {number} of */
	const toggle = of => {
		if (of < 0) return;
		const group = trace.group[of];
		go({open: (open.has(group) ? [...open].filter(each => each !== group) : [...open, group]).join()});
	};

	/** @param {CanvasRenderingContext2D} g @param {number} width */
	const paint = (g, width) => {
		const x = (/** @type {number} */ i) =>
			MARGIN + ((across(i) - view.from) / (view.to - view.from)) * (width - 2 * MARGIN);
		/** @param {Edge[]} edges @param {string} colour */
		const lines = (edges, colour) => {
			g.strokeStyle = known[colour];
			g.beginPath();
			for (const [a, b] of edges) {
				g.moveTo(x(a), y(a));
				g.lineTo(x(b), y(b));
			}
			g.stroke();
		};
		g.globalAlpha = Math.min(0.6, 500 / links.length + 0.06);
		g.lineWidth = 0.7;
		lines(links, 'soft');
		g.globalAlpha = 1;
		g.lineWidth = 1.6;
		lines(
			path.slice(1).map((each, i) => [vertex[path[i]], vertex[each]]),
			'bad'
		);
		lines(needed, 'accent');
		lines(needing, 'ink');
		for (const [colour, vertices] of made.ofColour) {
			g.fillStyle = known[colour];
			g.beginPath();
			for (const i of vertices) {
				const at = x(i);
				const [first, ...more] = members[i];
				if (at < -10 || at > width + 10 || (lit && !members[i].some(each => lit[trace.nodes[each]]))) continue;
				const r = (more.length ? SQUARE : radius) + (i === chosen ? 2.5 : 0);
				if (more.length) g.rect(at - r, y(i) - r, 2 * r, 2 * r);
				else if (trace.nodes[first] < 0) g.rect(at - 1.5, y(i) - 14, 3, 28);
				else {
					g.moveTo(at + r, y(i));
					g.arc(at, y(i), r, 0, 2 * Math.PI);
				}
			}
			g.fill();
		}
		g.fillStyle = known['ink'];
		g.font = '11px system-ui, "DejaVu Sans", sans-serif';
		g.textAlign = 'center';
		const room = width / levels.length / (view.to - view.from) / 6;
		for (const i of made.ofColour.get('edge') ?? []) {
			const words = trace.groups[trace.group[members[i][0]]];
			const short = words.replace(/\D+/, '');
			// Neighbours stand at two heights.
			g.fillText(words.length < 2 * room ? words : short, x(i), y(i) - SQUARE - 6 - 13 * (depth[i] % 2));
		}
	};

	/** The first node of the nearest vertex. @param {import('../timeline/timeline.js').Spot} spot */
	const nearest = spot => {
		let best = -1;
		let least = 14 ** 2;
		members.forEach(([first], i) => {
			const far = ((across(i) - spot.at) / spot.unit) ** 2 + (y(i) - spot.y) ** 2;
			if (far < least) {
				least = far;
				best = first;
			}
		});
		return best;
	};
	const needed = links.filter(([, b]) => b === chosen);
	const needing = links.filter(([a]) => a === chosen);
	const some = (/** @type {number[]} */ vertices) => {
		const names = vertices.slice(0, 6).map(label).join(', ') || 'nothing';
		return vertices.length > 6 ? `${names} and ${vertices.length - 6} more` : names;
	};
	/** @param {number} by */
	const walk = by => choose(members[Math.min(Math.max(chosen + by, 0), members.length - 1)][0]);
	const tasks = trace.nodes.filter(each => each >= 0).length;
	return html`<${Plot}
		title="Task graph of a step"
		name=${name}
		legend=${OP_KINDS}
		paint=${paint}
		height=${HEIGHT}
		rows=${[...trace.nodes.keys()]}
		said=${`${count(tasks)} tasks, ${count(trace.edges.length)} dependencies` +
		`, depth ${count(Math.max(...made.depths) + 1)}. Left to right by depth; vertical bars are waits of all threads. ` +
		'A square is all of a layer in a phase: a double click or Enter opens it, and folds it again. ' +
		'Click a task to see what it needs; n and p choose the next and the previous one.'}
		fields=${[
			{label: 'node', value: n => n},
			{label: 'task', value: task},
			{label: 'part', value: n => trace.groups[trace.group[n]]},
			{label: 'depth', value: n => made.depths[n] ?? 0}
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
			painted=${[trace, known, chosen, lit, path.length, made]}
			said=${`${view.from}-${view.to}`}
			keys=${{n: () => walk(1), p: () => walk(-1), Enter: () => toggle(node), Escape: () => choose(-1)}}
			onPress=${spot => choose(nearest(spot))}
			onDouble=${spot => toggle(nearest(spot))}
		>
			<button onClick=${() => setView(ALL)}>Whole step</button>
			<button onClick=${() => go({open: open.size ? null : [...trace.groups.keys()].join()})}>
				${open.size ? 'Fold all' : 'Open all'}
			</button>
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

/** The trace in a file's bytes, compressed or not. @param {Response} response */
async function read(response) {
	const bytes = new Uint8Array(await response.arrayBuffer());
	const packed = bytes[0] === 0x1f && bytes[1] === 0x8b;
	const stream = packed
		? new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
		: new Blob([bytes]).stream();
	return traceOf(await new Response(stream).json());
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
			if ((address.value.params.get(name) ?? null) !== next) go({[name]: next});
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
		<${Light} trace=${trace} />
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
	if (problem) return html`<${NoTrace} problem=${problem} retry=${retry} />`;
	return trace
		? html`<section class="panel stack tight">
				<${Light} trace=${trace} />
				<${TaskGraph} trace=${trace} name=${`run-${of.id}-graph`} />
			</section>`
		: html`<${Skeleton} height=${420} />`;
}
