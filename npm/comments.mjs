// comments.mjs SENT: checks that the modules in the folder SENT, from which the server removed comments and white space,
// are those of server/ui: equal syntax trees, with what htm reads in templates of markup.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import htm from 'htm';
import { parsers } from 'prettier/plugins/babel';

const ours = join(dirname(fileURLToPath(import.meta.url)), '../server/ui');
const sent = process.argv[2];
const left = new Set(['comments', 'loc', 'start', 'end', 'range', 'extra', 'tokens', 'column', 'index', '__contentEnd']);
// Prettier's parser keeps the parentheses of a JSDoc cast as a node, others not.
const bare = (value) => value?.type === 'ParenthesizedExpression' ? bare(value.expression) : value;
// What htm reads in a template of markup. It drops line breaks at the ends of a text; elsewhere HTML shows each, with
// the indentation after it, as one space.
const read = htm.bind((...parts) => parts);
const markup = (value) => {
  if (value?.type !== 'TaggedTemplateExpression' || value.tag.name !== 'html') return value;
  const { quasis, expressions } = value.quasi;
  const texts = quasis.map(({ value: { cooked } }) => cooked.replace(/\n\t+/g, '\n'));
  return { ...value, quasi: { expressions, read: read(texts, ...expressions.map((_, i) => `hole ${i}`)) ?? null } };
};
const tree = async (path) =>
  JSON.stringify(await parsers.babel.parse(readFileSync(path, 'utf8'), {}), (name, value) =>
    left.has(name) || /[cC]omments$/.test(name) ? undefined : markup(bare(value)));

const names = readdirSync(sent, { recursive: true }).filter((name) => name.endsWith('.js'));
for (const name of names) {
  const same = await tree(join(ours, name)) === await tree(join(sent, name));
  if (!same) throw new Error(`${name} is sent as another program`);
}
console.log(`${names.length} modules are sent without comments and white space, and otherwise as they are`);
