// Experiments with their verdicts; lists of runs: filters, selection for comparing, pages.
import {html} from '../vendor/preact.js';
import {address, choose, link} from '../address.js';
import {useAnswer, useList} from '../answers.js';
import {commit, count, duration, ms, number, perSecond, plural, ratio, setting, variantName, words} from '../format.js';
import {Csv, Filter, Narrow, Pages, quoted} from '../lists.js';
import {useFollow} from '../live.js';
import {Answered, Choice, Empty, Head, Question, RunLink, Submit, Table, Tabs, Time, later} from '../pieces.js';
import {Known, STATES, State, StateBar} from '../words.js';

/** The selected runs, from the URL. */
const marked = () => (address.value.params.get('marked') ?? '').split(',').filter(Boolean).map(Number);
/** @param {number} id */
function toggle(id) {
	const now = marked();
	choose({marked: (now.includes(id) ? now.filter(each => each !== id) : [...now, id]).join(',') || null});
}

/**
 * The comparison of the selected runs: those of the first one's variant against all others.
 * @param {number[]} ids
 * @param {import('../schemas').Schemas['RunRow'][]} rows
 */
function comparison(ids, rows) {
	if (ids.length < 2) return null;
	const variantOf = new Map(rows.map(row => [row.id, `${row.experiment_id} ${JSON.stringify(row.variant)}`]));
	const first = variantOf.get(ids[0]);
	const alike = ids.filter(id => variantOf.get(id) === first);
	const others = ids.filter(id => variantOf.get(id) !== first);
	return others.length ? {a: alike.join(','), b: others.join(',')} : {a: String(ids[0]), b: ids.slice(1).join(',')};
}

/** @type {import('../pieces.js').Column<import('../schemas').Schemas['RunRow']>[]} */
const RUN_COLUMNS = [
	{
		label: html`<span class="unseen">Select</span>`,
		tight: true,
		cell: row => html`<input
			type="checkbox"
			aria-label=${`Select run ${row.id}`}
			checked=${marked().includes(row.id)}
			onChange=${() => toggle(row.id)}
		/>`
	},
	{label: 'Run', tight: true, sort: 'id', cell: row => html`<${RunLink} id=${row.id} />`},
	{
		label: 'Experiment',
		sort: 'experiment_id',
		tight: true,
		cell: row => html`<a href=${link('experiment', {id: row.experiment_id})}>#${row.experiment_id}</a>`
	},
	{
		label: 'Variant',
		sort: 'variant',
		class: 'question',
		cell: row => html`
			${variantName(row.variant)} <small class="soft">repetition ${row.repetition}</small>
			${row.error && html`<div><small class="state bad">${row.error.slug ?? ''}: ${row.error.detail ?? ''}</small></div>`}
		`
	},
	{label: 'State', tight: true, sort: 'state', cell: row => html`<${State} of=${row.state} />`},
	{label: 'Median step', number: true, sort: 'median_step_s', cell: row => ms(row.median_step_s)},
	{label: 'Tokens/s', number: true, sort: 'tokens_per_s', cell: row => count(row.tokens_per_s)},
	{
		label: 'Flagged',
		sort: 'flagged_steps',
		number: true,
		cell: row =>
			row.flagged_steps ? html`<span class="state warn">${count(row.flagged_steps)}</span>` : count(row.flagged_steps)
	},
	{label: 'Node', tight: true, sort: 'node', cell: row => row.node ?? '–'},
	{label: 'Duration', number: true, sort: 'duration_s', cell: row => duration(row.duration_s)},
	{label: 'Ended', tight: true, sort: 'finished_at', cell: row => html`<${Time} at=${row.finished_at} />`},
	{label: 'Final loss', number: true, more: true, sort: 'final_loss', cell: row => number(row.final_loss, 6)},
	{label: 'Commit', tight: true, more: true, sort: 'commit', cell: row => commit(row) || '–'},
	{label: 'Trainer', tight: true, more: true, sort: 'trainer_commit', cell: row => commit(row, 'trainer_') || '–'}
];

/** @typedef {import('../schemas').Schemas['RunRow']} RunRow */

/** A column for each main setting. @param {RunRow[]} rows */
const settingColumns = rows =>
	Object.keys(rows[0].settings ?? {}).map(name => ({
		label: words(name),
		more: true,
		sort: name,
		tight: true,
		cell: (/** @type {RunRow} */ row) => setting(/** @type {Record<string, unknown>} */ (row.settings)[name])
	}));

/** The filters of a list of runs as one expression. @param {Record<string, unknown>} of */
const expression = ({filter, flagged, ...equal}) =>
	[
		filter && `(${filter})`,
		...Object.entries(equal).map(([name, value]) => value && `${name} = ${quoted(String(value))}`),
		flagged && `flagged_steps ${flagged === 'true' ? '>' : '='} 0`
	]
		.filter(Boolean)
		.join(' and ');

