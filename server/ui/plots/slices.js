// Step time over the grid of slices.
import {html} from '../vendor/preact.js';
import {ms, variantName} from '../format.js';
import {Plot} from './plot.js';
import {nameOf} from './rows.js';
import {Label, plain} from './scale.js';
import {round} from './variants.js';

const SLICES = ['batch_slice', 'token_slice'];

/** @typedef {import('../schemas').Schemas['ScalingRow']} ScalingRow */

/** The name of a variant without its slices. @param {ScalingRow} row */
function withoutSlices({scheduler, threads, variant}) {
	const others = Object.entries({scheduler, threads, ...variant}).filter(([name]) => !SLICES.includes(name));
	return variantName(Object.fromEntries(others));
}

/**
 * Step time over the grid of slices, one map for each variant of the other settings.
 * @param {{rows: ScalingRow[]}} props
 */
export function Slices({rows}) {
	const batches = [...new Set(rows.map(row => row.batch_slice))].sort((a, b) => a - b);
	const tokens = [...new Set(rows.map(row => row.token_slice))].sort((a, b) => a - b);
	if (batches.length * tokens.length < 2) return null;
	const groups = [...new Set(rows.map(withoutSlices))];
	const best = Math.min(...rows.map(row => row.step_s.median));
	const worst = Math.max(...rows.map(row => row.step_s.median));
	const draw = (/** @type {number} */ width) => {
		const across = Math.max(1, Math.min(groups.length, Math.floor(width / (90 + tokens.length * 64))));
		const cell = Math.min(110, (width - 30) / across / tokens.length - 60 / tokens.length);
		const tall = 30;
		const group_h = 24 + tall * batches.length + 44;
		return {
			height: Math.ceil(groups.length / across) * group_h,
			parts: groups.map((name, g) => {
				const left = (g % across) * (width / across) + 46;
				const top = Math.floor(g / across) * group_h + 24;
				return html`<g key=${name}>
					<${Label} x=${left} y=${top - 9} font-size="12" font-weight="600" fill="var(--ink)">${name}<//>
					${batches.map(
						(b, i) => html`<${Label} key=${b} x=${left - 7} y=${top + tall * i + 20} text-anchor="end" font-size="11">
							${b}
						<//>`
					)}
					${tokens.map(
						(t, j) => html`<${Label}
							key=${t}
							x=${left + cell * (j + 0.5)}
							y=${top + tall * batches.length + 15}
							text-anchor="middle"
							font-size="11"
						>
							${t}
						<//>`
					)}
					<${Label}
						x=${left + (cell * tokens.length) / 2}
						y=${top + tall * batches.length + 31}
						text-anchor="middle"
						font-size="11"
					>
						token slice
					<//>
					<${Label}
						transform=${`translate(${left - 34} ${top + (tall * batches.length) / 2}) rotate(-90)`}
						text-anchor="middle"
						font-size="11"
					>
						batch slice
					<//>
					${rows
						.filter(row => withoutSlices(row) === name)
						.map(row => {
							const share = worst > best ? Math.log(row.step_s.median / best) / Math.log(worst / best) : 0;
							const [i, j] = [batches.indexOf(row.batch_slice), tokens.indexOf(row.token_slice)];
							return html`<g key=${`${i}-${j}`}>
								<rect
									x=${left + cell * j + 1}
									y=${top + tall * i + 1}
									width=${cell - 2}
									height=${tall - 2}
									rx="3"
									fill="var(--task)"
									fill-opacity=${(0.55 - 0.5 * share).toFixed(3)}
									stroke=${row.step_s.median === best ? 'var(--ink)' : 'none'}
									stroke-width="1.6"
								>
									<title>${nameOf(row)}: ${ms(row.step_s.median)}</title>
								</rect>
								<${Label}
									x=${left + cell * (j + 0.5)}
									y=${top + tall * i + 19}
									text-anchor="middle"
									fill="var(--ink)"
									pointer-events="none"
								>
									${plain(round(row.step_s.median * 1e3))}
								<//>
							</g>`;
						})}
				</g>`;
			})
		};
	};
	return html`<${Plot}
		title="Slices"
		name="slices"
		draw=${draw}
		rows=${rows}
		said=${'Median step in milliseconds; darker is faster. ' +
		'The outlined cell has the smallest median, which is not proof that it is fastest.'}
		fields=${[
			{label: 'scheduler', value: r => r.scheduler},
			{label: 'threads', value: r => r.threads},
			{label: 'batch_slice', value: r => r.batch_slice},
			{label: 'token_slice', value: r => r.token_slice},
			{label: 'median_step_ms', value: r => round(r.step_s.median * 1e3)}
		]}
	/>`;
}
