// A run: why it waits or failed, else its step time; then its steps, timeline, ops, log and attempts.
import {html, useEffect, useRef, useState} from '../vendor/preact.js';
import {address, link} from '../address.js';
import {useAction, useAnswer, useGrowing} from '../answers.js';
import {ask} from '../api.js';
import {count, duration, median, ms, number, perSecond, percent, plural, variantName} from '../format.js';
import {goesOn, useFollow, useLive, useTopic, useWhile} from '../live.js';
import {Answered, Empty, Figures, Head, Refused, Tabs, Time, later} from '../pieces.js';
import {Steps} from '../run/steps.js';
import {State} from '../words.js';

// Output of a run's trainers: the last lines, then new lines as they arrive; all lines on request.

// Lines that are shown first.
const TAIL = 500;

/**
 * The order of two lines.
 * @param {import('../schemas').Schemas['LogLine']} a
 * @param {import('../schemas').Schemas['LogLine']} b
 */
const order = (a, b) => a.attempt_no - b.attempt_no || a.line_no - b.line_no;

/** @param {{of: import('../schemas').Schemas['RunDetail'], topic: `run:${string}`}} props */
export function Log({of, topic}) {
	const [whole, setWhole] = useState(false);
	const answer = useGrowing(`runs/${of.id}/log`, topic, whole ? null : TAIL);
	const [added, add] = useState(/** @type {import('../schemas').Schemas['LogLine'][]} */ ([]));
	const place = useRef(/** @type {HTMLElement | null} */ (null));
	useTopic(topic, message => {
		if (message.event === 'line') add(before => [...before.slice(-4000), message.data]);
	});
	const first = answer.data?.[0];
	// Events repeat a run's first lines.
	const later = first ? added.filter(line => order(first, line) < 0) : added;
	const known = new Map([...(answer.data ?? []), ...later].map(line => [`${line.attempt_no} ${line.line_no}`, line]));
	const lines = [...known.values()].sort(order);
	useEffect(() => {
		const element = place.current;
		if (element && !element.matches(':hover, :focus-within')) element.scrollTop = element.scrollHeight;
		// Lines may arrive before the log is shown.
	}, [lines.length, answer.data === undefined]);
	return html`<${Answered} answer=${answer} lines=${6}>
		${() => html`
			${of.error &&
			html`<section class="notice bad">
				<strong>${of.error.slug}</strong>
				<span>${of.error.detail}</span>
				${Array.isArray(of.error.output) && html`<pre class="log" tabindex="0">${of.error.output.join('\n')}</pre>`}
			</section>`}
			${!whole &&
			lines[0] &&
			(lines[0].line_no > 1 || lines[0].attempt_no > 1) &&
			html`<button onClick=${() => setWhole(true)}>Show earlier lines</button>`}
			${lines.length
				? html`<pre class="log" ref=${place} tabindex="0" aria-label="Log">${lines
						.map(
							(line, i) =>
								(i === 0 || lines[i - 1].attempt_no !== line.attempt_no ? `── attempt ${line.attempt_no} ──\n` : '') +
								`${line.text}\n`
						)
						.join('')}</pre>`
				: html`<${Empty}>
						<p>The trainer has not printed anything${['running', 'leased', 'queued'].includes(of.state) ? ' yet' : ''}.</p>
					<//>`}
		`}
	<//>`;
}

const VIEWS = /** @type {Record<string, [string, Function]>} */ ({
	steps: ['Steps', Steps],
	timeline: ['Timeline', later(async () => (await import('../run/timed.js')).Timed)],
	graph: ['Task graph', later(async () => (await import('../run/timed.js')).Graph)],
	ops: ['Ops and threads', later(async () => (await import('../run/ops.js')).Ops)],
	validity: ['Validity', later(async () => (await import('../run/ops.js')).Validity)],
	log: ['Log', Log],
	attempts: ['Attempts', later(async () => (await import('../facts.js')).Attempts)],
	settings: ['Settings', later(async () => (await import('../facts.js')).Settings)],
	files: ['Files', later(async () => (await import('../facts.js')).Files)]
});

/** A run in words, with its model. @param {import('../schemas').Schemas['RunDetail']} of */
const named = ({variant, settings}) =>
	[...(variant['model'] || !settings ? [] : [settings.model]), variantName(variant)].join(', ');

// Filters of a request.
const MOST_FILTERS = 20;

/**
 * The step time of a run, its rank among the runs of its variant, and their median.
 * @param {{of: import('../schemas').Schemas['RunDetail']}} props
 */
