// The pages, in the order of the navigation. A module of `pages/` and its line here are a page.

/**
 * @typedef {{name: string, load: () => Promise<{default: Function}>, label?: string, key?: string, icon?: string,
 *   of?: string}} Page
 * key: after g, goes to it. icon: a path on 16 x 16. of: the page of the navigation to which it belongs
 */
/** @type {Page[]} */
export const PAGES = [
	{name: 'now', load: () => import('./pages/now.js'), label: 'Now', key: 'n', icon: 'M2 9h3l2-5 3 9 2-6 1 2h2'},
	{
		name: 'experiments',
		load: () => import('./pages/experiments.js'),
		label: 'Experiments',
		key: 'e',
		icon: 'M2 3h12M2 8h12M2 13h8'
	},
	{name: 'new', load: () => import('./pages/new.js'), label: 'New', key: 's', icon: 'M8 3v10M3 8h10'},
	{
		name: 'compare',
		load: () => import('./pages/compare.js'),
		label: 'Compare',
		key: 'c',
		icon: 'M4 2v12M12 2v12M4 5h5M12 10H7'
	},
	{name: 'history', load: () => import('./pages/history.js'), label: 'History', key: 'h', icon: 'M2 12l3-4 3 2 3-6 3 2'},
	{
		name: 'fleet',
		load: () => import('./pages/fleet.js'),
		label: 'Fleet',
		key: 'f',
		icon: 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.1M4.5 11h.1'
	},
	{
		name: 'access',
		load: () => import('./pages/access.js'),
		label: 'Access',
		key: 'a',
		icon: 'M10 2a4 4 0 1 0-2.8 6.8L2.5 13.5M4.5 11.5l1.5 1.5M10.5 5.5h.1'
	},
	{name: 'experiment', load: () => import('./pages/experiment.js'), of: 'experiments'},
	{name: 'run', load: () => import('./pages/run.js'), of: 'experiments'}
];

/** Pages of the navigation. */
export const PLACES = PAGES.filter(page => page.label);

/** @param {string} name */
export const pageOf = name => PAGES.find(page => page.name === name);
