// How an experiment and a run were requested and measured: settings, measuring rules, history, attempts, files.
import {html} from './vendor/preact.js';
import {ask, download} from './api.js';
import {changed, useAction, useAnswer} from './answers.js';
import {bytes, commit, count, duration, pairsOf, percent, plural, setting, words} from './format.js';
import {Answered, Empty, Pairs, Refused, Table, Time} from './pieces.js';
import {AttemptTable} from './pages/fleet.js';
import {NodeTime} from './plots/rows.js';
import {Same, commandOf, questionText} from './request.js';
import {State} from './words.js';

/** @typedef {import('./schemas').Schemas} Schemas */

/** Name, tags and notes, which can be changed at any time. @param {{of: Schemas['ExperimentDetail']}} props */
function Names({of}) {
	const {submit, busy, problem} = useAction(async (/** @type {HTMLFormElement} */ form) => {
		const said = new FormData(form);
		const tags = String(said.get('tags')).split(/[\s,]+/);
		const body = {name: said.get('name'), notes: said.get('notes'), tags: [...new Set(tags.filter(Boolean))]};
		await ask(`experiments/${of.id}`, {method: 'PATCH', body});
		changed(`experiment:${of.id}`);
	});
	return html`<form class="panel stack tight" onSubmit=${submit}>
		<h2>Name, tags, notes</h2>
		${problem && html`<${Refused} problem=${problem} />`}
		<div class="fields">
			<div class="field">
				<label for="name">Name</label>
				<input id="name" name="name" maxlength="200" defaultValue=${of.name} />
			</div>
			<div class="field">
				<label for="tags">Tags</label>
				<input id="tags" name="tags" placeholder="night baseline" defaultValue=${of.tags?.join(' ')} />
			</div>
		</div>
		<div class="field">
			<label for="notes">Notes</label>
			<textarea id="notes" name="notes" rows="4" maxlength="10000" defaultValue=${of.notes}></textarea>
		</div>
		<div class="row"><button disabled=${busy}>Save</button></div>
	</form>`;
}

