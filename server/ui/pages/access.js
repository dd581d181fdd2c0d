// The current user, the keys, and the deletion of old runs.
import {html, useState} from '../vendor/preact.js';
import {ask, key, request} from '../api.js';
import {changed, useAction, useAnswer} from '../answers.js';
import {bytes, count, plural} from '../format.js';
import {Answered, Copy, Empty, Head, Pairs, Refused, Sure, Table, Time} from '../pieces.js';
import {State} from '../words.js';

const SCOPES = /** @type {[string, string][]} */ ([
	['read', 'see all but keys'],
	['submit', 'also submit, cancel and retry'],
	['worker', 'run a worker'],
	['admin', 'everything']
]);
const LASTS = /** @type {[string, string][]} */ ([
	['', 'until revoked'],
	[String(86400), 'for a day'],
	[String(30 * 86400), 'for 30 days'],
	[String(365 * 86400), 'for a year']
]);

/** @param {import('../schemas').Schemas['KeySummary']} each */
const stateOf = each =>
	each.revoked_at ? 'revoked' : each.expires_at && Date.parse(each.expires_at) < Date.now() ? 'expired' : 'valid';

/** A text that is shown once. @param {{title: string, text: string, onDone: () => void}} props */
const Secret = ({title, text, onDone}) => html`<div class="notice good" role="status">
	<strong>${title} was created. Copy it now: it is never shown again.</strong>
	<code>${text}</code>
	<span class="row"><${Copy} text=${text} /><button onClick=${onDone} type="button">I have it</button></span>
</div>`;

function Create() {
	const [made, setMade] = useState(/** @type {import('../schemas').Schemas['KeyCreated'] | null} */ (null));
	const {submit, busy, problem} = useAction(async (/** @type {HTMLFormElement} */ form) => {
		const said = new FormData(form);
		const lasts = said.get('lasts');
		setMade(
			await ask('keys', {
				method: 'POST',
				body: {scope: said.get('scope'), name: said.get('name'), ...(lasts ? {expires_in_s: Number(lasts)} : {})}
			})
		);
		form.reset();
		changed('keys');
	});
	return html`<form class="panel stack tight" onSubmit=${submit}>
		<h2>New key</h2>
		${problem && html`<${Refused} problem=${problem} />`}
		<div class="fields">
			<div class="field"><label for="key-name">Name</label><input id="key-name" name="name" maxlength="200" /></div>
			<div class="field">
				<label for="key-scope">Scope</label>
				<select id="key-scope" name="scope">
					${SCOPES.map(([scope, says]) => html`<option key=${scope} value=${scope}>${scope}: ${says}</option>`)}
				</select>
			</div>
			<div class="field">
				<label for="key-lasts">Valid</label>
				<select id="key-lasts" name="lasts">
					${LASTS.map(([s, says]) => html`<option key=${s} value=${s}>${says}</option>`)}
				</select>
			</div>
		</div>
		<div class="row"><button class="first" disabled=${busy}>Create</button></div>
		${made && html`<${Secret} title=${`Key ${made.id}`} text=${made.token} onDone=${() => setMade(null)} />`}
	</form>`;
}

/** @param {{of: import('../schemas').Schemas['KeySummary']}} props */
function Revoke({of}) {
	const {run, busy, problem} = useAction(async () => {
		await ask(`keys/${of.id}/revoke`, {method: 'POST'});
		changed('keys');
	});
	if (of.revoked_at) return null;
	return html`
		${problem && html`<${Refused} problem=${problem} />`}
		<${Sure}
			first=${html`Revoke…<span class="unseen"> key ${of.id}</span>`}
			then=${`Revoke key ${of.id}`}
			busy=${busy}
			act=${() => run(undefined)}
		/>
	`;
}

