// The form of a new experiment: settings from the OpenAPI document, rules, and the result of the dry run.
import {html, useMemo, useRef, useState} from '../vendor/preact.js';
import {choose, go, link} from '../address.js';
import {ask} from '../api.js';
import {useAction} from '../answers.js';
import {plural} from '../format.js';
import {Refused} from '../pieces.js';
import {Same} from '../request.js';
import {fieldOf, requestOf, textsOf, unreadIn} from './asking.js';
import {Field, Setting} from './fields.js';
import {Order, Plan, Tuned, useDryRun} from './plan.js';
import {Limits, Repetitions} from './rules.js';

/** The settings that an experiment takes: all but a run's files and those that workers do not support.
 * @param {Record<string, any>} fields */
export const taken = fields =>
	Object.fromEntries(Object.entries(fields).filter(([, schema]) => schema['x-role'] !== 'output' && !schema['x-local']));
/** Fields that can show an error, besides those of the schema. */
const RULES = ['primary', 'repetitions', 'rel_ci', 'max_repetitions', 'budget_s', 'timeout_s', 'priority', 'labels'];

/** Submits a request only once, however often the button is pressed. @param {any} request */
function useSubmit(request) {
	const text = JSON.stringify(request);
	const idempotency = useRef({text: '', key: ''});
	return useAction(async () => {
		if (idempotency.current.text !== text)
			idempotency.current = {text, key: crypto.randomUUID?.() ?? String(Math.random()).slice(2)};
		const headers = {'Idempotency-Key': idempotency.current.key};
		const made = await ask('experiments', {method: 'POST', body: request, headers});
		go(link('experiment', {id: made.id}));
	});
}

/** @param {{first: any, fields: Record<string, any>}} props first: the initial request */
export function Form({first, fields}) {
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
	const set = changes => setRequest((/** @type {any} */ before) => ({...before, ...changes}));
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
	return html`<form
		class="stack"
		onSubmit=${(/** @type {Event} */ event) => {
			event.preventDefault();
			void submit.run(undefined);
		}}
	>
		<${Plan} plan=${plan} problem=${problem} />
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
							onInput=${(/** @type {any} */ event) => setTexts(before => ({...before, primary: event.target.value}))}
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
						${fields.model.examples.map((/** @type {string} */ name) => html`<option key=${name} value=${name}></option>`)}
					</datalist>
				</section>
				${plan &&
				html`<${Tuned}
					base=${asked.base}
					onUse=${(/** @type {any} */ settings) => {
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
				<div class="row">
					<button class="first" disabled=${!plan || submit.busy}>Run ${plan ? plural(plan.runs, 'run') : 'it'}</button>
				</div>
			</div>
			<div class="stack"><${Same} request=${asked} />${plan && html`<${Order} plan=${plan} />`}</div>
		</div>
	</form>`;
}
