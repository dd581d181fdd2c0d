// Rows of a plot, each with its name at the left; shares of each row, such as a node's time; a grid of slices.
import {html} from '../vendor/preact.js';
import {duration, ms, number, percent, round, variantName} from '../format.js';
import {Plot} from './plot.js';
import {Label, XAxis, plain, scale} from './scale.js';

export const ROW = 24;
/** Room for names at the left, at most 42 % of the plot. @param {number} width @param {string[]} names */
export const leftOf = (width, names) =>
	Math.min(Math.max(60, ...names.map(name => name.length * 6.6 + 14)), width * 0.42);

/**
 * A name as one line, or as two smaller ones if it is too long, broken after a comma. Lines that are still too long are
 * cut: a first one without a comma at its end, a second one at its beginning.
 * @param {string} name
 * @param {number} room
 */
function linesOf(name, room) {
	if (name.length * 6.3 <= room) return [name];
	const most = Math.floor(room / 5.3);
	const comma = name.lastIndexOf(', ', most - 1);
	const first = comma > 0 ? name.slice(0, comma + 1) : name.slice(0, most);
	const second = name.slice(first.length).trim();
	return [first, second.length > most ? `…${second.slice(1 - most)}` : second];
}

/** @param {{names: string[], left: number, top: number}} props */
export function Names({names, left, top}) {
	return html`<g>
		${names.map((name, i) => {
			const lines = linesOf(name, left - 12);
			return lines.map(
				(line, j) => html`<${Label}
					key=${`${i} ${j}`}
					x=${left - 9}
					y=${top + ROW * i + (lines.length === 1 ? 16 : 10 + 11 * j)}
					text-anchor="end"
					font-size=${lines.length === 1 ? 12 : 10}
					fill="var(--ink)"
				>
					${line}
					<title>${name}</title>
				<//>`
			);
		})}
	</g>`;
}

/**
 * The axes' values that tell a variant from the others.
 * @param {{variant: Record<string, unknown>, scheduler: string, threads: number}} row
 */
export const nameOf = row =>
	variantName(Object.keys(row.variant).length ? row.variant : {scheduler: row.scheduler, threads: row.threads});

// Stacked bars.

/** @typedef {{name: string, parts: Record<string, number>, mark?: number | null, says?: string}} Share */

/**
 * Rows of stacked bars: phases of a step, time of threads, memory.
 * @param {{title: string, said: string, name: string, rows: Share[],
 *   colours: Record<string, string>, label: string, unit: (value: number) => string, most?: number,
 *   markSays?: string}} props
 */
export function Shares({title, said, name, rows, colours, label, unit, most, markSays}) {
	const names = rows.map(row => row.name);
	const kinds = Object.keys(colours).filter(kind => rows.some(row => row.parts[kind]));
	const longest =
		most ??
		Math.max(
			...rows.map(row =>
				Math.max(
					row.mark ?? 0,
					Object.values(row.parts).reduce((a, b) => a + b, 0)
				)
			)
		);
	const draw = (/** @type {number} */ width) => {
		const left = leftOf(width, names);
		const bottom = 8 + ROW * rows.length;
		const x = scale(0, longest, left, width - 82);
		return {
			height: bottom + 40,
			parts: html`
				<${XAxis} x=${x} top=${4} bottom=${bottom} label=${label} about=${Math.max(3, width / 150)} />
				<${Names} names=${names} left=${left} top=${4} />
				${rows.map((row, i) => {
					let sum = 0;
					return html`<g key=${i}>
						${kinds.map(kind => {
							const value = row.parts[kind] ?? 0;
							const from = x(sum);
							sum += value;
							return html`<rect
								key=${kind}
								x=${from}
								y=${4 + ROW * i + 4}
								width=${Math.max(0, x(sum) - from)}
								height=${ROW - 8}
								fill=${`var(--${colours[kind]})`}
							>
								<title>${kind}: ${unit(value)}</title>
							</rect>`;
						})}
						${row.mark != null &&
						html`<path d=${`M${x(row.mark)} ${4 + ROW * i + 2}v${ROW - 4}`} stroke="var(--ink)" stroke-width="2.4">
							<title>${markSays}: ${unit(row.mark)}</title>
						</path>`}
						${row.says &&
						html`<${Label} x=${x(Math.max(sum, row.mark ?? 0)) + 7} y=${4 + ROW * i + 16} fill="var(--ink)">${row.says}<//>`}
					</g>`;
				})}
			`
		};
	};
	return html`<${Plot}
		title=${title}
		name=${name}
		said=${said}
		draw=${draw}
		rows=${rows}
		legend=${kinds.map(kind => [colours[kind], kind])}
		fields=${[
			{label: 'variant', value: r => r.name},
			...kinds.map(kind => ({label: kind, value: (/** @type {Share} */ r) => r.parts[kind] ?? null})),
			...(markSays ? [{label: markSays, value: (/** @type {Share} */ r) => r.mark ?? null}] : [])
		]}
	/>`;
}

