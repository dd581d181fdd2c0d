// Requests to the public API, with the key of this tab. This module knows no page.
import {signal} from './vendor/preact.js';
import {FOLDER, query} from './address.js';

/** @typedef {import('./address.js').Params} Params */
/** @typedef {{pointer?: string, field?: string, detail?: string, value?: unknown, accepted?: string}} FieldError */

export const API = new URL('../api/v1/', FOLDER);
const KEY = 'taskloom-key';

/** Why the user must enter a key; null if not. @type {import('./vendor/preact.js').Signal<Problem | null>} */
export const keyWanted = signal(null);

/** The key is kept for this tab only, not in a cookie: cookies ignore ports, and SSH tunnels all end on localhost. */
export const key = {
	get: () => sessionStorage.getItem(KEY),
	/** @param {string} token */
	set(token) {
		sessionStorage.setItem(KEY, token);
		keyWanted.value = null;
	},
	forget() {
		sessionStorage.removeItem(KEY);
	}
};

/** A problem document of the server (RFC 9457), or the failure to reach it. */
export class Problem extends Error {
	/**
	 * @param {{title: string, detail?: string, status?: number, type?: string, requestId?: string | null,
	 *   errors?: FieldError[]}} found
	 */
	constructor(found) {
		super(found.title);
		this.title = found.title;
		this.detail = found.detail ?? '';
		this.status = found.status ?? 0;
		this.type = found.type ?? '';
		this.requestId = found.requestId ?? null;
		this.errors = found.errors ?? [];
	}
}

/** What was thrown, as a problem. @param {unknown} error @param {string} title of what is none yet */
export const asProblem = (error, title) =>
	error instanceof Problem
		? error
		: new Problem({title, detail: error instanceof Error ? error.message : String(error)});

/** @param {Response} response */
async function problemOf(response) {
	const requestId = response.headers.get('X-Request-Id');
	/** @type {Partial<Record<'title' | 'detail' | 'type' | 'errors', unknown>>} */
	let found = {};
	if (response.headers.get('Content-Type')?.includes('json')) found = await response.json().catch(() => ({}));
	return new Problem({
		title: typeof found.title === 'string' ? found.title : `The server answered with status ${response.status}`,
		detail: typeof found.detail === 'string' ? found.detail : '',
		status: response.status,
		type: typeof found.type === 'string' ? found.type : '',
		requestId,
		errors: Array.isArray(found.errors) ? found.errors : []
	});
}

/**
 * Send a request and return its response. Raises Problem, or AbortError if the signal aborts it.
 * @param {string} path below /api/v1, or an absolute path for other URLs of this server
 * @param {{params?: Params, method?: string, body?: unknown, headers?: Record<string, string>,
 *   signal?: AbortSignal}} [options]
 */
export async function request(path, {params = {}, method = 'GET', body, headers = {}, signal: stop} = {}) {
	const token = key.get();
	const sent = {...headers};
	if (token) sent['Authorization'] = `Bearer ${token}`;
	if (body !== undefined) sent['Content-Type'] = 'application/json';
	let response;
	try {
		response = await fetch(new URL(path + query(params), API), {
			method,
			headers: sent,
			redirect: 'error',
			...(stop ? {signal: stop} : {}),
			...(body === undefined ? {} : {body: JSON.stringify(body)})
		});
	} catch (error) {
		if (error instanceof DOMException && error.name === 'AbortError') throw error;
		throw new Problem({
			title: 'The server cannot be reached',
			detail: 'It may be restarting, or the connection is lost.'
		});
	}
	if (response.ok) return response;
	const problem = await problemOf(response);
	if (response.status === 401) keyWanted.value = problem;
	throw problem;
}

/**
 * Send a request and return the JSON of its response.
 * @template {string} Path
 * @template {string} [Method='GET']
 * @param {Path} path
 * @param {Omit<NonNullable<Parameters<typeof request>[1]>, 'method'> & {method?: Method}} [options]
 * @returns {Promise<import('./schemas').AnswerOf<Path, Method>>}
 */
export async function ask(path, options) {
	return (await request(path, options)).json();
}

/**
 * Download a URL as a file. A plain link would not send the key.
 * @param {string} path
 * @param {Params} params
 * @param {string} name
 */
export async function download(path, params, name) {
	save(await (await request(path, {params})).blob(), name);
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
	const anchor = document.createElement('a');
	anchor.href = URL.createObjectURL(blob);
	anchor.download = name;
	anchor.click();
	setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}
