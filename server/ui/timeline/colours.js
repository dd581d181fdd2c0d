// The theme's colours for a canvas, which cannot read custom properties.
import {useEffect, useState} from '../vendor/preact.js';

/** @typedef {Record<string, string>} Colours */

const NAMES = [
	'ink',
	'soft',
	'line',
	'lane',
	'accent',
	'paper',
	'at-barrier',
	'starving',
	'idle',
	'preempted',
	'warn',
	'bad',
	'edge',
	'useful',
	'products',
	'attention',
	'elementwise',
	'loss-op',
	'update-op',
	'other-op'
];

/** @returns {Colours} */
function now() {
	const probe = document.createElement('span');
	document.body.append(probe);
	const found = /** @type {Colours} */ ({});
	for (const name of NAMES) {
		probe.style.color = `var(--${name})`;
		found[name] = getComputedStyle(probe).color;
	}
	probe.remove();
	return found;
}

/** The colours, read again when the theme changes. */
export function useColours() {
	const [known, setKnown] = useState(now);
	useEffect(() => {
		const again = () => setKnown(now());
		const media = matchMedia('(prefers-color-scheme: dark)');
		media.addEventListener('change', again);
		const observer = new MutationObserver(again);
		observer.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
		return () => {
			media.removeEventListener('change', again);
			observer.disconnect();
		};
	}, []);
	return known;
}

/** Each colour as a pixel of an image. @type {WeakMap<Colours, Record<string, number>>} */
const asPixels = new WeakMap();
/** @param {Colours} known */
export function pixelsOf(known) {
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
