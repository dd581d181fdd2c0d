// Time by op and by thread; what the system recorded about each step.
import {html} from '../vendor/preact.js';
import {useAnswer} from '../answers.js';
import {duration, ms, number, percent, words} from '../format.js';
import {Answered, Empty, Notice, Pairs, Table} from '../pieces.js';
import {Shares} from '../plots/rows.js';
import {State} from '../words.js';

/**
 * @typedef {import('../schemas').Schemas['ResultThread'] &
 *   {thread: number, core: number, scheduling_s?: number}} ShownThread
 */

/** @param {import('../schemas').Schemas['RunDetail']} of */
const useResult = of => useAnswer(of.median_step_s === null ? null : `runs/${of.id}/result`);
const none = html`<${Empty}><p>This run has no result.</p><//>`;

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Ops({of}) {
	const answer = useResult(of);
	if (of.median_step_s === null) return none;
	return html`<${Answered} answer=${answer} height=${420}>
		${result => {
			const all =
				result.ops.reduce(
					(/** @type {number} */ sum, /** @type {import('../schemas').Schemas['ResultOp']} */ op) => sum + op.time_s,
					0
				) || 1;
			const threads = (result.threads ?? []).filter(
				(/** @type {import('../schemas').Schemas['ResultThread']} */ thread) => thread.useful_s != null
			);
			const ranks = (result.communication ?? []).map((/** @type {import('../schemas').Schemas['ResultRank']} */ each) => {
				const [flight, exposed] = [each.in_flight_s, each.exposed_s].map(steps =>
					steps.slice(result.config.warmup).reduce((a, b) => a + b, 0)
				);
				return {name: `rank ${each.rank}`, parts: {hidden: Math.max(flight - exposed, 0), exposed}};
			});
			return html`<div class="stack">
				${threads.length > 0 &&
				html`<section class="panel">
					<${Shares}
						title="Threads"
						name="threads"
						label="seconds of the timed steps"
						unit=${v => `${v.toPrecision(3)} s`}
						said=${`What each thread did${ranks.length ? ', and messages in flight: hidden by work, or exposed' : ''}.`}
						colours=${{
							useful: 'useful',
							'no work': 'no-work',
							'at barriers': 'barrier',
							scheduling: 'scheduling',
							idle: 'idle',
							hidden: 'task',
							exposed: 'loss'
						}}
						rows=${[
							...threads.map((/** @type {ShownThread} */ t) => ({
								name: `thread ${t.thread}, core ${t.core}`,
								parts: {
									useful: t.useful_s,
									'no work': t.starvation_s ?? 0,
									'at barriers': t.barrier_s ?? 0,
									scheduling: t.scheduling_s ?? 0,
									idle: t.idle_s ?? 0
								}
							})),
							...ranks
						]}
					/>
				</section>`}
				<section class="panel">
					<h2>Ops</h2>
					<p class="soft">Calls and times are sums over the timed steps and all threads.</p>
					<${Table}
						caption="Ops"
						rows=${[...result.ops].sort((a, b) => b.time_s - a.time_s)}
						id=${op => `${op.op} ${op.phase}`}
						columns=${[
							{label: 'Op', cell: op => op.op, by: op => op.op},
							{label: 'Phase', cell: op => op.phase, by: op => op.phase},
							{label: 'Calls', number: true, cell: op => op.calls.toLocaleString('en-US'), by: op => op.calls},
							{label: 'Time', number: true, cell: op => ms(op.time_s), by: op => op.time_s},
							{label: 'Share', number: true, cell: op => percent(op.time_s / all), by: op => op.time_s},
							{
								label: 'GFLOP/s of a thread',
								number: true,
								cell: op => number(op.time_s ? op.flop / op.time_s / 1e9 : null),
								by: op => op.flop / (op.time_s || 1)
							},
							{
								label: 'GB/s of a thread, compulsory',
								number: true,
								cell: op => number(op.time_s ? op.bytes / op.time_s / 1e9 : null),
								by: op => op.bytes / (op.time_s || 1)
							},
							{label: 'Matrix products by', cell: op => op.blas || ''}
						]}
					/>
				</section>
			</div>`;
		}}
	<//>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Validity({of}) {
	const answer = useResult(of);
	if (of.median_step_s === null) return none;
	return html`<${Answered} answer=${answer} height=${420}>
		${result => {
			const seen = result.validity ?? {steps: {}, unavailable: {}, rule: {}};
			const names = Object.keys(seen.steps).filter(name => Array.isArray(seen.steps[name]));
			const rows = result.step_s.map((/** @type {number} */ s, /** @type {number} */ step) => ({step, s}));
			const foreign = seen.foreign;
			return html`<div class="stack">
				${result.warnings.length
					? html`<${Notice} tone="warn" title="Disturbed" of=${result.warnings} />`
					: html`<section class="notice good">
							<${State} of="yes" says="No step is flagged, and foreign load is below the limit of the rule." />
						</section>`}
				${foreign &&
				html`<section class="panel">
					<h2>Foreign load</h2>
					<${Pairs}
						of=${[
							['cores', foreign.cores.join(', ')],
							['busy', duration(foreign.busy_s)],
							['by this run', duration(foreign.own_s)],
							[
								'other processes',
								`${duration(foreign.foreign_s)} ` + `(${percent(foreign.foreign_s / (foreign.busy_s || 1))} of the busy time)`
							]
						]}
					/>
				</section>`}
				<section class="panel">
					<h2>Evidence for each step</h2>
					<${Table}
						caption="Evidence"
						tall=${rows.length > 30}
						rows=${rows}
						id=${r => r.step}
						columns=${[
							{label: 'Step', number: true, cell: r => r.step},
							{label: 'Time', number: true, cell: r => ms(r.s), by: r => r.s},
							...names.map(name => ({
								label: words(name).replace(/ s$/, ''),
								number: true,
								cell: (/** @type {{step: number}} */ r) => {
									const value = seen.steps[name][r.step];
									return value == null ? '–' : name.endsWith('_s') ? ms(value) : String(value);
								}
							})),
							{label: 'Flagged for', cell: r => words((result.flagged?.[r.step] ?? []).join(', '))}
						]}
					/>
				</section>
				<section class="panel">
					<h2>The rule</h2>
					<${Pairs}
						of=${[
							...Object.entries(seen.rule ?? {}).map(([name, says]) => [words(name), says]),
							...Object.entries(seen.unavailable ?? {}).map(([name, why]) => [words(name), `not known: ${why}`])
						]}
					/>
				</section>
			</div>`;
		}}
	<//>`;
}
