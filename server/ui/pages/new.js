// A question: what it would become, said while one types; the same as JSON, command line and curl.
import {html, useEffect, useMemo, useRef, useState} from '../vendor/preact.js';
import {address, choose, go, link} from '../address.js';
import {Problem, ask} from '../api.js';
import {useAction, useAnswer} from '../answers.js';
import {bytes, count, duration, percent, plural, variantName} from '../format.js';
import {Answered, Copy, Head, Refused, Skeleton, Table} from '../pieces.js';
import {choices, settingsOf, textsOf} from '../new/asking.js';
import {commandOf, curlOf} from '../request.js';

const PROBLEM = ['model', 'batch', 'seq', 'steps', 'data', 'precision'];
const PARALLEL = ['scheduler', 'threads', 'batch_slice', 'token_slice', 'sync'];
const NOT_HERE = new Set(['save', 'trace']);
const EMPTY = {
	name: '',
	base: {model: 'tiny', batch: 4, seq: 64, steps: 20},
	axes: {scheduler: ['fork-join', 'task'], threads: [1, 2]},
	repetitions: 6,
	trace: 'first'
};
const CALIBRATION = {
	name: 'A/A',
	base: {model: 'tiny', batch: 4, seq: 64, steps: 20, scheduler: 'task', threads: 2},
	repetitions: 20,
	calibrates: true
};

/** What a node can tell apart, by its last A/A experiment. @param {any} each */
const detectable = each => `${each.node}: ${each.relative === null ? 'nothing' : percent(each.relative)}`;

/** What a dry run says, in one sentence. @param {any} plan */
function planSaid(plan) {
	const found = plan.detectable.filter(each => each.relative !== null);
	const least = found.length ? Math.min(...found.map(each => each.relative)) : null;
	const long =
		plan.estimated_s === null
			? 'of a shape that never ran, so nobody knows how long'
			: `about ${duration(plan.estimated_s)}`;
	const unclear = plan.detectable.length ? ', too few to tell anything apart' : '';
	return `${plural(plan.runs, 'run')}, ${long}` + (least === null ? unclear : `, tells apart ${percent(least)} or more`);
}

/**
 * @param {{name: string, schema: any, text: string, refused: string | undefined, onText: (text: string) => void}} props
 */
function Field({name, schema, text, refused, onText}) {
	const id = `set-${name}`;
	const few = choices(schema);
	const label = name.replaceAll('_', ' ');
	const told = html`
		<span class="help" id=${`${id}-help`}>${schema.description}</span>
		${refused && html`<span class="refused" id=${`${id}-refused`} role="alert">${refused}</span>`}
	`;
	if (few) {
		const chosen = text
			.split(',')
			.map(each => each.trim())
			.filter(Boolean);
		const toggle = (/** @type {string} */ value) =>
			onText(few.filter(each => (each === value ? !chosen.includes(each) : chosen.includes(each))).join(', '));
		return html`<fieldset class="field" aria-describedby=${`${id}-help`}>
			<legend>${label}</legend>
			<span class="row tight">
				${few.map(
					value => html`<label key=${value}>
						<input
							type="checkbox"
							checked=${chosen.includes(value)}
							aria-invalid=${refused ? 'true' : undefined}
							onChange=${() => toggle(value)}
						/> ${value}
					</label>`
				)}
			</span>
			${told}
		</fieldset>`;
	}
	return html`<div class="field">
		<label for=${id}>${label}</label>
		<input
			id=${id}
			value=${text}
			autocomplete="off"
			spellcheck="false"
			list=${name === 'model' ? 'models' : undefined}
			placeholder="default"
			aria-describedby=${`${id}-help${refused ? ` ${id}-refused` : ''}`}
			aria-invalid=${refused ? 'true' : undefined}
			onInput=${event => onText(event.target.value)}
		/>
		${told}
	</div>`;
}

