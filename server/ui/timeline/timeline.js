// A timeline of a trace, moved and zoomed. It names the span under the pointer and explains when the chosen one ran.
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from '../vendor/preact.js';
import {address, choose as say} from '../address.js';
import {ms, plural} from '../format.js';
import {Narrow} from '../lists.js';
import {Plot, useWidth} from '../plots/plot.js';
import {OP_KINDS} from '../plots/scale.js';
import {useColours} from './colours.js';
import {LEFT, MAP, RIGHT, TOP, heightOf, paint, pitchOf, timeSaid} from './paint.js';
import {firstAfter, linksOf, said, totals, why} from './trace.js';

/** @typedef {{from: number, to: number}} View */
/** @typedef {{at: number, unit: number, y: number}} Spot its value, values per pixel, pixels from the top */

// A canvas that shows a part of a wide drawing. Pointer, wheel and keyboard move and zoom it.

/**
 * view: the visible part of `whole`; left, right: margins in pixels; kept: clamps a view to its bounds; painted: what
 * `paint` depends on besides the view; said: the view as text, for tests; keys: actions of further keys.
 * @param {{view: View, whole: View, onView: (view: View) => void, kept: (view: View) => View, left: number,
 *   right: number, height: number, label: string, paint: (g: CanvasRenderingContext2D, width: number) => void,
 *   painted: unknown[], said: string, keys: Record<string, () => void>, onPress: (spot: Spot) => void,
 *   onHover?: (spot: Spot | null, event: PointerEvent) => void, onDouble?: (spot: Spot) => void,
 *   children: import('../vendor/preact.js').ComponentChildren}} props children: buttons besides those that zoom
 */
export function Panned(props) {
	const {view, whole, onView, kept, left, right, height, label, paint, painted, said, keys, children} = props;
	const {onPress, onHover, onDouble} = props;
	const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
	const frame = useRef(/** @type {HTMLElement | null} */ (null));
	const drag = useRef(/** @type {{x: number, view: View, moved: boolean} | null} */ (null));
	const width = useWidth(frame);
	const size = view.to - view.from;
	const unit = size / (width - left - right);

	useLayoutEffect(() => {
		const element = canvas.current;
		if (!element || !width) return undefined;
		const asked = requestAnimationFrame(() => {
			const ratio = devicePixelRatio || 1;
			if (element.width !== Math.round(width * ratio)) element.width = Math.round(width * ratio);
			if (element.height !== Math.round(height * ratio)) element.height = Math.round(height * ratio);
			const g = /** @type {CanvasRenderingContext2D} */ (element.getContext('2d'));
			g.setTransform(ratio, 0, 0, ratio, 0, 0);
			g.clearRect(0, 0, width, height);
			paint(g, width);
			element.dataset['painted'] = said;
		});
		return () => cancelAnimationFrame(asked);
	}, [view.from, view.to, width, height, ...painted]);

	/** @param {number} factor @param {number} [at] */
	const zoom = (factor, at = view.from + size / 2) =>
		onView(kept({from: at - (at - view.from) * factor, to: at + (view.to - at) * factor}));
	/** @param {number} by @param {View} [of] */
	const move = (by, of = view) => onView(kept({from: of.from + by, to: of.to + by}));
	/** @param {MouseEvent} event @returns {Spot} */
	const spot = event => ({at: view.from + (event.offsetX - left) * unit, unit, y: event.offsetY});
	/** @type {Record<string, () => void>} */
	const acts = {
		ArrowLeft: () => move(-0.15 * size),
		ArrowRight: () => move(0.15 * size),
		'+': () => zoom(0.7),
		'=': () => zoom(0.7),
		'-': () => zoom(1 / 0.7),
		0: () => onView(whole),
		...keys
	};
	const handlers = {
		onKeyDown: (/** @type {KeyboardEvent} */ event) => {
			const act = acts[event.key];
			if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
				event.preventDefault();
				act();
			}
		},
		onPointerDown: (/** @type {PointerEvent} */ event) => {
			if (event.button !== 0) return;
			drag.current = {x: event.offsetX, view, moved: false};
			canvas.current?.setPointerCapture(event.pointerId);
		},
		onPointerMove: (/** @type {PointerEvent} */ event) => {
			const held = drag.current;
			if (!held) return onHover?.(spot(event), event);
			const by = event.offsetX - held.x;
			if (Math.abs(by) > 3) held.moved = true;
			if (held.moved) move(-by * unit, held.view);
		},
		onPointerUp: (/** @type {PointerEvent} */ event) => {
			if (drag.current && !drag.current.moved) onPress(spot(event));
			drag.current = null;
		},
		onPointerLeave: (/** @type {PointerEvent} */ event) => onHover?.(null, event),
		onDblClick: (/** @type {MouseEvent} */ event) => onDouble?.(spot(event))
	};
	const wheel = useRef((/** @type {WheelEvent} */ _) => {});
	wheel.current = event => {
		if (!event.ctrlKey && !event.metaKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
		event.preventDefault();
		if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.004), spot(event).at);
		else move((event.deltaX || event.deltaY) * unit);
	};
	useEffect(() => {
		const element = canvas.current;
		const listen = (/** @type {WheelEvent} */ event) => wheel.current(event);
		// Not passive: the handler must keep the page itself from zooming and scrolling.
		element?.addEventListener('wheel', listen, {passive: false});
		return () => element?.removeEventListener('wheel', listen);
	}, []);
	return html`
		<div class="row">
			<button onClick=${() => zoom(0.5)}>Zoom in</button>
			<button onClick=${() => zoom(2)}>Zoom out</button>
			${children}
		</div>
		<div ref=${frame}>
			<canvas
				ref=${canvas}
				tabindex="0"
				role="img"
				aria-label=${label}
				style=${{height: `${height}px`}}
				...${handlers}
			></canvas>
		</div>
	`;
}

