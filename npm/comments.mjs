// comments.mjs SENT: checks that the modules in the folder SENT, from which the server removed the comments, are those
// of server/ui: equal syntax trees at equal lines.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parsers } from 'prettier/plugins/babel';

const ours = join(dirname(fileURLToPath(import.meta.url)), '../server/ui');
const sent = process.argv[2];
const left = new Set(['comments', 'start', 'end', 'range', 'extra', 'tokens', 'column', 'index', '__contentEnd']);
// Prettier's parser keeps the parentheses of a JSDoc cast as a node, others not.
const bare = (value) => value?.type === 'ParenthesizedExpression' ? bare(value.expression) : value;
const tree = async (path) =>
  JSON.stringify(await parsers.babel.parse(readFileSync(path, 'utf8'), {}), (name, value) =>
    name === 'loc' ? value.start.line : left.has(name) || /[cC]omments$/.test(name) ? undefined : bare(value));

const names = readdirSync(sent, { recursive: true }).filter((name) => name.endsWith('.js'));
for (const name of names) {
  const same = await tree(join(ours, name)) === await tree(join(sent, name));
  if (!same) throw new Error(`${name} is sent as another program`);
}
console.log(`${names.length} modules are sent without comments, and otherwise as they are`);
