// How the experiment was requested and measured: the request, the measuring rules, the environment, its history.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {count, plural, setting} from '../format.js';
import {Answered, Pairs, Table, Time} from '../pieces.js';
import {State} from '../words.js';
import {Same, questionText} from '../request.js';

/** @typedef {import('../schemas').Schemas} Schemas */

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Design({of, topic}) {
	const report = useAnswer(of.by_state.succeeded ? 'analysis/card' : null, {experiment_id: of.id}, {follow: topic});
	const history = useAnswer(`experiments/${of.id}/changes`, {limit: 200}, {follow: topic});
	const request = /** @type {Partial<Schemas['ExperimentRequest']>} */ (of.request);
	const asked = /** @type {[string, string][]} */ ([
		...Object.entries(request.axes ?? {}).map(([name, values]) => [
			name.replaceAll('_', ' '),
			/** @type {any[]} */ (values).map(setting).join(', ')
		]),
		...Object.entries(request.base ?? {}).map(([name, value]) => [name.replaceAll('_', ' '), setting(value)])
	]);
	return html`<div class="stack">
		<div class="columns">
			<section class="panel">
				<h2>Request</h2>
				<${Pairs}
					of=${[
						...asked,
						...(request.primary ? [['question', questionText(request.primary)]] : []),
						['repetitions', `${request.repetitions ?? 1}${of.extended ? `, and ${of.extended} added after its end` : ''}`],
						['order', request.order ?? 'interleaved'],
						...(request.stop
							? [
									[
										'stops when',
										`every interval is within ${request.stop.rel_ci * 100} %, ` +
											`or after ${request.stop.max_repetitions ?? 50} repetitions`
									]
								]
							: []),
						...(of.stopping
							? [['progress', `${of.stopping.repetitions} repetitions${of.stopping.reason ? `: ${of.stopping.reason}` : ''}`]]
							: [])
					]}
				/>
			</section>
			<div class="stack"><${Same} request=${request} /></div>
		</div>
		${of.by_state.succeeded > 0 &&
		html`<${Answered} answer=${report} height=${320}>
			${(/** @type {Schemas['ReportCard']} */ document) => html`
				<section class="panel">
					<h2>Report card</h2>
					<${Table}
						caption="Measuring rules"
						rows=${document.card}
						id=${r => r.number}
						columns=${[
							{name: 'n', label: 'No.', tight: true, number: true, cell: r => r.number},
							{name: 'rule', label: 'Rule', class: 'question', cell: r => r.rule},
							{name: 'holds', label: 'Holds', tight: true, cell: r => html`<${State} of=${r.holds} />`},
							{name: 'shows', label: 'Evidence', class: 'question', cell: r => r.evidence}
						]}
					/>
				</section>
				<section class="panel">
					<h2>Environment</h2>
					<${Pairs}
						of=${[
							...Object.entries(document.environment.known).map(([name, value]) => [
								name.replaceAll('_', ' '),
								typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value)
							]),
							['differences', document.environment.differs.join('; ') || 'none between the runs']
						]}
					/>
				</section>
			`}
		<//>`}
		<${Answered} answer=${history} height=${60}>
			${page => html`<details class="panel">
				<summary>
					History: ${page.next_cursor
						? `the first ${count(page.items.length)} changes of state`
						: plural(page.items.length, 'change of state', 'changes of state')}
				</summary>
				<${Changes} rows=${page.items} runs=${true} />
			</details>`}
		<//>
	</div>`;
}

/** A history of states. @param {{rows: Schemas['StateChange'][], runs?: boolean}} props */
export function Changes({rows, runs = false}) {
	return html`<${Table}
		caption="Changes of state"
		rows=${rows}
		id=${r => r.id}
		columns=${[
			{name: 'at', label: 'When', tight: true, cell: r => html`<${Time} at=${r.at} />`},
			...(runs
				? [{name: 'run', label: 'Run', tight: true, cell: (/** @type {Schemas['StateChange']} */ r) => r.run_id}]
				: []),
			{name: 'verb', label: 'Action', tight: true, cell: r => r.verb},
			{name: 'state', label: 'New state', tight: true, cell: r => html`<${State} of=${r.state} />`},
			{name: 'attempt', label: 'Attempt', number: true, cell: r => r.attempt_no ?? '–'},
			{name: 'actor', label: 'By', tight: true, cell: r => r.actor},
			{name: 'why', label: 'Why', class: 'question', cell: r => r.reason ?? ''}
		]}
	/>`;
}
