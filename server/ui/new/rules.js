// Repetitions, order and stopping rule; limits, priority and labels of all runs.
import {html, useState} from '../vendor/preact.js';
import {labelsOf} from './asking.js';
import {Amount, Field, OneOf} from './fields.js';

/** @typedef {{request: any, set: (changes: Record<string, unknown>) => void, refused: Map<string, string>}} Asked */

const TRACED = /** @type {Record<string, boolean | string | null>} */ ({false: null, first: 'first', true: true});

/** @param {Asked} props */
export function Repetitions({request, set, refused}) {
	const {stop} = request;
	/** @param {Record<string, number | null>} changes */
	const setStop = changes => {
		const next = Object.fromEntries(Object.entries({...stop, ...changes}).filter(([, value]) => value !== null));
		set({stop: next['rel_ci'] ? next : null});
	};
	return html`<section class="panel">
		<h2>Repetitions and stopping rule</h2>
		<div class="fields">
			<${Amount}
				id="repetitions"
				label="Repetitions"
				value=${request.repetitions}
				onValue=${value => set({repetitions: value ?? undefined})}
				help="of each variant, each in a fresh process; empty: as many as a verdict needs"
				refused=${refused}
				min=${1}
				max=${1000}
			/>
			<${Amount}
				id="rel_ci"
				label="Target interval, ± %"
				value=${stop?.rel_ci ? Number((stop.rel_ci * 100).toPrecision(4)) : null}
				onValue=${value => setStop({rel_ci: value === null ? null : value / 100})}
				help="adds repetitions until every 95 % interval is at least this narrow"
				refused=${refused}
				min=${0.01}
				max=${99}
				step="any"
			/>
			${stop &&
			html`
				<${Amount}
					id="max_repetitions"
					label="Maximum repetitions"
					value=${stop.max_repetitions}
					onValue=${value => setStop({max_repetitions: value})}
					help="of each variant"
					refused=${refused}
					min=${1}
					max=${1000}
				/>
				<${Amount}
					id="budget_s"
					label="Budget, s"
					value=${stop.budget_s}
					onValue=${value => setStop({budget_s: value})}
					help="worker time of all attempts together"
					refused=${refused}
					min=${1}
				/>
			`}
			<${OneOf}
				id="order"
				label="Order"
				value=${request.order ?? 'interleaved'}
				options=${['interleaved', 'sequential'].map(each => [each, each])}
				onValue=${value => set({order: value === 'interleaved' ? null : value})}
				help="interleaved: every variant once in each block, in random order; every second block is reversed"
			/>
			<${OneOf}
				id="trace"
				label="Traces"
				value=${String(request.trace ?? false)}
				options=${[
					['false', 'none'],
					['first', 'first run of each variant'],
					['true', 'every run']
				]}
				onValue=${value => set({trace: TRACED[value]})}
				help="recorded in a separate attempt, whose times are not used"
			/>
		</div>
	</section>`;
}

/** @param {Asked} props */
export function Limits({request, set, refused}) {
	const labels = Object.entries(request.requires?.labels ?? {});
	// Keeps the typed text until the field loses focus, even if an answer renders the page again.
	const [typed, setTyped] = useState(/** @type {string | null} */ (null));
	/** @param {string} text */
	const setLabels = text => {
		setTyped(text);
		const requires = {...request.requires, labels: labelsOf(text)};
		if (!Object.keys(requires.labels).length) delete requires.labels;
		set({requires});
	};
	return html`
		<${Amount}
			id="timeout_s"
			label="Timeout, s"
			value=${request.limits?.timeout_s}
			onValue=${value => set({limits: value === null ? null : {timeout_s: value}})}
			help="an attempt that takes longer is stopped"
			refused=${refused}
			min=${1}
		/>
		<${Amount}
			id="priority"
			label="Priority"
			value=${request.priority}
			onValue=${value => set({priority: value})}
			help="runs of higher priority start first"
			refused=${refused}
			min=${-100}
			max=${100}
		/>
		<${Field}
			id="labels"
			label="Labels of the node"
			help="runs start only on nodes with these labels"
			refused=${refused.get('labels')}
		>
			<input
				id="labels"
				value=${typed ?? labels.map(([name, value]) => `${name}=${value}`).join(' ')}
				placeholder="cpu=zen4"
				aria-describedby="labels-help"
				onInput=${event => setLabels(event.target.value)}
				onBlur=${() => setTyped(null)}
			/>
		<//>
		<div class="field">
			<label>
				<input
					type="checkbox"
					checked=${request.calibrates === true}
					onChange=${event => set({calibrates: event.target.checked ? true : null})}
				/> A/A:
				calibrate the node
			</label>
			<span class="help">no axes: all runs are identical and show the smallest difference that the node detects</span>
		</div>
	`;
}