/** @typedef {import('./trace.js').Trace} Trace */

const WAITING = /** @type {[string, string][]} */ ([
	['at-barrier', 'at a barrier'],
	['starving', 'nothing is ready'],
	['idle', 'idle'],
	['lane', 'scheduling'],
	['preempted', 'not running']
]);

/** A view, clamped to the trace. @param {Trace} trace @param {View} view @returns {View} */
export function within(trace, view) {
	const most = trace.duration;
	const width = Math.round(Math.min(Math.max(view.to - view.from, 500), most));
	const from = Math.round(Math.min(Math.max(view.from, 0), most - width));
	return {from, to: from + width};
}

/** The two steps nearest to the middle. @param {Trace} trace @returns {View} */
export function middle(trace) {
	const ends = trace.stepEnd;
	const first = Math.max(0, Math.floor(ends.length / 2) - 1);
	return {from: first ? ends[first - 1] : 0, to: /** @type {number} */ (ends[Math.min(first + 1, ends.length - 1)])};
}

/**
 * The messages of all steps, and their critical paths if they are wanted, by their colours.
 * @param {Trace} trace
 * @param {boolean} path
 * @returns {[string, import('./trace.js').Link[]][]}
 */
function linksOfSteps(trace, path) {
	const tasks = path ? trace.path.nodes.map(node => trace.nodes[node]).filter(task => task >= 0) : [];
	const links = (/** @type {import('./trace.js').Edge[]} */ edges, sent = false) =>
		trace.stepEnd.flatMap((_, step) =>
			edges.map(each => {
				const [from, to] = each.map(task => step * trace.label.length + task);
				return /** @type {import('./trace.js').Link} */ ([from, to, sent]);
			})
		);
	return [
		['soft', links(trace.messages, true)],
		['bad', links(tasks.slice(1).map((task, i) => [tasks[i], task]))]
	];
}

/** The step that is under way at a time. @param {Trace} trace @param {number} time @returns {View} */
function stepAt({stepEnd}, time) {
	const step = Math.max(
		0,
		stepEnd.findIndex(end => end > time)
	);
	return {from: step ? stepEnd[step - 1] : 0, to: stepEnd[step]};
}

/** The tasks that the URL names, by a part of their names or as the critical path; null: no task is faded.
 * @param {Trace} trace
 */
