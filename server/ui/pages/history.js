// Alerts, and the step times of each configuration over time.
import {html, useEffect, useMemo, useRef} from '../vendor/preact.js';
import {address, choose, link} from '../address.js';
import {ask} from '../api.js';
import {changed, useAction, useAnswer} from '../answers.js';
import {count, median, ms, number, pairsOf, percent, plural, round} from '../format.js';
import {useFollow} from '../live.js';
import {Answered, Choice, Empty, Head, Pairs, Refused, RunLink, Submit, Table, Time} from '../pieces.js';
import {Csv, Filter, Narrow, Pages} from '../lists.js';
import {METRICS, MS, plain} from '../plots/scale.js';
import {Lines, Spark} from '../plots/series.js';
import {State} from '../words.js';

/** States of alerts: of changes, then of thresholds. */
const ALERTS = ['suspected', 'confirming', 'confirmed', 'dismissed', 'above', 'below', 'within'];

/** @param {{alert: import('../schemas').Schemas['AlertSummary'] | import('../schemas').Schemas['Alert']}} props */
function Confirm({alert}) {
	const runId = 'change' in alert ? alert.change.first_after : alert.run_id;
	const {run, busy, problem} = useAction(async () => {
		const made = await ask(`analysis/history/${runId}/confirm`, {method: 'POST'});
		changed('overview');
		choose({confirming: made.id});
	});
	if (alert.state !== 'suspected')
		return alert.confirming_experiment_id
			? html`<a href=${link('experiment', {id: alert.confirming_experiment_id})}>fresh runs</a>`
			: null;
	return html`
		${problem && html`<${Refused} problem=${problem} />`}
		<button disabled=${busy} onClick=${() => run(undefined)}>
			Confirm with fresh runs<span class="unseen"> of run ${runId}</span>
		</button>
	`;
}

const asMs = (/** @type {number} */ value) => ms(value / 1e3);

const DAY_S = 86400;
/** A time in short: with seconds if all are within a day. @param {number} day @param {boolean} within */
const timeOf = (day, within) =>
	new Date(day * DAY_S * 1e3)
		.toISOString()
		.slice(...(within ? [5, 19] : [0, 16]))
		.replace('T', ' ');
const SHORT = 8;

/** @typedef {import('../schemas').Schemas['SeriesRun']} SeriesRun */
/**
 * A series with its points and changes.
 * @typedef {Omit<import('../schemas').Schemas['SeriesRow'], 'alerts'> & import('../schemas').Schemas['SeriesChanges'] &
 *   {points: SeriesRun[], ops: string[]}} Series
 */

/** A point's value; a peak that contains the compiler is like no other. @param {SeriesRun} p @param {string} metric */
const valueOf = (p, metric) => {
	const value = /** @type {Record<string, unknown>} */ (p)[metric];
	return typeof value !== 'number' || (metric === 'memory_bytes' && p.compiled) ? null : value;
};
/** The commit of a point: the submitter's, else the trainer's. @param {SeriesRun} point */
const commitOf = point => point.commit ?? point.trainer_commit;

/** The runs of a series with the levels between changes. @param {{id: string}} props */
function One({id}) {
	const path = /** @type {const} */ (`analysis/history/series/${encodeURIComponent(id)}`);
	const op = address.value.params.get('op');
	const series = useAnswer(path, {}, {follow: 'history'});
	const points = useAnswer(`${path}/points`, {sort: '-finished_at', limit: 500, op}, {follow: 'history'});
	const found = useAnswer(`${path}/changes`, {}, {follow: 'history'});
	if (!series.data || !points.data || !found.data) {
		const missing = [series, points, found].find(each => !each.data);
		return html`<section class="panel"><${Answered} answer=${missing} height=${380}>${() => null}<//></section>`;
	}
	const known = points.data.items
		.filter((/** @type {import('../schemas').Schemas['SeriesRun']} */ point) => point.median_step_s !== null)
		.reverse();
	return html`<${Points}
		of=${{...found.data, ...series.data, alerts: found.data.alerts, points: known, ops: points.data.ops}}
	/>`;
}

/**
 * Points in the order of an axis, and their places on it. Runs of one commit share a place, side by side.
 * @param {Series} of
 * @param {string} axis commits, dates or runs
 */
