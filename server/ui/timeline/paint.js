// Draws spans on a canvas, in the theme's colours. A pixel of several spans shows the one that covers most of it.
import {opKind} from '../plots/scale.js';
import {pixelsOf} from './colours.js';
import {BARRIER, IDLE, STARVING, WAITS, firstAfter} from './trace.js';

/** @typedef {import('./colours.js').Colours} Colours */
/** @typedef {import('./trace.js').Trace} Trace */
/** @typedef {import('./trace.js').Lane} Lane */
/** @typedef {import('./trace.js').Link} Link */
/** @typedef {import('./timeline.js').View} View nanoseconds */
/**
 * Positions on the canvas. right: the last pixel of the lanes; foot: the bottom of the busy-cores curve.
 * @typedef {{g: CanvasRenderingContext2D, width: number, right: number, foot: number, view: View, perNs: number,
 *   x: (time: number) => number, colour: (name: string) => string, pitch: number}} Sheet pitch: of the rows
 */

export const LEFT = 100;
export const RIGHT = 8;
export const TOP = 20;
const CURVE = 14;
const AXIS = 22;
/** The whole trace in small, at the bottom. */
export const MAP = 22;
/** A span of at least this many pixels is drawn by itself, with its op if there is room. */
const WIDE = 4;
/** More arrows are not drawn. */
const MOST_LINKS = 1000;

/** What a timeline has besides its rows and the curve of busy cores, which is as high as a row. */
const REST = TOP + CURVE + AXIS + MAP;
/** The distance of the rows of a timeline that is about so high. @param {Trace} trace @param {number} height */
export const pitchOf = ({threads}, height) =>
	Math.min(Math.max(Math.floor((height - REST) / (threads.length + 1)), 16), 96);

/** @param {Trace} trace @param {number} pitch */
export const heightOf = ({threads}, pitch) => REST + (threads.length + 1) * pitch;

/** Number formats by decimal places, created once: the axis formats many numbers in each frame. */
const formats = [0, 1, 2].map(places => new Intl.NumberFormat('en-US', {maximumFractionDigits: places}));

/** @param {number} ns @param {number} span */
export function timeSaid(ns, span) {
	if (span <= 5e6) return `${formats[1]?.format(ns / 1e3)} µs`;
	return `${formats[span > 1e8 ? 0 : 2]?.format(ns / 1e6)} ms`;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} width
 * @param {Trace} trace
 * @param {View} view
 * @param {number} pitch
 * @param {Colours} known
 * @param {import('./trace.js').Place | null} chosen
 * @param {number} origin the time that is shown as zero
 * @param {Uint8Array | null} lit the tasks that are not faded
 * @param {[string, Link[]][]} links by their colour
 */
export function paint(g, width, trace, view, pitch, known, chosen, origin = 0, lit = null, links = []) {
	const right = width - RIGHT;
	const perNs = (right - LEFT) / (view.to - view.from);
	/** @type {Sheet} */
	const sheet = {
		g,
		width,
		right,
		foot: heightOf(trace, pitch) - AXIS - MAP,
		pitch,
		view,
		perNs,
		x: time => LEFT + (time - view.from) * perNs,
		colour: name => known[name]
	};
	g.font = '11px system-ui, "DejaVu Sans", sans-serif';
	const busy = new Float64Array(Math.max(1, Math.ceil(right - LEFT)));
	paintLanes(sheet, trace, inksOf(trace, known), busy, lit);
	paintBusy(sheet, busy, trace.threads.length);
	paintSteps(sheet, trace);
	paintTicks(sheet, origin);
	paintMap(sheet, trace, new Float64Array(busy.length));
	for (const [ink, of] of links) paintLinks(sheet, trace, of, ink);
	if (chosen) paintChosen(sheet, trace, chosen);
}

/** A buffer for narrow spans, drawn as one image: thousands of rectangles take longer. */
const narrow = new OffscreenCanvas(1, 1);
const narrowly = /** @type {OffscreenCanvasRenderingContext2D} */ (narrow.getContext('2d', {willReadFrequently: true}));

/**
 * The colour of each wait and call, as a name and as a pixel. Index: its number minus that of the first wait.
 * @typedef {{known: Colours, names: string[], pixels: Uint32Array}} Inks
 */
/** The inks of the shown traces. @type {WeakMap<Trace, Inks>} */
const inked = new WeakMap();
/** @param {Trace} trace @param {Colours} known @returns {Inks} */
function inksOf(trace, known) {
	const before = inked.get(trace);
	if (before?.known === known) return before;
	const pixels = pixelsOf(known);
	const kinds = trace.kinds.map(([op]) => opKind(op));
	const waits = [IDLE, STARVING, BARRIER].map(wait => WAITS[wait][1]);
	const names = [...waits, ...trace.callKind.map(kind => kinds[kind])];
	const found = {known, names, pixels: Uint32Array.from(names, name => pixels[name])};
	inked.set(trace, found);
	return found;
}