/**
 * The phases of a step, which are bars, beside the whole step, which is a line.
 * @param {{title: string, name: string, rows: {name: string, phases_s: [string, number][], step_s: number}[]}} props
 */
export const Phases = ({title, name, rows}) => html`<${Shares}
	title=${title}
	name=${name}
	label="milliseconds"
	unit=${v => `${number(v, 4)} ms`}
	colours=${Object.fromEntries(rows.flatMap(row => row.phases_s.map(([phase]) => [phase, phase])))}
	markSays="median step"
	said=${'Bars: the median of each phase over processes. Vertical line and number: the median step. ' +
	'Where phases overlap (task with sync step or none), the time of a phase is that of its own tasks divided by the ' +
	'number of threads, so its bar ends before the line: the rest is waiting. Elsewhere phases contain their waiting. ' +
	'Medians of phases need not add up to the median step.'}
	rows=${rows.map(({name, phases_s, step_s}) => ({
		name,
		parts: Object.fromEntries(phases_s.map(([phase, s]) => [phase, 1e3 * s])),
		mark: 1e3 * step_s,
		says: ms(step_s)
	}))}
/>`;

// Where the node's time of a run, or of an experiment's runs, went.

/** Each part by its key in a result: its label and its colour. */
const PARTS = /** @type {Record<string, [string, string]>} */ ({
	delivering_s: ['delivering', 'data'],
	claiming_s: ['waiting for a claim', 'idle'],
	starting_s: ['starting', 'series-4'],
	planning_s: ['planning', 'series-1'],
	compiling_s: ['compiling or loading', 'loss'],
	preparing_s: ['preparing', 'series-3'],
	warmup_s: ['warm-up', 'fork-join'],
	timed_s: ['timed steps', 'series-2'],
	finishing_s: ['finishing', 'edge']
});

/** @param {{of: {node_time?: Record<string, number> | null, node_time_missing?: string | null}, name: string}} props */
export function NodeTime({of, name}) {
	const seconds = of.node_time;
	if (!seconds)
		return html`<section class="panel">
			<h2>Node time</h2>
			<p class="soft">Not known: ${of.node_time_missing ?? 'the server does not report it'}.</p>
		</section>`;
	const whole = Object.values(seconds).reduce((sum, s) => sum + s, 0);
	const parts = Object.fromEntries(Object.entries(seconds).map(([key, s]) => [PARTS[key]?.[0] ?? key, s]));
	const colours = Object.fromEntries(Object.keys(seconds).map(key => PARTS[key] ?? [key, 'soft']));
	return html`<section class="panel">
		<${Shares}
			title="Node time"
			name="node-time"
			label="seconds"
			unit=${s => `${s.toPrecision(3)} s`}
			colours=${colours}
			rows=${[{name, parts, says: duration(whole)}]}
			said=${`Timed steps took ${percent((seconds['timed_s'] ?? 0) / (whole || 1))} of the node's time.` +
			(of.node_time_missing ? ` Incomplete: ${of.node_time_missing}.` : '')}
		/>
	</section>`;
}

// Step time over the grid of slices.

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
									${plain(row.step_s.median * 1e3)}
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
			'scheduler',
			'threads',
			'batch_slice',
			'token_slice',
			{label: 'median_step_ms', value: r => round(r.step_s.median * 1e3)}
		]}
	/>`;
}
