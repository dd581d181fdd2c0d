// Where time goes, in shares of each variant. Forecast of steps on more cores than the node has, replayed from a
// one-thread run, with its error where steps were measured.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {ms, number, percent, slicesName} from '../format.js';
import {Answered, Table} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {NodeTime, Shares, nameOf} from '../plots/rows.js';
import {Label, XAxis, YAxis, plain, scale, schedulerColour} from '../plots/scale.js';
import {Nothing} from './answer.js';

// Where the threads' time went, and the speedup that the task graph allows.

const TIME = {useful: 'useful', 'no work': 'no-work', 'at barriers': 'barrier', scheduling: 'scheduling'};

/** @param {import('../schemas').Schemas['WaitingSplit']} waiting */
function shares(waiting) {
	const values = [waiting.useful_s, waiting.serial_s, waiting.load_balance_s, waiting.scheduling_s];
	const sum = values.reduce((a, b) => a + b, 0) || 1;
	return Object.fromEntries(Object.keys(TIME).map((name, i) => [name, (100 * (values[i] ?? 0)) / sum]));
}

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Causes({of, topic}) {
	const answer = useAnswer(
		of.by_state.succeeded ? 'analysis/efficiency' : null,
		{experiment_id: of.id},
		{follow: topic}
	);
	if (!of.by_state.succeeded) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${420}>
		${(/** @type {import('../schemas').Schemas['EfficiencyTable']} */ {rows}) => {
			const known = rows.filter(row => row.waiting);
			const missing = [...new Set(rows.flatMap(row => row.missing))];
			return html`<div class="stack">
				<${NodeTime} of=${of} name="all runs" />
				${known.length > 0 &&
				html`<section class="panel">
					<${Shares}
						title="Threads' time"
						name="threads-time"
						label="% of the threads' time"
						unit=${v => `${v.toFixed(2)} %`}
						most=${100}
						colours=${TIME}
						said=${'Useful time is spent in tasks. The rest is scheduling, and waiting: at barriers, or because no ' +
						'task is ready.'}
						rows=${known.map(row => {
							const parts = shares(/** @type {import('../schemas').Schemas['WaitingSplit']} */ (row.waiting));
							return {name: nameOf(row.variant), parts, says: `${parts['useful']?.toFixed(1)} %`};
						})}
					/>
				</section>`}
				<section class="panel">
					<h2>Efficiency</h2>
					<${Table}
						caption="Efficiency and its factors"
						rows=${rows}
						id=${r => nameOf(r.variant)}
						columns=${[
							{name: 'name', label: 'Variant', class: 'question', cell: r => nameOf(r.variant), by: r => nameOf(r.variant)},
							...[
								['parallel', 'Parallel efficiency'],
								['load_balance', 'Load balance'],
								['serialisation', 'Serialisation'],
								['transfer', 'Transfer']
							].map(([name, label]) => ({
								name,
								label,
								number: true,
								by: (/** @type {any} */ r) => r.efficiency?.[/** @type {string} */ (name)] ?? 0,
								cell: (/** @type {any} */ r) => number(r.efficiency?.[/** @type {string} */ (name)])
							})),
							{
								name: 'scalability',
								label: 'Computation scalability',
								number: true,
								cell: r => number(r.scalability?.computation)
							},
							{name: 'graph', label: 'T1/T∞ of the graph', number: true, cell: r => number(r.bounds?.parallelism)},
							{
								name: 'barriers',
								label: 'T1/T∞ with barriers',
								number: true,
								cell: r => number(r.bounds?.fork_join_parallelism)
							},
							{
								name: 'gain',
								label: 'Largest gain of tasks',
								number: true,
								cell: r => (r.bounds ? `${number(r.bounds.gain_limit)} ×` : '–')
							}
						]}
					/>
					<p class="soft">
						Parallel efficiency is the product of load balance, serialisation and transfer. T1/T∞ is the largest speedup that
						the dependencies allow, with any number of threads.
					</p>
				</section>
				${missing.length > 0 &&
				html`<section class="notice">
					<strong>Not known</strong>
					${missing.map(each => html`<span key=${each}>${each}</span>`)}
				</section>`}
			</div>`;
		}}
	<//>`;
}

const NOT_CHECKED = 'Not checked: no step on more than one thread was measured.';