function along(of, axis) {
	if (axis === 'dates') {
		const x = of.points.map(p => Date.parse(p.finished_at ?? '') / DAY_S / 1e3);
		const within = (x.at(-1) ?? 0) - x[0] < 1;
		return {points: of.points, x, show: (/** @type {number} */ day) => timeOf(day, within)};
	}
	if (axis === 'runs') return {points: of.points, x: of.points.map((_, i) => of.runs - of.points.length + i + 1)};
	const groups = /** @type {Map<string, SeriesRun[]>} */ (new Map());
	for (const point of of.points) {
		const commit = commitOf(point) ?? 'unknown';
		groups.set(commit, [...(groups.get(commit) ?? []), point]);
	}
	const at = (/** @type {SeriesRun[]} */ [first]) =>
		Date.parse((first.commit ? first.committed_at : first.trainer_committed_at) ?? first.finished_at ?? '');
	const inOrder = [...groups.values()].sort((a, b) => at(a) - at(b));
	const names = inOrder.map(([first]) => (commitOf(first) ?? 'unknown').slice(0, SHORT));
	return {
		points: inOrder.flat(),
		x: inOrder.flatMap((group, i) => group.map((_, k) => i + 1 + (0.6 * (k + 0.5)) / group.length - 0.3)),
		show: (/** @type {number} */ place) => names[Math.round(place) - 1] ?? ''
	};
}

/**
 * The commits of a change, with the operator's link.
 * @param {{of: import('../schemas').Schemas['Since'] | null}} props
 */
function Range({of}) {
	if (!of) return 'unknown, or the same';
	const text = `${of.last_before.slice(0, SHORT)}…${of.first_after.slice(0, SHORT)}`;
	return html`
		${of.url ? html`<a href=${of.url} rel="noopener">${text}</a>` : text}
		${of.of === 'trainer' && ' (trainer)'}
		${of.dirty && ', changed sources'}
	`;
}

