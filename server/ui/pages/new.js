// New experiment: a form with the settings of the OpenAPI document, and a dry run while the user types.
import {html, useEffect, useMemo, useRef, useState} from '../vendor/preact.js';
import {address, choose, go, link} from '../address.js';
import {useAction, useAnswer} from '../answers.js';
import {asProblem, ask} from '../api.js';
import {bytes, count, duration, percent, plural, variantName} from '../format.js';
import {Answered, Head, Refused, Skeleton, Table, Time} from '../pieces.js';
import {Same} from '../request.js';
import {Field, Limits, Repetitions, Setting, fieldOf, requestOf, textsOf, unreadIn} from '../new/fields.js';

/** @typedef {import('../api.js').Problem} Problem */

// The dry run of a request: number and order of its runs, their duration, and the smallest difference they detect.

const PAUSE_MS = 220;
const SHOWN = 24;
const IMPOSSIBLE = 'This experiment cannot run as it is.';

/**
 * The dry run of a request, repeated when typing pauses. onAsked is called before each.
 * @param {string} request as JSON
 * @param {() => void} onAsked
 */
function useDryRun(request, onAsked) {
	const [plan, setPlan] = useState(/** @type {import('../schemas').Schemas['DryRun'] | null} */ (null));
	const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
	useEffect(() => {
		const stop = new AbortController();
		const timer = setTimeout(async () => {
			onAsked();
			const body = JSON.parse(request);
			try {
				const made = await ask('experiments', {method: 'POST', params: {dry_run: true}, body, signal: stop.signal});
				if (!('id' in made)) setPlan(made);
				setProblem(null);
			} catch (error) {
				if (stop.signal.aborted) return;
				setPlan(null);
				setProblem(asProblem(error, 'The dry run failed'));
			}
		}, PAUSE_MS);
		return () => {
			clearTimeout(timer);
			stop.abort();
		};
	}, [request]);
	return {plan, problem};
}

/**
 * The smallest difference that a node detects, by its last A/A experiment.
 * @param {import('../schemas').Schemas['DetectableDifference']} each
 */
const detectable = each => `${each.node}: ${each.relative === null ? 'nothing' : percent(each.relative)}`;

/** How long the runs of a dry run take. @param {import('../schemas').Schemas['DryRun']} plan */
const timeSaid = ({estimated_s, estimate_basis}) =>
	estimated_s === null
		? 'duration unknown: nothing of this shape has run yet'
		: `about ${duration(estimated_s)}` +
			(estimate_basis === 'guess' ? ' (a guess: not all of these shapes have run)' : '');

/** A dry run in one sentence. @param {import('../schemas').Schemas['DryRun']} plan */
function planSaid(plan) {
	const found = (plan.detectable ?? []).flatMap(each => (each.relative === null ? [] : [each.relative]));
	const least = found.length ? Math.min(...found) : null;
	const unclear = plan.detectable?.length ? ', too few to detect a difference' : '';
	return (
		`${plural(plan.runs, 'run')}, ${timeSaid(plan)}` +
		(least === null ? unclear : `, detects differences of ${percent(least)} or more`)
	);
}

/** What so many pairs decide. @param {{pairs: number, needed: number, decidable: boolean}} found */
function decides({pairs, needed, decidable}) {
	if (pairs === 0) return 'cannot be decided, because the order sequential makes no pairs';
	return decidable
		? `${plural(pairs, 'pair')} can decide it; ${needed} suffice`
		: `${plural(pairs, 'pair')} cannot decide it, whatever the times; at least ${needed} repetitions can`;
}

/**
 * What the planned repetitions can decide, a sentence each.
 * @param {import('../schemas').Schemas['DryRun']} plan
 * @returns {string[]}
 */
function decidable({primary, family}) {
	const sentences = [];
	if (primary) sentences.push(`The question (${primary.b} against ${primary.a}): ${decides(primary)}.`);
	if (family) {
		const parts = [plural(family.comparisons, 'comparison')];
		if (family.pooled) parts.push(plural(family.pooled, 'pooled ratio'));
		const several = family.comparisons + family.pooled > 1;
		const which = several ? `Each of ${parts.join(' and ')} alone` : `The ${primary ? 'other ' : ''}comparison`;
		sentences.push(`${which}: ${decides(family)}.`);
	}
	return sentences;
}

/** @param {{plan: import('../schemas').Schemas['DryRun'] | null, problem: Problem | null}} props */
function Plan({plan, problem}) {
	return html`<p class=${`verdict ${plan ? '' : 'undecided'}`} role="status">
		${plan ? planSaid(plan) : problem ? IMPOSSIBLE : 'Planning the runs…'}
		${plan &&
		html`<small class="soft">
			${plural(plan.variants, 'variant')}, arenas of at most ${bytes(plan.memory_bytes)}
			${plan.detectable?.length
				? `; smallest detectable difference on ${plan.detectable.map(detectable).join(', ')} (last A/A experiment)`
				: '; no node is calibrated, so the smallest detectable difference is unknown'}
		</small>`}
		${plan && decidable(plan).map(each => html`<small key=${each}>${each}</small>`)}
	</p>`;
}

