// Evidence for the verdict: medians, ratios, and each run in its block.
import {html} from '../vendor/preact.js';
import {link} from '../address.js';
import {useAnswer} from '../answers.js';
import {count, ms, number, perSecond, percent, plural, ratio, sample, variantName, words} from '../format.js';
import {Answered, Empty, Marks, Start, Table} from '../pieces.js';
import {Phases, Slices, nameOf} from '../plots/rows.js';
import {Medians, Ratios, Speedups, comparisons, namesOf, placeOf, sidesOf} from '../plots/variants.js';
import {State, tone} from '../words.js';

/** Shown while no run has succeeded. @param {{of: import('../schemas').Schemas['ExperimentDetail']}} props */
export function Nothing({of}) {
	const {queued, leased, running} = of.by_state;
	const waits = queued && !leased && !running;
	return html`<${Empty}>
		<p>
			${of.state === 'active'
				? 'No run has succeeded yet. Results appear after the first one.'
				: html`<a href=${link('experiment', {id: of.id, view: 'runs'})}>Its runs</a> say why.`}
		</p>
		${waits &&
		html`
			<p>Its runs wait for a worker; <a href=${link('fleet')}>Fleet</a> says for which. Start one on a node:</p>
			<${Start} />
		`}
	<//>`;
}

/**
 * An analysis of an experiment, once a run has succeeded.
 * @template {`analysis/${string}`} Path
 * @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string, path: Path, height: number,
 *   children: (data: import('../schemas').AnswerOf<Path>) => import('../vendor/preact.js').ComponentChildren}} props
 */
export function Analysed({of, topic, path, height, children}) {
	const done = of.by_state.succeeded;
	const answer = useAnswer(done ? path : null, {experiment_id: of.id}, {follow: topic});
	return done ? html`<${Answered} answer=${answer} height=${height}>${children}<//>` : html`<${Nothing} of=${of} />`;
}

/**
 * Each run as a cell: one row per variant, one column per block.
 * @param {{of: import('../schemas').Schemas['ExperimentDetail'], runs: import('../schemas').Schemas['RunRow'][]}}
 *   props
 */
function Grid({of, runs}) {
	const variants = [...new Map(runs.map(run => [JSON.stringify(run.variant), run.variant])).entries()].sort(
		([, a], [, b]) => variantName(a).localeCompare(variantName(b), 'en', {numeric: true})
	);
	const blocks = [...new Set(runs.map(run => run.block))].sort((a, b) => a - b);
	const places = new Map(runs.map(run => [`${run.block} ${JSON.stringify(run.variant)} `, run]));
	if (variants.length < 2 || blocks.length < 1) return null;
	return html`<section class="panel">
		<h2>Blocks and variants</h2>
		<div class="scroll" tabindex="0" role="region" aria-label="Runs by block and variant">
			<table class="grid">
				<caption class="unseen">State of each run, by block and variant</caption>
				<thead>
					<tr>
						<th scope="col">Variant</th>
						${blocks.map(
							block => html`<th key=${block} scope="col" class="number"><span class="unseen">block </span>${block + 1}</th>`
						)}
					</tr>
				</thead>
				<tbody>
					${variants.map(
						([key, variant]) => html`<tr key=${key}>
							<td>${variantName(variant)}</td>
							${blocks.map(block => {
								const run = places.get(`${block} ${key} `);
								return html`<td key=${block}>
									${run &&
									html`<a
										class=${`cell ${tone(run.state)}`}
										href=${link('run', {id: run.id})}
										title=${`run ${run.id}: ${run.state}` +
										(run.median_step_s === null ? '' : `, ${ms(run.median_step_s)}`) +
										(run.flagged_steps ? `, ${run.flagged_steps} steps flagged` : '')}
									>
										<span class="unseen">run ${run.id}, ${run.state}</span>
										${run.flagged_steps ? '!' : ''}
									</a>`}
								</td>`;
							})}
						</tr>`
					)}
				</tbody>
			</table>
		</div>
		<p class="soft">
			Runs of one block form pairs: they ran on the same node and cores, one after the other. A cell with ! has flagged
			steps.${of.runs > runs.length ? ` ${count(runs.length)} of ${plural(of.runs, 'run')} shown.` : ''}
		</p>
	</section>`;
}