/** @param {{of: Series}} props */
function Points({of}) {
	const {params} = address.value;
	const named = of.points.some(commitOf);
	const axis = params.get('x') ?? (named ? 'commits' : 'runs');
	const op = params.get('op');
	const metric = op ? 'op_s' : (params.get('metric') ?? 'median_step_s');
	const [yLabel, factor = 1] = METRICS[metric] ?? METRICS.median_step_s;
	const show = factor === MS ? asMs : plain;
	const {points, x, show: xShow} = useMemo(() => along(of, axis), [of, axis]);
	const values = points.map(p => {
		const value = valueOf(p, metric);
		return value === null ? null : value * factor;
	});
	const firsts = new Set(of.changes.map(change => change.first_after));
	// By commit, runs are not in the order of time, in which changes were found.
	const byCommit = axis === 'commits';
	let stretch = 0;
	const stretches = new Map(of.points.map(({run_id}) => [run_id, firsts.has(run_id) ? ++stretch : stretch]));
	const levelOf = (/** @type {SeriesRun} */ point) => (byCommit ? commitOf(point) : stretches.get(point.run_id));
	const groups = Map.groupBy(points.keys(), (/** @type {number} */ i) => levelOf(points[i]));
	const middles = new Map([...groups].map(([level, own]) => [level, median(own.flatMap(i => values[i] ?? []))]));
	const levels = points.map(point => middles.get(levelOf(point)));
	const drawn = metric === 'median_step_s' && of.threshold;
	const limits = !drawn
		? []
		: [0, drawn.upper, drawn.lower].flatMap(p => {
				const values = points.map(() => drawn.reference_s * (1e3 + 10 * (p ?? 0)));
				return p == null ? [] : {label: p ? `${p} %` : 'reference', token: 'good', values, dash: '6 4', show};
			});
	const changes = points.map((point, i) => (firsts.has(point.run_id) ? values[i] : null));
	const offered = Object.keys(METRICS).filter(
		name => name !== 'op_s' && of.points.some(point => valueOf(point, name) != null)
	);
	return html`<section class="panel stack">
		<div class="filters">
			<${Choice}
				name="x"
				label="Axis"
				value=${axis}
				options=${[...(named ? [['commits', 'commits']] : []), ['dates', 'dates'], ['runs', 'runs']]}
			/>
			<${Choice}
				name="metric"
				label="Metric"
				value=${op ? `op ${op}` : metric}
				options=${[...offered.map(name => [name, METRICS[name][0]]), ...of.ops.map(name => [`op ${name}`, `op ${name}`])]}
				onChoose=${(/** @type {string} */ chosen) =>
					choose(chosen.startsWith('op ') ? {op: chosen.slice(3), metric: null} : {metric: chosen, op: null})}
			/>
		</div>
		<${Lines}
			title=${of.name}
			name="history"
			rows=${points}
			said=${(points.length < of.runs ? `The newest ${count(points.length)} of ` : '') +
			`${plural(of.runs, 'run')} on ${of.node}; the line is the median ` +
			(byCommit ? 'of each commit.' : 'between changes of the step time.') +
			(of.over_canary ? ' Changes are of step time / canary time.' : '')}
			fields=${[
				{label: 'run', value: p => p.run_id},
				'commit',
				'branch',
				'trainer_commit',
				'trainer_version',
				'node',
				...offered,
				...(op ? ['op_s'] : []),
				{label: 'level', value: p => round(middles.get(levelOf(p)))},
				'finished_at',
				'environment_sha256'
			]}
			x=${x}
			xLabel=${{commits: 'commit', dates: 'end of the run, UTC', runs: 'run'}[axis] ?? 'run'}
			xShow=${xShow}
			xWhole=${axis !== 'dates'}
			yLabel=${op ? `${yLabel}, ${op}` : yLabel}
			height=${300}
			href=${i => link('run', {id: points[i].run_id})}
			series=${[
				{label: 'run', token: 'edge', values, kind: 'points', show},
				{label: 'level', token: 'accent', values: levels, dash: '0', show},
				{label: 'change', token: 'bad', values: changes, kind: 'points', show},
				...limits
			]}
		/>
		${of.changes.length > 0
			? html`<${Table}
					caption="Changes"
					rows=${of.changes}
					id=${c => c.first_after}
					columns=${[
						{label: 'Since run', cell: c => html`<${RunLink} id=${c.first_after} />`},
						{label: 'From', number: true, cell: c => ms(c.before_s)},
						{label: 'To', number: true, cell: c => ms(c.after_s)},
						{
							label: 'After / before',
							number: true,
							cell: c => `${number(c.ratio)}${c.ratio_low == null ? '' : ` [${number(c.ratio_low)}, ${number(c.ratio_high)}]`}`
						},
						{label: 'Cause', cell: c => c.cause},
						{label: 'Between commits', cell: c => html`<${Range} of=${c.since} />`},
						{label: 'Software that changed', class: 'question', cell: c => c.differs.join('; ') || 'none'},
						{
							label: 'Alert',
							cell: c => {
								const alert = of.alerts.find(each => each.change.first_after === c.first_after);
								return alert
									? html`<${State} of=${alert.state} /> <${Confirm} alert=${alert} />`
									: c.ratio < 1
										? html`<${State} of="improved" says="faster" />`
										: '';
							}
						}
					]}
				/>`
			: html`<p class="soft">No change.</p>`}
		<details>
			<summary>Configuration and machine</summary>
			<div class="columns"><${Pairs} of=${pairsOf(of.config)} /><${Pairs} of=${pairsOf(of.machine)} /></div>
		</details>
	</section>`;
}

/** @param {{alerts: import('../answers.js').Answer<import('../schemas').Schemas['AlertPage']>}} props */
function Alerts({alerts}) {
	return html`<${Answered} answer=${alerts} lines=${3}>
		${page =>
			page.items.length
				? html`<section class="panel">
						<h2>Alerts</h2>
						<${Table}
							caption="Alerts"
							rows=${page.items}
							view=${alerts.asked}
							id=${a => a.id}
							columns=${[
								{label: 'State', tight: true, cell: a => html`<${State} of=${a.state} />`},
								{label: 'Since run', tight: true, cell: a => html`<${RunLink} id=${a.run_id} />`},
								{label: 'Ratio', number: true, cell: a => number(a.ratio)},
								{label: 'Reason', class: 'question', cell: a => a.reason},
								{label: 'Raised', tight: true, cell: a => html`<${Time} at=${a.raised_at} />`},
								{label: html`<span class="unseen">Confirm</span>`, tight: true, cell: a => html`<${Confirm} alert=${a} />`}
							]}
						/>
					</section>`
				: html`<section class="notice good">
						<span>Nothing ${address.value.params.get('alert') ? 'is in this state' : 'raised an alert'}.</span>
					</section>`}
	<//>`;
}

