// Why nothing runs; the cores of each node and the difference that it detects; the queue in claim order.
import {html} from '../vendor/preact.js';
import {address, choose, link} from '../address.js';
import {ask} from '../api.js';
import {changed, useAction, useAnswer} from '../answers.js';
import {bytes, count, duration, percent, plural, variantName} from '../format.js';
import {useFollow} from '../live.js';
import {Answered, Empty, Head, Pairs, Question, Refused, RunLink, Start, Sure, Table, Time} from '../pieces.js';
import {State, busySaid, presentOf, tone} from '../words.js';

// How the labels of kept trainers begin.
const BUILD = 'build-';

/** @typedef {import('../pieces.js').Column<import('../schemas').Schemas['AttemptSummary']>} AttemptColumn */

/** The duration of an attempt. @param {import('../schemas').Schemas['AttemptSummary']} of */
const took = of => duration((Date.parse(of.finished_at ?? '') - Date.parse(of.claimed_at)) / 1000);

/** @type {AttemptColumn[]} */
const ATTEMPT = [
	{label: 'Attempt', number: true, cell: a => a.attempt_no},
	{label: 'Purpose', cell: a => a.purpose},
	{label: 'State', cell: a => html`<${State} of=${a.state} />`},
	{label: 'Claimed', cell: a => html`<${Time} at=${a.claimed_at} />`},
	{label: 'Duration', number: true, cell: a => (a.finished_at ? took(a) : '–')},
	{label: 'Error', class: 'question', cell: a => a.error?.detail ?? a.error?.slug ?? ''}
];

/**
 * Attempts, of a run or of a worker.
 * @param {{rows: import('../schemas').Schemas['AttemptSummary'][], first: AttemptColumn, caption: string}} props
 *   first: the column before the number
 */
export const AttemptTable = ({rows, first, caption}) =>
	html`<${Table} caption=${caption} rows=${rows} id=${a => a.id} columns=${[first, ...ATTEMPT]} />`;

/** The state of the fleet in one sentence. @param {import('../schemas').Schemas['Overview']} overview */
function fleetSaid({workers, runs: {queued}, waiting: [why]}) {
	if (!presentOf(workers))
		return (
			busySaid(workers) +
			(workers.silent ? ` (${plural(workers.silent, 'worker')} silent)` : '') +
			(queued ? `: ${plural(queued, 'run waits', 'runs wait')}.` : '.')
		);
	return (
		busySaid(workers) +
		(queued ? `, ${plural(queued, 'run')} queued` : ', nothing is queued') +
		(queued && why && workers.busy === 0 ? `: ${why.waiting_for}` : '') +
		'.'
	);
}

/** Ranges of cores, as 0-3,8. @param {number[]} cores */
function ranges(cores) {
	const sorted = [...cores].sort((a, b) => a - b);
	/** @type {[number, number][]} */
	const found = [];
	for (const core of sorted) {
		const last = found.at(-1);
		if (last && last[1] === core - 1) last[1] = core;
		else found.push([core, core]);
	}
	return found.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(', ');
}

/** What the cores of a worker do. @param {import('../schemas').Schemas['WorkerSummary']} worker */
const doing = ({current, state}) => (current ? `run ${current.run_id}` : state);

/** @param {{of: import('../schemas').Schemas['WorkerSummary']}} props */
function Remove({of}) {
	const {run, busy, problem} = useAction(async () => {
		await ask(`workers/${encodeURIComponent(of.worker_id)}`, {method: 'DELETE'}).catch(error => {
			if (error?.name !== 'SyntaxError') throw error;
		});
		changed('workers');
	});
	return html`
		${problem && html`<${Refused} problem=${problem} />`}
		<${Sure}
			first=${html`Remove…<span class="unseen"> ${of.worker_id}</span>`}
			then="Remove it"
			busy=${busy}
			act=${() => run(undefined)}
		/>
	`;
}

/**
 * A node's workers, core by core.
 * @param {{node: string, workers: import('../schemas').Schemas['WorkerSummary'][], calibration:
 *   import('../schemas').Schemas['Calibration'] | null | undefined}} props calibration: null while it is being
 *   computed
 */