/**
 * The first runs, in the order in which they will be queued.
 * @param {{plan: import('../schemas').Schemas['DryRun']}} props
 */
function Order({plan}) {
	return html`<section class="panel">
		<h2>Order</h2>
		<${Table}
			caption="Order of the runs"
			rows=${plan.order.slice(0, SHOWN)}
			id=${r => r.position}
			columns=${[
				{label: 'Position', number: true, tight: true, cell: r => r.position + 1},
				{label: 'Block', number: true, tight: true, cell: r => r.block + 1},
				{label: 'Variant', cell: r => variantName(r.variant)}
			]}
		/>
		${plan.order.length > SHOWN && html`<p class="soft">${SHOWN} of ${count(plan.order.length)} shown.</p>`}
	</section>`;
}

/** A setting that a tuning has confirmed for the network and shape in the form, with its age and evidence.
 * @param {{base: Record<string, unknown>, onUse: (settings: Record<string, unknown>) => void}} props */
function Tuned({base, onUse}) {
	const answer = useAnswer('tuned', {base: JSON.stringify(base), limit: 1});
	/** @type {import('../schemas').Schemas['TunedSetting'] | undefined} */
	const found = answer.data?.items[0];
	if (!found || Object.entries(found.settings).every(([name, value]) => base[name] === (value ?? undefined)))
		return null;
	return html`<div class="notice">
		<span>
			A <a href=${link('experiment', {id: found.experiment_id})}>tuning</a> of this network and shape ended${' '}
			<${Time} at=${found.confirmed_at} /> on ${found.node}: ${found.sentence}
		</span>
		${found.changed?.length
			? html`<span>The node has changed since (${found.changed.join(', ')}): tune again.</span>`
			: html`<span><button type="button" onClick=${() => onUse(found.settings)}>Use its setting</button></span>`}
	</div>`;
}

/** The settings that an experiment takes: all but a run's files and those that workers do not support.
 * @param {import('../schemas').Fields} fields */
const taken = fields =>
	Object.fromEntries(Object.entries(fields).filter(([, schema]) => schema['x-role'] !== 'output'));
/** Fields that can show an error, besides those of the schema. */
const RULES = ['primary', 'repetitions', 'rel_ci', 'max_repetitions', 'budget_s', 'timeout_s', 'priority', 'labels'];

/** Submits a request only once, however often the button is pressed. @param {import('../schemas').Request} request */
function useSubmit(request) {
	const text = JSON.stringify(request);
	const idempotency = useRef({text: '', key: ''});
	return useAction(async () => {
		if (idempotency.current.text !== text)
			idempotency.current = {text, key: crypto.randomUUID?.() ?? String(Math.random()).slice(2)};
		const headers = {'Idempotency-Key': idempotency.current.key};
		const made = await ask('experiments', {method: 'POST', body: request, headers});
		if ('id' in made) go(link('experiment', {id: made.id}));
	});
}

/**
 * @param {{first: import('../schemas').Request, fields: import('../schemas').Fields}} props
 *   first: the initial request
 */