export default function History() {
	const {params} = address.value;
	useFollow('overview');
	const alerts = useAnswer('analysis/alerts', {state: params.get('alert'), limit: 50}, {follow: 'overview'});
	const states = JSON.stringify(
		alerts.data?.items.map((/** @type {import('../schemas').Schemas['AlertSummary']} */ each) => [each.id, each.state])
	);
	const before = useRef(states);
	useEffect(() => {
		if (before.current !== undefined && before.current !== states) changed('history');
		before.current = states;
	}, [states]);
	const asked = {
		filter: params.get('filter'),
		node: params.get('node'),
		sort: params.get('sort'),
		cursor: params.get('cursor'),
		limit: 50,
		total: true
	};
	const answer = useAnswer('analysis/history/series', asked, {follow: 'history'});
	const chosen = params.get('series');
	const confirming = params.get('confirming');
	return html`
		<${Head} title="History" lead="Step times over time, and their changes." />
		<div class="stack">
			${confirming &&
			html`<section class="notice good" role="status">
				<span>Fresh runs are queued: <a href=${link('experiment', {id: confirming})}>experiment ${confirming}</a>.</span>
			</section>`}
			<div class="filters">
				<${Filter} of="series" placeholder="scheduler = task and threads = 2" />
				<${Narrow} name="node" label="Node" />
				<${Choice} name="alert" label="Alerts" options=${[['', 'any'], ...ALERTS.map(state => [state, state])]} />
				<${Csv} of="history" asked=${{filter: asked.filter, node: asked.node}} />
			</div>
			<${Alerts} alerts=${alerts} />
			${chosen && html`<${One} key=${chosen} id=${chosen} />`}
			<${Answered} answer=${answer} height=${300}>
				${(/** @type {import('../schemas').Schemas['SeriesPage']} */ page) =>
					page.items.length === 0
						? html`<${Empty}>
								${asked.filter || asked.node
									? html`<p>No series matches.</p>`
									: html`<h2>No history yet</h2><p>Submit a first experiment:</p><${Submit} />`}
							<//>`
						: html`<section class="panel">
								<h2>Series</h2>
								<${Table}
									caption="Series"
									rows=${page.items}
									id=${s => s.id}
									view=${answer.asked}
									sort=${asked.sort ?? '-last_at'}
									onSort=${sort => choose({sort, cursor: null})}
									columns=${[
										{
											label: 'Configuration',
											sort: 'name',
											class: 'question',
											cell: s => html`<a
												href=${link('history', {
													series: s.id,
													filter: params.get('filter'),
													node: params.get('node'),
													alert: params.get('alert'),
													cursor: params.get('cursor')
												})}
												aria-current=${String(s.id) === chosen ? 'true' : undefined}
											>
												${s.name}
											</a>`
										},
										{label: 'Node', sort: 'node', cell: s => s.node},
										{
											label: 'Step time',
											tight: true,
											cell: s => s.recent_s.length > 0 && html`<${Spark} values=${s.recent_s} />`
										},
										{label: 'Latest', sort: 'median_step_s', number: true, cell: s => ms(s.median_step_s)},
										{label: 'Runs', number: true, sort: 'runs', cell: s => count(s.runs)},
										{label: 'Newest', tight: true, sort: 'last_at', cell: s => html`<${Time} at=${s.last_at} />`},
										{
											label: 'Alerts',
											sort: 'alerts',
											cell: s =>
												s.alerts.map(
													(/** @type {import('../schemas').Schemas['AlertSummary']} */ a) => html`<${State}
														key=${a.id}
														of=${a.state}
														says=${`${a.state}, ${percent(a.ratio - 1)}`}
													/>`
												)
										}
									]}
								/>
								<${Pages} page=${page} here=${page.items.length} what="configuration" />
							</section>`}
			<//>
		</div>
	`;
}
