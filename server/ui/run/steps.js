// Each step: its time by phase, its loss and accuracy, and why it is flagged.
import {html, useMemo} from '../vendor/preact.js';
import {useAnswer, useGrowing} from '../answers.js';
import {median, ms, plural, words} from '../format.js';
import {Answered, Empty, Table} from '../pieces.js';
import {Lines} from '../plots/series.js';

const MOST = 500;
/** @typedef {import('../schemas').Schemas['SampleRow']} Sample a step of a result */
/** @typedef {import('../schemas').Schemas['StepSeen']} Seen a step so far */
/** @typedef {'loss' | 'accuracy' | 'evaluation_loss' | 'evaluation_accuracy'} Quality */
/** The phases of some steps, in their order. @param {Sample[]} rows */
const phasesOf = rows => Object.keys(rows[0]?.phase_s ?? {});
const OVERLAP =
	' They overlap: each shows the time of its own tasks divided by the number of threads. ' +
	'The gap below the line is waiting.';

/**
 * @param {{rows: Sample[], flagged: string[][], busy: Record<string, number[]> | null,
 *   threads: number}} props busy: the time of each phase's own tasks, for phases that overlap
 */
function Times({rows, flagged, busy, threads}) {
	const x = useMemo(() => rows.map(row => row.step), [rows]);
	const phases = phasesOf(rows);
	const overlap = rows.some(
		row => phases.reduce((sum, phase) => sum + (row.phase_s[phase] ?? 0), 0) > row.step_s * 1.02
	);
	const phase_s = (/** @type {Sample} */ row, /** @type {string} */ phase) =>
		overlap ? (busy?.[phase]?.[row.step] ?? 0) / threads : (row.phase_s[phase] ?? 0);
	const sums = phases.map((_, i) =>
		rows.map(row => phases.slice(0, i + 1).reduce((sum, phase) => sum + phase_s(row, phase), 0) * 1e3)
	);
	const middle = median(rows.filter(row => !row.warmup).map(row => row.step_s));
	const unit = (/** @type {number} */ value) => `${Number(value.toPrecision(4))} ms`;
	const series = [
		...phases
			.map((phase, i) => ({
				label: phase,
				token: phase,
				values: sums[i],
				kind: 'area',
				legend: rows.map(row => phase_s(row, phase) * 1e3),
				show: unit
			}))
			.reverse(),
		{label: 'step', token: 'ink', values: rows.map(row => row.step_s * 1e3), show: unit},
		{
			label: 'median',
			token: 'accent',
			values: rows.map(() => (middle === null ? null : middle * 1e3)),
			dash: '5 4',
			show: unit
		},
		{
			label: 'flagged',
			token: 'bad',
			values: rows.map(row => (flagged[row.step]?.length ? row.step_s * 1e3 : null)),
			kind: 'points',
			show: unit
		}
	];
	return html`<${Lines}
		title="Step time"
		name="steps"
		rows=${rows}
		said=${`Filled: the phases, stacked.${overlap ? OVERLAP : ''} ` +
		'Red points: flagged steps, which are included. Warm-up steps come first and are excluded.'}
		fields=${[
			'step',
			{label: 'warmup', value: r => (r.warmup ? 'yes' : 'no')},
			{label: 'step_ms', value: r => r.step_s * 1e3},
			...phases.map(phase => ({label: `${phase}_ms`, value: (/** @type {Sample} */ r) => (r.phase_s[phase] ?? 0) * 1e3})),
			'loss',
			{label: 'flags', value: r => (flagged[r.step] ?? []).join(' ')}
		]}
		x=${x}
		xLabel="step"
		yLabel="milliseconds"
		series=${series}
		height=${290}
	/>`;
}

const CURVES = /** @type {const} */ (['loss', 'accuracy']);
/** Whether any step has a value. @param {(Sample | Seen)[]} rows @param {Quality} name */
const has = (rows, name) => rows.some(row => row[name] != null);
/** A loss, or an accuracy in percent. @param {string} name @param {number} value */
const shown = (name, value) => (name.endsWith('loss') ? value.toFixed(5) : `${(100 * value).toFixed(1)} %`);