/** @param {{first: any, fields: Record<string, any>}} props */
function Form({first, fields}) {
	const [request, setRequest] = useState(first);
	const [texts, setTexts] = useState(() => textsOf(first));
	const [plan, setPlan] = useState(/** @type {any} */ (null));
	const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
	const asked = useMemo(() => {
		const {base, axes} = settingsOf(texts, fields);
		const whole = {...request, base, axes};
		for (const [name, value] of Object.entries(whole))
			if (
				value === '' ||
				value === null ||
				value === undefined ||
				(typeof value === 'object' && !Object.keys(value).length)
			)
				delete whole[name];
		return whole;
	}, [request, texts]);
	const text = JSON.stringify(asked);

	useEffect(() => {
		const stop = new AbortController();
		const timer = setTimeout(async () => {
			choose({ask: text, from: null, run: null, calibrate: null});
			try {
				setPlan(
					await ask('experiments', {method: 'POST', params: {dry_run: true}, body: JSON.parse(text), signal: stop.signal})
				);
				setProblem(null);
			} catch (error) {
				if (!stop.signal.aborted) {
					setPlan(null);
					setProblem(error instanceof Problem ? error : new Problem({title: String(error)}));
				}
			}
		}, 220);
		return () => {
			clearTimeout(timer);
			stop.abort();
		};
	}, [text]);

	const idempotency = useRef({text: '', key: ''});
	const submit = useAction(async () => {
		if (idempotency.current.text !== text)
			idempotency.current = {text, key: crypto.randomUUID?.() ?? String(Math.random()).slice(2)};
		const made = await ask('experiments', {
			method: 'POST',
			body: asked,
			headers: {'Idempotency-Key': idempotency.current.key}
		});
		go(link('experiment', {id: made.id}));
	});
	const refusedBy = new Map(
		(problem?.errors ?? submit.problem?.errors ?? []).map(each => [
			each.pointer?.split('/')[2] ?? each.field ?? each.pointer?.split('/')[1],
			`${each.value === undefined ? '' : `${JSON.stringify(each.value)}: `}${each.accepted ?? each.detail}`
		])
	);
	const known = new Set([
		...Object.keys(fields),
		'repetitions',
		'rel_ci',
		'max_repetitions',
		'budget_s',
		'timeout_s',
		'priority',
		'memory_bytes',
		'requires'
	]);
	const elsewhere =
		problem &&
		(!problem.errors.length ||
			problem.errors.some(
				each => !known.has(String(each.pointer?.split('/')[2] ?? each.field ?? each.pointer?.split('/')[1]))
			));
	const set = changes => setRequest(before => ({...before, ...changes}));
	const field = (/** @type {string} */ name) =>
		fields[name] &&
		html`<${Field}
			key=${name}
			name=${name}
			schema=${fields[name]}
			text=${texts[name] ?? ''}
			refused=${refusedBy.get(name)}
			onText=${said => setTexts(before => ({...before, [name]: said}))}
		/>`;
	const rest = Object.keys(fields).filter(name => ![...PROBLEM, ...PARALLEL].includes(name) && !NOT_HERE.has(name));
	const numberField = (
		/** @type {string} */ id,
		/** @type {string} */ label,
		/** @type {unknown} */ value,
		/** @type {(value: number | null) => void} */ said,
		/** @type {string} */ help,
		/** @type {any} */ limits = {}
	) => html`<div class="field">
		<label for=${id}>${label}</label>
		<input
			id=${id}
			type="number"
			value=${value ?? ''}
			...${limits}
			aria-invalid=${refusedBy.get(id) ? 'true' : undefined}
			aria-describedby=${`${id}-help`}
			onInput=${event => said(event.target.value === '' ? null : Number(event.target.value))}
		/>
		<span class="help" id=${`${id}-help`}>${help}</span>
		${refusedBy.get(id) && html`<span class="refused" role="alert">${refusedBy.get(id)}</span>`}
	</div>`;
	const {stop} = request;
	const setStop = changes => {
		const next = Object.fromEntries(Object.entries({...stop, ...changes}).filter(([, value]) => value !== null));
		set({stop: next['rel_ci'] ? next : null});
	};

	return html`<form
		class="stack"
		onSubmit=${(/** @type {Event} */ event) => {
			event.preventDefault();
			void submit.run(undefined);
		}}
	>
		<p class=${`verdict ${plan ? '' : 'undecided'}`} role="status">
			${plan ? planSaid(plan) : problem ? 'It cannot be run as it is.' : 'Looking what it would become…'}
			${plan &&
			html`<small class="soft">
				${plural(plan.variants, 'variant')}, arenas of ${bytes(plan.memory_bytes)} at
				most${plan.detectable.length
					? `; ${plan.detectable.map(detectable).join(', ')}, by the last A/A experiment`
					: '; no node was calibrated, so nobody knows what it can tell apart'}
			</small>`}
		</p>
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
					<p class="soft">Several values, as <code>1, 2, 4</code>, make an axis: every combination of the axes is run.</p>
				</section>
				<section class="panel">
					<h2>What is trained</h2>
					<div class="fields">${PROBLEM.map(field)}</div>
					<datalist id="models">
						${['tiny', 'small', 'gpt2-124m', 'gpt2-350m', 'gpt2-774m', 'gpt2-1.5b'].map(
							name => html`<option key=${name} value=${name}></option>`
						)}
					</datalist>
				</section>
				<section class="panel"><h2>How it is parallelised</h2><div class="fields">${PARALLEL.map(field)}</div></section>
				<section class="panel">
					<h2>How often, and until when</h2>
					<div class="fields">
						${numberField(
							'repetitions',
							'Repetitions',
							request.repetitions,
							value => set({repetitions: value ?? undefined}),
							'each variant so often, each in a fresh process; six give an interval',
							{min: 1, max: 1000}
						)}
						${numberField(
							'rel_ci',
							'Until the interval is within, %',
							stop?.rel_ci ? Number((stop.rel_ci * 100).toPrecision(4)) : null,
							value => setStop({rel_ci: value === null ? null : value / 100}),
							'goes on beyond the repetitions until the answer is known',
							{min: 0.01, max: 99, step: 'any'}
						)}
						${stop &&
						html`
							${numberField(
								'max_repetitions',
								'At most',
								stop.max_repetitions,
								value => setStop({max_repetitions: value}),
								'repetitions of every variant',
								{min: 1, max: 1000}
							)}
							${numberField(
								'budget_s',
								'Budget, s',
								stop.budget_s,
								value => setStop({budget_s: value}),
								"workers' time of all attempts",
								{min: 1}
							)}
						`}
						<div class="field">
							<label for="order">Order</label>
							<select
								id="order"
								value=${request.order ?? 'interleaved'}
								aria-describedby="order-help"
								onChange=${event => set({order: event.target.value === 'interleaved' ? null : event.target.value})}
							>
								${['interleaved', 'sequential'].map(
									each => html`<option key=${each} selected=${each === (request.order ?? 'interleaved')}>${each}</option>`
								)}
							</select>
							<span class="help" id="order-help">
								interleaved: every variant once in each block, in random order, so that runs are pairs
							</span>
						</div>
						<div class="field">
							<label for="trace">Traces</label>
							<select
								id="trace"
								value=${String(request.trace ?? false)}
								aria-describedby="trace-help"
								onChange=${event =>
									set({
										trace:
											{false: null, true: true}[/** @type {string} */ (event.target.value)] === undefined
												? 'first'
												: {false: null, true: true}[/** @type {string} */ (event.target.value)]
									})}
							>
								${[
									['false', 'none'],
									['first', 'the first of each variant'],
									['true', 'every run']
								].map(
									([value, says]) => html`<option
										key=${value}
										value=${value}
										selected=${value === String(request.trace ?? false)}
									>
										${says}
									</option>`
								)}
							</select>
							<span class="help" id="trace-help">in an attempt of its own, whose times count nowhere</span>
						</div>
					</div>
				</section>
				<details class="panel">
					<summary>More settings</summary>
					<div class="fields">
						${rest.map(field)}
						${numberField(
							'timeout_s',
							'Timeout, s',
							request.limits?.timeout_s,
							value => set({limits: value === null ? null : {timeout_s: value}}),
							'an attempt is stopped after so long',
							{min: 1}
						)}
						${numberField('priority', 'Priority', request.priority, value => set({priority: value}), 'higher runs first', {
							min: -100,
							max: 100
						})}
						<div class="field">
							<label for="labels">Labels of the node</label>
							<input
								id="labels"
								value=${Object.entries(request.requires?.labels ?? {})
									.map(([k, v]) => `${k}=${v}`)
									.join(' ')}
								placeholder="cpu=zen4"
								aria-describedby="labels-help"
								onChange=${event => {
									const labels = Object.fromEntries(
										event.target.value
											.split(/[\s,]+/)
											.filter(each => each.includes('='))
											.map(each => [each.slice(0, each.indexOf('=')), each.slice(each.indexOf('=') + 1)])
									);
									const requires = {...request.requires, labels};
									if (!Object.keys(labels).length) delete requires.labels;
									set({requires: Object.keys(requires).length ? requires : null});
								}}
							/>
							<span class="help" id="labels-help">it runs only on nodes that have them</span>
						</div>
						<div class="field">
							<label>
								<input
									type="checkbox"
									checked=${request.calibrates === true}
									onChange=${event => set({calibrates: event.target.checked ? true : null})}
								/> A/A:
								calibrate the node
							</label>
							<span class="help">no axes; all runs are alike, and show what the node can tell apart</span>
						</div>
					</div>
				</details>
				<div class="row">
					<button class="first" disabled=${!plan || submit.busy}>Run ${plan ? plural(plan.runs, 'run') : 'it'}</button>
				</div>
			</div>
			<div class="stack">
				<section class="panel stack tight">
					<div class="row between"><h2>Command line</h2><${Copy} text=${commandOf(asked)} /></div>
					<pre class="command">${commandOf(asked)}</pre>
				</section>
				<section class="panel stack tight">
					<div class="row between"><h2>curl</h2><${Copy} text=${curlOf(asked)} /></div>
					<pre class="command">${curlOf(asked)}</pre>
				</section>
				<section class="panel stack tight">
					<div class="row between"><h2>JSON</h2><${Copy} text=${JSON.stringify(asked, null, 2)} /></div>
					<pre class="command">${JSON.stringify(asked, null, 2)}</pre>
				</section>
				${plan &&
				html`<section class="panel">
					<h2>Order</h2>
					<${Table}
						caption="Order of the runs"
						rows=${plan.order.slice(0, 24)}
						id=${r => r.position}
						columns=${[
							{name: 'p', label: 'Place', number: true, tight: true, cell: r => r.position + 1},
							{name: 'b', label: 'Block', number: true, tight: true, cell: r => r.block + 1},
							{name: 'v', label: 'Variant', cell: r => variantName(r.variant)}
						]}
					/>
					${plan.order.length > 24 && html`<p class="soft">24 of ${count(plan.order.length)} shown.</p>`}
				</section>`}
			</div>
		</div>
	</form>`;
}