export function useLit(trace) {
	const {params} = address.value;
	const find = params.get('find')?.toLowerCase() ?? '';
	const path = params.has('path');
	return useMemo(() => {
		if (!find && !path) return null;
		const on = new Set(trace.path.nodes.map(node => trace.nodes[node]));
		return Uint8Array.from(trace.label, (label, task) =>
			Number(label.toLowerCase().includes(find) && (!path || on.has(task)))
		);
	}, [trace, find, path]);
}

/** What to light; the URL holds it. @param {{trace: Trace}} props */
export function Light({trace}) {
	const lit = useLit(trace);
	const path = address.value.params.has('path');
	const mean_s = (trace.stepEnd.at(-1) ?? 0) / trace.stepEnd.length / 1e9;
	return html`<div class="filters">
		<${Narrow} name="find" label="Find tasks" placeholder="attention[0]" first=${true} />
		<button aria-pressed=${path} onClick=${() => say({path: !path})}>Critical path</button>
		<span role="status">
			${lit &&
			`${plural(
				lit.reduce((sum, each) => sum + each, 0),
				'task'
			)} of a step shown. `}
			${path &&
			`The critical path${trace.messages.length ? ' of rank 0' : ''} takes ${ms(trace.path.s)} ` +
				`by its tasks’ mean times, a mean step ${ms(mean_s)}. More threads do not shorten the path.`}
		</span>
	</div>`;
}

/** The height of the window, without what a phone's browser shows at times. */
function useWindow() {
	const now = () => document.documentElement.clientHeight;
	const [height, setHeight] = useState(now);
	useEffect(() => {
		const again = () => setHeight(now());
		addEventListener('resize', again);
		return () => removeEventListener('resize', again);
	}, []);
	return height;
}

/**
 * @param {{trace: Trace, view: View, onView: (view: View) => void, title: string, name: string, origin?: number,
 *   level?: 2 | 3, first?: boolean, last?: boolean}} props
 * first, last: position among stacked timelines; the first shows the legend, the last the help
 */
