// An experiment: its verdict in one sentence, then the evidence.
import {html} from '../vendor/preact.js';
import {address, link} from '../address.js';
import {ask, download} from '../api.js';
import {useAction, useAnswer} from '../answers.js';
import {commit, count, plural, timeLeft} from '../format.js';
import {goesOn, useFollow, useLive, useWhile} from '../live.js';
import {Answered, Figures, Head, Refused, Sure, Tabs, Time, later} from '../pieces.js';
import {State, StateBar, mostDisturbed} from '../words.js';
import {Answer, Scaling} from '../experiment/answer.js';

const TUNING = /** @type {Record<string, [string, Function]>} */ ({
	tuning: ['Tuning', later(async () => (await import('../experiment/tuning.js')).Tuning)]
});
const WORKLOAD = /** @type {Record<string, [string, Function]>} */ ({
	workload: ['Workload', later(async () => (await import('../experiment/workload.js')).Workload)]
});
const VIEWS = /** @type {Record<string, [string, Function]>} */ ({
	answer: ['Answer', Answer],
	scaling: ['Scaling', Scaling],
	causes: ['Where time goes', later(async () => (await import('../experiment/workload.js')).Causes)],
	roofs: ['Memory-bound?', later(async () => (await import('../experiment/limits.js')).Roofs)],
	forecast: ['More cores', later(async () => (await import('../experiment/limits.js')).Forecast)],
	memory: ['Memory', later(async () => (await import('../experiment/workload.js')).Memory)],
	chart: ['Chart', later(async () => (await import('../plots/chosen.js')).ChartOf)],
	runs: ['Runs', later(async () => (await import('./experiments.js')).RunsOf)],
	design: ['Design', later(async () => (await import('../facts.js')).Design)]
});

/**
 * Further repetitions of an undecided experiment, as many as a verdict lacks, else as many again; and the fewest that
 * can decide, if there are too few.
 * @param {import('../schemas').Schemas['ExperimentDetail']} of
 * @param {{why?: {needed?: number | null} | null, needed_extended?: number | null}} found
 */
function furtherOf({request, extended, stopping}, {why, needed_extended: fewest}) {
	if (request['order'] === 'sequential') return [0, 0];
	const have = stopping?.repetitions ?? Number(request['repetitions'] ?? 1) + extended;
	const lacking = (fewest ?? 0) - have;
	return why?.needed != null && fewest && lacking > 0 ? [lacking, fewest] : [Math.max(have, lacking), 0];
}

/**
 * The verdict, or the progress until there is one.
 * @param {{of: import('../schemas').Schemas['ExperimentDetail']}} props
 */
function Verdict({of}) {
	const asks = !of.verdict && !of.tuning && of.state !== 'active' && !!of.by_state['succeeded'];
	const sweep = useAnswer(asks ? 'analysis/sweep' : null, {experiment_id: of.id});
	const found = of.verdict ?? sweep.data?.verdict;
	const done =
		(of.by_state['succeeded'] ?? 0) +
		(of.by_state.failed ?? 0) +
		(of.by_state.cancelled ?? 0) +
		(of.by_state.quarantined ?? 0);
	const disturbed =
		of.flagged_runs && !found?.disturbed_runs
			? `${count(of.flagged_runs)} of ${plural(of.runs, 'run')} had disturbed steps. They are included and flagged.`
			: '';
	const {run, busy, problem} = useAction(async (/** @type {number} */ repetitions) => {
		await ask(`experiments/${of.id}/extend`, {method: 'POST', body: {repetitions}});
		goesOn(`experiment:${of.id}`);
	});
	if (found) {
		const word = found.verdict;
		const [more, fewest] = word === 'undecided' && of.state === 'finished' && !of.tuning ? furtherOf(of, found) : [0, 0];
		const most = mostDisturbed(found);
		return html`<p class=${`verdict ${most ? 'undecided' : word}`}>
			${word !== 'none' && html`<${State} of=${word} says=${word === 'undecided' ? '' : undefined} calm=${most} /> `}
			${found.primary && html`<strong>The question: </strong>`}
			${found.sentence}
			${disturbed && html`<small class="state warn">${disturbed}</small>`}
			${more > 0 && html` <button disabled=${busy} onClick=${() => run(more)}>Add ${plural(more, 'repetition')}</button>`}
			${fewest > 0 &&
			html`<small class="soft">
				With ${fewest} repetitions a verdict is possible: intervals of an extended experiment hold at any time, which takes
				more pairs.
			</small>`}
			${problem && html`<${Refused} problem=${problem} />`}
		</p>`;
	}
	if (of.state === 'active') {
		return html`<p class="verdict undecided">
			<${State} of="active" says="running" /> ${count(done)} of ${plural(of.runs, 'run')} done; ${of.eta_s == null
				? 'no verdict yet.'
				: `the verdict will be known in ${timeLeft(of)}.`}
			${disturbed && html`<small class="state warn">${disturbed}</small>`}
		</p>`;
	}
	return html`<p class="verdict undecided">
		${of.by_state['succeeded']
			? 'The verdict is being computed.'
			: 'No run has succeeded: there is nothing to conclude. ' +
				`${count(of.by_state.failed ?? 0)} failed, ${count(of.by_state.cancelled ?? 0)} cancelled.`}
	</p>`;
}

const SPAN = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/;

/** A text's code, emphasis and links. @param {string} text */
const spans = text =>
	text
		.trim()
		.split(SPAN)
		.map((part, i, parts) => {
			if (!part || i % 6 === 5) return null;
			if (i % 6 === 4) return html`<a href=${parts[i + 1]} rel="noopener">${part}</a>`;
			return [part, html`<code>${part}</code>`, html`<strong>${part}</strong>`, html`<em>${part}</em>`][i % 6];
		});

