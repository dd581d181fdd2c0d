// Spans on a canvas: what is narrower than a pixel gives that pixel to the one that takes most of it.
import {opKind} from '../plots/scale.js';
import {BLOCK, WAITS, firstAfter} from './trace.js';

/** @typedef {import('./trace.js').Trace} Trace */
/** @typedef {import('./trace.js').Lane} Lane */
/** @typedef {{from: number, to: number}} View nanoseconds */
/** @typedef {Record<string, string>} Colours */
/**
 * Where things are on the canvas. right: the last pixel of the lanes; foot: of the busy cores.
 * @typedef {{g: CanvasRenderingContext2D, width: number, right: number, foot: number, view: View, perNs: number,
 *   x: (time: number) => number, colour: (name: string) => string, pixel: (name: string) => number}} Sheet
 */

export const LEFT = 72;
export const TOP = 20;
export const LANE = 20;
const CURVE = 34;
const COLOURS = [
	'ink',
	'soft',
	'line',
	'lane',
	'accent',
	'paper',
	'at-barrier',
	'starving',
	'idle',
	'useful',
	'products',
	'attention',
	'elementwise',
	'loss-op',
	'update-op',
	'other-op'
];

/** @param {Trace} trace */
export const heightOf = trace => TOP + trace.threads.length * LANE + CURVE + 22;

/** Colours as they are now: a canvas knows no custom properties. @returns {Colours} */
export function colours() {
	const probe = document.createElement('span');
	document.body.append(probe);
	const found = /** @type {Colours} */ ({});
	for (const name of COLOURS) {
		probe.style.color = `var(--${name})`;
		found[name] = getComputedStyle(probe).color;
	}
	probe.remove();
	return found;
}

/** Each colour as a pixel of an image. @type {WeakMap<Colours, Record<string, number>>} */
const asPixels = new WeakMap();
/** @param {Colours} known */
function pixelsOf(known) {
	const before = asPixels.get(known);
	if (before) return before;
	const names = Object.keys(known);
	const g = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(names.length, 1).getContext('2d'));
	names.forEach((name, i) => {
		g.fillStyle = known[name];
		g.fillRect(i, 0, 1, 1);
	});
	const painted = new Uint32Array(g.getImageData(0, 0, names.length, 1).data.buffer);
	const found = Object.fromEntries(names.map((name, i) => [name, painted[i]]));
	asPixels.set(known, found);
	return found;
}

/** Numbers of at most so many places; made once, since a scale has many in each frame. */
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
 * @param {Colours} known
 * @param {import('./trace.js').Place | null} chosen
 * @param {number} origin where time is counted from
 */
export function paint(g, width, trace, view, known, chosen, origin = 0) {
	const right = width - 8;
	const perNs = (right - LEFT) / (view.to - view.from);
	const pixels = pixelsOf(known);
	/** @type {Sheet} */
	const sheet = {
		g,
		width,
		right,
		foot: TOP + trace.threads.length * LANE + CURVE,
		view,
		perNs,
		x: time => LEFT + (time - view.from) * perNs,
		colour: name => known[name],
		pixel: name => pixels[name]
	};
	g.clearRect(0, 0, width, heightOf(trace));
	g.font = '11px system-ui, "DejaVu Sans", sans-serif';
	const busy = new Float64Array(Math.max(1, Math.ceil(right - LEFT)));
	paintLanes(sheet, trace, busy);
	paintBusy(sheet, busy, trace.threads.length);
	paintSteps(sheet, trace);
	paintTicks(sheet, origin);
	if (chosen) paintChosen(sheet, trace, chosen);
}

/**
 * All threads' spans. The pixels that narrow ones share are painted as one image: thousands of rectangles take longer.
 * @param {Sheet} sheet @param {Trace} trace @param {Float64Array} busy adds how much of each pixel is worked
 */
function paintLanes(sheet, trace, busy) {
	const {g, right, colour} = sheet;
	const image = g.createImageData(busy.length, trace.threads.length);
	const pixels = new Uint32Array(image.data.buffer);
	const kinds = trace.kinds.map(([op]) => opKind(op));
	/** What a call, or a wait, is painted in. @param {number} call */
	const token = call => {
		if (call < 0) return WAITS[call]?.[1] ?? 'idle';
		return kinds[trace.callKind[call]];
	};
	const wide = trace.threads.map((lane, thread) => {
		const found = shares(sheet, lane, busy);
		found.owner.forEach((i, pixel) => {
			if (i >= 0) pixels[thread * busy.length + pixel] = sheet.pixel(token(lane.what[i]));
		});
		return found.wide;
	});
	const narrow = new OffscreenCanvas(image.width, image.height);
	narrow.getContext('2d')?.putImageData(image, 0, 0);
	g.imageSmoothingEnabled = false;
	trace.threads.forEach((lane, thread) => {
		const y = TOP + thread * LANE;
		g.fillStyle = colour('soft');
		g.textAlign = 'end';
		g.fillText(`thread ${thread}`, LEFT - 8, y + 13);
		g.fillStyle = colour('lane');
		g.fillRect(LEFT, y, right - LEFT, LANE - 4);
		g.drawImage(narrow, 0, thread, image.width, 1, LEFT, y, image.width, LANE - 4);
		for (const i of wide[thread]) {
			const call = lane.what[i];
			const op = trace.kinds[trace.callKind[call]]?.[0] ?? '';
			paintWide(sheet, y, lane, i, colour(token(call)), op);
		}
	});
}