/**
 * Draw the spans of all threads.
 * @param {Sheet} sheet @param {Trace} trace @param {Inks} inks
 * @param {Float64Array} busy receives the busy share of each pixel
 * @param {Uint8Array | null} lit
 */
function paintLanes(sheet, trace, inks, busy, lit) {
	const {g, right, colour, pitch} = sheet;
	const image = g.createImageData(busy.length, trace.threads.length);
	const pixels = new Uint32Array(image.data.buffer);
	const wide = trace.threads.map((lane, thread) => {
		const found = shares(sheet, lane, busy);
		const row = thread * busy.length;
		for (let pixel = 0; pixel < busy.length; pixel += 1) {
			const i = found.owner[pixel];
			if (i >= 0) pixels[row + pixel] = inks.pixels[lane.what[i] - IDLE];
		}
		return found.wide;
	});
	if (narrow.width !== image.width) narrow.width = image.width;
	if (narrow.height !== image.height) narrow.height = image.height;
	narrowly.putImageData(image, 0, 0);
	g.imageSmoothingEnabled = false;
	trace.threads.forEach((lane, thread) => {
		const y = TOP + thread * pitch;
		g.fillStyle = colour('soft');
		g.textAlign = 'end';
		g.fillText(trace.rows[thread], LEFT - 8, y + pitch / 2 + 2);
		g.fillStyle = colour('lane');
		g.fillRect(LEFT, y, right - LEFT, pitch - 4);
		const draw = (/** @type {number} */ i) => {
			const call = lane.what[i];
			const op = trace.kinds[trace.callKind[call]]?.[0] ?? '';
			paintWide(sheet, y, lane, i, colour(inks.names[call - IDLE]), op);
		};
		if (lit) g.globalAlpha = 0.2;
		g.drawImage(narrow, 0, thread, image.width, 1, LEFT, y, image.width, pitch - 4);
		wide[thread].forEach(draw);
		g.globalAlpha = 1;
		if (lit) paintLit(sheet, trace, lane, lit, draw);
		paintPreempted(sheet, y, lane);
	});
}

/**
 * The narrow span that covers most of each pixel, and the wide spans.
 * @param {Pick<Sheet, 'view' | 'perNs'>} sheet @param {Lane} lane @param {Float64Array} busy
 */
export function shares({view, perNs}, lane, busy) {
	const {begin, end, what, preempted, length, levels} = lane;
	const most = new Float64Array(busy.length);
	const owner = new Int32Array(busy.length).fill(-1);
	/** @type {number[]} */
	const wide = [];
	for (let i = firstAfter(lane, view.from), passed = 1; i < length; i += passed) {
		passed = 1;
		const begun = Math.max(begin[i], view.from);
		if (begun >= view.to) break;
		const pixel = Math.floor((begun - view.from) * perNs);
		const border = Math.min(view.from + (pixel + 1) / perNs, view.to);
		if (end[i] <= border) {
			// The span lies within one pixel. The following spans may, too.
			let span = i;
			let worked = what[i] < 0 ? 0 : Math.max(0, end[i] - begun - (preempted.get(i) ?? 0));
			for (const {size, longest, worked: of} of levels) {
				if (i % size || i + size > length || begun !== begin[i] || end[i + size - 1] > border) break;
				span = longest[i / size];
				worked = of[i / size];
				passed = size;
			}
			const takes = (end[span] - Math.max(begin[span], view.from)) * perNs;
			busy[pixel] = busy[pixel] + worked * perNs;
			if (takes >= most[pixel]) {
				most[pixel] = takes;
				owner[pixel] = span;
			}
			continue;
		}
		const from = (begun - view.from) * perNs;
		const until = (Math.min(end[i], view.to) - view.from) * perNs;
		const ran = (end[i] - (preempted.get(i) ?? 0) - view.from) * perNs;
		const isWide = until - from >= WIDE;
		if (isWide) wide.push(i);
		for (let c = pixel; c < until && c < busy.length; c += 1) {
			const takes = Math.min(until, c + 1) - Math.max(from, c);
			if (what[i] >= 0) busy[c] = busy[c] + Math.max(0, Math.min(ran, until, c + 1) - Math.max(from, c));
			if (!isWide && takes >= most[c]) {
				most[c] = takes;
				owner[c] = i;
			}
		}
	}
	return {owner, wide};
}