/** A paragraph, a heading, or a list and what introduces it. @param {string} text */
function block(text) {
	const heading = /^#+ (.*)/.exec(text)?.[1];
	if (heading) return html`<h2>${spans(heading)}</h2>`;
	const [before = '', ...items] = text.split(/^[-*] /m);
	return html`
		${before.trim() && html`<p class="lines">${spans(before)}</p>`}
		${items.length > 0 && html`<ul class="notes">${items.map(item => html`<li>${spans(item)}</li>`)}</ul>`}
	`;
}

/**
 * Markdown: paragraphs with their lines, headings, lists, code, emphasis, links. HTML stays text.
 * @param {{of: string}} props
 */
const Markdown = ({of}) =>
	of
		.split(/^```.*\n([^]*?)^```$/m)
		.map((part, i) =>
			i % 2
				? html`<pre class="command">${part}</pre>`
				: part.split(/\n\s*\n|^(#+ .*)\n/m).map(each => each?.trim() && block(each))
		);

/** @param {{of: import('../schemas').Schemas['ExperimentDetail']}} props */
function Actions({of}) {
	const {run, busy, problem} = useAction(async verb => {
		if (verb === 'report') await download(`../../reports/${of.id}`, {}, `report-${of.id}.html`);
		else await ask(`experiments/${of.id}/${verb}`, {method: 'POST'});
		goesOn(`experiment:${of.id}`);
	});
	const retryable = (of.by_state.failed ?? 0) + (of.by_state.cancelled ?? 0) + (of.by_state.quarantined ?? 0);
	return html`
		${problem && html`<${Refused} problem=${problem} />`}
		<a class="button" href=${link('new', {from: of.id})}>Run again…</a>
		<button disabled=${busy} onClick=${() => run('report')}>Report</button>
		${retryable > 0 && html`<button disabled=${busy} onClick=${() => run('retry')}>Retry ${count(retryable)}</button>`}
		${of.state === 'active' &&
		html`<${Sure}
			first="Cancel…"
			then="Cancel the experiment"
			keep="Keep running"
			busy=${busy}
			act=${() => run('cancel')}
		/>`}
	`;
}

/**
 * State and counts from the events of a running experiment. The last event may not arrive: the stream is closed once
 * the experiment is known to have ended.
 * @param {import('../schemas').Schemas['ExperimentDetail']} known
 * @param {import('../schemas').Schemas['ExperimentEvent'] | null} live
 */
const counts = (known, live) =>
	live && known.state === 'active' ? {state: live.state, runs: live.runs, by_state: live.by_state} : {};

export default function Experiment() {
	const {params} = address.value;
	const id = params.get('id') ?? '';
	const topic = /** @type {const} */ (`experiment:${id}`);
	const live = useLive(topic);
	const answer = useAnswer(`experiments/${encodeURIComponent(id)}`, {}, {follow: topic});
	/** @type {import('../schemas').Schemas['ExperimentDetail'] | undefined} */
	const known = answer.data;
	useWhile(topic, known?.state === 'active');
	useFollow(topic, message => message.state !== known?.state);
	const views = {...(known?.tuning && TUNING), ...(known?.request['template'] === 'workload' && WORKLOAD), ...VIEWS};
	const first = /** @type {string} */ (Object.keys(views)[0]);
	const said = params.get('view') ?? first;
	const view = said in views ? said : first;
	const Chosen = views[view]?.[1];
	return html`
		<${Head}
			title=${known?.name || `Experiment ${id}`}
			above=${known &&
			html`
				Experiment ${known.id}, submitted <${Time} at=${known.created_at} />
				${known.submitter && ` by ${known.submitter_name || known.submitter}`}
				${commit(known) && `, commit ${commit(known)}`}
			`}
			lead=${known &&
			Boolean(known.notes || known.tags?.length) &&
			html`
				${known.tags?.map(tag => html`<small class="tag" key=${tag}>${tag}</small> `)}
				<${Markdown} of=${known.notes} />
			`}
			actions=${known && html`<${Actions} of=${{...known, ...counts(known, live)}} />`}
		/>
		<${Answered} answer=${answer} lines=${10}>
			${(/** @type {import('../schemas').Schemas['ExperimentDetail']} */ found) => {
				const of = {...found, ...counts(found, live)};
				return html`<div class="stack">
					<${Verdict} of=${of} />
					<div class="row">
						<${State} of=${of.state} />
						<div style=${{flex: '1 1 200px', maxWidth: '420px'}}><${StateBar} counts=${of.by_state} total=${of.runs} /></div>
						<span class="soft">
							${Object.entries(of.by_state)
								.map(([state, n]) => `${count(/** @type {number} */ (n))} ${state}`)
								.join(', ')}
						</span>
					</div>
					${found.state === 'active' && !!live?.active?.length && html`<${Active} of=${live.active} />`}
					<div>
						<${Tabs} chosen=${view} tabs=${Object.entries(views).map(([name, [label]]) => [name, label])} />
						<${Chosen} of=${of} topic=${topic} />
					</div>
				</div>`;
			}}
		<//>
	`;
}

/** Runs in progress. @param {{of: import('../schemas').Schemas['RunEvent'][]}} props */
function Active({of}) {
	return html`<section class="panel">
		<h2>Under way</h2>
		<${Figures}
			of=${of
				.slice(0, 8)
				.map(run => [
					html`<a href=${link('run', {id: run.run_id})}>run ${run.run_id}</a>`,
					run.progress?.steps ? `${run.progress.step} / ${run.progress.steps}` : run.state,
					run.progress
						? `${run.progress.stage}${run.progress.loss == null ? '' : `, loss ${run.progress.loss.toFixed(3)}`}`
						: ''
				])}
		/>
	</section>`;
}
