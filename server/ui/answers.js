// The state of a request as components see it: loading, loaded, stale, or failed. Hidden tabs send no requests.
import {signal, useEffect, useLayoutEffect, useRef, useState} from './vendor/preact.js';
import {asProblem, ask, key} from './api.js';
import {query} from './address.js';

/** @typedef {import('./api.js').Problem} Problem */

/** @typedef {import('./address.js').Params} Params */
/**
 * @template {string} Path
 * @typedef {import('./schemas').AnswerOf<Path>} AnswerOf
 */
/**
 * @template {'log' | 'steps'} List
 * @typedef {import('./schemas').AnswerOf<`runs/${number}/${List}`>['items'][number]} Item of a growing list
 */
/**
 * @template T
 * @typedef {{asked: string, data: T | undefined, problem: Problem | null, loading: boolean, at: number,
 *   reload: () => void}} Answer asked: the request that the data belongs to
 */

const KEPT = 60;
const UNREADABLE = 'The answer cannot be read';
// Pause before a request that did not reach the server is sent again.
const UNREACHED_S = 3;
// Items per request of a growing list.
const PAGE = 500;
/**
 * Earlier data by request: a page that is opened again shows it at once, then loads it again.
 * @type {Map<string, {data: unknown, at: number}>}
 */
const kept = new Map();

/** A counter for each topic. It goes up when the server's data may have changed; answers that follow it load again. */
const topics = /** @type {Record<string, import('./vendor/preact.js').Signal<number>>} */ ({});
/** @param {string} name */
export const topic = name => (topics[name] ??= signal(0));
/** @param {string} name */
export const changed = name => {
	topic(name).value += 1;
};

/**
 * Since when the shown data may be out of date; null if it is current.
 * @type {import('./vendor/preact.js').Signal<number | null>}
 */
export const staleSince = signal(null);

