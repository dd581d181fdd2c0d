// The workload of each network: time by op and phase, memory, rates; training beside inference.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {bytes, ms, number, percent, plural} from '../format.js';
import {Answered, Table} from '../pieces.js';
import {OP_KINDS, opKind} from '../plots/scale.js';
import {Shares} from '../plots/shares.js';
import {Nothing} from './answer.js';
import {ARENAS, Growth, MIB} from './memory.js';

/** @typedef {import('../schemas').Schemas} Schemas */

const LABELS = /** @type {Record<string, string>} */ (Object.fromEntries(OP_KINDS));
const KINDS = /** @type {Record<string, string>} */ (
	Object.fromEntries(OP_KINDS.map(([token, label]) => [label, token]))
);

/** @param {Schemas['WorkRow']} row */
const nameOf = row =>
	[
		row.mode,
		`B${row.batch}${row.side === null ? ` T${row.seq}` : ''}`,
		...(row.data === 'synthetic' ? [] : [row.data]),
		row.variant.scheduler,
		plural(row.variant.threads, 'thread')
	].join(', ');

/**
 * Ops by kind, in percent.
 * @param {Schemas['WorkOp'][]} ops
 */
const kinds = ops => {
	const sums = /** @type {Record<string, number>} */ ({});
	for (const {op, share} of ops) {
		const kind = LABELS[opKind(op)] ?? '';
		sums[kind] = (sums[kind] ?? 0) + 100 * share;
	}
	return sums;
};

/** @param {{of: Schemas['WorkNetwork']}} props */
function Network({of}) {
	const {rows} = of;
	return html`<section class="panel">
		<h2>${of.model}</h2>
		<ul>${of.answers.map(said => html`<li key=${said}>${said}</li>`)}</ul>
		<${Shares}
			title=${`Time of a step by phase: ${of.model}`}
			name=${`workload-phases-${of.model}`}
			label="ms"
			unit=${v => `${number(v)} ms`}
			colours=${Object.fromEntries(rows.flatMap(row => row.phases.map(({phase}) => [phase, phase])))}
			said="Medians. If phases overlap, the time of a phase is that of its tasks divided by the threads."
			rows=${rows.map(row => ({
				name: nameOf(row),
				parts: Object.fromEntries(row.phases.map(each => [each.phase, 1e3 * row.step_s * each.share])),
				says: ms(row.step_s)
			}))}
		/>
		<${Shares}
			title=${`Time by op type: ${of.model}`}
			name=${`workload-ops-${of.model}`}
			label="% of the time of all ops"
			most=${100}
			unit=${v => `${number(v)} %`}
			colours=${KINDS}
			said="All layers and threads together; the table below has each op."
			rows=${rows.map(row => ({name: nameOf(row), parts: kinds(row.ops)}))}
		/>
		<${Shares}
			title=${`Memory: ${of.model}`}
			name=${`workload-memory-${of.model}`}
			label="MiB"
			unit=${v => `${v.toFixed(1)} MiB`}
			colours=${ARENAS}
			markSays="peak_rss"
			said="Bars: arenas, exact to the byte. Vertical line: peak resident memory of the process."
			rows=${rows.map(row => ({
				name: nameOf(row),
				parts: Object.fromEntries(Object.entries(row.memory_bytes).map(([kind, size]) => [kind, size / MIB])),
				mark: row.peak_rss_bytes === null ? null : row.peak_rss_bytes / MIB,
				says: bytes(row.peak_rss_bytes)
			}))}
		/>
		<${Table}
			caption=${`Ops of ${of.model}`}
			rows=${rows.flatMap(row => row.ops.map(op => ({...op, row: nameOf(row)})))}
			id=${r => `${r.row} ${r.op} ${r.phase}`}
			columns=${[
				{name: 'row', label: 'Run', class: 'question', cell: r => r.row},
				{name: 'op', label: 'Op', cell: r => `${r.op} ${r.phase}`},
				{name: 'time', label: 'Time a step', number: true, cell: r => ms(r.time_s)},
				{name: 'share', label: 'Share', number: true, cell: r => percent(r.share)},
				{name: 'flop', label: 'GFLOP/s', number: true, cell: r => number(r.gflop_per_s)},
				{name: 'gb', label: 'GB/s', number: true, cell: r => number(r.gb_per_s)},
				{name: 'roof', label: 'Of its roof', number: true, cell: r => percent(r.roof_share)},
				{name: 'bound', label: 'Bound by', cell: r => r.bound ?? '–'}
			]}
		/>
		${of.growth.map(each => html`<${Growth} key=${each.axis} of=${each} name=${`workload-memory-${of.model}`} />`)}
	</section>`;
}

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Workload({of, topic}) {
	const asks = of.by_state.succeeded ? `experiments/${of.id}/workload` : null;
	const answer = useAnswer(asks, {}, {follow: topic});
	if (!asks) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${600}>
		${(/** @type {Schemas['Workload']} */ {networks}) =>
			html`<div class="stack">${networks.map(each => html`<${Network} key=${each.model} of=${each} />`)}</div>`}
	<//>`;
}