/** @param {{experimentId?: number}} props without one, all runs */
export function Runs({experimentId}) {
	const {params} = address.value;
	const narrowed = {
		experiment_id: experimentId ?? params.get('experiment'),
		state: params.get('state'),
		filter: params.get('filter'),
		node: params.get('node'),
		flagged: params.get('flagged')
	};
	const chosen = ['filter', 'state', 'node', 'flagged'].some(name => params.has(name));
	const page = {sort: params.get('sort') ?? (experimentId ? null : '-id'), cursor: params.get('cursor'), limit: 50};
	const followed = experimentId ? `experiment:${experimentId}` : 'overview';
	useFollow(followed);
	const answer = useList('runs', narrowed, page, followed);
	const ids = marked();
	const sides = comparison(ids, answer.data?.items ?? []);
	const columns = RUN_COLUMNS.filter(({label}) => !experimentId || label !== 'Experiment');
	return html`
		<div class="filters">
			<${Filter} of="runs" placeholder="scheduler = task and median_step_s < 0.1" />
			<${Choice} name="state" label="State" options=${[['', 'any'], ...STATES.map(state => [state, state])]} />
			<${Choice}
				name="flagged"
				label="Flagged steps"
				options=${[
					['', 'any'],
					['true', 'some'],
					['false', 'none']
				]}
			/>
			<${Narrow} name="node" label="Node" />
			${(chosen || ids.length > 0) &&
			html`<a
				class="button"
				href=${link('experiments', {view: 'chart', filter: expression(narrowed), marked: params.get('marked')})}
			>
				Chart
			</a>`}
			<${Csv} of="runs" asked=${{...narrowed, sort: page.sort}} />
			${ids.length > 0 &&
			html`<div class="row">
				${sides
					? html`<a class="button first" data-compare href=${link('compare', sides)}>
							Compare ${plural(ids.length, 'run')}
						</a>`
					: html`<span class="soft">Select another run to compare</span>`}
				<button onClick=${() => choose({marked: null})}>Clear selection</button>
			</div>`}
		</div>
		<${Answered} answer=${answer} lines=${12}>
			${found =>
				found.items.length === 0
					? html`<${Empty}>
							<p>
								${found.next_cursor
									? 'No match on this page. Each page searches only a part of all runs.'
									: 'No run matches these filters.'}
							</p>
							${!found.next_cursor && !chosen && html`<p>Submit a first experiment:</p><${Submit} />`}
							<${Pages} page=${found} total=${answer.total} here=${0} what="run" />
						<//>`
					: html`<section class="panel">
							<${Table}
								caption="Runs"
								columns=${[
									...columns.map(each => (each.label === 'Tokens/s' ? {...each, label: perSecond(found.items)} : each)),
									...settingColumns(found.items)
								]}
								rows=${found.items}
								what="run"
								view=${answer.asked}
								id=${row => row.id}
								sort=${page.sort}
								onSort=${sort => choose({sort, cursor: null})}
							/>
							<${Pages} page=${found} total=${answer.total} here=${found.items.length} what="run" />
						</section>`}
		<//>
	`;
}

/** Runs of an experiment. @param {{of: import('../schemas').Schemas['ExperimentDetail']}} props */
export const RunsOf = ({of}) => html`<${Runs} experimentId=${of.id} />`;

const SINCE = /** @type {[string, string][]} */ ([
	['', 'any time'],
	['24h', 'last 24 hours'],
	['7d', 'last 7 days'],
	['30d', 'last 30 days']
]);

/** @type {import('../pieces.js').Column<import('../schemas').Schemas['ExperimentSummary']>[]} */
const COLUMNS = [
	{
		label: 'Question and verdict',
		sort: 'name',
		class: 'question',
		cell: row => html`
			<${Question} ...${row} /> <small class="soft">#${row.id} ${commit(row)}</small>
			${(row.tags ?? []).map(tag => html` <small class="tag" key=${tag}>${tag}</small>`)}
			<div class="known"><${Known} of=${row} /></div>
		`
	},
	{label: 'State', tight: true, sort: 'state', cell: row => html`<${State} of=${row.state} />`},
	{
		label: 'Runs',
		sort: 'runs',
		tight: true,
		cell: row => html`
			<${StateBar} counts=${row.by_state} total=${row.runs} />
			<small class="soft">
				${count(row.by_state.succeeded ?? 0)} of ${count(row.runs)}
				${row.flagged_runs ? `, ${count(row.flagged_runs)} flagged` : ''}
			</small>
		`
	},
	{label: 'Submitter', sort: 'submitter', cell: row => row.submitter_name || row.submitter || '–'},
	{label: 'Submitted', tight: true, sort: 'created_at', cell: row => html`<${Time} at=${row.created_at} />`},
	{label: 'Ended', tight: true, sort: 'finished_at', cell: row => html`<${Time} at=${row.finished_at} />`},
	{label: 'Model', tight: true, more: true, cell: row => row.model ?? '–'},
	{
		label: 'Axes',
		more: true,
		cell: row =>
			Object.keys(row.axes ?? {})
				.map(words)
				.join(', ')
	},
	{label: 'Nodes', more: true, cell: row => row.nodes?.join(', ')},
	{
		label: 'Ratio',
		number: true,
		more: true,
		sort: 'ratio',
		cell: ({verdict: found}) => ratio(found?.ratio ?? null, found?.low, found?.high)
	}
];

const NARROWING = ['filter', 'state', 'name', 'submitter', 'commit', 'since'];

function List() {
	const {params} = address.value;
	const asked = {
		...Object.fromEntries(NARROWING.map(name => [name, params.get(name)])),
		sort: params.get('sort'),
		cursor: params.get('cursor'),
		limit: 50,
		total: true
	};
	useFollow('overview');
	const answer = useAnswer('experiments', asked, {follow: 'overview'});
	return html`
		<div class="filters">
			<${Filter} of="experiments" first=${false} placeholder="verdict = faster and threads = 2" />
			<${Narrow} name="name" label="Question" placeholder="part of it" first=${true} />
			<${Choice}
				name="state"
				label="State"
				options=${[['', 'any'], ...['active', 'finished', 'cancelled'].map(state => [state, state])]}
			/>
			<${Choice} name="since" label="Submitted" options=${SINCE} />
			<${Narrow} name="submitter" label="Submitter" placeholder="key:3" />
			<${Narrow} name="commit" label="Commit" placeholder="7 digits or more" />
			<${Csv} of="experiments" asked=${asked} />
		</div>
		<${Answered} answer=${answer} lines=${10}>
			${found =>
				found.items.length === 0
					? html`<${Empty}>
							${NARROWING.some(name => params.has(name))
								? html`
										<p>
											${found.next_cursor
												? 'No match on this page. Each page searches only a part of all experiments.'
												: 'No experiment matches these filters.'}
										</p>
										<${Pages} page=${found} total=${found.total} here=${0} what="experiment" />
										<button onClick=${() => choose(Object.fromEntries(NARROWING.map(name => [name, null])))}>Show all</button>
									`
								: html`
										<h2>No experiments yet</h2>
										<p>Submit the first one in the <a href=${link('new')}>form</a>, or on the command line:</p>
										<${Submit} />
									`}
						<//>`
					: html`<section class="panel">
							<${Table}
								caption="Experiments"
								columns=${COLUMNS}
								rows=${found.items}
								what="experiment"
								view=${answer.asked}
								id=${row => row.id}
								sort=${asked.sort}
								onSort=${sort => choose({sort, cursor: null})}
							/>
							<${Pages} page=${found} total=${found.total} here=${found.items.length} what="experiment" />
						</section>`}
		<//>
	`;
}

const Chart = later(async () => (await import('../plots/chosen.js')).Chart);

/** A chart of the runs that the filter or a selection names. */
function ChartOfRuns() {
	const {params} = address.value;
	const [filter, selected] = [params.get('filter'), params.get('marked')];
	const source = {filter, run: selected?.split(',')};
	const first = useAnswer(filter || selected ? 'runs' : null, {...source, sort: '-id', limit: 100});
	return html`
		<div class="filters"><${Filter} of="runs" placeholder="experiment_id in (7, 8) and state = succeeded" /></div>
		${filter || selected
			? html`<${Answered} answer=${first} height=${340}>
					${(/** @type {import('../schemas').Schemas['RunPage']} */ page) => html`<${Chart}
						source=${source}
						settings=${[
							...new Set(page.items.flatMap(row => Object.keys({...row.settings, ...row.variant}))),
							'node',
							'experiment_id'
						]}
					/>`}
				<//>`
			: html`<${Empty}><p>A filter, or runs selected in the list of runs, say what the chart shows.</p><//>`}
	`;
}

export default function Experiments() {
	const view = address.value.params.get('view') ?? 'experiments';
	return html`
		<${Head} title="Experiments" actions=${html`<a class="button first" href=${link('new')}>New experiment</a>`} />
		<${Tabs}
			chosen=${view}
			tabs=${[
				['experiments', 'Experiments'],
				['runs', 'All runs'],
				['chart', 'Chart']
			]}
		/>
		${view === 'runs' ? html`<${Runs} />` : view === 'chart' ? html`<${ChartOfRuns} />` : html`<${List} />`}
	`;
}