/** @param {{axis: string | null, rows: import('../plots/variants.js').Compared[]}} props */
function Comparisons({axis, rows}) {
	const [first, second] = sidesOf(axis, rows);
	// Then the heading names both.
	const same = first !== 'first' && !rows.some(row => row.named);
	return html`
		<h2>${same ? `${second} against ${first}: each comparison` : 'Comparisons'}</h2>
		<${Table}
			caption="Comparisons, adjusted for multiple comparisons"
			rows=${rows.map((row, i) => ({...row, i}))}
			id=${row => row.i}
			columns=${[
				{label: 'Settings', class: 'question', cell: placeOf},
				...(same
					? []
					: [
							{
								label: 'Second against first',
								tight: true,
								cell: (/** @type {import('../schemas').Schemas['SweepRow']} */ row) => {
									const [a, b] = namesOf(axis, row);
									return `${b} against ${a}`;
								}
							}
						]),
				{label: 'Verdict', tight: true, cell: row => html`<${State} of=${row.verdict} />`, by: row => row.verdict},
				{
					label: `${first} time / ${second} time [95 %]`,
					number: true,
					cell: row => ratio(row.ratio, row.ratio_low, row.ratio_high),
					by: row => row.ratio ?? 0
				},
				{
					label: 'p, adjusted',
					number: true,
					cell: row => (row.p_adjusted == null ? '–' : row.p_adjusted.toPrecision(2)),
					by: row => row.p_adjusted ?? 1
				},
				{label: 'n', number: true, cell: row => sample(row.n ?? row.pairs, row.unit)},
				{
					label: 'Reason',
					class: 'question',
					cell: row => html`<small title=${row.reason ?? row.scope}>${row.why.sentence}</small>`
				}
			]}
		/>
	`;
}

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Answer({of, topic}) {
	const done = (of.by_state.succeeded ?? 0) > 0;
	const scaling = useAnswer(done ? 'analysis/scaling' : null, {experiment_id: of.id}, {follow: topic});
	const sweep = useAnswer(done ? 'analysis/sweep' : null, {experiment_id: of.id}, {follow: topic});
	const runs = useAnswer('runs', {experiment_id: of.id, limit: 500}, {follow: topic});
	const items = runs.data?.items ?? [];
	return html`<div class="stack">
		${done
			? html`
					<div class="columns">
						<section class="panel">
							<${Answered} answer=${sweep} height=${240}>
								${found =>
									comparisons(found).length
										? html`<${Ratios} sweep=${found} />`
										: html`
												<h2>Comparison</h2>
												<p class="soft">
													${found.axis ? `No two variants differ in ${words(found.axis)} alone` : 'No setting varies'}: nothing to
													compare.
												</p>
											`}
							<//>
						</section>
						<section class="panel">
							<${Answered} answer=${scaling} height=${240}>
								${found =>
									found.rows.length
										? html`<${Medians} rows=${found.rows} runs=${items} all=${of.runs} />`
										: html`<p class="soft">No results.</p>`}
							<//>
						</section>
					</div>
					${sweep.data &&
					comparisons(sweep.data).length > 0 &&
					html`<section class="panel"><${Comparisons} axis=${sweep.data.axis} rows=${comparisons(sweep.data)} /></section>`}
				`
			: html`<${Nothing} of=${of} />`}
		<${Answered} answer=${runs} height=${160}>${() => html`<${Grid} of=${of} runs=${items} />`}<//>
		<${Marks}
			of=${[
				...(scaling.data?.warnings ?? []),
				...(sweep.data?.rows ?? []).flatMap((/** @type {import('../schemas').Schemas['SweepRow']} */ row) => row.marks)
			]}
		/>
	</div>`;
}

/**
 * Quantiles of the step's time, of variants of inference.
 * @param {{rows: import('../schemas').Schemas['ScalingRow'][]}} props
 */
function Latencies({rows}) {
	if (!rows.length) return null;
	return html`<section class="panel">
		<h2>Latency of a step</h2>
		<p class="soft">Quantiles of the timed steps of each process; medians over processes.</p>
		<${Table}
			caption="Latency of a step"
			rows=${rows}
			id=${nameOf}
			columns=${[
				{label: 'Variant', class: 'question', cell: nameOf, by: nameOf},
				...['p50', 'p90', 'p99', 'max'].map(name => ({
					label: name,
					number: true,
					by: (/** @type {import('../schemas').Schemas['ScalingRow']} */ r) => r.latency_s?.[name] ?? 0,
					cell: (/** @type {import('../schemas').Schemas['ScalingRow']} */ r) => ms(r.latency_s?.[name])
				})),
				{
					label: 'p99 / p50',
					number: true,
					by: r => r.latency_s.p99 / r.latency_s.p50,
					cell: r => (r.latency_s.p99 / r.latency_s.p50).toFixed(3)
				}
			]}
		/>
	</section>`;
}

/**
 * What the way to the runs' goal took.
 * @param {{rows: import('../schemas').Schemas['GoalRow'][]}} props
 */