/**
 * Which span takes most of each pixel that several share, and those that are as wide as a pixel.
 * @param {Pick<Sheet, 'view' | 'perNs'>} sheet @param {Lane} lane @param {Float64Array} busy
 */
export function shares({view, perNs}, lane, busy) {
	const {begin, end, what, longest, worked} = lane;
	const most = new Float64Array(busy.length);
	const owner = new Int32Array(busy.length).fill(-1);
	/** @type {number[]} */
	const wide = [];
	/** @param {number} pixel @param {number} takes @param {number} i */
	const share = (pixel, takes, i) => {
		if (takes < most[pixel]) return;
		most[pixel] = takes;
		owner[pixel] = i;
	};
	for (let i = firstAfter(lane, view.from); i < lane.length; i += 1) {
		const begun = Math.max(begin[i], view.from);
		if (begun >= view.to) break;
		const from = (begun - view.from) * perNs;
		const pixel = Math.floor(from);
		if (i % BLOCK === 0 && i + BLOCK <= lane.length) {
			// spans that share one pixel are looked at as a block
			const last = end[i + BLOCK - 1];
			if (last <= view.to && Math.floor((last - view.from) * perNs) === pixel) {
				const long = longest[i / BLOCK];
				busy[pixel] = busy[pixel] + worked[i / BLOCK] * perNs;
				share(pixel, (end[long] - begin[long]) * perNs, long);
				i += BLOCK - 1;
				continue;
			}
		}
		const until = (Math.min(end[i], view.to) - view.from) * perNs;
		if (what[i] >= 0) {
			for (let c = pixel; c < until && c < busy.length; c += 1) {
				busy[c] = busy[c] + Math.min(until, c + 1) - Math.max(from, c);
			}
		}
		if (until - from < 1) share(pixel, until - from, i);
		else wide.push(i);
	}
	return {owner, wide};
}

/**
 * A span that is as wide as a pixel, with its op where there is room.
 * @param {Sheet} sheet @param {number} y @param {Lane} lane @param {number} i @param {string} colour @param {string} op
 */
function paintWide({g, view, perNs}, y, lane, i, colour, op) {
	const from = (Math.max(lane.begin[i], view.from) - view.from) * perNs;
	const size = (Math.min(lane.end[i], view.to) - view.from) * perNs - from;
	g.fillStyle = colour;
	g.fillRect(LEFT + from, y, size - (size > 4 ? 0.6 : 0), LANE - 4);
	if (size > 46) paintWords(g, op.slice(0, Math.floor((size - 6) / 6.2)), LEFT + from + 4, y + 12);
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

/** How many cores work, pixel by pixel. @param {Sheet} sheet @param {Float64Array} busy @param {number} cores */
function paintBusy({g, right, foot, colour}, busy, cores) {
	g.fillStyle = colour('useful');
	g.globalAlpha = 0.75;
	g.beginPath();
	g.moveTo(LEFT, foot);
	busy.forEach((share, c) => {
		const top = foot - (share / cores) * (CURVE - 10);
		g.lineTo(LEFT + c, top);
		g.lineTo(LEFT + c + 1, top);
	});
	g.lineTo(LEFT + busy.length, foot);
	g.fill();
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

/** Where each step ends, and its number where there is room. @param {Sheet} sheet @param {Trace} trace */
function paintSteps({g, foot, view, x, colour}, trace) {
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
		if (x(end) - left > 54) g.fillText(`step ${trace.firstStep + step}`, left + 4, 13);
	});
	g.stroke();
	g.setLineDash([]);
}

/** The scale of times. @param {Sheet} sheet @param {number} origin */
function paintTicks({g, width, right, foot, view, x, colour}, origin) {
	const raw = (view.to - view.from) / Math.max(2, width / 130);
	const unit = 10 ** Math.floor(Math.log10(raw));
	const stride = unit * /** @type {number} */ ([1, 2, 5, 10].find(factor => unit * factor >= raw));
	g.fillStyle = colour('soft');
	g.textAlign = 'center';
	for (let tick = Math.ceil((view.from - origin) / stride) * stride + origin; tick <= view.to; tick += stride) {
		g.fillRect(Math.round(x(tick)), foot, 1, 5);
		g.fillText(timeSaid(tick - origin, stride * 10), Math.min(Math.max(x(tick), LEFT + 18), right - 20), foot + 17);
	}
}

/**
 * A frame around the chosen span.
 * @param {Sheet} sheet
 * @param {Trace} trace
 * @param {import('./trace.js').Place} chosen
 */
function paintChosen({g, right, x, colour}, trace, chosen) {
	const lane = trace.threads[chosen.thread];
	if (!lane) return;
	const from = Math.max(LEFT, x(lane.begin[chosen.index]));
	const until = Math.min(right, x(lane.end[chosen.index]));
	g.strokeStyle = colour('ink');
	g.lineWidth = 2;
	g.strokeRect(from - 1, TOP + chosen.thread * LANE - 2, Math.max(3, until - from + 2), LANE);
}