function Prune() {
	const [found, setFound] = useState(/** @type {import('../schemas').Schemas['PruneReport'] | null} */ (null));
	const [asked, setAsked] = useState(/** @type {import('../schemas').Schemas['PruneRequest'] | null} */ (null));
	const {run, busy, problem} = useAction(async body => {
		setAsked(body);
		setFound(await ask('prune', {method: 'POST', body}));
	});
	/** @param {{currentTarget: HTMLFormElement} & Event} event */
	const look = event => {
		event.preventDefault();
		const said = new FormData(event.currentTarget);
		const states = said.getAll('states').map(String);
		void run({older_than_s: Number(said.get('days')) * 86400, states, dry_run: true});
	};
	return html`<form class="panel stack tight" onSubmit=${look}>
		<h2>Delete old runs</h2>
		<p class="soft">Unfinished experiments are left untouched. A dry run comes first.</p>
		${problem && html`<${Refused} problem=${problem} />`}
		<div class="row">
			<div class="field">
				<label for="prune-days">Ended at least this many days ago</label>
				<input id="prune-days" name="days" type="number" min="0" max="36500" value="90" required />
			</div>
			<fieldset class="row">
				<legend class="soft">State</legend>
				${['succeeded', 'failed', 'cancelled', 'quarantined'].map(
					state => html`<label key=${state}>
						<input type="checkbox" name="states" value=${state} defaultChecked=${state !== 'succeeded'} /> ${state}
					</label>`
				)}
			</fieldset>
		</div>
		<div class="row"><button disabled=${busy}>Show what would be deleted</button></div>
		${found &&
		html`<div class=${`notice ${found.dry_run ? 'warn' : 'good'}`} role="status">
			<strong>
				${found.dry_run ? 'Would be deleted' : 'Deleted'}: ${plural(found.runs, 'run')}, ${plural(
					found.experiments,
					'experiment'
				)}, ${plural(found.files, 'file')} (${bytes(found.bytes)})${found.more ? ', and more' : ''}
			</strong>
			<span>
				${plural(found.attempts, 'attempt')}, ${plural(found.results, 'result')}, ${plural(
					found.artifacts,
					'artifact'
				)}, ${count(found.output_lines)} lines
				of output.
			</span>
			${found.dry_run &&
			found.runs > 0 &&
			html`<span>
				<button class="danger" type="button" disabled=${busy} onClick=${() => run({...asked, dry_run: false})}>
					Delete ${plural(found.runs, 'run')} for good
				</button>
			</span>`}
		</div>`}
	</form>`;
}

/** @param {{of: import('../schemas').Schemas['WebhookSummary']}} props */
function Hook({of}) {
	const sent = useAnswer(`webhooks/${of.id}/deliveries`, {limit: 1});
	const {run, busy, problem} = useAction(async () => {
		await request(`webhooks/${of.id}`, {method: 'DELETE'});
		changed('webhooks');
	});
	/** @type {import('../schemas').Schemas['DeliverySummary'] | undefined} */
	const last = sent.data?.items[0];
	return html`<li class="row">
		<code>${of.url}</code> ${of.events.join(', ')} <small>of ${of.owner}</small>
		<span class="soft">
			${last
				? html`last message ${last.state} <${Time} at=${last.delivered_at ?? last.created_at} /> ${last.error}`
				: 'no message yet'}
		</span>
		<button type="button" disabled=${busy} onClick=${() => run(undefined)}>
			Delete<span class="unseen"> webhook ${of.id}</span>
		</button>
		${problem && html`<${Refused} problem=${problem} />`}
	</li>`;
}

