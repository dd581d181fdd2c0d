// As few characters as 120 columns allow: the server removes only comments, and all files share a budget of 120 kB.
export default {
  printWidth: 120,
  singleQuote: true,
  useTabs: true,
  tabWidth: 1,
  objectWrap: 'collapse',
  bracketSameLine: true,
  bracketSpacing: false,
  arrowParens: 'avoid',
  trailingComma: 'none',
  parser: 'htm',
  plugins: [new URL('htm.mjs', import.meta.url).href],
};