function Among({of}) {
	const filter = Object.entries(of.variant)
		.filter(([, value]) => typeof value !== 'object')
		.map(([name, value]) => `${name}=${JSON.stringify(value)}`);
	const siblings = useAnswer('runs', {
		experiment_id: of.experiment_id,
		state: 'succeeded',
		filter: filter.slice(0, MOST_FILTERS),
		limit: 500
	});
	const page = siblings.data;
	const times = (page?.items ?? []).flatMap(each =>
		each.median_step_s !== null && JSON.stringify(each.variant) === JSON.stringify(of.variant) ? [each.median_step_s] : []
	);
	const rank = times.filter(each => each < (of.median_step_s ?? 0)).length + 1;
	return html`<p class="verdict">
		<${State} of="succeeded" /> ${ms(of.median_step_s)} a
		step${times.length > 1
			? `, number ${rank} of ${plural(times.length, 'run')} of its variant, fastest first; ` +
				`their median is ${ms(median(times))}` +
				(page?.next_cursor ? `; compared with the first ${count(page.items.length)} runs` : '')
			: ', the only run of its variant so far'}.${!!of.flagged_steps &&
		html`<small class="state warn">
			${plural(of.flagged_steps, 'disturbed step is', 'disturbed steps are')} included and flagged.
		</small>`}
	</p>`;
}

/**
 * @param {{of: import('../schemas').Schemas['RunDetail'], live: import('../schemas').Schemas['RunEvent']
 *   | null}} props
 */
function First({of, live}) {
	if (of.state === 'succeeded' && of.median_step_s !== null) return html`<${Among} of=${of} />`;
	if (of.state === 'queued')
		return html`<p class="verdict undecided">
			<${State} of="queued" /> ${of.queue
				? `Number ${count(of.queue.position)} in the queue, waiting: ${of.queue.waiting_for}.`
				: 'Queued for tracing.'}
		</p>`;
	if (of.error)
		return html`<p class="verdict refused">
			<${State} of=${of.state} /> ${of.error.detail ?? of.error.slug}
			<small class="soft">${of.error.slug ?? ''}; the log below ends with the trainer's last output.</small>
		</p>`;
	const progress = live?.progress ?? of.history.at(-1)?.progress;
	if (of.state === 'running' || of.state === 'leased') {
		return html`<p class="verdict undecided">
			<${State} of=${of.state} /> ${progress?.steps
				? `Step ${progress.step} of ${progress.steps}, ${progress.stage}` +
					(progress.loss == null ? '' : `, loss ${progress.loss.toFixed(4)}`) +
					(progress.tokens_per_s == null ? '' : `, ${count(progress.tokens_per_s)} ${of.unit}/s`) +
					'.'
				: 'A worker has claimed it; the trainer is starting.'}
		</p>`;
	}
	return html`<p class="verdict undecided">
		<${State} of=${of.state} /> ${of.state === 'cancelled'
			? 'This run was cancelled: no result uses it.'
			: of.state === 'quarantined'
				? 'Its workers were lost too often. It is not tried again until someone presses Retry.'
				: ''}
	</p>`;
}

/**
 * The goal of a run, and what the way to it took.
 * @param {{of: import('../schemas').Schemas['RunDetail']}} props
 */
function Goal({of}) {
	const result = useAnswer(of.median_step_s === null ? null : `runs/${of.id}/result`);
	const [metric, value] = Object.entries(/** @type {Record<string, number>} */ (of.spec.stop_at))[0];
	const goal = result.data?.goal;
	return html`
		${`${metric} ${metric === 'loss' ? '≤' : '≥'} ${value} `}
		<small class="soft">
			${!goal
				? ''
				: !goal.reached
					? `not reached in ${count(result.data?.step_s.length)} steps`
					: `after ${plural(Number(goal.steps), 'step')}, ${duration(goal.time_s)}` +
						(goal.energy_j == null ? '' : `, ${goal.energy_j.toPrecision(4)} J`)}
		</small>
	`;
}

const MOST_TOKENS = 200;

/**
 * The tokens that a run has generated, and its rates beside the bandwidth of its node.
 * @param {{of: import('../schemas').Schemas['RunDetail']}} props
 */