/**
 * Draw a wide span, with its op if there is room.
 * @param {Sheet} sheet @param {number} y @param {Lane} lane @param {number} i @param {string} colour @param {string} op
 */
function paintWide({g, view, perNs, pitch}, y, lane, i, colour, op) {
	const from = (Math.max(lane.begin[i], view.from) - view.from) * perNs;
	const size = (Math.min(lane.end[i], view.to) - view.from) * perNs - from;
	g.fillStyle = colour;
	g.fillRect(LEFT + from, y, Math.max(1.5, size - 0.6), pitch - 4);
	if (size > 46) paintWords(g, op.slice(0, Math.floor((size - 6) / 6.2)), LEFT + from + 4, y + pitch / 2 + 2);
}

/**
 * Draw the spans of lit tasks, at most one a pixel.
 * @param {Sheet} sheet @param {Trace} trace @param {Lane} lane @param {Uint8Array} lit
 * @param {(span: number) => void} draw
 */
function paintLit({view, x}, trace, lane, lit, draw) {
	let until = 0;
	for (let i = firstAfter(lane, view.from); i < lane.length && lane.begin[i] < view.to; i += 1) {
		if (!lit[trace.callTask[lane.what[i]]] || x(lane.end[i]) < until) continue;
		draw(i);
		until = x(lane.end[i]) + 1;
	}
}

/**
 * Draw for how long a thread did not run within its tasks, at their ends.
 * @param {Sheet} sheet @param {number} y @param {Lane} lane
 */
function paintPreempted({g, view, right, x, colour, pitch}, y, lane) {
	g.fillStyle = colour('preempted');
	for (const [i, lost] of lane.preempted) {
		if (lane.end[i] < view.from || lane.end[i] - lost > view.to) continue;
		const from = Math.max(LEFT, x(lane.end[i] - lost));
		g.fillRect(from, y, Math.min(right, x(lane.end[i])) - from, pitch - 4);
	}
}

/** @param {CanvasRenderingContext2D} g @param {string} words @param {number} x @param {number} y */
function paintWords(g, words, x, y) {
	if (words.length < 3) return;
	g.fillStyle = '#fff';
	g.textAlign = 'start';
	g.strokeStyle = '#0008';
	g.lineWidth = 2;
	g.strokeText(words, x, y);
	g.fillText(words, x, y);
}

/**
 * Fill the area below a share of each pixel.
 * @param {CanvasRenderingContext2D} g @param {Float64Array} shares of `most` @param {number} most @param {number} foot
 * @param {number} height @param {string} colour
 */
function paintCurve(g, shares, most, foot, height, colour) {
	g.fillStyle = colour;
	g.beginPath();
	g.moveTo(LEFT, foot);
	shares.forEach((share, c) => {
		const top = foot - (share / most) * height;
		g.lineTo(LEFT + c, top);
		g.lineTo(LEFT + c + 1, top);
	});
	g.lineTo(LEFT + shares.length, foot);
	g.fill();
}

/** Draw the busy cores of each pixel. @param {Sheet} sheet @param {Float64Array} busy @param {number} cores */
function paintBusy({g, right, foot, colour, pitch}, busy, cores) {
	g.globalAlpha = 0.75;
	paintCurve(g, busy, cores, foot, pitch + 4, colour('useful'));
	g.globalAlpha = 1;
	g.fillStyle = colour('soft');
	g.textAlign = 'end';
	g.fillText('busy cores', LEFT - 8, foot - 6);
	g.strokeStyle = colour('line');
	g.lineWidth = 1;
	g.beginPath();
	g.moveTo(LEFT, foot + 0.5);
	g.lineTo(right, foot + 0.5);
	g.stroke();
}

/** Draw the end of each step, and its number if there is room. @param {Sheet} sheet @param {Trace} trace */
function paintSteps({g, right, foot, view, x, colour}, trace) {
	g.textAlign = 'start';
	g.strokeStyle = colour('ink');
	g.fillStyle = colour('soft');
	g.setLineDash([3, 3]);
	g.beginPath();
	trace.stepEnd.forEach((end, step) => {
		const begin = step ? trace.stepEnd[step - 1] : 0;
		if (end < view.from || begin > view.to) return;
		g.moveTo(Math.round(x(end)) + 0.5, 4);
		g.lineTo(Math.round(x(end)) + 0.5, foot);
		const left = Math.max(LEFT, x(begin));
		const why = trace.flagged[step] ?? [];
		const room = Math.min(right, x(end)) - left;
		g.fillStyle = colour(why.length ? 'warn' : 'soft');
		if (why.length) g.fillRect(left + 1, 1, Math.max(1, Math.min(right, x(end)) - left - 2), 2);
		const words = `step ${trace.firstStep + step}${why.length ? ', flagged' : ''}`;
		const all = why.length ? `${words}: ${why.join(', ')}` : words;
		// An export as SVG cannot measure text.
		const letters = Math.floor((room - 8) / 6);
		if (room > 54) g.fillText(all.length <= letters ? all : words.slice(0, letters), left + 4, 13);
	});
	g.stroke();
	g.setLineDash([]);
}

