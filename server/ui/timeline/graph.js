// The tasks of one step and what each waits for: by depth from left to right, on a canvas.
import {html, useLayoutEffect, useMemo, useRef, useState} from '../vendor/preact.js';
import {count} from '../format.js';
import {Plot, useWidth} from '../plots/plot.js';
import {OP_KINDS, opKind} from '../plots/scale.js';
import {colours} from './paint.js';

const HEIGHT = 460;

/** Places of nodes: x its depth, y its number among those of its depth. @param {import('./trace.js').Trace} trace */
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
	return {depth, place, levels, widest};
}

/** @param {{trace: import('./trace.js').Trace, name: string}} props */
export function TaskGraph({trace, name}) {
	const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
	const frame = useRef(/** @type {HTMLElement | null} */ (null));
	const width = useWidth(frame);
	const [view, setView] = useState({from: 0, to: 1});
	const [chosen, choose] = useState(-1);
	const made = useMemo(() => layout(trace), [trace]);
	const drag = useRef(/** @type {{x: number, view: typeof view, moved: boolean} | null} */ (null));
	const x = (/** @type {number} */ node) =>
		14 + ((((made.depth[node] ?? 0) + 0.5) / made.levels.length - view.from) / (view.to - view.from)) * (width - 28);
	const y = (/** @type {number} */ node) => 10 + made.place[node] * (HEIGHT - 20);
	const label = (/** @type {number} */ node) => {
		const task = trace.nodes[node] ?? -1;
		return task < 0 ? 'a wait of all threads' : trace.label[task];
	};

	useLayoutEffect(() => {
		const element = canvas.current;
		if (!element || !width) return undefined;
		const asked = requestAnimationFrame(() => {
			const ratio = devicePixelRatio || 1;
			element.width = Math.round(width * ratio);
			element.height = Math.round(HEIGHT * ratio);
			const g = /** @type {CanvasRenderingContext2D} */ (element.getContext('2d'));
			g.setTransform(ratio, 0, 0, ratio, 0, 0);
			const known = colours();
			g.strokeStyle = known['soft'];
			g.globalAlpha = Math.min(0.6, 500 / trace.edges.length + 0.06);
			g.lineWidth = 0.7;
			g.beginPath();
			for (const [a, b] of trace.edges) {
				g.moveTo(x(a), y(a));
				g.lineTo(x(b), y(b));
			}
			g.stroke();
			g.globalAlpha = 1;
			if (chosen >= 0) {
				g.lineWidth = 1.6;
				for (const [a, b] of trace.edges) {
					if (a !== chosen && b !== chosen) continue;
					g.strokeStyle = /** @type {string} */ (b === chosen ? known['accent'] : known['ink']);
					g.beginPath();
					g.moveTo(x(a), y(a));
					g.lineTo(x(b), y(b));
					g.stroke();
				}
			}
			const r = Math.max(1.6, Math.min(6, (HEIGHT - 20) / made.widest / 2.4));
			trace.nodes.forEach((task, node) => {
				const at = x(node);
				if (at < -10 || at > width + 10) return;
				g.fillStyle = /** @type {string} */ (task < 0 ? known['ink'] : known[opKind(trace.label[task])]);
				g.beginPath();
				if (task < 0) g.rect(at - 1.5, y(node) - 14, 3, 28);
				else g.arc(at, y(node), node === chosen ? r + 2.5 : r, 0, 2 * Math.PI);
				g.fill();
			});
			element.dataset['painted'] = `${view.from}-${view.to}`;
		});
		return () => cancelAnimationFrame(asked);
	}, [trace, width, view, chosen]);

	/** @param {number} factor @param {number} [at] */
	const zoom = (factor, at = (view.from + view.to) / 2) =>
		setView(() => {
			const from = Math.max(0, at - (at - view.from) * factor);
			const to = Math.min(1, at + (view.to - at) * factor);
			return {from, to: Math.max(to, from + 0.01)};
		});
	/** @param {number} share */
	const move = share => {
		const by = Math.min(Math.max(share * (view.to - view.from), -view.from), 1 - view.to);
		setView({from: view.from + by, to: view.to + by});
	};
	/** @param {PointerEvent} event */
	const nearest = event => {
		let best = -1;
		let least = 14 ** 2;
		for (let node = 0; node < trace.nodes.length; node += 1) {
			const far = (x(node) - event.offsetX) ** 2 + (y(node) - event.offsetY) ** 2;
			if (far < least) {
				least = far;
				best = node;
			}
		}
		return best;
	};
	/** @type {Record<string, () => void>} */
	const keys = {
		ArrowLeft: () => move(-0.2),
		ArrowRight: () => move(0.2),
		'+': () => zoom(0.6),
		'=': () => zoom(0.6),
		'-': () => zoom(1 / 0.6),
		0: () => setView({from: 0, to: 1}),
		n: () => choose(Math.min(chosen + 1, trace.nodes.length - 1)),
		p: () => choose(Math.max(chosen - 1, 0)),
		Escape: () => choose(-1)
	};
	const handlers = {
		onKeyDown: (/** @type {KeyboardEvent} */ event) => {
			const act = keys[event.key];
			if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
				event.preventDefault();
				act();
			}
		},
		onPointerDown: (/** @type {PointerEvent} */ event) => {
			drag.current = {x: event.offsetX, view, moved: false};
			canvas.current?.setPointerCapture(event.pointerId);
		},
		onPointerMove: (/** @type {PointerEvent} */ event) => {
			const held = drag.current;
			if (!held) return;
			const by = event.offsetX - held.x;
			if (Math.abs(by) > 3) held.moved = true;
			if (!held.moved) return;
			const share = Math.min(Math.max((-by / width) * (held.view.to - held.view.from), -held.view.from), 1 - held.view.to);
			setView({from: held.view.from + share, to: held.view.to + share});
		},
		onPointerUp: (/** @type {PointerEvent} */ event) => {
			if (drag.current && !drag.current.moved) choose(nearest(event));
			drag.current = null;
		}
	};
	const before = chosen < 0 ? [] : trace.edges.filter(([, b]) => b === chosen).map(([a]) => label(a));
	const after = chosen < 0 ? [] : trace.edges.filter(([a]) => a === chosen).map(([, b]) => label(b));
	const some = (/** @type {string[]} */ names) =>
		names.length > 6 ? `${names.slice(0, 6).join(', ')} and ${names.length - 6} more` : names.join(', ') || 'nothing';
	const rows = trace.nodes.map((_, node) => node);
	return html`<${Plot}
		title="Task graph of a step"
		name=${name}
		legend=${OP_KINDS}
		rows=${rows}
		said=${`${count(trace.nodes.filter(task => task >= 0).length)} tasks, ${count(trace.edges.length)} dependencies` +
		`, ${count(made.levels.length)} deep; left to right by depth, upright bars are waits of all threads. ` +
		'Click a task to see what it needs; n and p walk.'}
		fields=${[
			{label: 'node', value: n => n},
			{label: 'task', value: label},
			{label: 'depth', value: n => made.depth[n] ?? 0}
		]}
	>
		<div class="row">
			<button onClick=${() => zoom(0.5)}>Zoom in</button>
			<button onClick=${() => zoom(2)}>Zoom out</button>
			<button onClick=${() => setView({from: 0, to: 1})}>Whole step</button>
		</div>
		<div ref=${frame}>
			<canvas
				ref=${canvas}
				tabindex="0"
				role="img"
				aria-label="Task graph. The button Table lists its tasks."
				style=${{width: '100%', height: `${HEIGHT}px`}}
				...${handlers}
			></canvas>
		</div>
		<div role="status">
			${chosen >= 0
				? html`<strong>${label(chosen)}</strong> needs ${some(before)}; needed by ${some(after)}.`
				: html`<span class="soft">No task is chosen.</span>`}
		</div>
	<//>`;
}