/** The request that the address begins with. @param {{fields: Record<string, any>}} props */
function Begun({fields}) {
	const [{from, run, said, calibrate}] = useState(() => {
		const {params} = address.value;
		return {
			from: params.get('from'),
			run: params.get('run'),
			said: params.get('ask'),
			calibrate: params.get('calibrate')
		};
	});
	const experiment = useAnswer(from ? `experiments/${encodeURIComponent(from)}` : null);
	const one = useAnswer(run ? `runs/${encodeURIComponent(run)}` : null);
	if (said) {
		try {
			return html`<${Form} first=${JSON.parse(said)} fields=${fields} />`;
		} catch {
			return html`<${Form} first=${EMPTY} fields=${fields} />`;
		}
	}
	if (from)
		return html`<${Answered} answer=${experiment} lines=${12}>
			${of => html`<${Form} first=${of.request} fields=${fields} />`}
		<//>`;
	if (run)
		return html`<${Answered} answer=${one} lines=${12}>
			${of => html`<${Form}
				first=${{
					name: `run ${of.id} again`,
					base: Object.fromEntries(
						Object.entries(of.spec)
							.filter(([name, value]) => value !== null && name in fields && !NOT_HERE.has(name))
							.map(([name, value]) => [
								name,
								name === 'model' && /** @type {any} */ (value).name !== 'custom' && /** @type {any} */ (value).name
									? /** @type {any} */ (value).name
									: value
							])
					),
					axes: {},
					repetitions: 6
				}}
				fields=${fields}
			/>`}
		<//>`;
	return html`<${Form} first=${calibrate ? {...CALIBRATION, name: `A/A of ${calibrate}`} : EMPTY} fields=${fields} />`;
}

export default function New() {
	const schema = useAnswer('../../openapi.json');
	const fields = schema.data?.components.schemas.RunSpec.properties;
	return html`
		<${Head} title="New experiment" />
		${schema.problem && !fields
			? html`<${Refused} problem=${schema.problem} retry=${schema.reload} />`
			: fields
				? html`<${Begun} fields=${fields} />`
				: html`<${Skeleton} height=${500} />`}
	`;
}