function Node({node, workers, calibration}) {
	const first = workers[0];
	const labels = Object.entries(first.labels);
	const others = labels.filter(([name]) => !name.startsWith(BUILD));
	const builds = labels.length - others.length;
	const ten = calibration?.detectable?.find(each => each.pairs === 10)?.relative;
	return html`<section class="panel stack tight">
		<div class="row between">
			<h2>${node}</h2>
			<small class="soft">
				${first.topology.cpu_model ?? ''}
				${first.memory_bytes ? `, ${bytes(first.memory_bytes)}` : ''}
			</small>
		</div>
		${workers.map(
			worker => html`<div key=${worker.worker_id} class="stack tight">
				<div class="row">
					<a href=${link('fleet', {worker: worker.worker_id})}>${worker.worker_id}</a>
					<${State} of=${worker.state} />
					${worker.current
						? html`<span>
								run <${RunLink} id=${worker.current.run_id} />
								${worker.current.progress?.steps
									? `, step ${worker.current.progress.step} of ${worker.current.progress.steps}`
									: ''}
							</span>`
						: html`<span class="soft">last heartbeat <${Time} at=${worker.seen_at} /></span>`}
					${worker.ends_at &&
					html`<span class="soft">ends in ${duration((Date.parse(worker.ends_at) - Date.now()) / 1000)}</span>`}
					${worker.state === 'silent' || worker.state === 'left' ? html`<${Remove} of=${worker} />` : null}
				</div>
				<div class="cores" role="img" aria-label=${`cores ${ranges(worker.cores)}: ${doing(worker)}`}>
					${worker.cores
						.slice(0, 256)
						.map(
							(/** @type {number} */ core) => html`<span
								key=${core}
								class=${`core ${tone(worker.state ?? '')} ${worker.state}`}
								title=${`core ${core}: ${doing(worker)}`}
							>
								${core}
							</span>`
						)}
				</div>
			</div>`
		)}
		${labels.length > 0 &&
		html`<div class="row">
			${others.map(([name, value]) => html`<span key=${name} class="chip">${name}=${value}</span>`)}
			${builds > 0 &&
			html`<span class="chip" title="trainers that an experiment can repeat">${plural(builds, 'kept build')}</span>`}
		</div>`}
		<p class="soft">
			${calibration
				? html`
						With 10 pairs this node detects ${ten == null ? 'none of the tested differences' : `${percent(ten)} or more`}, by
						its <a href=${link('experiment', {id: calibration.experiment_id})}>last A/A experiment</a>. Identical pairs spread
						by ${percent(calibration.spread)}.
					`
				: calibration === null
					? 'The smallest detectable difference is being computed.'
					: html`Not calibrated: <a href=${link('new', {calibrate: node})}>measure the smallest detectable difference</a>.`}
		</p>
	</section>`;
}

/**
 * The queue, with one row for neighbours of one experiment that wait for the same. more: the runs after its first.
 * @param {import('../schemas').Schemas['QueuedRun'][]} queued
 */
function alike(queued) {
	const rows = /** @type {(import('../schemas').Schemas['QueuedRun'] & {more: number})[]} */ ([]);
	for (const run of queued) {
		const last = rows.at(-1);
		if (last && last.experiment_id === run.experiment_id && last.waiting_for === run.waiting_for) last.more += 1;
		else rows.push({...run, more: 0});
	}
	return rows;
}

/** @param {{id: string}} props */
function Worker({id}) {
	const path = /** @type {const} */ (`workers/${encodeURIComponent(id)}`);
	const worker = useAnswer(path, {}, {follow: 'workers'});
	const attempts = useAnswer(`${path}/attempts`, {limit: 50}, {follow: 'workers'});
	return html`<section class="panel stack">
		<div class="row between">
			<h2>Worker ${id}</h2>
			<button onClick=${() => choose({worker: null}, false)}>Close</button>
		</div>
		<${Answered} answer=${worker} lines=${4}>
			${of => html`<div class="columns">
				<${Pairs}
					of=${[
						['state', html`<${State} of=${of.state} />`],
						['node', of.node],
						['cores', ranges(of.cores)],
						['memory', bytes(of.memory_bytes)],
						['registered', html`<${Time} at=${of.registered_at} />`],
						['last heartbeat', html`<${Time} at=${of.seen_at} />`]
					]}
				/>
				<${Pairs}
					of=${Object.entries(of.software).map(([name, value]) => [
						name,
						name === 'hash' ? html`<code>${String(value).slice(0, 12)}</code>` : value
					])}
				/>
			</div>`}
		<//>
		<${Answered} answer=${attempts} lines=${4}>
			${page =>
				page.items.length
					? html`<${AttemptTable}
							caption="Attempts"
							rows=${page.items}
							first=${{label: 'Run', cell: a => html`<${RunLink} id=${a.run_id} />`}}
						/>`
					: html`<p class="soft">This worker has not run anything yet.</p>`}
		<//>
	</section>`;
}

