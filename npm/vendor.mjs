// Writes server/ui/vendor from the packages of package-lock.json: the same bytes every time.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '../server/ui/vendor');
const packages = ['preact', '@preact/signals', '@preact/signals-core', 'htm'];
const packageFolder = (name) => join(here, 'node_modules', name);

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here, entryPoints: ['preact.js'], outfile: join(out, 'preact.js'),
  bundle: true, format: 'esm', minify: true, target: 'es2022', legalComments: 'none',
});

const licences = packages.map((name) => {
  const { version, license } = JSON.parse(readFileSync(join(packageFolder(name), 'package.json'), 'utf8'));
  const file = readdirSync(packageFolder(name)).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} brings no licence`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(packageFolder(name), file), 'utf8').trim()}\n`;
});
writeFileSync(join(out, 'LICENCES.txt'), licences.join('\n' + '-'.repeat(80) + '\n\n'));

const sum = (name) => createHash('sha256').update(readFileSync(join(out, name))).digest('hex');
writeFileSync(join(out, 'SHA256SUMS'), ['preact.js', 'LICENCES.txt'].map((name) => `${sum(name)}  ${name}\n`).join(''));
