// Experiments with their verdicts; all runs as a second tab.
import {html} from '../vendor/preact.js';
import {address, choose, link} from '../address.js';
import {useAnswer} from '../answers.js';
import {commit, count} from '../format.js';
import {useFollow} from '../live.js';
import {Answered, Choice, Empty, Head, Narrow, Question, Submit, Table, Tabs, Time} from '../pieces.js';
import {State, StateBar} from '../words.js';
import {Known} from '../lists/experiments.js';
import {Filter, Pages, Runs} from '../lists/runs.js';

const SINCE = /** @type {[string, string][]} */ ([
	['', 'any time'],
	['24h', 'last 24 hours'],
	['7d', 'last 7 days'],
	['30d', 'last 30 days']
]);

/** @type {import('../pieces.js').Column<import('../schemas').Schemas['ExperimentSummary']>[]} */
const COLUMNS = [
	{
		name: 'question',
		label: 'Question and verdict',
		class: 'question',
		cell: row => html`
			<${Question} ...${row} /> <small class="soft">#${row.id} ${commit(row)}</small>
			${(row.tags ?? []).map(tag => html` <small class="tag" key=${tag}>${tag}</small>`)}
			<div class="known"><${Known} of=${row} /></div>
		`
	},
	{name: 'state', label: 'State', tight: true, cell: row => html`<${State} of=${row.state} />`},
	{
		name: 'runs',
		label: 'Runs',
		tight: true,
		cell: row => html`
			<${StateBar} counts=${row.by_state} total=${row.runs} />
			<small class="soft">
				${count(row.by_state.succeeded ?? 0)} of ${count(row.runs)}
				${row.flagged_runs ? `, ${count(row.flagged_runs)} flagged` : ''}
			</small>
		`
	},
	{name: 'submitter', label: 'Submitter', cell: row => row.submitter_name || row.submitter || '–'},
	{
		name: 'created',
		label: 'Submitted',
		tight: true,
		sort: 'created_at',
		cell: row => html`<${Time} at=${row.created_at} />`
	},
	{
		name: 'finished',
		label: 'Ended',
		tight: true,
		sort: 'finished_at',
		cell: row => html`<${Time} at=${row.finished_at} />`
	}
];

function List() {
	const {params} = address.value;
	const asked = {
		state: params.get('state'),
		name: params.get('name'),
		filter: params.get('filter'),
		submitter: params.get('submitter'),
		commit: params.get('commit'),
		since: params.get('since'),
		sort: params.get('sort'),
		cursor: params.get('cursor'),
		limit: 50,
		total: true
	};
	useFollow('overview');
	const answer = useAnswer('experiments', asked, {follow: 'overview'});
	const narrowed = Boolean(asked.filter || asked.state || asked.name || asked.submitter || asked.commit || asked.since);
	return html`
		<div class="filters">
			<${Filter} of="experiments" first=${false} placeholder="verdict = faster and threads = 2" />
			<${Narrow} name="name" label="Question" placeholder="part of it" first=${true} />
			<${Choice}
				name="state"
				label="State"
				options=${[
					['', 'any'],
					['active', 'active'],
					['finished', 'finished'],
					['cancelled', 'cancelled']
				]}
			/>
			<${Choice} name="since" label="Submitted" options=${SINCE} />
			<${Narrow} name="submitter" label="Submitter" placeholder="key:3" />
			<${Narrow} name="commit" label="Commit" placeholder="7 digits or more" />
		</div>
		<${Answered} answer=${answer} lines=${10}>
			${found =>
				found.items.length === 0
					? html`<${Empty}>
							${narrowed
								? html`
										<p>
											${found.next_cursor
												? 'No match on this page. Each page searches only a part of all experiments.'
												: 'No experiment matches these filters.'}
										</p>
										<${Pages} page=${found} total=${found.total} here=${0} what="experiment" />
										<button
											onClick=${() => choose({filter: null, state: null, name: null, submitter: null, commit: null, since: null})}
										>
											Show all
										</button>
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

export default function Experiments() {
	const view = address.value.params.get('view') ?? 'experiments';
	return html`
		<${Head} title="Experiments" actions=${html`<a class="button first" href=${link('new')}>New experiment</a>`} />
		<${Tabs}
			chosen=${view}
			tabs=${[
				['experiments', 'Experiments'],
				['runs', 'All runs']
			]}
		/>
		${view === 'runs' ? html`<${Runs} />` : html`<${List} />`}
	`;
}
