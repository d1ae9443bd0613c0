/* markdown: Text as models write it, as trees: a string, or [tag, attributes, ...children].
 *
 *   markdown(text)   the list of blocks
 *
 * CommonMark with GFM's tables, strike-through, task lists and bare links, as markdown-it reads it without raw HTML. Besides: maths
 * between $, $$, \( \) and \[ \]; <br> breaks a line; marks of emphasis beside Chinese, Japanese and Korean punctuation work as beside
 * letters; headings begin two levels down, below those of the page. First come the blocks, line by line, with a stack of the open ones,
 * then the text of each. Everything takes time in proportion to the text, and what is nested deeper than DEEP stays text. Only tags and
 * attributes named here are made: the text's own words become text, href (linkTo) or the name of a code block's language. */
const DEEP = 24, assign = Object.assign;

/* ---- blocks: { type, start, end (lines), kids (of doc, quote, list, item) or lines (of para, heading, code, fence, table) } */

const HR = /^(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$/, FENCE = /^(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
const ITEM = /^(?:[*+-]|(\d{1,9})([.)]))(?=[ \t]|$)/, RULER = /^\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*(?:[ \t]*\|)?$/;
const QUOTED = "\"(?:[^\"\\\\]|\\\\[^]){0,999}\"|'(?:[^'\\\\]|\\\\[^]){0,999}'|\\((?:[^()\\\\]|\\\\[^]){0,999}\\)", POINTED = "<((?:[^<>\\\\\\n]|\\\\.){0,999})>";
const LABEL = "\\[((?:[^[\\]\\\\]|\\\\[^]){0,999})\\]";
const REF = /^\[((?:[^[\]\\]|\\.){1,999})\]:[ \t]*(?:<([^<>]*)>|([^\s<]\S*))(?:[ \t]+(?:"[^"]*"|'[^']*'|\([^()]*\)))?$/;
const MATH_END = { $$: "$$", "\\[": "\\]" };
const isSpace = c => c === " " || c === "\t";
const last = list => list[list.length - 1];

/* The cells of a row of a table; \| does not end one. */
function cellsOf(line) {
  const out = [""];
  for (const part of line.trim().match(/\\\||\\|\||[^|\\]+/g) || []) {
    if (part === "|") out.push("");
    else out[out.length - 1] += part === "\\|" ? "|" : part;
  }
  if (out[1] !== undefined && !out[0].trim()) out.shift();
  if (out[1] !== undefined && !last(out).trim()) out.pop();
  return out.map(c => c.trim());
}

/* { kids: the blocks, refs: what [label]: url says } */
function blocksOf(text) {
  const root = { kids: [] }, refs = new Map();
  const open = [root]; /* containers, the innermost last */
  let leaf = null; /* the block that is open in the innermost one */
  let s, col, n, matched; /* the rest of the line, its column, its number; how many open containers it belongs to */

  const all = () => matched === open.length;
  const para = () => leaf?.type === "para" && !leaf.math ? leaf : null;
  /* [columns, characters] of the white space that s begins with */
  const lead = () => {
    let i = 0, c = col;
    for (; isSpace(s[i]); i++) c += s[i] === " " ? 1 : 4 - c % 4;
    return [c - col, i];
  };
  /* Takes `count` columns of white space; a tab that is cut leaves spaces. */
  const drop = count => {
    while (count > 0 && s) {
      const wide = s[0] === "\t" ? 4 - col % 4 : 1, taken = Math.min(count, wide);
      s = " ".repeat(wide - taken) + s.slice(1);
      col += taken;
      count -= taken;
    }
  };
  /* Closes the leaf, and what stands from `depth` on in the stack. */
  const close = depth => {
    leaf = null;
    while (open.length > depth) {
      const c = open.pop();
      if (c.kids.length) c.end = Math.max(c.end, last(c.kids).end);
    }
  };
  const add = block => {
    close(matched);
    if (last(open).type === "list" && block.type !== "item") close(open.length - 1);
    last(open).kids.push(assign(block, { start: n, end: n }));
    if (block.kids) open.push(block);
    else leaf = block;
    matched = open.length;
  };
  const takeQuote = wide => {
    drop(wide);
    s = s.slice(1);
    col++;
    if (isSpace(s[0])) drop(1);
  };
  const match = () => {
    for (let i = 1; i < open.length; i++) {
      const c = open[i], [wide, k] = lead();
      if (c.type === "quote") {
        if (wide > 3 || s[k] !== ">") return i;
        takeQuote(wide);
        c.end = n;
      } else if (c.type === "item") { /* what begins with an empty line ends with a second one */
        if (k === s.length ? !c.kids.length : wide < c.width) return i;
        drop(c.width);
      }
    }
    return open.length;
  };

  const inFence = () => {
    const [wide, k] = lead(), rest = s.slice(k).trimEnd();
    leaf.end = n;
    if (wide < 4 && rest.startsWith(leaf.mark) && /^(.)\1*$/.test(rest)) leaf = null;
    else {
      drop(Math.min(wide, leaf.indent));
      leaf.lines.push(s);
    }
  };
  /* False: the line ends the code. */
  const inCode = () => {
    const [wide, k] = lead(), blank = k === s.length;
    if (wide < 4 && !blank) return false;
    drop(4);
    leaf.lines.push(s);
    if (!blank) leaf.end = n;
    return true;
  };
  const append = line => {
    leaf.lines.push(line);
    leaf.end = n;
  };
  /* Between $$ and $$ no line is a list or a heading. An empty one ends the attempt. */
  const inMath = () => {
    const line = s.trim(), end = MATH_END[leaf.math];
    if (line) append(line);
    if (!line || line.endsWith(end)) leaf = null;
  };

  /* Does this line of - or = make a heading of the paragraph above? */
  const underlines = rest => para() && all() && /^(?:=+|-+)$/.test(rest);
  const startContainer = () => {
    const [wide, k] = lead(), rest = s.slice(k), m = ITEM.exec(rest);
    if (wide > 3 || open.length > DEEP) return false;
    if (rest[0] === ">") {
      add({ type: "quote", kids: [] });
      takeQuote(wide);
      return true;
    }
    if (!m || HR.test(rest) || underlines(rest.trimEnd())) return false;
    const after = rest.slice(m[0].length), kind = m[2] || rest[0], number = m[1] && Number(m[1]), list = open[matched - 1];
    if (para() && all() && (!after.trim() || (m[1] && number !== 1))) return false;
    if (list.type !== "list" || list.kind !== kind) add({ type: "list", kind, number, kids: [] });
    add({ type: "item", kids: [] });
    drop(wide);
    s = after;
    col += m[0].length;
    const [space] = lead(), pad = s.trim() && space < 5 ? space : 1;
    drop(pad);
    last(open).width = wide + m[0].length + pad;
    return true;
  };
  /* A ruler below a line with as many cells makes a table. */
  const startTable = ruler => {
    const p = para(), head = p && all() && last(p.lines), kind = c => (c[0] === ":" ? 1 : 0) + (c.endsWith(":") ? 2 : 0);
    if (!head || !head.includes("|") || ruler.length < 2 || !RULER.test(ruler)) return false;
    const align = cellsOf(ruler).map(c => ["", "left", "right", "center"][kind(c)]);
    if (cellsOf(head).length !== align.length) return false;
    p.lines.pop();
    p.end--;
    add({ type: "table", align, lines: [head] });
    leaf.start--;
    return true;
  };
  const startLeaf = () => {
    const [wide, k] = lead(), rest = s.slice(k), end = rest.trimEnd();
    let m;
    if (wide > 3) {
      if (para()) return false;
      add({ type: "code", lines: [] });
      return inCode();
    }
    if ((m = FENCE.exec(rest))) {
      add({ type: "fence", mark: m[1] || m[3], info: (m[2] || m[4] || "").trim(), indent: wide, lines: [] });
      return true;
    }
    if ((m = /^#{1,6}(?=[ \t]|$)/.exec(rest))) {
      const title = end.slice(m[0].length).trim();
      let i = title.length;
      while (title[i - 1] === "#") i--;
      add({ type: "heading", level: m[0].length, lines: [!i || isSpace(title[i - 1]) ? title.slice(0, i).trim() : title] });
    } else if (!para() && (m = REF.exec(end))) {
      if (!refs.has(labelOf(m[1]))) refs.set(labelOf(m[1]), unescaped(m[3] || m[2]));
      close(matched);
    } else if (startTable(end)) return true;
    else if (underlines(end)) assign(leaf, { type: "heading", level: end[0] === "=" ? 1 : 2, end: n });
    else if (HR.test(rest)) add({ type: "hr" });
    else return false;
    leaf = null;
    return true;
  };
  const goesOn = () => {
    const line = s.trimStart(), mark = line.slice(0, 2), end = MATH_END[mark];
    if (para() || (leaf?.type === "table" && all() && lead()[0] < 4)) append(line); /* a paragraph also where it is lazy */
    else add({ type: "para", lines: [line], math: end && !line.slice(2).includes(end) && mark });
  };

  text.replace(/\r\n?/g, "\n").replace(/\n$/, "").replace(/\0/g, "\ufffd").split("\n").forEach((line, i) => {
    [s, col, n] = [line, 0, i];
    matched = match();
    const type = leaf && all() && (leaf.math ? "math" : leaf.type);
    if (type === "fence") inFence();
    else if (type === "math") inMath();
    else if (type !== "code" || !inCode()) {
      while (startContainer());
      if (!s.trim()) close(matched);
      else if (!startLeaf()) goesOn();
    }
  });
  close(1);
  return { kids: root.kids, refs };
}

/* ---- the text of a block */

const PUNCT = /[\p{P}\p{S}]/u, CJK = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]/;
const PLAIN = /[^\\`*_~[\]!<&$:\n]+/y, MARK = "[!-/:-@[-`{-~]", ENTITY = "&(?:#x([0-9a-f]{1,6})|#(\\d{1,7})|([a-z][a-z0-9]{1,31}));";
const AUTOLINK = /<([a-z][a-z0-9+.-]{1,31}:[^\s<>]*|([\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(?:\.[\w-]+)*))>/iy;
/* What follows "https": a host, and a path whose brackets are closed and whose last mark is not the sentence's. */
const REST_OF_URL = new RegExp(":\\/\\/(?:[^\\s@/[\\]()<>]{1,99}@)?[\\p{L}\\p{N}](?:[\\p{L}\\p{N}.-]{0,252}[\\p{L}\\p{N}])?(?::\\d{1,5})?(?:[/?#](?:" +
  "[^\\s<>\\uff5c()[\\]{}.,\"'?!;:]|\\[[^\\s\\]]{0,999}\\]|\\([^\\s)]{0,999}\\)|\\{[^\\s}]{0,999}\\}|(?:\\.+|!+|[,;:?'\"])(?=[^\\s.,;:!?)\\]}\"'])" +
  ")+|\\/)?", "uy");
/* The character that HTML knows by a name; "" where it knows none. */
const NAMED = new Map();
function decoded(name) {
  if (!NAMED.has(name) && NAMED.size < 5000) {
    const text = new DOMParser().parseFromString("&" + name + ";", "text/html").body.textContent;
    NAMED.set(name, text.endsWith(";") && name !== "semi" ? "" : text);
  }
  return NAMED.get(name) || "";
}

/* What the rule, a sticky expression or its source, finds at i. */
const compiled = {};
function at(rule, s, i) {
  if (isText(rule)) rule = compiled[rule] = compiled[rule] || new RegExp(rule, "iy");
  rule.lastIndex = i;
  return rule.exec(s);
}
const labelOf = s => s.trim().replace(/\s+/g, " ").toLowerCase().toUpperCase();
const entity = (all, hex, decimal, name) => {
  const code = hex ? parseInt(hex, 16) : Number(decimal);
  if (name) return decoded(name) || all;
  return code && code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
};
const unescaped = s => s.replace(new RegExp(`\\\\(${MARK})|${ENTITY}`, "gi"), (all, mark, ...rest) => mark || entity(all, ...rest));

/* A link. Only what leads elsewhere may be followed: a path of this server or a place in this page is no target of a model's text. */
const linkTo = (url, kids) =>
  ["a", /^(?:https?:\/\/|mailto:)/i.test(url) ? { href: url, rel: "noreferrer", target: "_blank" } : {}, ...kids];
const forbidden = url => /^\s*(?:javascript|vbscript|file|data):/i.test(url);

/* (target "title") from the parenthesis at i on: [target, end], or null. As in markdown-it a target nests 32 parentheses at most. */
function linkTail(s, i) {
  const skip = k => k + at(/\s*/y, s, k)[0].length, from = skip(i + 1), pointed = at(POINTED, s, from);
  let end = from, deep = 0;
  if (pointed) end += pointed[0].length;
  else if (s[from] === "<") return null;
  else for (; end < s.length && end < from + 2000 && deep < 33 && s[end] > " " && s[end] !== "\x7f"; end++) {
    if (s[end] === "\\" && s[end + 1] > " ") end++;
    else if (s[end] === "(") deep++;
    else if (s[end] === ")" && --deep < 0) break;
  }
  const url = pointed ? pointed[1] : s.slice(from, end), next = skip(end);
  const title = next > end && at(QUOTED, s, next);
  end = title ? skip(next + title[0].length) : next;
  return deep < 1 && s[end] === ")" ? [unescaped(url), end + 1] : null;
}

/* A bare link whose "://" stands at i: [beginning, end], or null. */
function bareLink(s, i) {
  const scheme = /(?:^|[^a-z0-9.+-])(https?)$/i.exec(s.slice(Math.max(0, i - 6), i)), m = scheme && at(REST_OF_URL, s, i);
  return m && [i - scheme[1].length, i + m[0].replace(/\*{1,99}$/, "").length];
}

/* Is what stands between the marks a formula? Between dollar signs there may be two prices and words, after \\[ a plain bracket. */
function isFormula(s, i, end, mark) {
  const tex = s.slice(i, end);
  if (!/[\p{L}\d]/u.test(tex)) return false;
  if (mark === "$") return !/^\s|\s$/.test(tex) && !/\d/.test(s[end + 1] || "") && !/\p{Ll}{3}|\s\p{Ll}{2}\s/u.test(tex.replace(/\\[a-z]+|\{[^{}]*\}/gi, " "));
  return /[\\^_=+\-*/<>\d|]/.test(tex) || (mark !== "\\]" && /^\s*\p{L}\s*$/u.test(tex));
}

/* A run of marks of emphasis from i to end: what it can do. `len`: the rule of three asks for it. */
function runOf(s, i, end) {
  const before = i ? (/[\udc00-\udfff]/.test(s[i - 1]) ? s.slice(i - 2, i) : s[i - 1]) : " ";
  const after = end < s.length ? String.fromCodePoint(s.codePointAt(end)) : " ";
  const space = c => /\s/.test(c), mark = c => PUNCT.test(c) && !CJK.test(c), edge = c => space(c) || PUNCT.test(c) || CJK.test(c);
  const left = !space(after) && (!mark(after) || edge(before)), right = !space(before) && (!mark(before) || edge(after));
  const n = end - i, word = s[i] === "_";
  if (s[i] === "~") return { mark: "~~", n: n >> 1, len: 0, open: left, close: right };
  return { mark: s[i], n, len: n, open: left && (!word || !right || PUNCT.test(before)), close: right && (!word || !left || PUNCT.test(after)) };
}

const isText = x => typeof x === "string";
const textOf = list => list.map(x => isText(x) ? x : textOf(x.slice(2))).join("");
/* A tree that knows how deep it is. */
const measured = tree => assign(tree, { deep: 1 + tree.slice(2).reduce((n, x) => Math.max(n, x.deep || 0), 0) });
/* What may stand in a link: everything but links. */
function unlinked(x) {
  if (isText(x)) return [x];
  const kids = x.slice(2).flatMap(unlinked);
  return x[0] === "a" ? kids : [measured([x[0], x[1], ...kids])];
}
/* Texts that stand beside each other become one; marks that nothing matched become text. */
function joined(list) {
  const out = [];
  for (const x of list) {
    const t = x.mark ? x.mark.repeat(x.n) : x;
    if (isText(t) && isText(last(out))) out[out.length - 1] += t;
    else if (t !== "") out.push(t);
  }
  return out;
}

/* Runs of marks become em, strong and del. floor: for each kind of run the openers of the stack that it need not look at again. */
function emphasis(list) {
  const out = [], stack = [], floor = new Map();
  const matches = (o, c) => o.mark === c.mark && !((o.close || c.open) && c.len % 3 && (o.len + c.len) % 3 === 0);
  const cut = n => {
    stack.length = n;
    for (const [k, v] of floor) if (v > n) floor.set(k, n);
  };
  for (const x of list) {
    const kind = x.mark + x.open + x.len % 3;
    while (x.mark && x.close && x.n) {
      const low = floor.get(kind) || 0;
      let i = stack.length - 1;
      while (i >= low && !matches(out[stack[i]], x)) i--;
      if (i < low) {
        floor.set(kind, stack.length);
        break;
      }
      const from = stack[i], o = out[from], use = x.len && x.n > 1 && o.n > 1 ? 2 : 1;
      const tree = measured([x.len ? use > 1 ? "strong" : "em" : "del", {}, ...joined(out.slice(from + 1))]);
      if (tree.deep > DEEP) {
        cut(0);
        break;
      }
      o.n -= use;
      x.n -= use;
      out.length = from + (o.n ? 1 : 0);
      cut(o.n ? i + 1 : i);
      out.push(tree);
    }
    if (x.mark && x.open && x.n) stack.push(out.length);
    out.push(x);
  }
  return joined(out);
}

/* Text as children. One pass; brackets and runs of marks wait in `list` for what ends them. */
function inline(s, refs) {
  const list = [], brackets = [], spent = {}; /* spent: where the last mark stands that ends no formula; Infinity: no more of them come */
  let i = 0, text = "", ticks = null, dead = 0; /* dead: brackets below this one stand before a link; no link may contain another one */
  const put = (tree, end) => {
    if (text) list.push(text);
    if (tree) list.push(tree);
    text = "";
    i = end;
  };
  const say = t => {
    text += t;
    i += t.length;
  };

  const breakLine = end => put(["br", {}], s[end] === "\n" ? end + 1 : end);
  const newline = () => {
    let spaces = 0;
    while (s[i - spaces - 1] === " ") spaces++;
    if (spaces) {
      text = text.slice(0, -spaces);
      put(null, i);
    }
    if (spaces > 1) breakLine(i);
    else say("\n");
  };
  /* Maths from i to the next `end`. What math() does not know stays as it was, so that its marks mean nothing. */
  const maths = (begin, end) => {
    const from = i + begin.length;
    if (from <= (spent[end] ?? -1)) return false;
    const to = s.indexOf(end, from);
    if (to < 0 || !isFormula(s, from, to, end)) {
      spent[end] = to < 0 ? Infinity : to;
      return false;
    }
    const tree = math(s.slice(from, to), end === "$$" || end === "\\]");
    if (tree) put(tree, to + end.length);
    else if (end === "$") return false;
    else say(s.slice(i, to + end.length));
    return true;
  };
  const backslash = () => {
    const c = s[i + 1];
    if ((c === "(" && maths("\\(", "\\)")) || (c === "[" && maths("\\[", "\\]"))) return;
    if (c === "\n") breakLine(i + 1);
    else if (c && at(MARK, c, 0)) {
      text += c;
      i += 2;
    } else say("\\");
  };
  /* ticks: where the runs of backticks of each length stand, and how many of them have been passed. */
  const code = () => {
    const n = at(/`+/y, s, i)[0].length;
    if (!ticks) {
      ticks = new Map();
      for (const m of s.matchAll(/`+/g)) {
        if (!ticks.has(m[0].length)) ticks.set(m[0].length, { next: 0, at: [] });
        ticks.get(m[0].length).at.push(m.index);
      }
    }
    const runs = ticks.get(n) || { next: 0, at: [] };
    while (runs.at[runs.next] < i + n) runs.next++;
    const end = runs.at[runs.next];
    if (end === undefined) return say("`".repeat(n));
    let inside = s.slice(i + n, end).replace(/\n/g, " ");
    if (inside[0] === " " && last(inside) === " " && inside.trim()) inside = inside.slice(1, -1);
    put(["code", {}, inside], end + n);
  };
  const marks = () => {
    const end = i + at(/\*+|_+|~+/y, s, i)[0].length, run = runOf(s, i, end);
    const odd = s[i] === "~" && (end - i) % 2 ? "~" : "";
    if (!run.close) text += odd;
    put(run, end);
    if (run.close) text = odd;
  };
  /* What follows a closing bracket: (target), [label] or nothing. */
  const tail = b => {
    const next = i + 1, direct = s[next] === "(" && linkTail(s, next);
    if (direct || !refs.size) return direct;
    const label = at(LABEL, s, next), own = s.slice(b.from, i), end = label ? next + label[0].length : next;
    const name = label?.[1].trim() ? label[1] : own.length < 1000 ? own : "";
    return refs.has(labelOf(name)) && [refs.get(labelOf(name)), end];
  };
  const openBracket = mark => {
    put(mark, i + mark.length);
    brackets.push({ image: mark[1], index: list.length - 1, from: i });
  };
  const closeBracket = () => {
    const b = brackets.pop(), n = brackets.length, to = b && (b.image || n >= dead) && tail(b);
    dead = Math.min(dead, n);
    if (!to || forbidden(to[0])) return say("]");
    put(null, i);
    const inner = emphasis(list.splice(b.index).slice(1));
    put(measured(linkTo(to[0], b.image ? [textOf(inner) || to[0]] : inner.flatMap(unlinked))), to[1]);
    if (!b.image) dead = n;
  };

  while (i < s.length) {
    const c = s[i];
    let m;
    if ((m = at(PLAIN, s, i))) say(m[0]);
    else if (c === "\\") backslash();
    else if (c === "`") code();
    else if (c === "*" || c === "_" || c === "~") marks();
    else if (c === "[") openBracket("[");
    else if (c === "!" && s[i + 1] === "[") openBracket("![");
    else if (c === "]") closeBracket();
    else if (c === "\n") newline();
    else if (c === "$") {
      const mark = s[i + 1] === "$" ? "$$" : "$";
      if (!maths(mark, mark)) say(mark);
    } else if (c === "&" && (m = at(ENTITY, s, i))) {
      text += entity(...m);
      i += m[0].length;
    } else if (c === "<" && (m = at(/<br[ \t]*\/?>/iy, s, i))) breakLine(i + m[0].length);
    else if (c === "<" && (m = at(AUTOLINK, s, i)) && !forbidden(m[1])) put(linkTo(m[2] ? "mailto:" + m[2] : m[1], [m[1]]), i + m[0].length);
    else if (c === ":" && (m = bareLink(s, i)) && text.length >= i - m[0]) {
      text = text.slice(0, text.length - (i - m[0]));
      put(linkTo(s.slice(...m), [s.slice(...m)]), m[1]);
    } else say(c);
  }
  put(null, i);
  return emphasis(list);
}

/* ---- trees of blocks */

function codeBlock(lang, text) {
  const name = lang.replace(/[^\w+#.-]/g, "").slice(0, 30);
  const bar = ["div", { class: "bar" }, ["span", {}, name || "text"], ["button", { "data-do": "copyCode" }, "Copy"]];
  return ["div", { class: "code" }, bar, ["pre", { tabindex: "0" }, ["code", name ? { class: "language-" + name } : {}, ...highlight(text, name)]]];
}

function markdown(source) {
  const { kids, refs } = blocksOf(source);
  let spare = 10000; /* cells that rows of tables may leave out */
  const text = lines => inline(lines.join("\n").trimEnd(), refs);
  const apart = list => list.some((k, i) => i && list[i - 1].end + 1 < k.start);
  const item = (li, loose) => {
    const [first] = li.kids, m = first?.type === "para" && /^\[([ xX])\](?=[ \t]+\S)/.exec(first.lines[0] || "");
    const box = m && ["input", { type: "checkbox", disabled: "", ...(m[1] === " " ? { "aria-label": "To do" } : { "aria-label": "Done", checked: "" }) }];
    if (m) first.lines[0] = first.lines[0].slice(3);
    const out = li.kids.flatMap(k => k.type === "para" && !loose ? text(k.lines) : tree(k));
    if (m && loose) out[0].splice(2, 0, box);
    else if (m) out.unshift(box);
    return ["li", m ? { class: "task" } : {}, ...out];
  };
  const row = (tag, align, line) => {
    const cells = cellsOf(line);
    return ["tr", {}, ...align.flatMap((a, i) => i >= cells.length && --spare < 0 ? [] : [[tag, a ? { class: a } : {}, ...text([cells[i] || ""])]])];
  };
  const types = {
    para: b => b.lines.length ? [["p", {}, ...text(b.lines)]] : [],
    heading: b => [["h" + Math.min(b.level + 2, 6), {}, ...text(b.lines)]],
    hr: () => [["hr", {}]],
    quote: b => [["blockquote", {}, ...b.kids.flatMap(tree)]],
    code: b => {
      while (!last(b.lines).trim()) b.lines.pop();
      return [codeBlock("", b.lines.join("\n"))];
    },
    fence: b => [codeBlock(unescaped(b.info).split(/\s/, 1)[0], b.lines.join("\n"))],
    list: b => {
      const loose = apart(b.kids) || b.kids.some(li => apart(li.kids));
      return [[b.number === undefined ? "ul" : "ol", b.number !== undefined && b.number !== 1 ? { start: b.number } : {}, ...b.kids.map(li => item(li, loose))]];
    },
    table: b => {
      const [head, ...rows] = b.lines, table = ["table", {}, ["thead", {}, row("th", b.align, head)]];
      if (rows.length) table.push(["tbody", {}, ...rows.map(r => row("td", b.align, r))]);
      return [["div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" }, table]];
    }
  };
  const tree = block => types[block.type](block);
  return kids.flatMap(tree);
}
