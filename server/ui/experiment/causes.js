// Where the threads' time went, and the speedup that the task graph allows.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {number} from '../format.js';
import {Answered, Table} from '../pieces.js';
import {nameOf} from '../plots/rows.js';
import {Shares} from '../plots/shares.js';
import {NodeTime} from '../run/node-time.js';
import {Nothing} from './answer.js';

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