/** @param {{of: import('../schemas').Schemas['Forecast']}} props */
function Curves({of}) {
	const points = of.curves.flatMap(curve =>
		curve.points.map(point => ({...point, curve, base_s: curve.points[0].step_s}))
	);
	const cores = of.curves[0].points.map(point => point.cores);
	const draw = (/** @type {number} */ width) => {
		const height = 330;
		const right = Math.max(width * 0.55, width - 230);
		const x = scale(1, Math.max(2, ...cores), 52, right, 2);
		const reached = points.flatMap(p => (p.measured_s === null ? [] : [p.base_s / p.measured_s]));
		const y = scale(Math.min(1, ...reached), 1.15 * Math.max(2, ...points.map(p => p.speedup)), height - 44, 10, 2);
		const end = Math.min(x.high, y.high);
		return {
			height,
			parts: html`
				<${XAxis} x=${x} top=${10} bottom=${height - 44} label="cores" />
				<${YAxis} y=${y} left=${52} right=${right} label="speedup against one core" />
				<path d=${`M${x(1)} ${y(1)}L${x(end)} ${y(end)}`} stroke="var(--soft)" stroke-dasharray="2 3" />
				${of.curves.map((curve, i) => {
					const colour = schedulerColour(curve.scheduler);
					const dash = curve.bandwidth === 'grows' ? undefined : '7 4';
					return html`<g key=${i}>
						<polyline
							points=${curve.points.map(p => `${x(p.cores).toFixed(1)},${y(p.speedup).toFixed(1)}`).join(' ')}
							fill="none"
							stroke=${colour}
							stroke-width="2.2"
							stroke-dasharray=${dash}
						/>
						${!dash &&
						curve.points
							.filter(p => p.measured_s !== null)
							.map(
								p => html`<circle
									key=${p.cores}
									cx=${x(p.cores)}
									cy=${y(curve.points[0].step_s / (p.measured_s ?? 1))}
									r="4.5"
									fill="var(--paper)"
									stroke=${colour}
									stroke-width="1.8"
								>
									<title>${curve.scheduler}, ${p.cores} cores: measured ${ms(p.measured_s)}, forecast ${ms(p.step_s)}</title>
								</circle>`
							)}
						<path d=${`M${right + 12} ${40 + 18 * i}h24`} stroke=${colour} stroke-width="2.2" stroke-dasharray=${dash} />
						<${Label} x=${right + 42} y=${44 + 18 * i} fill="var(--ink)">${curve.scheduler}, bandwidth ${curve.bandwidth}<//>
					</g>`;
				})}
				<${Label} x=${right + 12} y="22">dotted: ideal; rings: measured<//>
				<${Label} x=${right + 12} y=${56 + 18 * of.curves.length}>
					T1/T∞, task: ${plain(Number((of.work_s / of.span_s).toPrecision(3)))}
				<//>
				<${Label} x=${right + 12} y=${73 + 18 * of.curves.length}>
					T1/T∞, fork-join: ${plain(Number((of.work_s / of.fork_join_span_s).toPrecision(3)))}
				<//>
			`
		};
	};
	const slices = slicesName(of.source);
	const checked =
		of.worst_error === null ? NOT_CHECKED : `Largest error against a measured step: ${percent(of.worst_error)}.`;
	return html`<section class="panel stack tight">
		${!of.given &&
		html`<div class="notice warn">
			<strong>
				The forecast differs from measured steps by up to ${percent(of.worst_error, 0)}, so no other number of cores is
				forecast.
			</strong>
		</div>`}
		<${Plot}
			title=${`Slices ${slices}`}
			name=${`forecast-${slices}`}
			draw=${draw}
			rows=${points}
			said=${`Replayed from the one-thread runs ${Object.entries(of.source_run_ids)
				.map(([scheduler, run]) => `${run} (${scheduler})`)
				.join(' and ')}. ${checked}`}
			fields=${[
				{label: 'scheduler', value: p => p.curve.scheduler},
				{label: 'bandwidth', value: p => p.curve.bandwidth},
				{label: 'cores', value: p => p.cores},
				{label: 'forecast_ms', value: p => Number((p.step_s * 1e3).toPrecision(5))},
				{label: 'speedup', value: p => Number(p.speedup.toPrecision(4))},
				{label: 'measured_ms', value: p => (p.measured_s === null ? null : Number((p.measured_s * 1e3).toPrecision(5)))},
				{label: 'error', value: p => (p.error === null ? null : Number(p.error.toPrecision(3)))}
			]}
		/>
	</section>`;
}

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Forecast({of, topic}) {
	const answer = useAnswer(of.by_state.succeeded ? 'analysis/forecast' : null, {experiment_id: of.id}, {follow: topic});
	if (!of.by_state.succeeded) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${400}>
		${found => html`<div class="stack">
			${found.forecasts.map(
				(/** @type {import('../schemas').Schemas['Forecast']} */ one) => html`<${Curves}
					key=${one.source_run_id}
					of=${one}
				/>`
			)}
			${found.forecasts[0] &&
			html`
				<section class="panel">
					<h2>Assumptions</h2>
					<ul class="notes">
						${found.forecasts[0].assumptions.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}
					</ul>
				</section>
				<section class="panel">
					<h2>Largest possible gain of tasks</h2>
					<${Table}
						caption="Bounds"
						rows=${found.forecasts}
						id=${f => f.source_run_id}
						columns=${[
							{name: 's', label: 'Slices', cell: f => slicesName(f.source)},
							{name: 't', label: 'Tasks', number: true, cell: f => f.tasks},
							{name: 'w', label: 'Work', number: true, cell: f => ms(f.work_s)},
							{name: 'sp', label: 'Span, task', number: true, cell: f => ms(f.span_s)},
							{name: 'fj', label: 'Span, fork-join', number: true, cell: f => ms(f.fork_join_span_s)},
							{name: 'g', label: 'Ratio', number: true, cell: f => number(f.fork_join_span_s / f.span_s)}
						]}
					/>
				</section>
			`}
			${found.missing.length > 0 &&
			html`<section class="notice">
				<strong>Not known</strong>
				${found.missing.map((/** @type {string} */ each) => html`<span key=${each}>${each}</span>`)}
			</section>`}
		</div>`}
	<//>`;
}