export default function Fleet() {
	useFollow('workers');
	useFollow('overview');
	const overview = useAnswer('overview', {}, {follow: 'overview'});
	const workers = useAnswer('workers', {limit: 500}, {follow: 'workers'});
	const queue = useAnswer('queue/runs', {limit: 50}, {follow: 'overview'});
	const calibrations = useAnswer('analysis/calibration');
	const pools = useAnswer('queue/pools', {}, {everyS: 30});
	const chosen = address.value.params.get('worker');
	return html`
		<${Head} title="Fleet" lead=${overview.data ? fleetSaid(overview.data) : ''} />
		<div class="stack">
			${chosen && html`<${Worker} key=${chosen} id=${chosen} />`}
			<${Answered} answer=${workers} height=${200}>
				${page => {
					const nodes = [
						...Map.groupBy(
							/** @type {import('../schemas').Schemas['WorkerSummary'][]} */ (page.items),
							worker => worker.node
						).entries()
					].sort(([a], [b]) => (a < b ? -1 : 1));
					return nodes.length
						? html`<div class="columns">
								${nodes.map(
									([node, those]) => html`<${Node}
										key=${node}
										node=${node}
										workers=${those}
										calibration=${calibrations.data === undefined
											? null
											: calibrations.data.items.find(
													(/** @type {import('../schemas').Schemas['Calibration']} */ each) => each.node === node
												)}
									/>`
								)}
							</div>`
						: html`<${Empty}><h2>No worker yet</h2><p>Start one on each node:</p><${Start} /><//>`;
				}}
			<//>
			${pools.data &&
			pools.data.items.length > 0 &&
			html`<section class="panel">
				<h2>Pools</h2>
				<${Table}
					caption="Pools"
					rows=${pools.data.items}
					id=${p => p.name}
					columns=${[
						{label: 'Pool', cell: p => p.name},
						{label: 'Cores', number: true, cell: p => p.cores},
						{
							label: 'Jobs',
							cell: p =>
								p.jobs
									.map(
										(/** @type {import('../schemas').Schemas['PoolJobSeen']} */ j) =>
											`${j.job_id} ${j.state}${j.reason ? ` (${j.reason})` : ''}`
									)
									.join(', ') || 'none'
						},
						{label: 'Problem', class: 'question', cell: p => p.problem ?? ''},
						{label: 'Last seen', cell: p => html`<${Time} at=${p.seen_at} />`}
					]}
				/>
			</section>`}
			<section class="panel">
				<h2>Queue, in claim order</h2>
				<${Answered} answer=${queue} lines=${6}>
					${page =>
						page.items.length
							? html`
									<${Table}
										caption="Queue"
										rows=${alike(page.items)}
										id=${r => r.run_id}
										columns=${[
											{label: 'Position', number: true, cell: r => (r.more ? `${r.position}–${r.position + r.more}` : r.position)},
											{label: 'Run', cell: r => (r.more ? plural(r.more + 1, 'run') : html`<${RunLink} id=${r.run_id} />`)},
											{
												label: 'Experiment',
												class: 'question',
												cell: r => html`<${Question} id=${r.experiment_id} name=${r.experiment_name} />`
											},
											{label: 'Variant', class: 'question', cell: r => (r.more ? 'several' : variantName(r.variant))},
											{label: 'Waits for', class: 'question', cell: r => r.waiting_for},
											{label: 'Queued', cell: r => html`<${Time} at=${r.queued_at} />`}
										]}
									/>
									${page.total > page.items.length &&
									html`<p class="soft">${count(page.items.length)} of ${plural(page.total, 'run')} shown.</p>`}
								`
							: html`<p class="soft">Nothing is queued.</p>`}
				<//>
			</section>
		</div>
	`;
}
