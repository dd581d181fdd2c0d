// Where the time and the memory of variants go: shares of threads, arenas; the workload of each network.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {bytes, ms, number, percent, variantName} from '../format.js';
import {Answered, Notice, Table} from '../pieces.js';
import {NodeTime, Phases, Shares, nameOf} from '../plots/rows.js';
import {OP_KINDS, opKind} from '../plots/scale.js';
import {Lines} from '../plots/series.js';
import {Analysed, Nothing} from './answer.js';

/** @typedef {import('../schemas').Schemas} Schemas */

// Where the threads' time went, and the speedup that the task graph allows.

const TIME = {useful: 'useful', 'no work': 'no-work', 'at barriers': 'barrier', scheduling: 'scheduling'};

/** @param {Schemas['WaitingSplit']} waiting */
function shares(waiting) {
	const values = [waiting.useful_s, waiting.serial_s, waiting.load_balance_s, waiting.scheduling_s];
	const sum = values.reduce((a, b) => a + b, 0) || 1;
	return Object.fromEntries(Object.keys(TIME).map((name, i) => [name, (100 * (values[i] ?? 0)) / sum]));
}

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Causes({of, topic}) {
	return html`<${Analysed} of=${of} topic=${topic} path="analysis/efficiency" height=${420}>
		${(/** @type {Schemas['EfficiencyTable']} */ {rows}) => {
			const known = rows.filter(row => row.waiting);
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
							const parts = shares(/** @type {Schemas['WaitingSplit']} */ (row.waiting));
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
							{label: 'Variant', class: 'question', cell: r => nameOf(r.variant), by: r => nameOf(r.variant)},
							.../** @type {const} */ ([
								['parallel', 'Parallel efficiency'],
								['load_balance', 'Load balance'],
								['serialisation', 'Serialisation'],
								['transfer', 'Transfer']
							]).map(([name, label]) => ({
								label,
								number: true,
								by: (/** @type {import('../schemas').Schemas['EfficiencyRow']} */ r) => r.efficiency?.[name] ?? 0,
								cell: (/** @type {import('../schemas').Schemas['EfficiencyRow']} */ r) => number(r.efficiency?.[name])
							})),
							{label: 'Computation scalability', number: true, cell: r => number(r.scalability?.computation)},
							{label: 'T1/T∞ of the graph', number: true, cell: r => number(r.bounds?.parallelism)},
							{label: 'T1/T∞ with barriers', number: true, cell: r => number(r.bounds?.fork_join_parallelism)},
							{label: 'Largest gain of tasks', number: true, cell: r => (r.bounds ? `${number(r.bounds.gain_limit)} ×` : '–')}
						]}
					/>
					<p class="soft">
						Parallel efficiency is the product of load balance, serialisation and transfer. T1/T∞ is the largest speedup that
						the dependencies allow, with any number of threads.
					</p>
				</section>
				<${Notice} title="Not known" of=${[...new Set(rows.flatMap(row => row.missing))]} />
			</div>`;
		}}
	<//>`;
}

// The memory of each variant, exact to the byte, and its growth with batch and sequence length.

export const ARENAS = {
	weights: 'task',
	gradients: 'series-4',
	optimizer: 'series-2',
	activations: 'series-3',
	temporary: 'series-1'
};
export const MIB = 2 ** 20;
const SAID =
	'Bars: arenas, exact to the byte. Vertical line: peak resident memory of the whole process, the highest of the ' +
	'runs that compiled no kernels.';
const COMPILED = ' A variant without a line has only runs that compiled: their peaks contain the compiler.';
/**
 * @type {{key: Exclude<keyof import('../schemas').Schemas['GrowthPoint'], 'size'>, label: string, token: string,
 *   dash?: string, kind?: 'points'}[]}
 */
const GROWTH = [
	{key: 'train_bytes', label: 'train', token: 'task'},
	{key: 'infer_bytes', label: 'infer', token: 'series-2'},
	{key: 'weights_bytes', label: 'weights', token: 'series-3', dash: '6 4'},
	{key: 'train_peak_bytes', label: 'train, measured peak', token: 'task', kind: 'points'},
	{key: 'infer_peak_bytes', label: 'infer, measured peak', token: 'series-2', kind: 'points'}
];
const mib = (/** @type {number | null | undefined} */ size) => (size == null ? null : size / MIB);

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Memory({of, topic}) {
	return html`<${Analysed} of=${of} topic=${topic} path="analysis/memory" height=${400}>
		${(/** @type {Schemas['MemoryTable']} */ {rows, growth = []}) => html`<div class="stack">
			<section class="panel">
				<${Shares}
					title="Memory"
					name="memory"
					label="MiB"
					unit=${v => `${v.toFixed(1)} MiB`}
					colours=${ARENAS}
					markSays="peak_rss"
					said=${SAID + (rows.some(row => row.memory.peak_compiled) ? COMPILED : '')}
					rows=${rows.map(row => ({
						name: nameOf(row.variant),
						parts: Object.fromEntries(
							Object.entries(row.memory.measured_bytes).map(([kind, size]) => [kind, /** @type {number} */ (size) / MIB])
						),
						mark: row.memory.peak_rss_bytes === null || row.memory.peak_compiled ? null : row.memory.peak_rss_bytes / MIB,
						says: `${bytes(row.memory.peak_rss_bytes)}${row.memory.peak_compiled ? ', with the compiler' : ''}`
					}))}
				/>
			</section>
			<section class="panel">
				<h2>Peak resident memory by part</h2>
				<${Table}
					caption="Resident memory"
					rows=${rows}
					id=${r => nameOf(r.variant)}
					columns=${[
						{label: 'Variant', class: 'question', cell: r => nameOf(r.variant)},
						...[...new Set(rows.flatMap(row => Object.keys(row.memory.resident_bytes)))].map(name => ({
							label: name,
							number: true,
							cell: (/** @type {Schemas['MemoryRow']} */ r) => bytes(r.memory.resident_bytes[name])
						})),
						{
							label: 'Peak',
							number: true,
							cell: r => `${bytes(r.memory.peak_rss_bytes)}${r.memory.peak_compiled ? ', with the compiler' : ''}`
						},
						{
							label: 'Explained',
							number: true,
							cell: r => (r.memory.explained == null ? '–' : `${(100 * r.memory.explained).toFixed(0)} %`)
						},
						{label: 'As planned', cell: r => (r.memory.exact ? 'to the byte' : 'no')}
					]}
				/>
			</section>
			${growth.map(one => html`<section class="panel" key=${one.axis}><${Growth} of=${one} /></section>`)}
		</div>`}
	<//>`;
}

