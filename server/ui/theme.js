// Runs before the first paint, so that the page never appears in the wrong theme.
{
	const chosen = localStorage.getItem('taskloom-theme');
	if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset['theme'] = chosen;
}
