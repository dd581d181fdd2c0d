// Entry point: renders the page that the URL names, inside the shell.
import {html, render, useEffect, useRef, useState} from './vendor/preact.js';
import {address, watchLinks} from './address.js';
import {Shell, watchKeys} from './shell.js';
import {pageOf} from './pages.js';
import {Head, Skeleton, Unloadable} from './pieces.js';

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
