// What limits a step: each op against the measured peaks of its node; steps on more cores than the node has, replayed
// from a one-thread run, with the error where steps were measured.
import {html} from '../vendor/preact.js';
import {address, link} from '../address.js';
import {ms, number, percent, round, slicesName} from '../format.js';
import {Choice, Notice, Table} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {Label, OP_KINDS, XAxis, YAxis, beside, opKind, plain, scale, schedulerColour} from '../plots/scale.js';
import {nameOf} from '../plots/rows.js';
import {Analysed} from './answer.js';

/** @typedef {import('../schemas').Schemas} Schemas */

// Where a label may stand instead.
const ABOVE = [0, -14, 14, -28, 28, -42, 42];

/**
 * Labels that do not overlap, the first ones first: each at its place, above it or below, else not at all.
 * @param {{text: string, x: number, y: number}[]} given
 */
function labels(given) {
	const placed = /** @type {typeof given} */ ([]);
	for (const {text, x, y} of given) {
		const isFree = (/** @type {number} */ at) =>
			placed.every(each => Math.abs(each.y - at) >= 12 || Math.abs(each.x - x) >= 3.2 * (each.text.length + text.length));
		const above = ABOVE.find(each => isFree(y + each));
		if (above !== undefined) placed.push({text, x, y: y + above});
	}
	return placed;
}

/**
 * The roofline of a variant, with its ops.
 * @param {{row: Schemas['RooflineRow'] & {peaks: Schemas['Peaks']}}} props
 */
function Roofline({row}) {
	const ops = row.ops.flatMap(op =>
		op.intensity && op.achieved_gflop_per_s > 0 ? [{...op, intensity: op.intensity}] : []
	);
	const {gflop_per_s: peak, triad_gb_per_s: bandwidth} = row.peaks;
	const ridge = peak / bandwidth;
	const spread = ops.map(op => op.intensity);
	const rates = ops.map(op => op.achieved_gflop_per_s);
	const draw = (/** @type {number} */ width) => {
		const height = 380;
		const x = scale(Math.min(...spread, ridge) / 1.5, Math.max(...spread, ridge) * 1.5, 60, width - 12, 10);
		const y = scale(Math.min(...rates, x.low * bandwidth), peak * 1.5, height - 44, 12, 10);
		return {
			height,
			parts: html`
				<${XAxis} x=${x} top=${12} bottom=${height - 44} label="flop per byte (compulsory)" />
				<${YAxis} y=${y} left=${60} right=${width - 12} label="GFLOP/s, all threads" />
				<path
					d=${`M${x(x.low)} ${y(x.low * bandwidth)}L${x(ridge)} ${y(peak)}H${x(x.high)}`}
					fill="none"
					stroke="var(--ink)"
					stroke-width="2"
				/>
				<${Label} x=${x(x.high) - 4} y=${y(peak) - 7} text-anchor="end" fill="var(--ink)">${peak.toFixed(0)} GFLOP/s<//>
				<${Label} x=${x(x.low) + 8} y=${y(x.low * bandwidth) - 14} fill="var(--ink)">${bandwidth.toFixed(1)} GB/s<//>
				${ops.map(
					(op, i) => html`<circle
						key=${i}
						cx=${x(op.intensity)}
						cy=${y(op.achieved_gflop_per_s)}
						r=${3 + 15 * Math.sqrt(op.time_share)}
						fill=${`var(--${opKind(op.op)})`}
						fill-opacity=".7"
						stroke="var(--ink)"
						stroke-width=".6"
					>
						<title>${op.op}, ${op.phase}: ${percent(op.time_share)} of time, ${percent(op.share, 0)} of its roof</title>
					</circle>`
				)}
				${labels(
					[...ops]
						.sort((a, b) => b.time_share - a.time_share)
						.filter(op => op.time_share > 0.02)
						.map(op => ({text: op.op, x: x(op.intensity), y: y(op.achieved_gflop_per_s) + 4}))
				).map(
					({text, x, y}, i) => html`<${Label}
						key=${i}
						x=${x}
						y=${y}
						text-anchor="middle"
						font-size="10.5"
						fill="var(--ink)"
						pointer-events="none"
					>
						${text}
					<//>`
				)}
			`
		};
	};
	return html`<${Plot}
		title=${`Roofline of ${nameOf(row.variant)}`}
		name="roofline"
		draw=${draw}
		rows=${ops}
		legend=${OP_KINDS}
		said=${'The roofs were measured on the node with the same number of threads. ' +
		"The area of a circle is the op's share of time. Small or crowded ops have no label; Table lists all."}
		fields=${[
			'op',
			'phase',
			'time_share',
			'intensity',
			'achieved_gflop_per_s',
			'achieved_gb_per_s',
			'share',
			'bound'
		].map(label => ({
			label,
			value: op => (typeof op[label] === 'number' ? Number(op[label].toPrecision(5)) : op[label])
		}))}
	/>`;
}

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Roofs({of, topic}) {
	return html`<${Analysed} of=${of} topic=${topic} path="analysis/roofline" height=${460}>
		${(/** @type {Schemas['RooflineTable']} */ {rows}) => {
			const shown = rows.filter(row => row.ops.length && row.peaks);
			if (!shown.length) return html`<${Notice} title="Not known" of=${[...new Set(rows.flatMap(row => row.missing))]} />`;
			const names = shown.map(row => nameOf(row.variant));
			const asked = address.value.params.get('variant');
			const chosen = shown[asked && names.includes(asked) ? names.indexOf(asked) : names.length - 1];
			/** @param {string} phase @param {string} [title] */
			const answer = (phase, title = phase) => ({
				label: title,
				tight: true,
				by: (/** @type {Schemas['RooflineRow']} */ row) =>
					row.phases.find(each => each.phase === phase)?.memory_time_share ?? -1,
				cell: (/** @type {Schemas['RooflineRow']} */ row) => {
					const of = row.phases.find(each => each.phase === phase);
					return (
						of &&
						html`<strong>${of.answer}</strong> <small class="soft">
							${percent(of.memory_time_share, 0)} of time below the ridge
						</small>`
					);
				}
			});
			return html`<div class="stack">
				<section class="panel">
					<h2>Is it memory-bound?</h2>
					<${Table}
						caption="Is it memory-bound?"
						rows=${shown}
						id=${row => nameOf(row.variant)}
						columns=${[
							{
								label: 'Variant',
								class: 'question',
								by: row => nameOf(row.variant),
								cell: row => html`<a
									href=${link('experiment', {id: of.id, view: 'roofs', variant: nameOf(row.variant)})}
									aria-current=${row === chosen ? 'true' : undefined}
								>
									${nameOf(row.variant)}
								</a>`
							},
							answer('forward'),
							answer('backward'),
							answer('update'),
							{label: 'Model-FLOP utilisation', number: true, by: row => row.mfu ?? 0, cell: row => percent(row.mfu)}
						]}
					/>
					<p class="soft">
						An op below the ridge does so few flop per byte that memory bandwidth limits it before the cores do.
					</p>
				</section>
				<section class="panel stack">
					<${Choice}
						name="variant"
						label="Variant"
						value=${nameOf(chosen.variant)}
						options=${names.map(name => [name, name])}
					/>
					<${Roofline} row=${chosen} />
					<${Table}
						caption=${`Phases of ${nameOf(chosen.variant)}`}
						rows=${chosen.phases}
						id=${p => p.phase}
						columns=${[
							{label: 'Phase', tight: true, cell: p => p.phase},
							{label: 'Memory-bound', tight: true, cell: p => html`<strong>${p.answer}</strong>`},
							{label: 'Time below the ridge', number: true, cell: p => percent(p.memory_time_share, 0)},
							{label: 'Computation scalability', number: true, cell: p => number(p.computation_scalability)},
							{label: 'GFLOP/s', number: true, cell: p => number(p.achieved_gflop_per_s)},
							{label: 'GB/s', number: true, cell: p => number(p.achieved_gb_per_s)},
							{label: 'Reason', class: 'question', cell: p => html`<small>${p.reason}</small>`}
						]}
					/>
				</section>
			</div>`;
		}}
	<//>`;
}

