/* The page's renderer: markdown beside markdown-it-py, formulas, colours beside Pygments, and what is deliberately otherwise.
 *
 *   node tests/unit/page/test_renderer.js */
"use strict";
const { load, html, read, parts, problems, check, finish } = require("./renderer.js");

/* ---- markdown-it's HTML and ours, in one form: headings two levels down, links that lead nowhere without a target, pictures as links, no frames
 * around tables and code, no colours */

const BLOCKS = new Set(["", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr"]);
const SOLID = new Set(["p", "ul", "ol", "blockquote", "pre", "table", "hr", "h3", "h4", "h5", "h6"]);
const safe = url => /^(?:https?:\/\/|mailto:)/i.test(url);
const decoded = url => { try { return decodeURI(url); } catch (e) { return url; } };

function flat(kids) {
  const out = [];
  for (const k of kids) {
    if (k === "") continue;
    if (typeof k === "string" && typeof out[out.length - 1] === "string") out[out.length - 1] += k;
    else out.push(k);
  }
  return out;
}
/* Text between blocks without the line ends that markdown-it sets there. */
function trimmed(kids) {
  const solid = k => k && typeof k !== "string" && SOLID.has(k[0]);
  return kids.map((k, i) => {
    if (typeof k !== "string") return k;
    if (!k.trim()) return k.includes("\n") ? "" : k;
    return (i && !solid(kids[i - 1]) ? k : k.replace(/^\n+/, "")).replace(!kids[i + 1] || solid(kids[i + 1]) ? /\n+$/ : /$^/, "");
  }).filter(k => k !== "");
}
function same(tree, ours) {
  let [tag, props, ...kids] = tree, own = {};
  if (ours && (props.class === "bar")) return [];
  kids = kids.flatMap(k => typeof k === "string" ? [k] : same(k, ours));
  if (ours && (tag === "div" || tag === "span")) return kids;
  if (tag === "pre") return [["pre", kids[0][1], ...kids[0].slice(2)]];
  if (tag === "s") tag = "del";
  if (!ours && /^h[1-6]$/.test(tag)) tag = "h" + Math.min(Number(tag[1]) + 2, 6);
  if (tag === "img") [tag, kids, props] = ["a", [props.alt || decoded(props.src)], { href: props.src }];
  if (tag === "a" && props.href && safe(props.href)) own.href = decoded(props.href);
  if (tag === "a") kids = kids.flatMap(k => k[0] === "a" && typeof k !== "string" ? k.slice(2) : [k]);
  if (tag === "th" || tag === "td") own.align = (ours ? props.class : (props.style || "").replace("text-align:", "")) || "";
  if (tag === "ol") own.start = String(props.start ?? 1);
  if (tag === "input") own.checked = "checked" in props;
  if (tag === "code") own.lang = (props.class || "").replace(/^language-/, "").replace(/[^\w+#.-]/g, "");
  kids = flat(kids);
  if (tag === "code" && !ours) kids = flat(kids.map(k => k.replace(/\n$/, "")));
  kids = flat(kids.map((k, i) => typeof k === "string" && i && kids[i - 1][0] === "br" ? k.replace(/^\n/, "") : k));
  if (BLOCKS.has(tag)) kids = trimmed(kids);
  return [[tag, own, ...kids]];
}
const form = (trees, ours) => JSON.stringify(same(["", {}, ...trees], ours)[0].slice(2));

function beside(markdown) {
  const list = parts("markdown.txt");
  for (let i = 0; i < list.length; i += 2) {
    const [, text] = list[i], [, want] = list[i + 1], have = markdown(text);
    check("markdown " + JSON.stringify(text), form(read(want), false) === form(have, true), "\n" + want + "\n" + have.map(html).join("\n"));
    check("is harmless: " + JSON.stringify(text), !problems(have), problems(have));
  }
  check("300 samples", list.length >= 600, list.length);
}

/* What differs from markdown-it on purpose, or is not its matter. */
const plain = trees => trees.map(html).join("").replace(/<math[^>]*>/g, "<math>").replace(/ rel="[^"]*" target="[^"]*"/g, "");
const OWN = [
  ["a<br>b<br/>c <BR />d", "<p>a<br>b<br>c <br>d</p>"],
  ["| a |\n|---|\n| 1<br>2 |", /<td>1<br>2<\/td>/],
  ["**\u6ce8\u610f\uff1a**\u8bf7\u770b", "<p><strong>\u6ce8\u610f\uff1a</strong>\u8bf7\u770b</p>"],
  ["# One", "<h3>One</h3>"],
  ["[a](/v1/models) [b](#x) [c](tel:1)", "<p><a>a</a> <a>b</a> <a>c</a></p>"],
  ["[a](HTTPS://x.y)", "<p><a href=\"HTTPS://x.y\">a</a></p>"],
  ["![x](https://a.b/c.png)", "<p><a href=\"https://a.b/c.png\">x</a></p>"],
  ["see https://a.b/c: yes", /<a href="https:\/\/a.b\/c">https:\/\/a.b\/c<\/a>: yes/],
  ["$x^2$ and \\(y\\)", "<p><math><msup><mi>x</mi><mn>2</mn></msup></math> and <math><mi>y</mi></math></p>"],
  ["It costs $5, or $6 for two.", "<p>It costs $5, or $6 for two.</p>"],
  ["From $5 to 10$ and $HOME or $PATH", "<p>From $5 to 10$ and $HOME or $PATH</p>"],
  ["a $ b $ c and $a and b$", "<p>a $ b $ c and $a and b$</p>"],
  ["\\[x\\] \\(not a formula\\)", "<p>[x] (not a formula)</p>"],
  ["$$\n- a\n= b\n$$", /^<p><span class="display" tabindex="0"><math><mo>.<\/mo><mi>a<\/mi><mo>=<\/mo><mi>b<\/mi>/],
  ["\\[\n\\frac{a}{b}\n\\]", /<mfrac><mi>a<\/mi><mi>b<\/mi><\/mfrac>/],
  ["- item\n  $$x_1$$", /^<ul><li>item\n<span class="display"/],
  ["$\\unknowncommand{x}_1$ and *it*", "<p>$\\unknowncommand{x}_1$ and <em>it</em></p>"],
  ["$$\\unknowncommand *x* y$$", "<p>$$\\unknowncommand *x* y$$</p>"],
  ["\\[ \\unknowncommand *x* \\]", "<p>\\[ \\unknowncommand *x* \\]</p>"],
  ["$$ never closed *x*", "<p>$$ never closed <em>x</em></p>"],
  ["`$x$` and `\\(x\\)`", "<p><code>$x$</code> and <code>\\(x\\)</code></p>"],
  ["*a $x*y$ b*", /^<p><em>a <math>/],
  ["&DiacriticalGrave; &ouml; &nosuchname;", "<p>` \u00f6 &amp;nosuchname;</p>"],
  ["", ""]
];
function own(markdown) {
  for (const [text, want] of OWN) {
    const have = plain(markdown(text));
    check("page's own: " + JSON.stringify(text), want instanceof RegExp ? want.test(have) : have === want, have);
  }
  const begun = "1. a\n\n   ```py\n   x = 1\n   ```\n\n| a | b |\n|---|---|\n| $x$ | **y** |\n\n> [z](https://a.b) `c`";
  for (let n = 0; n <= begun.length; n++) check("whatever has come: " + n, !problems(markdown(begun.slice(0, n))));
}

/* ---- formulas: MathML, without the mstyle and mrow that only group */

const MATH = [
  ["x^2", "<msup><mi>x</mi><mn>2</mn></msup>"],
  ["x_i^2", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"],
  ["x^2_i", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"],
  ["f'(x)", "<msup><mi>f</mi><mo lspace=\"0\" rspace=\"0\">\u2032</mo></msup><mo stretchy=\"false\">(</mo><mi>x</mi><mo stretchy=\"false\">)</mo>"],
  ["\\frac{a+b}{2}", "<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac>"],
  ["\\frac12 x^10", "<mfrac><mn>1</mn><mn>2</mn></mfrac><msup><mi>x</mi><mn>10</mn></msup>"],
  ["\\sqrt{x} \\sqrt[3]{y}", "<msqrt><mi>x</mi></msqrt><mroot><mi>y</mi><mn>3</mn></mroot>"],
  ["\\alpha\\beta\\Gamma\\Omega", "<mi>\u03b1</mi><mi>\u03b2</mi><mi mathvariant=\"normal\">\u0393</mi><mi mathvariant=\"normal\">\u03a9</mi>"],
  ["\\sum_{i=1}^n i", "<munderover><mo>\u2211</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>"],
  ["\\int_0^1 x", "<msubsup><mo>\u222b</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi>"],
  ["\\int\\limits_0^1 x", "<munderover><mo>\u222b</mo><mn>0</mn><mn>1</mn></munderover><mi>x</mi>"],
  ["\\lim_{x \\to 0}", "<munder><mo movablelimits=\"true\" lspace=\"0\" rspace=\"0\">lim</mo><mrow><mi>x</mi><mo>\u2192</mo><mn>0</mn></mrow></munder>"],
  ["\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}", "<mrow><mo stretchy=\"true\" fence=\"true\">(</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr>" +
    "<mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo stretchy=\"true\" fence=\"true\">)</mo></mrow>"],
  ["\\begin{cases} 1 & x > 0 \\\\ 0 & \\text{otherwise} \\end{cases}", null, "<mtext>otherwise</mtext>"],
  ["\\begin{aligned} a &= b \\\\ &= c \\end{aligned}", null, "<mtable displaystyle=\"true\">"],
  ["a = b \\\\ c = d", null, "<mtable displaystyle=\"true\">"],
  ["\\left( \\frac{a}{b} \\right]", "<mrow><mo stretchy=\"true\" fence=\"true\">(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo stretchy=\"true\" fence=\"true\">]</mo></mrow>"],
  ["\\left. x \\middle| y \\right\\}", null, "fence=\"true\">}"],
  ["\\mathbb{R} \\mathcal{L} \\mathbf{x} \\mathfrak{g}", "<mi>\u211d</mi><mi>\u2112</mi><mi>\ud835\udc31</mi><mi>\ud835\udd24</mi>"],
  ["\\mathrm{d}x", "<mi mathvariant=\"normal\">d</mi><mi>x</mi>"],
  ["\\sin x", "<mi>sin</mi><mspace width=\"0.17em\"></mspace><mi>x</mi>"],
  ["\\operatorname{softmax}(z)", null, "<mi>softmax</mi>"],
  ["\\hat{x} \\vec{v} \\overline{AB}", null, "<mover accent=\"true\">"],
  ["\\overbrace{a}^{n} \\underbrace{b}_{m}", null, "<munder><munder accent=\"true\">"],
  ["\\text{if $x > 0$ then}", null, "<mi>x</mi><mo>&gt;</mo>"],
  ["\\binom{n}{k}", null, "<mfrac linethickness=\"0\">"],
  ["a \\leq b \\neq c \\approx d \\in E \\subseteq F \\Rightarrow g \\cdot h", null, "<mo>\u21d2</mo>"],
  ["a \\equiv b \\pmod{n}", null, "<mi>mod</mi>"],
  ["\\not= \\quad 50\\% \\{1, 2\\}", null, "<mo>=\u0338</mo>"],
  ["1,000.5", "<mn>1,000.5</mn>"],
  ["\\bigl( x \\bigr)", null, "minsize=\"1.2em\""],
  ["x = 1 \\tag{2}", null, "<mtext>(2)</mtext>"],
  ["\\boxed{42}", "<mrow class=\"boxed\"><mn>42</mn></mrow>"],
  ["\\frac{\\partial f}{\\partial x} \\nabla \\infty", null, "<mi>\u2202</mi>"],
  ["A \\xrightarrow{f} B", null, "<mover><mo stretchy=\"true\">\u2192</mo><mi>f</mi></mover>"],
  ["\\mathbf{X}^{\\mathsf{T}}", "<msup><mi>\ud835\udc17</mi><mi>\ud835\uddb3</mi></msup>"],
  ["\\mathtt{a1}", null, "<mi>\ud835\ude8a</mi><mn>\ud835\udff7</mn>"],
  ["x_1, \\dotsc, x_n", null, "<mi>\u2026</mi>"],
  ["H_2O", null, "<msub><mi>H</mi><mn>2</mn></msub>"]
];
const UNKNOWN = ["\\foo", "\\frac{1}", "\\frac{1", "{", "}", "x^", "\\left( x", "\\right)", "\\begin{matrix} a", "\\begin{tabular} a \\end{tabular}", "\\begin{matrix} a \\end{pmatrix}", "#",
  "\\def\\x{\\x\\x}\\x", "\\color{red}{x}", "\\href{javascript:alert(1)}{x}", "\\text{", "\\hasOwnProperty", "\\constructor", "\\__proto__", "\\begin{constructor} a \\end{constructor}", ""];
function formulas(math) {
  for (const [tex, whole, piece] of MATH) {
    const tree = math(tex, false), text = tree ? tree.slice(2).map(html).join("") : "null";
    check("maths " + tex, tree && (whole === null ? text.includes(piece) : text === whole), text);
    check("says what it was: " + tex, tree && tree[1].alttext === tex);
    check("on a line of its own: " + tex, tree && html(math(tex, true)).includes("display=\"block\""));
    check("is harmless: " + tex, !problems([tree]), problems([tree]));
  }
  const kept = UNKNOWN.filter(tex => math(tex, false) !== null);
  check("what is not known stays as it was", !kept.length, kept);
  const deep = n => "\\frac{".repeat(n) + "x" + "}{y}".repeat(n);
  check("nested a little", math(deep(9), false) && !math(deep(500), false) && !math("\\sqrt".repeat(500) + "x", false) && !math("\\left(".repeat(500), false));
}

/* ---- colours: which characters are comments, texts, numbers and key words, in the eyes of Pygments and in ours */

const LIKE = { c: 0.99, s: 0.85, n: 0.9, k: 0.8 }; /* share of characters in either that are in both; Pygments looks into f"{texts}" */
const OTHERWISE = new Set(["css k", "css n", "html k", "html s", "html n", "yaml k", "yaml n", "bash k", "bash s", "python s"]); /* classes are cut otherwise there */
function colours(highlight) {
  const list = parts("code.txt");
  for (let i = 0; i < list.length; i += 2) {
    const [language, text] = list[i], want = list[i + 1][1].replace(/\n/g, " "), trees = highlight(text, language);
    const pieces = trees.map(t => typeof t === "string" ? [".", t] : [t[1].class, t[2]]), have = pieces.map(([c, t]) => c.repeat(t.length)).join("");
    check(language + ": nothing is lost", pieces.map(p => p[1]).join("") === text && have.length === want.length, have.length + " " + want.length);
    for (const kind in LIKE) {
      let both = 0, either = 0;
      for (let k = 0; k < text.length; k++) {
        if (/\s/.test(text[k])) continue;
        both += have[k] === kind && want[k] === kind;
        either += have[k] === kind || want[k] === kind;
      }
      if (either && !OTHERWISE.has(language + " " + kind)) check(`${language} ${kind}: as Pygments`, both / either >= LIKE[kind], both + " of " + either);
    }
  }
  const classes = (text, language) => highlight(text, language).map(t => typeof t === "string" ? t : t[1].class + ":" + t[2]).join("|");
  for (const [language, text, want] of [
    ["python", "f(\"a\") # b", "f:f|(|s:\"a\"|) |c:# b"], ["py", "'''a\nb", "s:'''a\nb"], ["js", "a = /['\"]/g", "a = |s:/['\"]/g"], ["js", "a / b / c", "a / b / c"],
    ["rust", "r#\"a\"b\"#", "s:r#\"a\"b\"#"], ["rust", "&'a str", "&'a |k:str"], ["bash", "a=$b # c", "v:a|=|v:$b| |c:# c"], ["html", "<a b=\"c\">", "k:<a| |v:b|=|s:\"c\"|k:>"],
    ["json", "{\"a\": 1}", "{|v:\"a\"|: |n:1|}"], ["sql", "select 'a''b'", "k:select| |s:'a''b'"], ["c", "#include <a.h>", "m:#include <a.h>"], ["nosuch", "if (1)", "if (1)"],
    ["constructor", "x", "x"], ["diff", "+a\n-b", "s:+a|\n|k:-b"], ["css", "a { color: #fff; }", "a { |v:color|: |n:#fff|; }"], ["yaml", "a: 1 # b", "v:a|: |n:1| |c:# b"],
    ["go", "`a\nb`", "s:`a\nb`"], ["java", "@Override int x", "m:@Override| |k:int| x"], ["", "x", "x"], ["python", "", ""]
  ]) check(`${language} ${text}`, classes(text, language) === want, classes(text, language));
}

const renderers = [load(false), load(true)];
for (const { markdown, math, highlight } of renderers) {
  beside(markdown);
  own(markdown);
  formulas(math);
  colours(highlight);
}
finish();
