// Run before the first paint, so that nothing is painted in a theme that was not chosen.
{
	const chosen = localStorage.getItem('taskloom-theme');
	if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset['theme'] = chosen;
}