/** The caller's webhooks; an admin's are all. */
function Webhooks() {
	const answer = useAnswer('webhooks', {limit: 100}, {follow: 'webhooks'});
	const [secret, setSecret] = useState('');
	const {submit, busy, problem} = useAction(async (/** @type {HTMLFormElement} */ form) => {
		const said = new FormData(form);
		const body = {url: said.get('url'), events: said.getAll('events')};
		setSecret((await ask('webhooks', {method: 'POST', body})).secret);
		form.reset();
		changed('webhooks');
	});
	return html`<form class="panel stack tight" onSubmit=${submit}>
		<h2>Webhooks</h2>
		<p class="soft">URLs that receive verdicts and alerts, below those that the operator allows.</p>
		<${Answered} answer=${answer} lines=${2}>
			${page =>
				page.items.length
					? html`<ul class="stack tight">
							${page.items.map(
								(/** @type {import('../schemas').Schemas['WebhookSummary']} */ of) => html`<${Hook} key=${of.id} of=${of} />`
							)}
						</ul>`
					: html`<p class="soft">No webhooks.</p>`}
		<//>
		${problem && html`<${Refused} problem=${problem} />`}
		<div class="row">
			<div class="field">
				<label for="hook">URL</label>
				<input id="hook" name="url" type="url" maxlength="2000" size="36" required />
			</div>
			<fieldset class="row">
				<legend class="soft">Messages</legend>
				${['verdict', 'alert', 'tuning.confirmed'].map(
					name => html`<label key=${name}>
						<input type="checkbox" name="events" value=${name} defaultChecked=${name === 'verdict'} /> ${name}
					</label>`
				)}
			</fieldset>
			<button disabled=${busy}>Add webhook</button>
		</div>
		${secret &&
		html`<${Secret} title="The secret that signs its messages" text=${secret} onDone=${() => setSecret('')} />`}
	</form>`;
}

export default function Access() {
	const who = useAnswer('whoami');
	const admin = who.data?.scope === 'admin';
	const keys = useAnswer(admin ? 'keys' : null, {limit: 200}, {follow: 'keys'});
	const leave = () => {
		key.forget();
		location.reload();
	};
	return html`
		<${Head} title="Access" />
		<${Answered} answer=${who} lines=${3}>
			${me => html`<div class="stack">
				<section class="panel stack tight">
					<h2>Who you are</h2>
					<${Pairs}
						of=${[
							['you', me.name ? `${me.name} (${me.actor})` : me.actor === 'local' ? 'anyone on this machine' : me.actor],
							['scope', `${me.scope}: ${SCOPES.find(([scope]) => scope === me.scope)?.[1] ?? ''}`],
							['expires', me.expires_at ? html`<${Time} at=${me.expires_at} />` : 'never']
						]}
					/>
					${!me.keys_exist && html`<p class="soft">Without keys, anyone on the server's machine has full access.</p>`}
					${key.get() && html`<div class="row"><button onClick=${leave}>Forget the key of this tab</button></div>`}
				</section>
				${(admin || me.scope === 'submit') && html`<${Webhooks} />`}
				${admin
					? html`
							<${Create} />
							<section class="panel">
								<h2>Keys</h2>
								<${Answered} answer=${keys} lines=${4}>
									${page =>
										page.items.length
											? html`<${Table}
													caption="Keys"
													rows=${page.items}
													id=${k => k.id}
													columns=${[
														{label: 'Key', number: true, cell: k => k.id},
														{label: 'Name', class: 'question', cell: k => k.name || '–'},
														{label: 'Scope', cell: k => k.scope},
														{label: 'State', cell: k => html`<${State} of=${stateOf(k)} />`},
														{label: 'Created', cell: k => html`<${Time} at=${k.created_at} />`},
														{label: 'Last used', cell: k => html`<${Time} at=${k.last_used_at} />`},
														{label: 'Expires', cell: k => html`<${Time} at=${k.expires_at} />`},
														{label: html`<span class="unseen">Revoke</span>`, cell: k => html`<${Revoke} of=${k} />`}
													]}
												/>`
											: html`<p class="soft">No keys.</p>`}
								<//>
							</section>
							<${Prune} />
						`
					: html`<${Empty}><p>Managing keys and deleting runs requires a key of scope admin.</p><//>`}
			</div>`}
		<//>
	`;
}