/**
 * Training beside inference along one axis.
 * @param {{of: Schemas['Growth'], name?: string}} props
 */
export function Growth({of, name = 'memory'}) {
	return html`<${Lines}
		title=${`Training beside inference by ${of.axis}`}
		name=${`${name}-${of.axis}`}
		said=${`${of.sentence} Lines are arenas, points the peaks of whole processes.`}
		fields=${[
			{label: of.axis, value: row => row.size},
			...GROWTH.map(({key, label}) => ({
				label: `${label}, MiB`,
				value: (/** @type {import('../schemas').Schemas['GrowthPoint']} */ row) => mib(row[key])
			}))
		]}
		rows=${of.points}
		x=${of.points.map(point => point.size)}
		xLabel=${`${of.axis} (${Object.entries(of.fixed).map(pair => pair.join(' '))})`}
		yLabel="MiB"
		zero=${true}
		series=${GROWTH.map(({key, ...each}) => ({
			...each,
			values: of.points.map(point => mib(point[key])),
			show: (/** @type {number} */ v) => `${v.toFixed(1)} MiB`
		}))}
	/>`;
}

const LABELS = /** @type {Record<string, string>} */ (Object.fromEntries(OP_KINDS));
const KINDS = /** @type {Record<string, string>} */ (
	Object.fromEntries(OP_KINDS.map(([token, label]) => [label, token]))
);

// Settings that a row's name begins with.
const FIRST = new Set(['model', 'mode', 'batch', 'seq', 'data']);

/** @param {Schemas['WorkRow']} row */
const rowName = row =>
	[
		row.mode,
		`B${row.batch}${row.side === null ? ` T${row.seq}` : ''}`,
		...(row.data === 'synthetic' ? [] : [row.data]),
		variantName({
			scheduler: row.variant.scheduler,
			threads: row.variant.threads,
			...Object.fromEntries(Object.entries(row.variant.variant).filter(([setting]) => !FIRST.has(setting)))
		})
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
		<ul class="notes">${of.answers.map(said => html`<li key=${said}>${said}</li>`)}</ul>
		<${Phases}
			title=${`Time of a step by phase: ${of.model}`}
			name=${`workload-phases-${of.model}`}
			rows=${rows.map(row => ({
				name: rowName(row),
				phases_s: row.phases.map(each => [each.phase, each.time_s]),
				step_s: row.step_s
			}))}
		/>
		<${Shares}
			title=${`Time by op type: ${of.model}`}
			name=${`workload-ops-${of.model}`}
			label="% of the time of all ops"
			most=${100}
			unit=${v => `${number(v)} %`}
			colours=${KINDS}
			said="All layers and threads together; the table below has each op of one run in each mode."
			rows=${rows.map(row => ({name: rowName(row), parts: kinds(row.ops)}))}
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
				name: rowName(row),
				parts: Object.fromEntries(Object.entries(row.memory_bytes).map(([kind, size]) => [kind, size / MIB])),
				mark: row.peak_rss_bytes === null ? null : row.peak_rss_bytes / MIB,
				says: bytes(row.peak_rss_bytes)
			}))}
		/>
		<${Table}
			caption=${`Ops of ${of.model}`}
			rows=${of.typical.flatMap(at => rows[at].ops.map(op => ({...op, row: rowName(rows[at])})))}
			id=${r => `${r.row} ${r.op} ${r.phase}`}
			columns=${[
				{label: 'Run', class: 'question', cell: r => r.row},
				{label: 'Op', cell: r => `${r.op} ${r.phase}`},
				{label: 'Time a step, all threads', number: true, cell: r => ms(r.time_s)},
				{label: 'Share', number: true, cell: r => percent(r.share)},
				{label: 'GFLOP/s', number: true, cell: r => number(r.gflop_per_s)},
				{label: 'GB/s', number: true, cell: r => number(r.gb_per_s)},
				{label: 'Of its roof', number: true, cell: r => percent(r.roof_share)},
				{label: 'Bound by', cell: r => r.bound ?? '–'}
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
		${(/** @type {Schemas['Workload']} */ {networks, answers}) => html`<div class="stack">
			${networks.length > 1 &&
			html`<section class="panel">
				<h2>All networks</h2>
				<ul class="notes">${answers.map(said => html`<li key=${said}>${said}</li>`)}</ul>
			</section>`}
			${networks.map(each => html`<${Network} key=${each.model} of=${each} />`)}
		</div>`}
	<//>`;
}
