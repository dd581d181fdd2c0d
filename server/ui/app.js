// The beginning: the page that the address names, in the shell.
import { html, render, useEffect, useRef, useState } from './vendor/preact.js';
import { address, watchLinks } from './address.js';
import { watchKeys } from './keyboard.js';
import { Head, Refused, Skeleton } from './pieces.js';
import { Problem } from './api.js';
import { Shell, applyTheme } from './shell.js';

/** Each page's module is loaded when it is first opened. @type {Record<string, () => Promise<{default: Function}>>} */
const PAGES = {
  now: () => import('./pages/now.js'),
  experiments: () => import('./pages/experiments.js'),
  experiment: () => import('./pages/experiment.js'),
  run: () => import('./pages/run.js'),
  new: () => import('./pages/new.js'),
  compare: () => import('./pages/compare.js'),
  history: () => import('./pages/history.js'),
  fleet: () => import('./pages/fleet.js'),
  access: () => import('./pages/access.js'),
};
/** @type {Map<string, Function>} */
const loaded = new Map();

function Page() {
  const name = address.value.page;
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [, again] = useState(0);
  const before = useRef(name);
  const load = () => {
    setProblem(null);
    PAGES[name]?.().then((module) => { loaded.set(name, module.default); again((n) => n + 1); }).catch(() => setProblem(new Problem({
      title: 'This page cannot be loaded', detail: 'The server may have been upgraded: load the dashboard anew.',
    })));
  };
  useEffect(() => { if (!loaded.has(name)) load(); }, [name]);
  useEffect(() => {
    if (before.current === name || !loaded.has(name)) return;
    before.current = name;
    /** @type {HTMLElement | null} */ (document.querySelector('main h1') ?? document.querySelector('main'))?.focus({ preventScroll: true });
  }, [name, loaded.has(name)]);
  if (!(name in PAGES)) return html`<${Head} title="No such page" /><p>The dashboard has no page <code>${name}</code>.</p>`;
  const Loaded = loaded.get(name);
  if (Loaded) return html`<${Loaded} key=${name + (address.value.params.get('id') ?? '')} />`;
  const title = `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
  return html`<${Head} title=${title} />${problem ? html`<${Refused} problem=${problem} retry=${() => location.reload()} />` : html`<${Skeleton} lines=${8} />`}`;
}

applyTheme();
watchLinks();
watchKeys();
render(html`<${Shell}><${Page} /><//>`, /** @type {HTMLElement} */ (document.getElementById('app')));
