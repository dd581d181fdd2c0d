// The memory of each variant, exact to the byte, and its growth with batch and sequence length.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {bytes} from '../format.js';
import {Answered, Table} from '../pieces.js';
import {nameOf} from '../plots/rows.js';
import {Shares} from '../plots/shares.js';
import {Nothing} from './answer.js';

const ARENAS = {
	weights: 'task',
	gradients: 'series-4',
	optimizer: 'series-2',
	activations: 'series-3',
	temporary: 'series-1'
};
const MIB = 2 ** 20;
const SAID =
	'Bars: arenas, exact to the byte. Vertical line: peak resident memory of the whole process, the highest of the ' +
	'runs that compiled no kernels.';
const COMPILED = ' A variant without a line has only runs that compiled: their peaks contain the compiler.';

/** @param {{of: any, topic: string}} props */
export function Memory({of, topic}) {
	const answer = useAnswer(of.by_state.succeeded ? 'analysis/memory' : null, {experiment_id: of.id}, {follow: topic});
	if (!of.by_state.succeeded) return html`<${Nothing} of=${of} />`;
	return html`<${Answered} answer=${answer} height=${400}>
		${(/** @type {import('../schemas').Schemas['MemoryTable']} */ {rows}) => html`<div class="stack">
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
							cell: (/** @type {any} */ r) => bytes(r.memory.resident_bytes[name])
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
			${rows[0] &&
			html`<section class="panel">
				<h2>Larger shapes</h2>
				<${Table}
					caption="Arenas of larger shapes"
					rows=${[...rows[0].memory.with_batch, ...rows[0].memory.with_seq.slice(1)]}
					id=${r => `${r.batch} ${r.seq}`}
					columns=${[
						{name: 'batch', label: 'Batch', number: true, cell: r => r.batch},
						{name: 'seq', label: 'Tokens', number: true, cell: r => r.seq},
						...Object.keys(ARENAS).map(kind => ({
							name: kind,
							label: kind,
							number: true,
							cell: (/** @type {any} */ r) => bytes(r.bytes[kind])
						})),
						{name: 'total', label: 'All arenas', number: true, cell: r => bytes(r.total_bytes)}
					]}
				/>
				<p class="soft">Computed for ${nameOf(rows[0].variant)}, not measured.</p>
			</section>`}
		</div>`}
	<//>`;
}