/** @param {string} name @param {unknown} data */
function keep(name, data) {
	kept.delete(name);
	kept.set(name, {data, at: Date.now()});
	if (kept.size > KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
}

/**
 * Load a path, and load it again every `everyS` seconds and when its topic changes, while the page is visible.
 * A null path loads nothing.
 * @template {string} Path
 * @param {Path | null} path
 * @param {Params} [params]
 * @param {{everyS?: number, follow?: string,
 *   keep?: boolean}} [options] keep: show the earlier data until the new data arrives
 * @returns {Answer<AnswerOf<Path>>}
 */
export function useAnswer(path, params = {}, {everyS = 0, follow = '', keep: stay = true} = {}) {
	const name = path === null ? '' : path + query(params) + (key.get() ? ' ' : '');
	const [shown, show] = useState(
		/** @type {{name: string, data: AnswerOf<Path> | undefined, problem: Problem | null, at: number}} */ ({
			name: '',
			data: undefined,
			problem: null,
			at: 0
		})
	);
	const [round, setRound] = useState(0);
	const latest = useRef(shown);
	latest.current = shown;
	const version = follow ? topic(follow).value : 0;

	const asking = useRef({again: () => {}});
	useLayoutEffect(() => {
		// Runs before the paint, so that the request starts earlier.
		if (path === null) return undefined;
		const stop = new AbortController();
		let busy = false;
		let onceMore = false;
		/** @type {ReturnType<typeof setTimeout> | undefined} */
		let timer;
		const known = kept.get(name);
		if (latest.current.name !== name && known)
			show({name, data: /** @type {AnswerOf<Path>} */ (known.data), problem: null, at: known.at});

		const look = async () => {
			clearTimeout(timer);
			if (document.hidden) return;
			if (busy) {
				onceMore = true;
				return;
			} // a change does not restart a slow request
			busy = true;
			let pauseS = everyS;
			try {
				const data = await ask(path, {params, signal: stop.signal});
				keep(name, data);
				staleSince.value = null;
				show({name, data, problem: null, at: Date.now()});
			} catch (error) {
				if (stop.signal.aborted) return;
				const problem = asProblem(error, UNREADABLE);
				if (problem.status === 0) {
					staleSince.value ??= Date.now();
					pauseS = UNREACHED_S;
				}
				show(before => ({...(before.name === name ? before : {name, data: undefined, at: 0}), name, problem}));
			}
			busy = false;
			if (onceMore && !stop.signal.aborted) {
				onceMore = false;
				void look();
				return;
			}
			if (!stop.signal.aborted && pauseS) timer = setTimeout(look, pauseS * 1000);
		};
		const seen = () => {
			if (!document.hidden) void look();
		};
		asking.current.again = () => void look();
		if (everyS) document.addEventListener('visibilitychange', seen);
		else if (document.hidden) document.addEventListener('visibilitychange', seen, {once: true});
		void look();
		return () => {
			stop.abort();
			clearTimeout(timer);
			document.removeEventListener('visibilitychange', seen);
		};
	}, [name, round, everyS]);
	const seenVersion = useRef(version);
	useEffect(() => {
		if (seenVersion.current !== version) asking.current.again();
		seenVersion.current = version;
	}, [version]);

	const current = shown.name === name;
	const data = current || stay ? shown.data : undefined;
	return {
		asked: shown.name,
		data: path === null ? undefined : data,
		problem: current ? shown.problem : null,
		loading: path !== null && (!current || (shown.data === undefined && shown.problem === null)),
		at: shown.at,
		reload: () => setRound(before => before + 1)
	};
}

/**
 * Load a page of a list. Its total is a request of its own, since that may take longer than the page.
 * @param {'runs'} path
 * @param {Params} filters
 * @param {Params} page its sort, cursor and limit
 * @param {string} follow
 * @returns {Answer<AnswerOf<'runs'>> & {total: number | null | undefined}}
 */
export function useList(path, filters, page, follow) {
	const answer = useAnswer(path, {...filters, ...page}, {follow});
	const all = useAnswer(path, {...filters, limit: 1, total: true}, {follow});
	return {...answer, total: all.data?.total};
}

/**
 * Load a list that only grows, page by page. When its topic changes, only new items are loaded. A null path loads
 * nothing.
 * @template {'log' | 'steps'} List
 * @param {`runs/${number}/${List}` | null} path
 * @param {string} follow
 * @param {number | null} [tail] begin with this many of its last items
 * @returns {Answer<Item<List>[]>}
 */
export function useGrowing(path, follow, tail = null) {
	const [shown, show] = useState(
		/** @type {{name: string | null, items: Item<List>[], problem: Problem | null, at: number}} */ ({
			name: null,
			items: [],
			problem: null,
			at: 0
		})
	);
	const [round, setRound] = useState(0);
	const name = path && `${path} ${tail}`;
	const place = useRef(/** @type {{name: string | null, cursor: string | null}} */ ({name: null, cursor: null}));
	const version = topic(follow).value;
	useEffect(() => {
		if (path === null) return undefined;
		const stop = new AbortController();
		/** @type {ReturnType<typeof setTimeout> | undefined} */
		let timer;
		let busy = false;
		if (place.current.name !== name) place.current = {name, cursor: null};
		const look = async () => {
			clearTimeout(timer);
			// Two requests with one cursor would load its items twice.
			if (busy) return;
			busy = true;
			try {
				for (let more = true; more && !document.hidden;) {
					const {items, cursor} = await ask(path, {
						params: place.current.cursor === null && tail !== null ? {tail} : {cursor: place.current.cursor, limit: PAGE},
						signal: stop.signal
					});
					place.current.cursor = cursor;
					more = items.length === PAGE;
					show(before => ({
						name,
						items: before.name === name ? [...before.items, ...items] : items,
						problem: null,
						at: Date.now()
					}));
				}
			} catch (error) {
				if (stop.signal.aborted) return;
				const problem = asProblem(error, UNREADABLE);
				show(before => ({...before, problem}));
				if (problem.status === 0) timer = setTimeout(look, UNREACHED_S * 1000);
			}
			busy = false;
		};
		const seen = () => {
			if (!document.hidden) void look();
		};
		document.addEventListener('visibilitychange', seen);
		void look();
		return () => {
			stop.abort();
			clearTimeout(timer);
			document.removeEventListener('visibilitychange', seen);
		};
	}, [name, version, round]);
	const current = shown.name === name;
	return {
		asked: shown.name ?? '',
		data: current ? shown.items : undefined,
		problem: shown.problem,
		loading: path !== null && !current && !shown.problem,
		at: shown.at,
		reload: () => setRound(before => before + 1)
	};
}

/**
 * An action on a click: whether it is running, and its problem if it failed. submit: the action on a form.
 * @template A
 * @param {(argument: A) => Promise<void>} act
 */
export function useAction(act) {
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
	/** @param {A} argument */
	const run = async argument => {
		setBusy(true);
		setProblem(null);
		try {
			await act(argument);
		} catch (error) {
			setProblem(asProblem(error, 'The action failed'));
		} finally {
			setBusy(false);
		}
	};
	const submit = (/** @type {Event & {currentTarget: A}} */ event) => {
		event.preventDefault();
		void run(event.currentTarget);
	};
	return {run, busy, problem, submit};
}
