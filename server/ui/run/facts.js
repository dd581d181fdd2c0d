// Attempts, settings and files of a run.
import {html} from '../vendor/preact.js';
import {download} from '../api.js';
import {useAction, useAnswer} from '../answers.js';
import {bytes, commit, setting} from '../format.js';
import {Answered, Empty, Pairs, Refused, Table, Time} from '../pieces.js';
import {Changes} from '../experiment/design.js';
import {AttemptTable} from '../lists/attempts.js';
import {commandOf} from '../request.js';
import {NodeTime} from '../plots/rows.js';

/** @param {{of: import('../schemas').Schemas['RunDetail'], topic: string}} props */
export function Attempts({of, topic}) {
	const history = useAnswer(`runs/${of.id}/changes`, {limit: 200}, {follow: topic});
	return html`<div class="stack">
		<section class="panel">
			<h2>Attempts</h2>
			${of.history.length
				? html`<${AttemptTable}
						caption="Attempts"
						rows=${of.history}
						first=${{name: 'worker', label: 'Worker', cell: a => a.worker_id}}
					/>`
				: html`<p class="soft">No worker has claimed it yet.</p>`}
		</section>
		<${NodeTime} of=${of} name=${`run ${of.id}`} />
		<section class="panel">
			<h2>Changes of state</h2>
			<${Answered} answer=${history} height=${120}>${page => html`<${Changes} rows=${page.items} />`}<//>
		</section>
	</div>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail']}} props */
export function Settings({of}) {
	const model = /** @type {{name?: string} | null} */ (of.spec['model']);
	const base = Object.fromEntries(Object.entries(of.spec).filter(([, value]) => value !== null));
	return html`<div class="columns">
		<section class="panel">
			<h2>Settings</h2>
			<${Pairs}
				of=${Object.entries(of.spec).map(([name, value]) => [
					name.replaceAll('_', ' '),
					value === null ? html`<span class="soft">chosen by the trainer</span>` : setting(value)
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
			<pre class="command">${commandOf({
				base: {...base, model: model?.name && model.name !== 'custom' ? model.name : model}
			})}</pre>
		</section>
	</div>`;
}

/** @param {{of: import('../schemas').Schemas['RunDetail'], topic: string}} props */
export function Files({of, topic}) {
	const answer = useAnswer(`runs/${of.id}/artifacts`, {}, {follow: topic});
	const {run, busy, problem} = useAction(async file => download(file.path, file.params, file.name));
	return html`<div class="stack">
		${problem && html`<${Refused} problem=${problem} />`}
		<${Answered} answer=${answer} lines=${4}>
			${found => html`
				${of.median_step_s !== null &&
				html`<section class="panel row">
					<button
						disabled=${busy}
						onClick=${() => run({path: `runs/${of.id}/result`, params: {}, name: `run-${of.id}.json`})}
					>
						Raw result (JSON)
					</button>
					<button
						disabled=${busy}
						onClick=${() => run({path: `runs/${of.id}/samples`, params: {}, name: `run-${of.id}-samples.json`})}
					>
						Samples (JSON)
					</button>
				</section>`}
				${found.items.length
					? html`<section class="panel">
							<h2>Files</h2>
							<${Table}
								caption="Files"
								rows=${found.items}
								id=${f => `${f.attempt_no} ${f.name}`}
								columns=${[
									{name: 'name', label: 'File', class: 'question', cell: f => f.name},
									{name: 'attempt', label: 'Attempt', number: true, cell: f => f.attempt_no},
									{name: 'size', label: 'Size', number: true, cell: f => bytes(f.size_bytes)},
									{name: 'at', label: 'Received', cell: f => html`<${Time} at=${f.received_at} />`},
									{name: 'sum', label: 'SHA-256', cell: f => html`<code title=${f.sha256}>${f.sha256.slice(0, 12)}</code>`},
									{
										name: 'get',
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