/**
 * The loss or the accuracy so far, and of evaluations.
 * @param {{rows: (Sample | Seen)[], name: 'loss' | 'accuracy'}} props
 */
function Curve({rows, name}) {
	const x = useMemo(() => rows.map(row => row.step), [rows]);
	const known = /** @type {const} */ ([name, `evaluation_${name}`]).filter(key => has(rows, key));
	const percent = name === 'accuracy';
	return html`<${Lines}
		title=${percent ? 'Accuracy' : 'Loss'}
		name=${name}
		rows=${rows}
		said=${known[1] && 'Points: all images of the evaluated split, after that step.'}
		fields=${['step', ...known]}
		x=${x}
		xLabel="step"
		yLabel=${percent ? 'accuracy, %' : name}
		height=${220}
		series=${known.map((key, i) => ({
			label: key.replace('_', ' '),
			token: i ? 'ink' : percent ? 'accent' : 'task',
			kind: i ? 'points' : 'line',
			values: rows.map(row => (row[key] == null ? null : row[key] * (percent ? 100 : 1))),
			show: (/** @type {number} */ v) => (percent ? `${v.toFixed(1)} %` : v.toFixed(5))
		}))}
	/>`;
}

/** The curves that a run has, side by side. @param {{rows: (Sample | Seen)[]}} props */
const Curves = ({rows}) =>
	html`<div class="columns">
		${CURVES.map(
			name => has(rows, name) && html`<section class="panel"><${Curve} rows=${rows} name=${name} /></section>`
		)}
	</div>`;

const QUANTILES = /** @type {const} */ (['p50', 'p90', 'p99']);
/** @typedef {import('../schemas').Schemas['ResultLatency']} Latency */

/** A quantile with its bounds, or what these need. @param {Latency} latency @param {typeof QUANTILES[number]} name */
function quantile(latency, name) {
	const bounds = latency[`${name}_ci95_s`];
	const around = bounds
		? `[${ms(bounds[0])}, ${ms(bounds[1])}]`
		: `(bounds need ${plural(latency.steps_needed?.[name] ?? 0, 'step')})`;
	return `${name} ${ms(latency[`${name}_s`])} ${around}`;
}

/** The share of timed steps that took at most a time. @param {{rows: Sample[], latency: Latency}} props */
function Distribution({rows, latency}) {
	const times = useMemo(
		() =>
			rows
				.filter(row => !row.warmup)
				.map(row => row.step_s * 1e3)
				.sort((a, b) => a - b),
		[rows]
	);
	const shares = times.map((_, i) => ((i + 1) / times.length) * 100);
	return html`<${Lines}
		title="Distribution of step times"
		name="latency"
		rows=${times.map((time, i) => ({time, share: shares[i]}))}
		said=${`${QUANTILES.map(name => quantile(latency, name)).join(', ')}, max ${ms(latency.max_s)}.`}
		fields=${[
			{label: 'at_most_ms', value: r => r.time},
			{label: 'percent_of_steps', value: r => r.share}
		]}
		x=${shares}
		xLabel="% of the timed steps"
		yLabel="milliseconds at most"
		height=${260}
		series=${[
			{label: 'step', token: 'accent', values: times, show: v => ms(v / 1e3)},
			...QUANTILES.map((name, i) => ({
				label: name,
				token: ['ink', 'task', 'bad'][i] ?? 'ink',
				values: times.map(() => latency[`${name}_s`] * 1e3),
				dash: '5 4',
				show: (/** @type {number} */ v) => ms(v / 1e3)
			}))
		]}
	/>`;
}