function Goals({rows}) {
	if (!rows.length) return null;
	/** @param {import('../schemas').Schemas['Spent'] | null} of @param {(value: number) => string} text */
	const spent = (of, text) =>
		of === null
			? '–'
			: html`
					${text(of.median)}
					${of.low !== null && of.high !== null && html` <small class="soft">[${text(of.low)}, ${text(of.high)}]</small>`}
				`;
	const missing = [...new Set(rows.map(row => row.energy_missing).filter(Boolean))];
	return html`<section class="panel">
		<h2>The way to the goal</h2>
		<p class="soft">
			Until the first step that reached the goal, warm-up included: medians, of several seeds over seeds. They are shown
			where every run reached the goal.${missing.length ? ` Energy is unknown: ${missing.join('; ')}.` : ''}
		</p>
		<${Table}
			caption="The way to the goal"
			rows=${rows}
			id=${r => `${nameOf(r)} ${r.value}`}
			columns=${[
				{label: 'Variant', class: 'question', cell: nameOf, by: nameOf},
				{label: 'Goal', cell: r => `${r.metric} ${r.metric === 'loss' ? '≤' : '≥'} ${r.value}`},
				{label: 'Reached', number: true, cell: r => `${r.reached} of ${r.runs}`},
				{label: 'Steps [95 %]', number: true, by: r => r.steps?.median ?? Infinity, cell: r => spent(r.steps, count)},
				{
					label: 'Time [95 %]',
					number: true,
					by: r => r.time_s?.median ?? Infinity,
					cell: r => spent(r.time_s, v => `${number(v)} s`)
				},
				{
					label: 'Energy [95 %]',
					number: true,
					by: r => r.energy_j?.median ?? Infinity,
					cell: r => spent(r.energy_j, v => `${number(v)} J`)
				},
				{label: 'n', number: true, cell: r => `${r.n} ${r.over}`}
			]}
		/>
	</section>`;
}

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Scaling({of, topic}) {
	return html`<${Analysed} of=${of} topic=${topic} path="analysis/scaling" height=${500}>
		${found => html`<div class="stack">
			<${Speedups} rows=${found.rows} />
			<div class="columns">
				<section class="panel">
					<${Phases}
						title="Phases of a step"
						name="phases"
						rows=${found.rows.map((/** @type {import('../schemas').Schemas['ScalingRow']} */ row) => ({
							name: nameOf(row),
							phases_s: Object.entries(row.phase_s),
							step_s: row.step_s.median
						}))}
					/>
				</section>
				${new Set(
					found.rows.map(
						(/** @type {import('../schemas').Schemas['ScalingRow']} */ row) => `${row.batch_slice} ${row.token_slice}`
					)
				).size > 1 && html`<section class="panel"><${Slices} rows=${found.rows} /></section>`}
			</div>
			<${Latencies}
				rows=${found.rows.filter((/** @type {import('../schemas').Schemas['ScalingRow']} */ row) => row.latency_s)}
			/>
			<${Goals} rows=${found.goals} />
			<section class="panel">
				<h2>Variants</h2>
				<p class="soft">${found.base}</p>
				<${Table}
					caption="Variants"
					rows=${found.rows}
					id=${nameOf}
					columns=${[
						{label: 'Variant', class: 'question', cell: nameOf, by: nameOf},
						{
							label: 'Median step [95 %]',
							number: true,
							by: r => r.step_s.median,
							cell: r => html`
								${ms(r.step_s.median)}
								${r.step_s.low !== null && html` <small class="soft">[${ms(r.step_s.low)}, ${ms(r.step_s.high)}]</small>`}
							`
						},
						{label: 'CV', number: true, by: r => r.step_s.cv ?? 0, cell: r => percent(r.step_s.cv)},
						{label: 'n', number: true, cell: r => `${r.step_s.n} ${r.step_s.over ?? ''}`},
						{label: perSecond(found.rows), number: true, by: r => r.tokens_per_s, cell: r => count(r.tokens_per_s)},
						{
							label: 'Speedup [95 %]',
							number: true,
							by: r => r.speedup ?? 0,
							cell: r => ratio(r.speedup, r.speedup_low, r.speedup_high)
						},
						{label: 'Efficiency', number: true, by: r => r.efficiency ?? 0, cell: r => percent(r.efficiency, 0)},
						{
							label: 'Final loss',
							number: true,
							cell: r => html`${r.final_loss?.toFixed(5) ?? '–'} ${r.agrees
								? ''
								: html`<${State} of="refused" says="disagrees" />`}`
						}
					]}
				/>
			</section>
			<${Marks}
				of=${[
					...found.warnings,
					...found.rows.flatMap((/** @type {import('../schemas').Schemas['ScalingRow']} */ row) => row.diagnosis)
				]}
			/>
		</div>`}
	<//>`;
}
