// The current page and its parameters. The URL holds every choice that is made on a page.
import {signal} from './vendor/preact.js';

/** @typedef {{page: string, params: URLSearchParams}} Address */
/** @typedef {Record<string, string | number | boolean | string[] | null | undefined>} Params */

export const FIRST = 'now';
/** The folder of the pages; all links are relative to it, so any path prefix works. */
export const FOLDER = new URL('.', location.href);

/** @returns {Address} */
function read() {
	const url = new URL(location.href);
	return {page: url.pathname.slice(FOLDER.pathname.length) || FIRST, params: url.searchParams};
}

/** @type {import('./vendor/preact.js').Signal<Address>} */
export const address = signal(read());

/** @param {Params} params */
export function query(params) {
	const made = new URLSearchParams();
	for (const [name, value] of Object.entries(params)) {
		if (Array.isArray(value)) value.forEach(each => made.append(name, each));
		else if (value !== null && value !== undefined && value !== '' && value !== false) made.append(name, String(value));
	}
	return made.size ? `?${made}` : '';
}

/**
 * The relative URL of a page.
 * @param {string} page
 * @param {Params} [params]
 */
export const link = (page, params = {}) => (page === FIRST ? './' : page) + query(params);

/**
 * Go to a page; `replace` adds no entry to the browser history.
 * @param {string} href
 * @param {boolean} [replace]
 */
export function go(href, replace = false) {
	const before = address.value.page;
	history[replace ? 'replaceState' : 'pushState'](null, '', new URL(href, FOLDER));
	address.value = read();
	if (address.value.page !== before) scrollTo(0, 0);
}

/**
 * Change parameters in the URL of this page; null removes one.
 * @param {Params} changes
 * @param {boolean} [replace]
 */
export function choose(changes, replace = true) {
	const {page, params} = address.value;
	const next = new URLSearchParams(params);
	for (const [name, value] of Object.entries(changes)) {
		next.delete(name);
		if (Array.isArray(value)) value.forEach(each => next.append(name, each));
		else if (value !== null && value !== undefined && value !== '' && value !== false) next.set(name, String(value));
	}
	go((page === FIRST ? './' : page) + (next.size ? `?${next}` : ''), replace);
}

/** Links within the dashboard change the page without a reload. */
export function watchLinks() {
	addEventListener('popstate', () => {
		address.value = read();
	});
	document.addEventListener('click', event => {
		if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
			return;
		const anchor = event.target instanceof Element ? event.target.closest('a[href]') : null;
		if (!(anchor instanceof HTMLAnchorElement) || anchor.target || anchor.hasAttribute('download')) return;
		const url = new URL(anchor.href);
		const name = url.pathname.slice(FOLDER.pathname.length);
		if (url.origin !== FOLDER.origin || !url.pathname.startsWith(FOLDER.pathname) || name.includes('/') || url.hash)
			return;
		event.preventDefault();
		go(url.href);
	});
}
