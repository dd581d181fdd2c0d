// A Prettier plugin that formats html`...` as htm reads it: white space that contains a line break, beside a tag or a
// ${}, has no effect; any other is a space. See https://github.com/developit/htm and https://prettier.io/docs/plugins
import { doc } from 'prettier';
import { parsers as babel } from 'prettier/plugins/babel';
import { printers as estree } from 'prettier/plugins/estree';

const { fill, group, indent, join, line, literalline, softline } = doc.builders;
const HOLE = /\u0001(\d+)\u0002/;
const FORMAT = 'estree-htm';
/** The source of each template, since mark() changes the tree for Prettier's own rules. */
const sources = new WeakMap();

const isHtm = (node) => node?.type === 'TaggedTemplateExpression' && node.tag.name === 'html';

/** Marks templates as many lines long: then Prettier leaves them behind the arrow or bracket that they follow. */
function mark(node) {
  if (Array.isArray(node)) node.forEach(mark);
  else if (node && typeof node.type === 'string') {
    if (isHtm(node)) {
      const { quasis } = node.quasi;
      sources.set(node.quasi, quasis.map((each) => each.value.raw));
      quasis[0].value.raw += '\n';
    }
    for (const [name, value] of Object.entries(node)) if (name !== 'loc' && name !== 'comments') mark(value);
  }
}

/** Children as a list of texts, holes and elements, read from a template whose expressions are numbered holes. */
class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** The text that the pattern matches at this position; reading goes on after it. */
  take(pattern) {
    const sticky = new RegExp(pattern.source, 'y');
    sticky.lastIndex = this.at;
    const found = sticky.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }

  children() {
    const found = [];
    while (this.at < this.text.length && !this.text.startsWith('</', this.at)) {
      if (this.text[this.at] === '<') found.push(this.element());
      else if (this.text[this.at] === '\u0001') found.push({ hole: this.take(HOLE) });
      else found.push({ text: this.take(/[^<\u0001]+/) });
    }
    return found;
  }

  element() {
    this.take(/</);
    const name = this.take(/[^\s/>]+/);
    const attributes = [];
    for (;;) {
      this.take(/\s+/);
      if (this.take(/\/>/)) return { name, attributes };
      if (this.take(/>/)) break;
      const attribute = this.take(/(?:"[^"]*"|'[^']*'|\/(?!>)|[^\s>"'/])+/);
      if (!attribute) throw new Error(`no attribute at ${this.text.slice(this.at, this.at + 40)}`);
      attributes.push(attribute);
    }
    const children = this.children();
    const end = this.take(/<\/[^>]*>/);
    if (!end) throw new Error(`<${name}> is not closed`);
    return { name, attributes, children, end };
  }
}

/** A text with its holes filled. */
const filled = (text, holes) => text.split(/(\u0001\d+\u0002)/).map((part) => {
  const hole = HOLE.exec(part);
  return hole ? ['${', holes[Number(hole[1])], '}'] : part;
});

/** Text with its line breaks, which are significant. */
const verbatim = (text, holes) =>
  filled(text, holes).map((part) => (typeof part === 'string' ? join(literalline, part.split('\n')) : part));

/**
 * Children with what stands between them. Nothing is between two that may be on lines of their own; a space between
 * words may be a line break; any other space may not, nor may what touches a word be torn from it.
 */
function layout(children, holes) {
  const pieces = []; // content, what may stand after it, content, ...
  let [before, glued] = ['nothing', false];
  let texts = false;
  let first = softline;
  const add = (content, isText) => {
    const last = pieces.length - 1;
    if (last < 0) {
      if (before === 'space') first = ' ';
      pieces.push(content);
    } else if (before === 'word') pieces.push(line, content);
    else if (before === 'space') pieces[last] = [pieces[last], ' ', content];
    else if (before === 'nothing' && (glued || isText)) pieces[last] = [pieces[last], content];
    else pieces.push(softline, content);
    [before, glued] = ['nothing', isText];
  };
  for (const child of children) {
    if (child.text === undefined) {
      add(child.hole ? filled(child.hole, holes) : element(child, holes), false);
      continue;
    }
    const [, leading, words, trailing] = /^(\s*)([^]*?)(\s*)$/.exec(child.text);
    if (!words) {
      before = child.text.includes('\n') ? 'break' : 'space';
      continue;
    }
    texts = true;
    if (leading) before = leading.includes('\n') ? 'break' : 'space';
    words.split(/\s+/).forEach((word, i) => {
      if (i) before = 'word';
      add(word, true);
    });
    if (trailing) before = trailing.includes('\n') ? 'break' : 'space';
  }
  const end = before === 'space' ? ' ' : softline;
  const alone = texts ? fill(pieces) : pieces;
  const single = pieces.length === 1 && first === softline && end === softline;
  return { empty: !pieces.length, single, alone, within: [indent([first, alone]), end] };
}

/** An element, on lines of its own where one does not hold it. */
function element({ name, attributes, children, end }, holes) {
  const inside = attributes.map((each) => [line, filled(each, holes)]);
  const head = (space, close) => group(['<', filled(name, holes), indent(inside), space, close]);
  if (!children) return head(line, '/>');
  const open = head(inside.length ? softline : '', '>');
  if (name === 'pre') {
    const raw = (child) => (child.text === undefined
      ? child.hole ? filled(child.hole, holes) : element(child, holes)
      : verbatim(child.text, holes));
    return [open, ...children.map(raw), end];
  }
  const { empty, within } = layout(children, holes);
  return empty ? [open, filled(end, holes)] : group([open, within, filled(end, holes)]);
}

function embed(path) {
  if (path.node.type !== 'TemplateLiteral' || !isHtm(path.parent)) return undefined;
  return (_, print) => {
    const raw = sources.get(path.node);
    const holes = path.map(print, 'expressions');
    const reader = new Reader(raw.map((each, i) => (i ? `\u0001${i - 1}\u0002${each}` : each)).join(''));
    const children = reader.children();
    if (reader.at < reader.text.length) throw new Error(`nothing is open at ${reader.text.slice(reader.at)}`);
    const { single, alone, within } = layout(children, holes);
    return single ? ['`', alone, '`'] : group(['`', within, '`']);
  };
}

export const languages = [{ name: 'JavaScript with htm', parsers: ['htm'], extensions: ['.js'] }];
export const parsers = {
  htm: {
    ...babel.babel,
    astFormat: FORMAT,
    async parse(text, options) {
      const tree = await babel.babel.parse(text, options);
      mark(tree);
      return tree;
    },
  },
};
export const printers = { [FORMAT]: { ...estree.estree, embed } };
