// Keyboard shortcuts of every page. Single-letter shortcuts can be turned off (WCAG 2.1.4).
import {signal} from './vendor/preact.js';
import {address, go, link} from './address.js';
import {PLACES} from './pages.js';

export const KEYS = /** @type {[string, string][]} */ ([
	['?', 'show this help'],
	...PLACES.map(({key, label}) => /** @type {[string, string]} */ ([`g ${key}`, `go to ${label}`])),
	['/', 'filter the list'],
	['j  k', 'next, previous row'],
	['Enter', 'open the row'],
	['x', 'select the row'],
	['c', 'compare the selected runs'],
	['← →  + −', 'move and zoom a timeline'],
	['0', 'show the whole timeline'],
	['n  p', 'next, previous span'],
	['t', 'the span at that time on the next thread'],
	['Esc', 'close the dialog, clear the selection']
]);

const SETTING = 'taskloom-letters';
/** Whether single-letter shortcuts are on. */
export const letters = signal(localStorage.getItem(SETTING) !== 'off');
/** @param {boolean} on */
export function setLetters(on) {
	letters.value = on;
	localStorage.setItem(SETTING, on ? 'on' : 'off');
}
export const helpShown = signal(false);

/** @param {number} step */
function walk(step) {
	const rows = [...document.querySelectorAll('main tr[data-row]')];
	const at = rows.findIndex(row => row.contains(document.activeElement));
	const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
	/** @type {HTMLElement | null | undefined} */ (row?.querySelector('a[href]'))?.focus();
}

function mark() {
	const row = document.activeElement?.closest('tr[data-row]');
	/** @type {HTMLInputElement | null | undefined} */ (row?.querySelector('input[type=checkbox]'))?.click();
}

export function watchKeys() {
	let leading = false;
	document.addEventListener('keydown', event => {
		const target = /** @type {HTMLElement} */ (event.target);
		if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
		if (target.matches('input:not([type=checkbox]):not([type=radio]), select, textarea')) {
			if (event.key === 'Escape') target.blur();
			return;
		}
		if (!letters.value || document.querySelector('dialog[open]')) return;
		if (leading) {
			leading = false;
			const place = PLACES.find(({key}) => key === event.key);
			if (place) {
				event.preventDefault();
				go(link(place.name));
			}
			return;
		}
		/** @type {Record<string, () => void>} */
		const acts = {
			g: () => {
				leading = true;
				setTimeout(() => {
					leading = false;
				}, 1200);
			},
			'?': () => {
				helpShown.value = true;
			},
			'/': () => /** @type {HTMLElement | null} */ (document.querySelector('[data-find]'))?.focus(),
			j: () => walk(1),
			k: () => walk(-1),
			x: mark,
			c: () => /** @type {HTMLElement | null} */ (document.querySelector('[data-compare]'))?.click()
		};
		const act = acts[event.key];
		if (act && !(event.key === 'j' && address.value.page === 'new')) {
			event.preventDefault();
			act();
		}
	});
}