/**
 * Draw the time axis and the length of the view. As text of the page they would cause a layout in each frame.
 * @param {Sheet} sheet @param {number} origin
 */
function paintTicks({g, width, right, foot, view, x, colour}, origin) {
	const raw = (view.to - view.from) / Math.max(2, width / 130);
	const unit = 10 ** Math.floor(Math.log10(raw));
	const stride = unit * /** @type {number} */ ([1, 2, 5, 10].find(factor => unit * factor >= raw));
	g.fillStyle = colour('soft');
	g.textAlign = 'end';
	g.fillText(`↔ ${timeSaid(view.to - view.from, view.to - view.from)}`, LEFT - 8, foot + 17);
	g.textAlign = 'center';
	for (let tick = Math.ceil((view.from - origin) / stride) * stride + origin; tick <= view.to; tick += stride) {
		g.fillRect(Math.round(x(tick)), foot, 1, 5);
		g.fillText(timeSaid(tick - origin, stride * 10), Math.min(Math.max(x(tick), LEFT + 26), right - 20), foot + 17);
	}
}

/**
 * Draw a frame around the chosen span.
 * @param {Sheet} sheet
 * @param {Trace} trace
 * @param {import('./trace.js').Place} chosen
 */
function paintChosen({g, right, x, colour, pitch}, trace, chosen) {
	const lane = trace.threads[chosen.thread];
	if (!lane) return;
	const from = Math.max(LEFT, x(lane.begin[chosen.index]));
	const until = Math.min(right, x(lane.end[chosen.index]));
	g.strokeStyle = colour('ink');
	g.lineWidth = 2;
	g.strokeRect(from - 1, TOP + chosen.thread * pitch - 2, Math.max(3, until - from + 2), pitch);
}

/**
 * Draw arrows between tasks, unless so many are in view that none could be followed.
 * @param {Sheet} sheet @param {Trace} trace @param {Link[]} links @param {string} ink
 */
function paintLinks({g, right, x, colour, pitch}, trace, links, ink) {
	const seen = links.flatMap(([a, b, sent]) => {
		const from = x(trace.ended[a]);
		const to = Math.max(from, x((sent ? trace.ended : trace.begun)[b]));
		const ends = {from, to, above: trace.last[a], below: (sent ? trace.last : trace.first)[b]};
		return to >= LEFT && from <= right && Number.isFinite(to - from) ? [ends] : [];
	});
	if (seen.length > MOST_LINKS) return;
	const y = (/** @type {number} */ thread) => TOP + thread * pitch + (pitch - 4) / 2;
	g.strokeStyle = colour(ink);
	g.lineWidth = 1.5;
	g.beginPath();
	for (const {from, to, above, below} of seen) {
		const end = Math.min(to, right);
		g.moveTo(Math.max(from, LEFT), y(above));
		g.lineTo(end, y(below));
		g.moveTo(end - 4, y(below) - 4);
		g.lineTo(end, y(below));
		g.lineTo(end - 4, y(below) + 4);
	}
	g.stroke();
}

/**
 * Draw the busy cores and the steps of the whole trace, and the part in view.
 * @param {Sheet} sheet @param {Trace} trace @param {Float64Array} busy receives the busy share of each pixel
 */
function paintMap({g, right, foot, view, colour}, trace, busy) {
	const bottom = foot + AXIS + MAP - 2;
	const perNs = (right - LEFT) / trace.duration;
	const x = (/** @type {number} */ time) => LEFT + Math.min(Math.max(time, 0), trace.duration) * perNs;
	for (const lane of trace.threads) shares({view: {from: 0, to: trace.duration}, perNs}, lane, busy);
	paintCurve(g, busy, trace.threads.length, bottom, MAP - 4, colour('edge'));
	g.fillStyle = colour('ink');
	for (const end of trace.stepEnd) g.fillRect(x(end), bottom - 3, 1, 3);
	g.strokeStyle = colour('accent');
	g.lineWidth = 2;
	g.strokeRect(x(view.from), bottom - MAP + 3, Math.max(3, x(view.to) - x(view.from)), MAP - 3);
}
