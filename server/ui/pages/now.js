// The current state: one sentence, then running experiments, alerts, and the latest verdicts.
import {html} from '../vendor/preact.js';
import {link} from '../address.js';
import {useAnswer} from '../answers.js';
import {count, number, plural, timeLeft} from '../format.js';
import {useLive} from '../live.js';
import {Answered, Empty, Figures, Head, Question, RunLink, Submit, Table, Time} from '../pieces.js';
import {Known, State, StateBar, busySaid, presentOf} from '../words.js';

const VERDICTS = ['faster', 'slower', 'same', 'undecided', 'refused'];

/** @param {import('../schemas').Schemas['Overview']} of */
function said(of) {
	const left = of.runs.queued + of.runs.leased + of.runs.running;
	const suspected = of.alerts.suspected + of.alerts.confirming;
	return [
		busySaid(of.workers),
		left ? `${plural(left, 'run')} left${of.eta_s == null ? '' : `, ${timeLeft(of)}`}` : 'nothing is queued',
		...(suspected ? [plural(suspected, 'suspected slowdown')] : []),
		...(of.alerts.confirmed ? [plural(of.alerts.confirmed, 'confirmed slowdown')] : [])
	].join(', ');
}

/** @param {{of: import('../schemas').Schemas['Overview']['verdicts']}} props */
const Weeks = ({of = []}) =>
	of.length > 0 &&
	html`<section class="panel">
		<h2>Verdicts by week</h2>
		<${Table}
			caption="Verdicts by week"
			rows=${of}
			id=${week => week.began_at}
			columns=${[
				{label: 'Week of', tight: true, cell: week => week.began_at.slice(0, 10)},
				...VERDICTS.filter(word => of.some(week => week.by_verdict[word])).map(word => ({
					label: word,
					number: true,
					cell: (/** @type {import('../schemas').Schemas['WeekOfVerdicts']} */ week) => count(week.by_verdict[word] ?? 0)
				}))
			]}
		/>
	</section>`;

export default function Now() {
	const answer = useAnswer('overview');
	const live = useLive('overview');
	const first = answer.data;
	const of = live && (!first?.at || live.at >= first.at) ? live : first;
	return html`
		<${Head}
			title=${of ? said(of) : 'Now'}
			above=${of && 'Now'}
			actions=${html`<a class="button first" href=${link('new')}>New experiment</a>`}
		/>
		<${Answered} answer=${answer} lines=${12}>
			${() => {
				if (!of) return null;
				const ended = of.runs.ended_24h;
				const empty = !of.active_experiments && !of.latest.length;
				return html`<div class="stack">
					${empty
						? html`<${Empty}>
								<h2>No experiment yet</h2>
								<p>An experiment is a question: fork-join or tasks? how many threads? which slices?</p>
								<p><a class="button first" href=${link('new')}>Submit the first one</a></p>
								<p>or on the command line, with a worker on this machine:</p>
								<pre>taskloom worker &</pre>
								<${Submit} />
							<//>`
						: html`
								<section class="panel">
									<${Figures}
										of=${[
											['Running', count(of.runs.running + of.runs.leased)],
											['Queued', count(of.runs.queued)],
											['Runs ended in the last hour', count(of.runs_per_h)],
											[
												'Ended in 24 h',
												count(ended.succeeded),
												'succeeded' +
													(ended.failed ? `, ${count(ended.failed)} failed` : '') +
													(ended.cancelled ? `, ${count(ended.cancelled)} cancelled` : '')
											],
											['Quarantined', count(of.runs.quarantined)],
											[
												'Workers',
												count(presentOf(of.workers)),
												`${count(of.workers.busy)} busy` +
													(of.workers.measuring_peaks ? `, ${count(of.workers.measuring_peaks)} measuring peaks` : '') +
													(of.workers.silent ? `, ${count(of.workers.silent)} silent` : '')
											]
										]}
									/>
								</section>
								${of.waiting.length > 0 &&
								of.workers.busy === 0 &&
								html`<section class="notice warn">
									<strong>Nothing runs</strong>
									${of.waiting.map(
										each => html`<span key=${each.reason}>
											${plural(each.runs, 'run')}: ${each.waiting_for}. <a href=${link('fleet')}>See the fleet</a>
										</span>`
									)}
								</section>`}
								${of.newest_alerts.length > 0 &&
								html`<section class="panel">
									<div class="row between"><h2>Alerts</h2><a href=${link('history')}>History</a></div>
									<ul class="stack tight">
										${of.newest_alerts.map(
											alert => html`<li key=${alert.id} class="row">
												<${State} of=${alert.state} />
												<span>${number(alert.ratio)} times as long since run <${RunLink} id=${alert.run_id} /></span>
												<small class="soft">${alert.reason}</small>
											</li>`
										)}
									</ul>
								</section>`}
								<section class="panel">
									<h2>Under way</h2>
									${of.experiments.length
										? html`
												<${Table}
													caption="Experiments under way"
													rows=${of.experiments}
													id=${e => e.id}
													columns=${[
														{label: 'Question', class: 'question', cell: e => html`<${Question} ...${e} />`},
														{label: 'Runs', class: 'wide', cell: e => html`<${StateBar} counts=${e.by_state} total=${e.runs} />`},
														{label: 'Done', number: true, cell: e => `${count(e.by_state.succeeded ?? 0)} of ${count(e.runs)}`},
														{label: 'Time left', number: true, cell: e => (e.eta_s == null ? '–' : timeLeft(e))},
														{label: 'Submitted', tight: true, cell: e => html`<${Time} at=${e.created_at} />`}
													]}
												/>
												${of.active_experiments > of.experiments.length &&
												html`<p class="soft">
													${count(of.experiments.length)} of ${plural(of.active_experiments, 'experiment')} shown; <a
														href=${link('experiments', {state: 'active'})}
													>
														all
													</a>.
												</p>`}
											`
										: html`
												<p class="soft">No experiment is running. Submit one with New experiment, or on the command line:</p>
												<${Submit} />
											`}
								</section>
								<section class="panel">
									<div class="row between"><h2>Latest verdicts</h2><a href=${link('experiments')}>All experiments</a></div>
									${of.latest.length
										? html`<${Table}
												caption="Latest verdicts"
												rows=${of.latest}
												id=${e => e.id}
												columns=${[
													{
														label: 'Question and verdict',
														class: 'question',
														cell: e => html`<${Question} ...${e} /><div class="known"><${Known} of=${e} /></div>`
													},
													{label: 'State', tight: true, cell: e => html`<${State} of=${e.state} />`},
													{label: 'Runs', number: true, cell: e => count(e.runs)},
													{label: 'Ended', tight: true, cell: e => html`<${Time} at=${e.finished_at} />`}
												]}
											/>`
										: html`<p class="soft">No experiment has ended yet.</p>`}
								</section>
								<${Weeks} of=${of.verdicts} />
							`}
				</div>`;
			}}
		<//>
	`;
}