const NOT_CHECKED = 'Not checked: no step on more than one thread was measured.';

/** @param {{of: Schemas['Forecast']}} props */
function Curves({of}) {
	const points = of.curves.flatMap(curve =>
		curve.points.map(point => ({...point, curve, base_s: curve.points[0].step_s}))
	);
	const cores = of.curves[0].points.map(point => point.cores);
	const draw = (/** @type {number} */ width) => {
		const height = 330;
		const {right, at, from} = beside(width, height);
		const x = Object.assign(scale(1, Math.max(2, ...cores), 52, right, 2), {ticks: () => cores});
		const reached = points.flatMap(p => (p.measured_s === null ? [] : [p.base_s / p.measured_s]));
		const y = scale(Math.min(1, ...reached), 1.15 * Math.max(2, ...points.map(p => p.speedup)), height - 44, 10, 2);
		const end = Math.min(x.high, y.high);
		return {
			height: height + (from && 80 + 18 * of.curves.length),
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
						<path d=${`M${at} ${from + 40 + 18 * i}h24`} stroke=${colour} stroke-width="2.2" stroke-dasharray=${dash} />
						<${Label} x=${at + 30} y=${from + 44 + 18 * i} fill="var(--ink)">
							${curve.scheduler}, bandwidth ${curve.bandwidth}
						<//>
					</g>`;
				})}
				<${Label} x=${at} y=${from + 22}>dotted: ideal; rings: measured<//>
				<${Label} x=${at} y=${from + 56 + 18 * of.curves.length}>
					T1/T∞, task: ${plain(Number((of.work_s / of.span_s).toPrecision(3)))}
				<//>
				<${Label} x=${at} y=${from + 73 + 18 * of.curves.length}>
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
				'cores',
				{label: 'forecast_ms', value: p => round(p.step_s * 1e3, 5)},
				{label: 'speedup', value: p => round(p.speedup, 4)},
				{label: 'measured_ms', value: p => p.measured_s && round(p.measured_s * 1e3, 5)},
				{label: 'error', value: p => round(p.error, 3)}
			]}
		/>
	</section>`;
}

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Forecast({of, topic}) {
	return html`<${Analysed} of=${of} topic=${topic} path="analysis/forecast" height=${400}>
		${found => html`<div class="stack">
			${found.forecasts.map(
				(/** @type {Schemas['Forecast']} */ one) => html`<${Curves} key=${one.source_run_id} of=${one} />`
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
							{label: 'Slices', cell: f => slicesName(f.source)},
							{label: 'Tasks', number: true, cell: f => f.tasks},
							{label: 'Work', number: true, cell: f => ms(f.work_s)},
							{label: 'Span, task', number: true, cell: f => ms(f.span_s)},
							{label: 'Span, fork-join', number: true, cell: f => ms(f.fork_join_span_s)},
							{label: 'Ratio', number: true, cell: f => number(f.fork_join_span_s / f.span_s)}
						]}
					/>
				</section>
			`}
			<${Notice} title="Not known" of=${found.missing} />
		</div>`}
	<//>`;
}
