// A canvas that shows a part of a wide drawing. Pointer, wheel and keyboard move and zoom it.
import {html, useEffect, useLayoutEffect, useRef} from '../vendor/preact.js';
import {useWidth} from '../plots/plot.js';

/** @typedef {{from: number, to: number}} View */
/** @typedef {{at: number, unit: number, y: number}} Spot its value, values per pixel, pixels from the top */

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
	}, [view.from, view.to, width, ...painted]);

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
