// A timeline that can be moved and zoomed, by pointer and by keyboard, and says what is beneath the pointer.
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from '../vendor/preact.js';
import {Plot, useWidth} from '../plots/plot.js';
import {OP_KINDS} from '../plots/scale.js';
import {LANE, LEFT, TOP, colours, heightOf, paint, timeSaid} from './paint.js';
import {firstAfter, said, totals, why} from './trace.js';

/** @typedef {import('./trace.js').Trace} Trace */
/** @typedef {import('./paint.js').View} View */

const WAITING = /** @type {[string, string][]} */ ([
	['at-barrier', 'at a barrier'],
	['starving', 'nothing is ready'],
	['idle', 'idle'],
	['lane', 'scheduling']
]);

/** What is between two times, kept within the trace. @param {Trace} trace @param {View} view @returns {View} */
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
 * @param {{trace: Trace, view: View, onView: (view: View) => void, title: string, name: string, origin?: number,
 *   level?: 2 | 3, first?: boolean, last?: boolean}} props
 * first, last: of timelines beneath each other; the first has the legend, the last says how they are moved
 */
export function Timeline({trace, view, onView, title, name, origin = 0, level = 2, first = true, last = true}) {
	const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
	const frame = useRef(/** @type {HTMLElement | null} */ (null));
	const width = useWidth(frame);
	const [known, setKnown] = useState(colours);
	const [chosen, choose] = useState(/** @type {import('./trace.js').Place | null} */ (null));
	const [tip, setTip] = useState(/** @type {{x: number, y: number, words: string} | null} */ (null));
	const drag = useRef(/** @type {{x: number, view: View, moved: boolean} | null} */ (null));
	const height = heightOf(trace);

	useEffect(() => {
		const again = () => setKnown(colours());
		const media = matchMedia('(prefers-color-scheme: dark)');
		media.addEventListener('change', again);
		const observer = new MutationObserver(again);
		observer.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
		return () => {
			media.removeEventListener('change', again);
			observer.disconnect();
		};
	}, []);

	useLayoutEffect(() => {
		const element = canvas.current;
		if (!element || !width) return undefined;
		const asked = requestAnimationFrame(() => {
			const ratio = devicePixelRatio || 1;
			if (element.width !== Math.round(width * ratio)) element.width = Math.round(width * ratio);
			if (element.height !== Math.round(height * ratio)) element.height = Math.round(height * ratio);
			const g = /** @type {CanvasRenderingContext2D} */ (element.getContext('2d'));
			g.setTransform(ratio, 0, 0, ratio, 0, 0);
			paint(g, width, trace, view, known, chosen, origin);
			element.dataset['painted'] = `${view.from - origin}-${view.to - origin}`;
		});
		return () => cancelAnimationFrame(asked);
	}, [trace, view.from, view.to, width, known, chosen, origin]);

	const span = view.to - view.from;
	/** @param {number} factor @param {number} [at] */
	const zoom = (factor, at = (view.from + view.to) / 2) =>
		onView(within(trace, {from: at - (at - view.from) * factor, to: at + (view.to - at) * factor}));
	/** @param {number} share */
	const move = share => onView(within(trace, {from: view.from + share * span, to: view.to + share * span}));
	/** @param {PointerEvent | WheelEvent | MouseEvent} event */
	const timeAt = event => view.from + ((event.offsetX - LEFT) / (width - 8 - LEFT)) * span;
	/** @param {PointerEvent} event @returns {import('./trace.js').Place | null} */
	const placeAt = event => {
		const thread = Math.floor((event.offsetY - TOP) / LANE);
		const of = trace.threads[thread];
		if (!of || event.offsetX < LEFT) return null;
		const time = timeAt(event);
		const index = firstAfter(of, time - (span / width) * 1.5);
		return index < of.length && of.begin[index] <= time + (span / width) * 1.5 ? {thread, index} : null;
	};
	/** @param {import('./trace.js').Place} place */
	const words = place => {
		const of = trace.threads[place.thread];
		const told = said(trace, place);
		const took = of.end[place.index] - of.begin[place.index];
		const op = told.op && told.op !== told.name.split(/[[ ]/)[0] ? ` (${told.op})` : '';
		const phase = told.phase ? `, ${told.phase}` : '';
		return `${told.name}${op}${phase}: ${timeSaid(took, took)} on thread ${place.thread}`;
	};
	/** @type {Record<string, () => void>} */
	const keys = {
		ArrowLeft: () => move(-0.15),
		ArrowRight: () => move(0.15),
		'+': () => zoom(0.7),
		'=': () => zoom(0.7),
		'-': () => zoom(1 / 0.7),
		0: () => onView({from: 0, to: trace.duration}),
		n: () => {
			const place = chosen ?? {thread: 0, index: firstAfter(trace.threads[0], view.from) - 1};
			if (place.index + 1 < (trace.threads[place.thread]?.length ?? 0)) choose({...place, index: place.index + 1});
		},
		p: () => {
			if (chosen && chosen.index > 0) choose({...chosen, index: chosen.index - 1});
		},
		t: () => {
			if (chosen) {
				const thread = (chosen.thread + 1) % trace.threads.length;
				choose({
					thread,
					index: Math.min(
						firstAfter(trace.threads[thread], trace.threads[chosen.thread]?.begin[chosen.index]),
						(trace.threads[thread]?.length ?? 1) - 1
					)
				});
			}
		},
		Escape: () => choose(null)
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
			if (event.button === 0) {
				drag.current = {x: event.offsetX, view, moved: false};
				canvas.current?.setPointerCapture(event.pointerId);
			}
		},
		onPointerMove: (/** @type {PointerEvent} */ event) => {
			const held = drag.current;
			if (held) {
				const by = event.offsetX - held.x;
				if (Math.abs(by) > 3) held.moved = true;
				if (held.moved)
					onView(
						within(trace, {
							from: held.view.from - (by / (width - 8 - LEFT)) * (held.view.to - held.view.from),
							to: held.view.to - (by / (width - 8 - LEFT)) * (held.view.to - held.view.from)
						})
					);
				return;
			}
			const place = placeAt(event);
			setTip(
				place ? {x: Math.min(event.clientX + 14, innerWidth - 350), y: event.clientY + 16, words: words(place)} : null
			);
		},
		onPointerUp: (/** @type {PointerEvent} */ event) => {
			if (drag.current && !drag.current.moved) choose(placeAt(event));
			drag.current = null;
		},
		onPointerLeave: () => setTip(null),
		onDblClick: (/** @type {MouseEvent} */ event) => {
			const time = timeAt(event);
			const step = Math.max(
				0,
				trace.stepEnd.findIndex(end => end > time)
			);
			onView(within(trace, {from: step ? trace.stepEnd[step - 1] : 0, to: trace.stepEnd[step]}));
		}
	};
	useEffect(() => {
		const element = canvas.current;
		// Not passive: the page must not be zoomed or scrolled meanwhile.
		const wheel = (/** @type {WheelEvent} */ event) => {
			if (!event.ctrlKey && !event.metaKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
			event.preventDefault();
			if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.004), timeAt(event));
			else move((event.deltaX || event.deltaY) / width);
		};
		element?.addEventListener('wheel', wheel, {passive: false});
		return () => element?.removeEventListener('wheel', wheel);
	});

	const rows = useMemo(() => totals(trace), [trace]);
	return html`<${Plot}
		title=${title}
		name=${name}
		level=${level}
		legend=${first ? [...OP_KINDS, ...WAITING] : undefined}
		rows=${rows}
		fields=${[
			{label: 'op', value: r => r.name},
			{label: 'phase', value: r => r.phase},
			{label: 'spans', value: r => r.calls},
			{label: 'time_ms', value: r => Number((r.ns / 1e6).toPrecision(6))}
		]}
		said=${html`${trace.title}: ${trace.spans.toLocaleString('en-US')} spans${trace.complete
			? ''
			: '; the trace is cut off'}. ${last &&
		'Drag to move, Ctrl and wheel to zoom, double click for a step; with the keyboard ← → + − 0, ' +
			'n and p for the next and previous span, t for the next thread.'}`}
	>
		<div class="row">
			<button onClick=${() => zoom(0.5)}>Zoom in</button>
			<button onClick=${() => zoom(2)}>Zoom out</button>
			<button onClick=${() => onView(middle(trace))}>Two steps</button>
			<button onClick=${() => onView({from: 0, to: trace.duration})}>All ${trace.stepEnd.length} steps</button>
			<span class="soft">${timeSaid(span, span)} shown</span>
		</div>
		<div ref=${frame}>
			<canvas
				ref=${canvas}
				tabindex="0"
				role="img"
				aria-label=${`Timeline of ${trace.title}: ${timeSaid(span, span)} shown. ` +
				'The button Table shows the time of each op.'}
				style=${{width: '100%', height: `${height}px`, cursor: drag.current ? 'grabbing' : 'crosshair'}}
				...${handlers}
			></canvas>
		</div>
		<div role="status" class="chosen">
			${chosen
				? html`<strong>${words(chosen)}.</strong> ${why(trace, chosen)}`
				: html`<span class="soft">Click a span to see why it ran when it did.</span>`}
		</div>
		${tip && html`<div class="tip" style=${{left: `${tip.x}px`, top: `${tip.y}px`}}>${tip.words}</div>`}
	<//>`;
}
