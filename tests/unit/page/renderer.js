/* The page's renderer in node: markdown(), math() and highlight() of src/page, as they are written and as they are served.
 *
 *   load(squeezed)     the three functions
 *   html(tree)         a tree as HTML
 *   read(text)         HTML as a tree
 *   parts(name)        [head, body] for each part of a file of tests/data/page
 *   problems(trees)    what no tree may hold: a tag, attribute or link that the page does not make; how deep it is
 *   seconds(work)      of processor time
 *   check, finish      counts */
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm"), { execFileSync } = require("child_process");
const ROOT = path.resolve(__dirname, "../../..");
const FILES = ["markdown", "math", "highlight"].map(name => path.join(ROOT, "src/page", name + ".js"));
const python = (...args) => execFileSync("python3", args, { encoding: "utf8", maxBuffer: 1e8 });

/* Of the browser the renderer needs the table of named characters. */
const NAMED = JSON.parse(python("-c", "import html.entities, json; print(json.dumps(html.entities.html5))"));
class DOMParser {
  parseFromString(text) { return { body: { textContent: NAMED[text.slice(1)] || text } }; }
}

function load(squeezed) {
  const tail = path.join(fs.mkdtempSync(path.join(require("os").tmpdir(), "page-")), "tail.js");
  fs.writeFileSync(tail, "globalThis.renderer = { \"markdown\": markdown, \"math\": math, \"highlight\": highlight };\n");
  const code = squeezed ? python(path.join(ROOT, "src/squeeze.py"), ...FILES, tail) : [...FILES, tail].map(f => fs.readFileSync(f, "utf8")).join("");
  const context = vm.createContext({ DOMParser });
  vm.runInContext(code, context);
  fs.rmSync(path.dirname(tail), { recursive: true });
  return context.renderer;
}

const EMPTY = new Set(["br", "hr", "input", "img"]);
const escaped = s => s.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
function html(tree) {
  if (typeof tree === "string") return escaped(tree);
  const [tag, props, ...kids] = tree, head = Object.entries(props).map(([k, v]) => ` ${k}="${escaped(String(v))}"`).join("");
  return `<${tag}${head}>` + (EMPTY.has(tag) ? "" : kids.map(html).join("") + `</${tag}>`);
}
function read(text) {
  const plain = s => s.replace(/&(lt|gt|quot|amp);/g, (_, name) => ({ lt: "<", gt: ">", quot: "\"", amp: "&" })[name]);
  const root = ["", {}], open = [root];
  for (const m of text.matchAll(/<(\/?)([a-z]+\d?)([^>]*)>|[^<]+/g)) {
    const top = open[open.length - 1];
    if (!m[2]) top.push(plain(m[0]));
    else if (m[1]) open.pop();
    else {
      const tree = [m[2], Object.fromEntries([...m[3].matchAll(/([\w-]+)="([^"]*)"/g)].map(a => [a[1], plain(a[2])]))];
      top.push(tree);
      if (!EMPTY.has(m[2])) open.push(tree);
    }
  }
  return root.slice(2);
}
function parts(name) {
  const pieces = fs.readFileSync(path.join(ROOT, "tests/data/page", name), "utf8").split(/^%%%% (.*)\n/m).slice(1), out = [];
  for (let i = 0; i < pieces.length; i += 2) out.push([pieces[i], pieces[i + 1].replace(/\n$/, "")]);
  return out;
}

const words = text => new Set(text.split(" "));
const TAGS = words("p h3 h4 h5 h6 hr blockquote ul ol li input table thead tbody tr th td div span pre code button a em strong del br " +
  "math mrow mi mn mo mtext mspace mfrac msqrt mroot msup msub msubsup munder mover munderover mtable mtr mtd mstyle");
const ATTRIBUTES = words("class tabindex role aria-label type data-do disabled checked start href rel target alttext display mathvariant stretchy " +
  "fence accent movablelimits lspace rspace width minsize maxsize linethickness displaystyle");
const CLASSES = /^(?:code|bar|wide|display|task|left|right|center|boxed|[cskmnfv]|language-[\w+#.-]{1,30})$/;
function problems(trees) {
  let worst = "", deepest = 0;
  const visit = (tree, deep) => {
    deepest = Math.max(deepest, deep);
    if (typeof tree === "string") return;
    const [tag, props, ...kids] = tree;
    if (!TAGS.has(tag)) worst = "tag " + tag;
    for (const [k, v] of Object.entries(props)) {
      if (!ATTRIBUTES.has(k) || (k === "class" && !CLASSES.test(v)) || (k === "href" && !/^(?:https?:\/\/|mailto:)/i.test(v))) worst = `${k}="${v}"`;
    }
    for (const kid of kids) visit(kid, deep + 1);
  };
  for (const t of trees) visit(t, 1);
  return worst || (deepest > 150 ? deepest + " levels" : "");
}
function seconds(work) {
  const before = process.cpuUsage();
  work();
  const used = process.cpuUsage(before);
  return (used.user + used.system) / 1e6;
}

const count = { passed: 0, failed: 0 };
function check(name, ok, why = "") {
  count[ok ? "passed" : "failed"]++;
  if (!ok) console.log(`FAILED: ${name}: ${String(why).slice(0, 900)}`);
}
function finish() {
  console.log(`${count.passed} passed, ${count.failed} failed, 0 skipped`);
  process.exitCode = count.failed ? 1 : 0;
}
module.exports = { load, html, read, parts, problems, seconds, check, finish };
