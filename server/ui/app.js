// Entry point: renders the page that the URL names, in the frame of every page: navigation, the key form, the keys and
// their help, and a notice when data is stale.
import {html, render, signal, useEffect, useRef, useState} from './vendor/preact.js';
import {address, go, link, watchLinks} from './address.js';
import {staleSince} from './answers.js';
import {key, keyWanted} from './api.js';
import {duration} from './format.js';
import {useStream} from './live.js';
import {PLACES, pageOf} from './pages.js';
import {Head, Skeleton, Unloadable} from './pieces.js';

// Keyboard shortcuts of every page. Single-letter shortcuts can be turned off (WCAG 2.1.4).

const KEYS = /** @type {[string, string][]} */ ([
	['?', 'show this help'],
	...PLACES.map(({key, label}) => /** @type {[string, string]} */ ([`g ${key}`, `go to ${label}`])),
	['/', 'filter the list'],
	['j  k', 'next, previous row'],
	['Enter', 'open the row'],
	['x', 'select the row'],
	['c', 'compare the selected runs'],
	['← →  + −', 'move and zoom a timeline'],
	['0', 'show the whole timeline'],
	['n  p', 'next, previous span'],
	['t', 'the span at that time on the next thread'],
	['Esc', 'close the dialog, clear the selection']
]);

const SETTING = 'taskloom-letters';
/** Whether single-letter shortcuts are on. */
const letters = signal(localStorage.getItem(SETTING) !== 'off');
/** @param {boolean} on */
function setLetters(on) {
	letters.value = on;
	localStorage.setItem(SETTING, on ? 'on' : 'off');
}
const helpShown = signal(false);

/** @param {number} step */
function walk(step) {
	const rows = [...document.querySelectorAll('main tr[data-row]')];
	const at = rows.findIndex(row => row.contains(document.activeElement));
	const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
	/** @type {HTMLElement | null | undefined} */ (row?.querySelector('a[href]'))?.focus();
}

function mark() {
	const row = document.activeElement?.closest('tr[data-row]');
	/** @type {HTMLInputElement | null | undefined} */ (row?.querySelector('input[type=checkbox]'))?.click();
}

function watchKeys() {
	let leading = false;
	document.addEventListener('keydown', event => {
		const target = /** @type {HTMLElement} */ (event.target);
		if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
		if (target.matches('input:not([type=checkbox]):not([type=radio]), select, textarea')) {
			if (event.key === 'Escape') target.blur();
			return;
		}
		if (!letters.value || document.querySelector('dialog[open]')) return;
		if (leading) {
			leading = false;
			const place = PLACES.find(({key}) => key === event.key);
			if (place) {
				event.preventDefault();
				go(link(place.name));
			}
			return;
		}
		/** @type {Record<string, () => void>} */
		const acts = {
			g: () => {
				leading = true;
				setTimeout(() => {
					leading = false;
				}, 1200);
			},
			'?': () => {
				helpShown.value = true;
			},
			'/': () => /** @type {HTMLElement | null} */ (document.querySelector('[data-find]'))?.focus(),
			j: () => walk(1),
			k: () => walk(-1),
			x: mark,
			c: () => /** @type {HTMLElement | null} */ (document.querySelector('[data-compare]'))?.click()
		};
		const act = acts[event.key];
		if (act && !(event.key === 'j' && address.value.page === 'new')) {
			event.preventDefault();
			act();
		}
	});
}

const THEME = 'taskloom-theme';
const root = document.documentElement;
// As theme.js has set it.
const theme = signal(root.dataset['theme'] ?? 'auto');
/** @param {string} name */
function setTheme(name) {
	theme.value = name;
	localStorage.setItem(THEME, name);
	if (name === 'auto') delete root.dataset['theme'];
	else root.dataset['theme'] = name;
}

function Stale() {
	const [, tick] = useState(0);
	const since = staleSince.value;
	useEffect(() => {
		if (since === null) return undefined;
		const timer = setInterval(() => tick(n => n + 1), 1000);
		return () => clearInterval(timer);
	}, [since]);
	return html`<div role="status">
		${since !== null &&
		html`<span class="state warn">stale for ${duration(Math.max(1, Math.round((Date.now() - since) / 1000)))}</span>`}
	</div>`;
}

/** Asks for a key, instead of showing the page. */
function KeyForm() {
	const input = useRef(/** @type {HTMLInputElement | null} */ (null));
	const [had] = useState(() => key.get() !== null);
	/** @param {Event} event */
	const enter = event => {
		event.preventDefault();
		const token = input.current?.value.trim();
		if (token) key.set(token);
	};
	useEffect(() => {
		document.title = 'Key · Taskloom';
		input.current?.focus();
	}, []);
	return html`
		<h1 tabindex="-1">${had ? 'This key is not valid' : 'This server requires a key'}</h1>
		<p class="lead">
			${keyWanted.value?.detail || 'Create a key with'} ${!keyWanted.value?.detail &&
			html`<code>taskloom keys create --scope read</code>`}
		</p>
		<form class="panel stack tight" onSubmit=${enter}>
			<div class="field">
				<label for="key">Key</label>
				<input
					id="key"
					ref=${input}
					type="password"
					autocomplete="off"
					spellcheck="false"
					size="60"
					required
					aria-describedby="key-help"
				/>
				<span class="help" id="key-help">
					The key is kept until this tab is closed, and sent with each request. No cookie is set.
				</span>
			</div>
			<div class="row"><button class="first">Open</button></div>
		</form>
	`;
}