/** @param {{of: Schemas['ExperimentDetail'], topic: string}} props */
export function Design({of, topic}) {
	const report = useAnswer(of.by_state.succeeded ? 'analysis/card' : null, {experiment_id: of.id}, {follow: topic});
	const history = useAnswer(`experiments/${of.id}/changes`, {limit: 200}, {follow: topic});
	const request = /** @type {Partial<Schemas['ExperimentRequest']>} */ (of.request);
	const asked = /** @type {[string, string][]} */ ([
		...Object.entries(request.axes ?? {}).map(([name, values]) => [words(name), values.map(setting).join(', ')]),
		...pairsOf(request.base ?? {})
	]);
	return html`<div class="stack">
		<div class="columns">
			<section class="panel">
				<h2>Request</h2>
				<${Pairs}
					of=${[
						...asked,
						...(request.primary ? [['question', questionText(request.primary)]] : []),
						['repetitions', `${request.repetitions ?? 1}${of.extended ? `, and ${of.extended} added after its end` : ''}`],
						['order', request.order ?? 'interleaved'],
						...(request.stop
							? [
									[
										'stops when',
										`the half-width of every interval is at most ${percent(request.stop.rel_ci)}, ` +
											(request.stop.budget_s == null ? '' : `or its workers have spent ${duration(request.stop.budget_s)}, `) +
											`or after ${request.stop.max_repetitions ?? 50} repetitions`
									]
								]
							: []),
						...(of.stopping
							? [['progress', `${of.stopping.repetitions} repetitions${of.stopping.reason ? `: ${of.stopping.reason}` : ''}`]]
							: [])
					]}
				/>
			</section>
			<div class="stack"><${Names} of=${of} /><${Same} request=${request} /></div>
		</div>
		${of.by_state.succeeded > 0 &&
		html`<${Answered} answer=${report} height=${320}>
			${(/** @type {Schemas['ReportCard']} */ document) => html`
				<section class="panel">
					<h2>Report card</h2>
					<${Table}
						caption="Measuring rules"
						rows=${document.card}
						id=${r => r.number}
						columns=${[
							{label: 'No.', tight: true, number: true, cell: r => r.number},
							{label: 'Rule', class: 'question', cell: r => r.rule},
							{label: 'Holds', tight: true, cell: r => html`<${State} of=${r.holds} />`},
							{label: 'Evidence', class: 'question', cell: r => r.evidence}
						]}
					/>
				</section>
				<section class="panel">
					<h2>Environment</h2>
					<${Pairs}
						of=${[
							...Object.entries(document.environment.known).map(([name, value]) => [
								words(name),
								value == null ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value)
							]),
							['differences', document.environment.differs.join('; ') || 'none between the runs']
						]}
					/>
				</section>
			`}
		<//>`}
		<${Answered} answer=${history} height=${60}>
			${page => html`<details class="panel">
				<summary>
					History: ${page.next_cursor
						? `the first ${count(page.items.length)} changes of state`
						: plural(page.items.length, 'change of state', 'changes of state')}
				</summary>
				<${Changes} rows=${page.items} runs=${true} />
			</details>`}
		<//>
	</div>`;
}

/** A history of states. @param {{rows: Schemas['StateChange'][], runs?: boolean}} props */
export function Changes({rows, runs = false}) {
	return html`<${Table}
		caption="Changes of state"
		rows=${rows}
		id=${r => r.id}
		columns=${[
			{label: 'When', tight: true, cell: r => html`<${Time} at=${r.at} />`},
			...(runs ? [{label: 'Run', tight: true, cell: (/** @type {Schemas['StateChange']} */ r) => r.run_id}] : []),
			{label: 'Action', tight: true, cell: r => r.verb},
			{label: 'New state', tight: true, cell: r => html`<${State} of=${r.state} />`},
			{label: 'Attempt', number: true, cell: r => r.attempt_no ?? '–'},
			{label: 'By', tight: true, cell: r => r.actor},
			{label: 'Why', class: 'question', cell: r => r.reason ?? ''}
		]}
	/>`;
}

/** @param {{of: Schemas['RunDetail'], topic: string}} props */
export function Attempts({of, topic}) {
	const history = useAnswer(`runs/${of.id}/changes`, {limit: 200}, {follow: topic});
	return html`<div class="stack">
		<section class="panel">
			<h2>Attempts</h2>
			${of.history.length
				? html`<${AttemptTable} caption="Attempts" rows=${of.history} first=${{label: 'Worker', cell: a => a.worker_id}} />`
				: html`<p class="soft">No worker has claimed it yet.</p>`}
		</section>
		<${NodeTime} of=${of} name=${`run ${of.id}`} />
		<section class="panel">
			<h2>Changes of state</h2>
			<${Answered} answer=${history} height=${120}>${page => html`<${Changes} rows=${page.items} />`}<//>
		</section>
	</div>`;
}

/** @param {{of: Schemas['RunDetail']}} props */
export function Settings({of}) {
	const model = /** @type {{name?: string, network?: string} | null} */ (of.spec['model']);
	const isPreset = model?.name && !['custom', model.network].includes(model.name);
	const resolved = /** @type {Record<string, unknown>} */ (of.resolved ?? {});
	const base = Object.fromEntries(Object.entries(of.spec).filter(([, value]) => value !== null));
	return html`<div class="columns">
		<section class="panel">
			<h2>Settings</h2>
			<${Pairs}
				of=${Object.entries(of.spec).map(([name, value]) => [
					words(name),
					value === null || value === 'auto'
						? html`<span class="soft">${value ?? 'default'}</span> ${resolved[name]}`
						: setting(value)
				])}
			/>
		</section>
		<section class="panel">
			<h2>Commits</h2>
			<${Pairs}
				of=${[
					['measured', commit(of) || html`<span class="soft">the submitter named none</span>`],
					['its version', of.version],
					['trainer', commit(of, 'trainer_') || html`<span class="soft">unknown</span>`],
					['its version', of.trainer_version]
				].filter(([, value]) => value)}
			/>
		</section>
		<section class="panel">
			<h2>Command line</h2>
			<pre class="command">${commandOf({base: {...base, model: isPreset ? model.name : model}})}</pre>
		</section>
	</div>`;
}

/** @param {{of: Schemas['RunDetail'], topic: string}} props */
export function Files({of, topic}) {
	const answer = useAnswer(`runs/${of.id}/artifacts`, {}, {follow: topic});
	const {run, busy, problem} = useAction(async file => download(file.path, file.params, file.name));
	return html`<div class="stack">
		${problem && html`<${Refused} problem=${problem} />`}
		<${Answered} answer=${answer} lines=${4}>
			${found => html`
				${of.median_step_s !== null &&
				html`<section class="panel row">
					${[
						['result', '', 'Raw result'],
						['samples', '-samples', 'Samples']
					].map(
						([path, end, says]) => html`<button
							key=${path}
							disabled=${busy}
							onClick=${() => run({path: `runs/${of.id}/${path}`, params: {}, name: `run-${of.id}${end}.json`})}
						>
							${says} (JSON)
						</button>`
					)}
				</section>`}
				${found.items.length
					? html`<section class="panel">
							<h2>Files</h2>
							<${Table}
								caption="Files"
								rows=${found.items}
								id=${f => `${f.attempt_no} ${f.name}`}
								columns=${[
									{label: 'File', class: 'question', cell: f => f.name},
									{label: 'Attempt', number: true, cell: f => f.attempt_no},
									{label: 'Size', number: true, cell: f => bytes(f.size_bytes)},
									{label: 'Received', cell: f => html`<${Time} at=${f.received_at} />`},
									{label: 'SHA-256', cell: f => html`<code title=${f.sha256}>${f.sha256.slice(0, 12)}</code>`},
									{
										label: html`<span class="unseen">Save</span>`,
										cell: f => html`<button
											class="plain"
											disabled=${busy}
											onClick=${() =>
												run({
													path: `runs/${of.id}/artifacts/${encodeURIComponent(f.name)}`,
													params: {attempt_no: f.attempt_no},
													name: `run-${of.id}-${f.name}`
												})}
										>
											Save<span class="unseen"> ${f.name} of attempt ${f.attempt_no}</span>
										</button>`
									}
								]}
							/>
						</section>`
					: html`<${Empty}><p>Its attempts left no files.</p><//>`}
			`}
		<//>
	</div>`;
}
