// A run's trace as a timeline, and its task graph. A trace is opened once for both.
import {html, useEffect, useMemo, useState} from '../vendor/preact.js';
import {address, choose} from '../address.js';
import {Problem, request} from '../api.js';
import {Empty, Refused, Skeleton} from '../pieces.js';
import {Timeline, middle, within} from '../timeline/timeline.js';
import {read} from '../timeline/trace.js';
import {TaskGraph} from '../timeline/graph.js';

/** The traces that were opened last. @type {Map<number, import('../timeline/trace.js').Trace>} */
const opened = new Map();

/**
 * The trace of a run, or why there is none.
 * @param {number} id
 * @param {string} name of the file
 */
export function useTrace(id, name = 'trace.json.gz') {
	const [shown, show] = useState(
		/** @type {{id: number, trace: import('../timeline/trace.js').Trace | null, problem: Problem | null}} */ ({
			id,
			trace: opened.get(id) ?? null,
			problem: null
		})
	);
	const [round, again] = useState(0);
	useEffect(() => {
		const known = opened.get(id);
		if (known) {
			show({id, trace: known, problem: null});
			return undefined;
		}
		const stop = new AbortController();
		show({id, trace: null, problem: null});
		request(`runs/${id}/artifacts/${name}`, {signal: stop.signal})
			.then(read)
			.then(trace => {
				opened.set(id, trace);
				if (opened.size > 4) opened.delete(/** @type {number} */ (opened.keys().next().value));
				show({id, trace, problem: null});
			})
			.catch(error => {
				if (!stop.signal.aborted)
					show({
						id,
						trace: null,
						problem:
							error instanceof Problem
								? error
								: new Problem({title: 'The trace cannot be read', detail: String(error.message)})
					});
			});
		return () => stop.abort();
	}, [id, name, round]);
	return {trace: shown.id === id ? shown.trace : null, problem: shown.problem, retry: () => again(n => n + 1)};
}

/** Shown for a run without a trace. @param {{problem: Problem, retry: () => void}} props */
export function NoTrace({problem, retry}) {
	if (problem.status !== 404) return html`<${Refused} problem=${problem} retry=${retry} />`;
	return html`<${Empty}>
		<h2>Not traced</h2>
		<p>A run is traced in a separate attempt, if its experiment asks for traces:</p>
		<pre>taskloom submit … --trace-first</pre>
	<//>`;
}

/**
 * The visible part of a trace; the URL holds it in milliseconds.
 * @param {import('../timeline/trace.js').Trace} trace
 * @param {string} [name]
 */
export function useView(trace, name = 't') {
	const said = address.value.params.get(name)?.split('-').map(Number);
	const first =
		said?.length === 2 && said.every(Number.isFinite)
			? within(trace, {from: said[0] * 1e6, to: said[1] * 1e6})
			: middle(trace);
	const [view, setView] = useState(first);
	useEffect(() => {
		const timer = setTimeout(() => {
			const text = `${(view.from / 1e6).toFixed(6)}-${(view.to / 1e6).toFixed(6)}`; // to the nanosecond
			const unchosen = middle(trace);
			const next = view.from === unchosen.from && view.to === unchosen.to ? null : text;
			if ((address.value.params.get(name) ?? null) !== next) choose({[name]: next});
		}, 300);
		return () => clearTimeout(timer);
	}, [view.from, view.to]);
	return /** @type {[typeof view, typeof setView]} */ ([view, setView]);
}

/** @param {{of: import('../schemas').Schemas['RunDetail'], trace: import('../timeline/trace.js').Trace}} props */
function Shown({of, trace}) {
	const [view, setView] = useView(trace);
	return html`<section class="panel">
		<${Timeline}
			trace=${trace}
			view=${view}
			onView=${setView}
			title="Timeline, as traced"
			name=${`run-${of.id}-timeline`}
		/>
	</section>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Timed({of}) {
	const {trace, problem, retry} = useTrace(of.id);
	if (problem) return html`<${NoTrace} problem=${problem} retry=${retry} />`;
	return trace ? html`<${Shown} key=${of.id} of=${of} trace=${trace} />` : html`<${Skeleton} height=${220} />`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Graph({of}) {
	const {trace, problem, retry} = useTrace(of.id);
	const graph = useMemo(() => trace, [trace]);
	if (problem) return html`<${NoTrace} problem=${problem} retry=${retry} />`;
	return graph
		? html`<section class="panel"><${TaskGraph} trace=${graph} name=${`run-${of.id}-graph`} /></section>`
		: html`<${Skeleton} height=${420} />`;
}