function Form({first, fields}) {
	const [request, setRequest] = useState(first);
	const [texts, setTexts] = useState(() => textsOf(first));
	const asked = useMemo(() => requestOf(request, texts, fields), [request, texts]);
	const text = JSON.stringify(asked);
	const {plan, problem} = useDryRun(text, () => choose({ask: text, from: null, run: null, calibrate: null}));
	const submit = useSubmit(asked);
	const errors = problem?.errors ?? submit.problem?.errors ?? [];
	const refused = new Map(
		errors.map(each => [
			fieldOf(each),
			`${each.value === undefined ? '' : `${JSON.stringify(each.value)}: `}${each.accepted ?? each.detail}`
		])
	);
	const elsewhere =
		problem && (!errors.length || errors.some(each => !(fieldOf(each) in fields) && !RULES.includes(fieldOf(each))));
	/** @param {Record<string, unknown>} changes */
	const set = changes => setRequest(before => ({...before, ...changes}));
	const rules = {request, set, refused};
	const setting = (/** @type {string} */ name) =>
		fields[name] &&
		html`<${Setting}
			key=${name}
			name=${name}
			schema=${fields[name]}
			text=${texts[name] ?? ''}
			refused=${refused.get(name)}
			unread=${unreadIn(fields[name], texts)}
			onText=${said => setTexts(before => ({...before, [name]: said}))}
		/>`;
	/** The settings that the schema puts under a heading. @param {string} [group] */
	const under = group => Object.keys(fields).filter(name => fields[name]['x-group'] === group);
	return html`<form class="stack" onSubmit=${submit.submit}>
		<div class="stay"><${Plan} plan=${plan} problem=${problem} /></div>
		${elsewhere && html`<${Refused} problem=${problem} />`}
		${submit.problem && html`<${Refused} problem=${submit.problem} />`}
		<div class="main-side">
			<div class="stack">
				<section class="panel stack tight">
					<div class="field">
						<label for="question">Question</label>
						<input
							id="question"
							value=${request.name ?? ''}
							maxlength="200"
							placeholder="fork-join or tasks?"
							onInput=${event => set({name: event.target.value})}
							data-find
						/>
					</div>
					<${Field}
						id="primary"
						label="Comparison that answers it"
						help="optional; judged alone: is the first side faster than the second? Each side names one variant"
						refused=${refused.get('primary')}
					>
						<input
							id="primary"
							value=${texts['primary'] ?? ''}
							spellcheck="false"
							placeholder="scheduler=task,threads=2 vs scheduler=fork-join,threads=2"
							aria-describedby="primary-help"
							onInput=${event => setTexts(before => ({...before, primary: event.target.value}))}
						/>
					<//>
					<p class="soft">
						A field with several values, such as <code>1, 2, 4</code>, becomes an axis. Every combination of the axes is run.
					</p>
				</section>
				<section class="panel">
					<h2>Training</h2>
					<div class="fields">${under('training').map(setting)}</div>
					<datalist id="models">
						${fields['model']?.examples?.map(name => html`<option key=${name} value=${name}></option>`)}
					</datalist>
				</section>
				${plan &&
				html`<${Tuned}
					base=${asked.base}
					onUse=${settings => {
						const none = Object.fromEntries(Object.keys(settings).map(name => [name, '']));
						setTexts(before => ({...before, ...none, ...textsOf({base: settings})}));
					}}
				/>`}
				<section class="panel">
					<h2>Parallelisation</h2>
					<div class="fields">${under('parallelisation').map(setting)}</div>
				</section>
				<${Repetitions} ...${rules} />
				<details class="panel">
					<summary>More settings</summary>
					<div class="fields">${under().map(setting)}<${Limits} ...${rules} /></div>
				</details>
				<div class="row run-row">
					<button class="first" disabled=${!plan || submit.busy}>Run ${plan ? plural(plan.runs, 'run') : 'it'}</button>
					<span>${plan ? timeSaid(plan) : problem && IMPOSSIBLE}</span>
				</div>
			</div>
			<div class="stack"><${Same} request=${asked} />${plan && html`<${Order} plan=${plan} />`}</div>
		</div>
	</form>`;
}

// The first request of the form.

const BASE = {model: 'tiny', batch: 4, seq: 64, steps: 20};
/** @type {import('../schemas').Request} */
const EMPTY = {name: '', base: BASE, axes: {scheduler: ['fork-join', 'task'], threads: [1, 2]}, trace: 'first'};
/** @param {string} node */
const calibrationOf = node => ({
	name: `A/A of ${node}`,
	base: {...BASE, scheduler: 'task', threads: 2},
	repetitions: 20,
	calibrates: true
});

/**
 * The request that repeats a run.
 * @param {import('../schemas').Schemas['RunDetail']} run
 * @param {import('../schemas').Fields} fields
 */
function again(run, fields) {
	const said = Object.entries(run.spec).filter(([name, value]) => value !== null && name in fields);
	const {name} = /** @type {{name?: string}} */ (run.spec['model']);
	/** @type {Record<string, unknown>} */
	const base = Object.fromEntries(said);
	if (name && name !== 'custom') base['model'] = name;
	return {name: `run ${run.id} again`, base, axes: {}, repetitions: 6};
}

/** The request in a URL; null if it is not valid JSON. @param {string | null} text */
function parsed(text) {
	try {
		return text && JSON.parse(text);
	} catch {
		return null;
	}
}

/** The form, filled with the request in the URL. @param {{fields: import('../schemas').Fields}} props */
function Begun({fields}) {
	// The URL as it was at first: the form changes it.
	const [begun] = useState(() => Object.fromEntries(address.value.params));
	const said = parsed(begun['ask'] ?? null);
	const {from, run, calibrate} = begun;
	const experiment = useAnswer(!said && from ? `experiments/${encodeURIComponent(from)}` : null);
	const one = useAnswer(!said && run ? `runs/${encodeURIComponent(run)}` : null);
	const form = (/** @type {import('../schemas').Request} */ first) => html`<${Form} first=${first} fields=${fields} />`;
	if (said) return form(said);
	if (from) return html`<${Answered} answer=${experiment} lines=${12}>${of => form(of.request)}<//>`;
	if (run) return html`<${Answered} answer=${one} lines=${12}>${of => form(again(of, fields))}<//>`;
	return form(calibrate ? calibrationOf(calibrate) : EMPTY);
}

export default function New() {
	const schema = useAnswer('../../openapi.json');
	const fields = schema.data && taken(schema.data.components.schemas.RunSpec.properties);
	return html`
		<${Head} title="New experiment" />
		${schema.problem && !fields
			? html`<${Refused} problem=${schema.problem} retry=${schema.reload} />`
			: fields
				? html`<${Begun} fields=${fields} />`
				: html`<${Skeleton} height=${500} />`}
	`;
}
