// The memory of each variant, exact to the byte, and its growth with batch and sequence length.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {bytes} from '../format.js';
import {Answered, Table} from '../pieces.js';
import {nameOf} from '../plots/rows.js';
import {Lines} from '../plots/series.js';
import {Shares} from '../plots/shares.js';
import {Nothing} from './answer.js';

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
const GROWTH = [
	{key: 'train_bytes', label: 'train', token: 'task'},
	{key: 'infer_bytes', label: 'infer', token: 'series-2'},
	{key: 'weights_bytes', label: 'weights', token: 'series-3', dash: '6 4'},
	{key: 'train_peak_bytes', label: 'train, measured peak', token: 'task', kind: /** @type {const} */ ('points')},
	{key: 'infer_peak_bytes', label: 'infer, measured peak', token: 'series-2', kind: /** @type {const} */ ('points')}
];
const mib = (/** @type {number | null} */ size) => (size === null ? null : size / MIB);

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Memory({of, topic}) {
	const answer = useAnswer(of.by_state.succeeded ? 'analysis/memory' : null, {experiment_id: of.id}, {follow: topic});
	if (!of.by_state.succeeded) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${400}>
		${(/** @type {import('../schemas').Schemas['MemoryTable']} */ {rows, growth = []}) => html`<div class="stack">
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
						{name: 'name', label: 'Variant', class: 'question', cell: r => nameOf(r.variant)},
						...[...new Set(rows.flatMap(row => Object.keys(row.memory.resident_bytes)))].map(name => ({
							name,
							label: name,
							number: true,
							cell: (/** @type {import('../schemas').Schemas['MemoryRow']} */ r) => bytes(r.memory.resident_bytes[name])
						})),
						{
							name: 'peak',
							label: 'Peak',
							number: true,
							cell: r => `${bytes(r.memory.peak_rss_bytes)}${r.memory.peak_compiled ? ', with the compiler' : ''}`
						},
						{
							name: 'explained',
							label: 'Explained',
							number: true,
							cell: r => (r.memory.explained == null ? '–' : `${(100 * r.memory.explained).toFixed(0)} %`)
						},
						{name: 'exact', label: 'As planned', cell: r => (r.memory.exact ? 'to the byte' : 'no')}
					]}
				/>
			</section>
			${growth.map(one => html`<section class="panel" key=${one.axis}><${Growth} of=${one} /></section>`)}
		</div>`}
	<//>`;
}

/**
 * Training beside inference along one axis.
 * @param {{of: import('../schemas').Schemas['Growth'], name?: string}} props
 */
export function Growth({of, name = 'memory'}) {
	return html`<${Lines}
		title=${`Training beside inference by ${of.axis}`}
		name=${`${name}-${of.axis}`}
		said=${`${of.sentence} Lines are arenas, points the peaks of whole processes.`}
		fields=${[
			{label: of.axis, value: row => row.size},
			...GROWTH.map(({key, label}) => ({label: `${label}, MiB`, value: (/** @type {any} */ row) => mib(row[key])}))
		]}
		rows=${of.points}
		x=${of.points.map(point => point.size)}
		xLabel=${`${of.axis} (${Object.entries(of.fixed).map(pair => pair.join(' '))})`}
		yLabel="MiB"
		zero=${true}
		series=${GROWTH.map(({key, ...each}) => ({
			...each,
			values: of.points.map(point => mib(/** @type {any} */ (point)[key])),
			show: (/** @type {number} */ v) => `${v.toFixed(1)} MiB`
		}))}
	/>`;
}