function Help() {
	const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
	const shown = helpShown.value;
	useEffect(() => {
		if (shown && !dialog.current?.open) dialog.current?.showModal();
	}, [shown]);
	const close = () => {
		helpShown.value = false;
	};
	return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="help-title">
		${shown &&
		html`<div class="stack">
			<h2 id="help-title">Keyboard</h2>
			<dl class="pairs">
				${KEYS.map(
					([keys, says]) => html`
						<dt key=${keys}>${keys.split(/\s+/).map(each => html`<kbd>${each}</kbd> `)}</dt>
						<dd>${says}</dd>
					`
				)}
			</dl>
			<label>
				<input type="checkbox" checked=${letters.value} onChange=${event => setLetters(event.target.checked)} /> Use
				single-letter shortcuts
			</label>
			<form method="dialog"><button class="first">Close</button></form>
		</div>`}
	</dialog>`;
}

/** @param {{children: import('./vendor/preact.js').ComponentChildren}} props */
function Shell({children}) {
	useStream();
	const page = pageOf(address.value.page)?.of ?? address.value.page;
	return html`<div class="house">
		<a class="skip" href="#main">Skip to content</a>
		<header class="rail">
			<a class="brand" href=${link('now')}>
				<svg viewBox="0 0 24 24" aria-hidden="true">
					<rect width="24" height="24" rx="5" fill="#0b3a5c" />
					<g fill="none" stroke-width="2.6" stroke-linecap="round">
						<path d="M6 7h5M14 7h4" stroke="#5ab4ec" />
						<path d="M6 12h3M12 12h6" stroke="#ff9149" />
						<path d="M6 17h8M17 17h1" stroke="#3cc79c" />
					</g>
				</svg>Taskloom
			</a>
			<nav aria-label="Pages">
				<ul>
					${PLACES.map(
						({name, label, icon}) => html`<li key=${name}>
							<a href=${link(name)} aria-current=${name === page ? 'page' : undefined}>
								<svg viewBox="0 0 16 16" aria-hidden="true"><path d=${icon} /></svg>
								${label}
							</a>
						</li>`
					)}
				</ul>
			</nav>
			<div class="foot">
				<${Stale} />
				<label>
					Theme <select value=${theme.value} onChange=${event => setTheme(event.target.value)}>
						${['auto', 'light', 'dark'].map(
							name => html`<option key=${name} value=${name} selected=${name === theme.value}>${name}</option>`
						)}
					</select>
				</label>
				<div class="row">
					<button
						class="plain"
						onClick=${() => {
							helpShown.value = true;
						}}
					>
						Keyboard <kbd>?</kbd>
					</button>
					<a href="../docs">API</a>
				</div>
			</div>
		</header>
		<main id="main" tabindex="-1">
			${keyWanted.value ? html`<${KeyForm} key=${keyWanted.value.requestId} />` : children}
		</main>
		<${Help} />
	</div>`;
}

/** Pages whose module is loaded. @type {Map<string, Function>} */
const loaded = new Map();

/** Shown when the module of a page cannot be loaded. */
function NoPage() {
	return html`<${Head} title="Not loaded" /><${Unloadable} />`;
}

/** @param {string} name */
async function load(name) {
	const page = pageOf(name);
	if (page)
		loaded.set(
			name,
			await page.load().then(
				module => module.default,
				() => NoPage
			)
		);
}

function Page() {
	const name = address.value.page;
	const [, again] = useState(0);
	const before = useRef(name);
	useEffect(() => {
		if (!loaded.has(name)) void load(name).then(() => again(n => n + 1));
	}, [name]);
	useEffect(() => {
		if (before.current === name || !loaded.has(name)) return;
		before.current = name;
		const first = document.querySelector('main h1') ?? document.querySelector('main');
		/** @type {HTMLElement | null} */ (first)?.focus({preventScroll: true});
	}, [name, loaded.has(name)]);
	if (!pageOf(name)) return html`<${Head} title="No such page" /><p>The dashboard has no page <code>${name}</code>.</p>`;
	const Loaded = loaded.get(name);
	if (Loaded) return html`<${Loaded} key=${name + (address.value.params.get('id') ?? '')} />`;
	const title = `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
	return html`<${Head} title=${title} /><${Skeleton} lines=${8} />`;
}

watchLinks();
watchKeys();
await load(address.value.page);
const place = /** @type {HTMLElement} */ (document.getElementById('app'));
place.replaceChildren();
render(html`<${Shell}><${Page} /><//>`, place);