/** Each step's time while the run is under way. @param {{rows: {step: number, step_s: number}[]}} props */
function Live({rows}) {
	const x = useMemo(() => rows.map(row => row.step), [rows]);
	return html`<${Lines}
		title="Step time so far"
		name="steps-so-far"
		rows=${rows}
		said="As the worker reports them. Their phases, and which of them are warm-up, are known at the end."
		fields=${['step', {label: 'step_ms', value: r => r.step_s * 1e3}]}
		x=${x}
		xLabel="step"
		yLabel="milliseconds"
		height=${260}
		zero=${true}
		series=${[
			{label: 'step', token: 'accent', values: rows.map(row => row.step_s * 1e3), kind: 'points', show: v => ms(v / 1e3)}
		]}
	/>`;
}

/**
 * @param {{of: import('../schemas').Schemas['RunDetail'], topic: string, live:
 *   import('../schemas').Schemas['RunEvent'] | null}} props
 */
export function Steps({of, topic}) {
	const done = of.state === 'succeeded' || of.median_step_s !== null;
	const samples = useAnswer(done ? `runs/${of.id}/samples` : null);
	const result = useAnswer(done ? `runs/${of.id}/result` : null);
	const live = useGrowing(done || of.state === 'queued' ? null : `runs/${of.id}/steps`, topic);
	if (!done) {
		const every = live.data ?? [];
		const rows = every.filter(row => row.attempt_no === every.at(-1)?.attempt_no);
		return rows.length > 1
			? html`<div class="stack"><section class="panel"><${Live} rows=${rows} /></section><${Curves} rows=${rows} /></div>`
			: html`<${Empty}>
					<p>
						${of.state === 'queued'
							? 'This run has not started.'
							: ['running', 'leased'].includes(of.state)
								? 'Steps appear here as the worker reports them.'
								: 'This run has no result, so none of its steps count.'}
					</p>
				<//>`;
	}
	return html`<${Answered} answer=${samples} height=${420}>
		${found => {
			const flagged = result.data?.flagged ?? [];
			const rows = found.items;
			return html`<div class="stack">
				<section class="panel">
					<${Times}
						rows=${rows}
						flagged=${flagged}
						busy=${result.data?.phase_busy_s ?? null}
						threads=${of.spec.threads ?? 1}
					/>
				</section>
				${result.data?.latency?.steps &&
				html`<section class="panel"><${Distribution} rows=${rows} latency=${result.data.latency} /></section>`}
				<${Curves} rows=${rows} />
				<section class="panel">
					<h2>Steps</h2>
					${result.data?.phase_busy_s &&
					of.spec.sync !== 'phase' &&
					of.spec.scheduler !== 'serial' &&
					html`<p class="soft">
						A phase lasts from the start of its first task to the end of its last. Phases that overlap add up to more than the
						step.
					</p>`}
					<${Table}
						caption="Steps"
						tall=${rows.length > 30}
						rows=${rows.slice(0, MOST)}
						id=${r => r.step}
						columns=${[
							{
								label: 'Step',
								number: true,
								cell: r => html`${r.step}${r.warmup ? html` <small class="soft">warm-up</small>` : ''}`,
								by: r => r.step
							},
							{label: 'Time', number: true, cell: r => ms(r.step_s), by: r => r.step_s},
							...phasesOf(rows).map(phase => ({
								label: phase,
								number: true,
								cell: (/** @type {Sample} */ r) => ms(r.phase_s[phase])
							})),
							.../** @type {const} */ (['loss', 'accuracy', 'evaluation_loss', 'evaluation_accuracy'])
								.filter(name => has(rows, name))
								.map(name => ({
									label: name.replace(/^./, c => c.toUpperCase()).replace('_', ' '),
									number: true,
									cell: (/** @type {Sample} */ r) => (r[name] == null ? '' : shown(name, r[name])),
									by: (/** @type {Sample} */ r) => r[name] ?? 0
								})),
							{
								label: 'Flagged for',
								cell: r =>
									flagged[r.step]?.length ? html`<span class="state warn">${words(flagged[r.step].join(', '))}</span>` : ''
							}
						]}
					/>
					${rows.length > MOST &&
					html`<p class="soft">${MOST} of ${plural(rows.length, 'step')} shown; CSV above has all.</p>`}
				</section>
			</div>`;
		}}
	<//>`;
}
