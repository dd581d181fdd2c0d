// Is it memory-bound? Each op against the measured peaks of its node.
import {html} from '../vendor/preact.js';
import {address, link} from '../address.js';
import {useAnswer} from '../answers.js';
import {number, percent} from '../format.js';
import {Answered, Choice, Table} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {Label, OP_KINDS, XAxis, YAxis, opKind, scale} from '../plots/scale.js';
import {nameOf} from '../plots/rows.js';
import {Nothing} from './answer.js';

/** @typedef {import('../schemas').Schemas} Schemas */

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
					(op, i) => html`
						<circle
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
						</circle>
						${op.time_share > 0.05 &&
						html`<${Label}
							x=${x(op.intensity)}
							y=${y(op.achieved_gflop_per_s) + 4}
							text-anchor="middle"
							font-size="10.5"
							fill="var(--ink)"
							pointer-events="none"
						>
							${op.op}
						<//>`}
					`
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
		"The area of a circle is the op's share of time."}
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
	const answer = useAnswer(of.by_state.succeeded ? 'analysis/roofline' : null, {experiment_id: of.id}, {follow: topic});
	if (!of.by_state.succeeded) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${460}>
		${(/** @type {Schemas['RooflineTable']} */ {rows}) => {
			const shown = rows.filter(row => row.ops.length && row.peaks);
			if (!shown.length)
				return html`<section class="notice">
					<strong>Not known</strong>
					${[...new Set(rows.flatMap(row => row.missing))].map(each => html`<span key=${each}>${each}</span>`)}
				</section>`;
			const names = shown.map(row => nameOf(row.variant));
			const asked = address.value.params.get('variant');
			const chosen = shown[asked && names.includes(asked) ? names.indexOf(asked) : names.length - 1];
			/** @param {string} phase @param {string} [title] */
			const answer = (phase, title = phase) => ({
				name: phase,
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
								name: 'name',
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
							{
								name: 'mfu',
								label: 'Model-FLOP utilisation',
								number: true,
								by: row => row.mfu ?? 0,
								cell: row => percent(row.mfu)
							}
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
							{name: 'phase', label: 'Phase', tight: true, cell: p => p.phase},
							{name: 'answer', label: 'Memory-bound', tight: true, cell: p => html`<strong>${p.answer}</strong>`},
							{name: 'below', label: 'Time below the ridge', number: true, cell: p => percent(p.memory_time_share, 0)},
							{name: 'scal', label: 'Computation scalability', number: true, cell: p => number(p.computation_scalability)},
							{name: 'flops', label: 'GFLOP/s', number: true, cell: p => number(p.achieved_gflop_per_s)},
							{name: 'gbs', label: 'GB/s', number: true, cell: p => number(p.achieved_gb_per_s)},
							{name: 'why', label: 'Reason', class: 'question', cell: p => html`<small>${p.reason}</small>`}
						]}
					/>
				</section>
			</div>`;
		}}
	<//>`;
}
