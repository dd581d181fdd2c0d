// As few characters as 120 columns allow: the files are sent as they are, and 120 kB is the budget of all of them.
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
