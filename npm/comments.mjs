// comments.mjs SENT: checks that the modules in the folder SENT, from which the server removed comments and white space,
// are those of server/ui: equal syntax trees. Only templates of markup may differ, in their indentation.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parsers } from 'prettier/plugins/babel';

const ours = join(dirname(fileURLToPath(import.meta.url)), '../server/ui');
const sent = process.argv[2];
const left = new Set(['comments', 'loc', 'start', 'end', 'range', 'extra', 'tokens', 'column', 'index', '__contentEnd']);
// Prettier's parser keeps the parentheses of a JSDoc cast as a node, others not.
const bare = (value) => value?.type === 'ParenthesizedExpression' ? bare(value.expression) : value;
// htm drops line breaks with what surrounds them at the ends of a text; elsewhere HTML shows each as one space.
const markup = (value) =>
  value?.type === 'TaggedTemplateExpression' && value.tag.name === 'html'
    ? { ...value, quasi: { ...value.quasi, quasis: value.quasi.quasis.map(
        ({ value: { raw, cooked } }) => ({ raw: raw.replace(/\n\t+/g, '\n'), cooked: cooked.replace(/\n\t+/g, '\n') })) } }
    : value;
const tree = async (path) =>
  JSON.stringify(await parsers.babel.parse(readFileSync(path, 'utf8'), {}), (name, value) =>
    left.has(name) || /[cC]omments$/.test(name) ? undefined : markup(bare(value)));

const names = readdirSync(sent, { recursive: true }).filter((name) => name.endsWith('.js'));
for (const name of names) {
  const same = await tree(join(ours, name)) === await tree(join(sent, name));
  if (!same) throw new Error(`${name} is sent as another program`);
}
console.log(`${names.length} modules are sent without comments and white space, and otherwise as they are`);