export function Timeline({trace, view, onView, title, name, origin = 0, level = 2, first = true, last = true}) {
	const known = useColours();
	const [chosen, choose] = useState(/** @type {import('./trace.js').Place | null} */ (null));
	const [tip, setTip] = useState(/** @type {{x: number, y: number, words: string} | null} */ (null));
	const pitch = pitchOf(trace, useWindow() * (first && last ? 0.6 : 0.3));
	const span = view.to - view.from;
	const whole = {from: 0, to: trace.duration};
	const kept = (/** @type {View} */ wanted) => within(trace, wanted);
	const lit = useLit(trace);
	const path = address.value.params.has('path');
	const everywhere = useMemo(() => linksOfSteps(trace, path), [trace, path]);
	const own = useMemo(() => (chosen ? linksOf(trace, chosen) : []), [trace, chosen]);
	const links = /** @type {[string, import('./trace.js').Link[]][]} */ ([...everywhere, ['accent', own]]);
	/** Choose a span, and move the view to it. @param {import('./trace.js').Place} place */
	const show = place => {
		choose(place);
		const {begin, end} = trace.threads[place.thread];
		if (end[place.index] > view.from && begin[place.index] < view.to) return;
		const from = begin[place.index] - span / 2;
		onView(kept({from, to: from + span}));
	};
	/** Choose the next span that is not faded, or the previous one. @param {number} by */
	const walk = by => {
		let {thread, index} = chosen ?? {thread: 0, index: firstAfter(trace.threads[0], view.from) - 1};
		const {what} = trace.threads[thread];
		do index += by;
		while (lit && index in what && !lit[trace.callTask[what[index]]]);
		if (index in what) show({thread, index});
	};
	/** @param {Spot} spot @returns {import('./trace.js').Place | null} */
	const placeAt = ({at, unit, y}) => {
		const thread = Math.floor((y - TOP) / pitch);
		const of = trace.threads[thread];
		if (!of || at < view.from) return null;
		const index = firstAfter(of, at - unit * 1.5);
		return index < of.length && of.begin[index] <= at + unit * 1.5 ? {thread, index} : null;
	};
	/** @param {import('./trace.js').Place} place */
	const words = place => {
		const of = trace.threads[place.thread];
		const task = said(trace, place);
		const took = of.end[place.index] - of.begin[place.index];
		const op = task.op && task.op !== task.name.split(/[[ ]/)[0] ? ` (${task.op})` : '';
		const phase = task.phase ? `, ${task.phase}` : '';
		const lost = of.preempted.get(place.index);
		const away = lost ? `, not running for ${timeSaid(lost, took)} of it` : '';
		return `${task.name}${op}${phase}: ${timeSaid(took, took)} on ${trace.rows[place.thread]}${away}`;
	};
	const keys = {
		n: () => walk(1),
		p: () => walk(-1),
		t: () => {
			if (!chosen) return;
			const thread = (chosen.thread + 1) % trace.threads.length;
			const began = trace.threads[chosen.thread].begin[chosen.index];
			choose({thread, index: Math.min(firstAfter(trace.threads[thread], began), trace.threads[thread].length - 1)});
		},
		Escape: () => choose(null)
	};
	/** @param {Spot | null} spot @param {PointerEvent} event */
	const hover = (spot, event) => {
		const place = spot && placeAt(spot);
		setTip(
			place ? {x: Math.min(event.clientX + 14, innerWidth - 350), y: event.clientY + 16, words: words(place)} : null
		);
	};
	/** The view around a spot of the whole trace in small. @param {Spot} spot */
	const around = ({at}) => {
		const from = ((at - view.from) / span) * trace.duration - span / 2;
		return {from, to: from + span};
	};
	/** @param {CanvasRenderingContext2D} g @param {number} width */
	const drawn = (g, width) => paint(g, width, trace, view, pitch, known, chosen, origin, lit, links);
	const height = heightOf(trace, pitch);
	const rows = useMemo(() => totals(trace), [trace]);
	return html`<${Plot}
		title=${title}
		name=${name}
		level=${level}
		paint=${drawn}
		height=${height}
		legend=${first ? [...OP_KINDS, ...WAITING] : undefined}
		rows=${rows}
		fields=${[
			{label: 'op', value: r => r.name},
			'phase',
			{label: 'spans', value: r => r.calls},
			{label: 'time_ms', value: r => Number((r.ns / 1e6).toPrecision(6))}
		]}
		said=${html`${trace.title}: ${trace.spans.toLocaleString('en-US')} spans${trace.complete
			? ''
			: '; the trace is cut off'}. ${trace.messages.length > 0 && 'Grey arrows: messages between ranks. '} ${last &&
		'Drag to move, Ctrl and wheel to zoom, double click to show a step. Keys: ← → + − 0 move and zoom, ' +
			'n and p choose the next and the previous span, t the next thread. ' +
			'At the bottom the whole trace: click to go there.'}`}
	>
		<${Panned}
			view=${view}
			whole=${whole}
			onView=${onView}
			kept=${kept}
			left=${LEFT}
			right=${RIGHT}
			height=${height}
			label=${`Timeline of ${trace.title}: ${timeSaid(span, span)} shown. The button Table shows the time of each op.`}
			paint=${drawn}
			painted=${[trace, known, chosen, origin, lit, path]}
			said=${`${view.from - origin}-${view.to - origin}`}
			keys=${keys}
			onPress=${spot => (spot.y < height - MAP ? choose(placeAt(spot)) : onView(kept(around(spot))))}
			onHover=${hover}
			onDouble=${({at}) => onView(kept(stepAt(trace, at)))}
		>
			<button onClick=${() => onView(middle(trace))}>Two steps</button>
			<button onClick=${() => onView(whole)}>All ${trace.stepEnd.length} steps</button>
		<//>
		<div role="status" class="chosen">
			${chosen
				? html`<strong>${words(chosen)}.</strong> ${why(trace, chosen)}`
				: html`<span class="soft">Click a span to see why it ran when it did.</span>`}
		</div>
		${tip && html`<div class="tip" style=${{left: `${tip.x}px`, top: `${tip.y}px`}}>${tip.words}</div>`}
	<//>`;
}