function Generated({of}) {
	const result = useAnswer(of.median_step_s === null ? null : `runs/${of.id}/result`);
	const found = result.data;
	if (!found?.tokens) return '';
	const {tokens, summary} = found;
	const {prompt} = found.config;
	return html`<section class="panel stack">
		<h2>Generation</h2>
		<${Figures}
			of=${[
				[
					'Time to first token',
					ms(found.time_to_first_token_s),
					`after ${plural(Array.isArray(prompt) ? prompt.length : 0, 'token')} of prompt`
				],
				['Tokens/s', number(summary?.tokens_per_s)],
				[
					'Weights read',
					`${number(summary?.weights_gb_per_s)} GB/s`,
					summary?.triad_gb_per_s == null
						? (summary?.triad_missing ?? 'the triad of the node is not measured')
						: `${percent((summary.weights_gb_per_s ?? 0) / summary.triad_gb_per_s, 0)} of the triad’s ` +
							`${number(summary.triad_gb_per_s)} GB/s`
				]
			]}
		/>
		<h3>${plural(tokens.length, 'generated token')}</h3>
		<p>
			<code>${tokens.slice(0, MOST_TOKENS).join(', ')}</code>
			${tokens.length > MOST_TOKENS &&
			html` <small class="soft">The result has all tokens; these are the first ${MOST_TOKENS}.</small>`}
		</p>
	</section>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
function Actions({of}) {
	const {run, busy, problem} = useAction(async verb => {
		await ask(`runs/${of.id}/${verb}`, {method: 'POST'});
		goesOn(`run:${of.id}`);
	});
	return html`
		${problem && html`<${Refused} problem=${problem} />`}
		${['failed', 'cancelled', 'quarantined'].includes(of.state) &&
		html`<button class="first" disabled=${busy} onClick=${() => run('retry')}>Retry</button>`}
		${['queued', 'leased', 'running'].includes(of.state) &&
		html`<button disabled=${busy} onClick=${() => run('cancel')}>Cancel</button>`}
		<a class="button" href=${link('new', {run: of.id})}>Run again…</a>
	`;
}

export default function Run() {
	const {params} = address.value;
	const id = params.get('id') ?? '';
	const topic = /** @type {const} */ (`run:${id}`);
	const live = useLive(topic);
	const answer = useAnswer(`runs/${encodeURIComponent(id)}`, {}, {follow: topic});
	/** @type {import('../schemas').Schemas['RunDetail'] | undefined} */
	const known = answer.data;
	useWhile(topic, known !== undefined && !known.finished_at);
	useFollow(topic, message => message.state !== known?.state);
	return html`
		<${Head}
			title=${known ? `Run ${known.id}: ${named(known)}` : `Run ${id}`}
			above=${known &&
			html`
				<a href=${link('experiment', {id: known.experiment_id})}>Experiment ${known.experiment_id}</a>,
				repetition ${known.repetition}, block ${known.block + 1}
			`}
			actions=${known && html`<${Actions} of=${known} />`}
		/>
		<${Answered} answer=${answer} lines=${10}>
			${(/** @type {import('../schemas').Schemas['RunDetail']} */ of) => {
				const first = of.state === 'failed' ? 'log' : of.state === 'queued' ? 'settings' : 'steps';
				const view = params.get('view') ?? first;
				const Chosen = (VIEWS[view] ?? VIEWS[first])?.[1];
				const last = of.history.at(-1);
				return html`<div class="stack">
					<${First} of=${of} live=${live} />
					<section class="panel">
						<${Figures}
							of=${[
								...(of.median_step_s === null && of.finished_at
									? []
									: [
											['Median step', ms(of.median_step_s)],
											[perSecond([of]), count(of.tokens_per_s)],
											['Final loss', of.final_loss?.toFixed(5) ?? '–']
										]),
								...(of.spec.stop_at ? [['Goal', html`<${Goal} of=${of} />`]] : []),
								['Attempts', of.attempts],
								['Node', of.node ?? last?.worker_id ?? '–'],
								[
									'Duration',
									of.duration_s != null
										? duration(of.duration_s)
										: of.finished_at && of.started_at
											? duration((Date.parse(of.finished_at) - Date.parse(of.started_at)) / 1000)
											: '–'
								],
								...(of.cost == null ? [] : [['Cost', number(of.cost)]]),
								...(of.cost_to_goal == null ? [] : [['Cost to the goal', number(of.cost_to_goal)]]),
								[of.finished_at ? 'Ended' : 'Submitted', html`<${Time} at=${of.finished_at ?? of.created_at} />`]
							]}
						/>
					</section>
					${!!of.spec.generate && html`<${Generated} of=${of} />`}
					<div>
						<${Tabs}
							chosen=${view in VIEWS ? view : first}
							tabs=${[first, ...Object.keys(VIEWS).filter(name => name !== first)].map(name => [name, VIEWS[name]?.[0]])}
						/>
						<${Chosen} of=${of} topic=${topic} live=${live} />
					</div>
				</div>`;
			}}
		<//>
	`;
}
