/* math: Formulas as MathML.
 *
 *   math(tex, display)   a tree like those of markdown(), or null where tex holds something that is not known here
 *
 * A subset of LaTeX's mathematics: fractions, roots, scripts, Greek, operators, sums and integrals with limits, delimiters, accents,
 * alphabets, text, matrices, cases and aligned lines. A recursive descent, in one pass; groups are nested at most DEEP_MATH times. */
const DEEP_MATH = 40;

const names = text => new Set(text.split(" "));
/* Names with their characters, "name:code ..." in base 16. Most names of LaTeX are also those of characters in HTML: only others stand here. */
const codes = text => new Map(text.split(" ").map(x => x.split(":")).map(([name, code]) => [name, String.fromCharCode(parseInt(code, 16))]));
const SYMBOLS = codes("infty:221e partial:2202 degree:b0 circ:2218 ldots:2026 dots:2026 dotsc:2026 cdots:22ef dotsb:22ef dotsm:22ef vdots:22ee ddots:22f1 " +
  "cdot:22c5 ast:2217 star:22c6 land:2227 lor:2228 neg:ac lnot:ac neq:2260 exists:2203 to:2192 gets:2190 implies:27f9 iff:27fa " +
  "lvert:7c rvert:7c lVert:2016 rVert:2016 |:2016 {:7b }:7d backslash:5c %:25 $:24 #:23 &:26 _:5f iint:222c " +
  "phi:3d5 varphi:3c6 epsilon:3f5 varepsilon:3b5");
const BRACKET = /[()[\]{}|\u2016\u2308-\u230b\u27e8\u27e9]/;
/* Those that are no operators, besides letters. */
const PLAIN_SYMBOL = /[\p{L}\u221e\u2202\u2207\u2205\xb0\u2218\u2026\u22ee-\u22f1\u22a4\u22a5\u2220\u25a1\u25b5\u2032\u2713]/u;
/* Scripts of these stand below and above. */
const LIMITS = names("lim max min sup inf limsup liminf argmax argmin det gcd Pr"), SUMS = /^(?:sum|(?:co)?prod|big[a-z]+)$/;
const FUNCTIONS = names("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp arg deg dim ker hom rank tr sgn");
const ACCENTS = codes("hat:5e widehat:5e bar:af overline:af vec:2192 overrightarrow:2192 dot:2d9 ddot:a8 tilde:2dc widetilde:2dc check:2c7 " +
  "overbrace:23de underline:5f underbrace:23df");
const SPACES = { __proto__: null, ",": .17, ":": .22, ";": .28, " ": .25, "!": -.17, quad: 1, qquad: 2 };
const TEXTS = /^(?:text(?:rm|bf|it|tt|sf|normal)?|mbox)$/;
/* Alphabets: the codes of A, a and 0, and letters that stand elsewhere. */
const ALPHABETS = {
  __proto__: null,
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce],
  mathbb: [0x1d538, 0x1d552, 0x1d7d8, "C2102 H210d N2115 P2119 Q211a R211d Z2124"],
  mathcal: [0x1d49c, 0x1d4b6, 48, "B212c E2130 F2131 H210b I2110 L2112 M2133 R211b e212f g210a o2134"],
  mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2], mathtt: [0x1d670, 0x1d68a, 0x1d7f6],
  mathfrak: [0x1d504, 0x1d51e, 48, "C212d H210c I2111 R211c Z2128"]
};
ALPHABETS.bm = ALPHABETS.boldsymbol;
ALPHABETS.mathscr = ALPHABETS.mathcal;
const FENCES = { matrix: "", smallmatrix: "", array: "", pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "\u2016\u2016", cases: "{" };
const DELIMITER = /^[()[\]|/]$/;
const LINED = /^(?:align|split|gather|equation)/;

/* A letter or digit of an alphabet. */
function styled(c, [upper, lower, digit, others]) {
  const other = new RegExp(c + "([0-9a-f]{4})").exec(others || ""), code = c.charCodeAt(0);
  const from = /[A-Z]/.test(c) ? upper - 65 : /[a-z]/.test(c) ? lower - 97 : /\d/.test(c) ? digit - 48 : 0;
  return String.fromCodePoint(other ? parseInt(other[1], 16) : from + code);
}
/* A tree with every mi and mn through `change`. */
function eachLetter(tree, change) {
  if (tree[0] === "mi" || tree[0] === "mn") return change(tree);
  return [tree[0], tree[1], ...tree.slice(2).map(x => isText(x) ? x : eachLetter(x, change))];
}

/* What is not known. */
class Unknown extends Error {}
const unknown = () => { throw new Unknown(); };
const symbol = name => SYMBOLS.get(name) || decoded(name) || unknown();

/* A formula as a row of trees. Those of operators with limits and of functions' names say so by properties: limits, name. */
function formula(s) {
  const tags = [];
  let i = 0, next = 0, deep = 0;

  /* The next token without taking it: a command with its backslash, a number or a character; "" at the end. */
  const peek = () => {
    const m = at(/\s*(\\(?:[A-Za-z]+\*?|[^])|\d+(?:[.,]\d+)*|[\ud800-\udbff][\udc00-\udfff]|\S|$)/y, s, i);
    next = i + m[0].length;
    return m[1];
  };
  const take = () => {
    const t = peek();
    i = next;
    return t;
  };
  const is = token => {
    if (peek() !== token) return false;
    i = next;
    return true;
  };
  const expect = token => is(token) || unknown();
  /* {...} as it is written. */
  const raw = () => {
    expect("{");
    const from = i;
    for (let n = 1; n; i++) {
      if (i >= s.length) unknown();
      n += (s[i] === "{") - (s[i] === "}");
    }
    return s.slice(from, i - 1);
  };
  const mo = (c, props = {}) => ["mo", props, c];
  const stiff = c => mo(c, { stretchy: "false" }), fence = c => c ? [mo(c, { stretchy: "true", fence: "true" })] : [];
  const space = em => ["mspace", { width: em + "em" }];
  const one = list => list.length === 1 ? list[0] : ["mrow", {}, ...list];

  const nested = read => {
    if (++deep > DEEP_MATH) unknown();
    const got = read();
    deep--;
    return got;
  };

  /* Trees up to what ends a row: a closing brace or bracket, a cell's or row's end, \right, \middle, \end. */
  const row = bracket => nested(() => {
    const out = [];
    for (let t; (t = peek()) && !/^(?:\}|&|\\\\|\\right|\\middle|\\end)$/.test(t) && !(bracket && t === "]");) {
      const a = atom(), tree = scripts(a);
      if (tree) out.push(tree);
      if (a?.name && /^(?:\w|\\(?!left|right|end)[a-z])/i.test(peek())) out.push(space(.17));
    }
    return out;
  });
  const rows = () => {
    const out = [[row()]];
    for (;;) {
      if (is("&")) last(out).push(row());
      else if (is("\\\\")) {
        const gap = at(/\s*\[-?[\d.]+[a-z]{2}\]/y, s, i);
        if (gap) i += gap[0].length;
        out.push([row()]);
      } else break;
    }
    if (out[1] && !last(out)[0].length && !last(out)[1]) out.pop();
    return out;
  };
  const table = (list, align, tall) => ["mtable", tall ? { displaystyle: "true" } : {}, ...list.map(cells =>
    ["mtr", {}, ...cells.map((cell, k) => ["mtd", align(k) ? { class: align(k) } : {}, ...cell])])];
  const sides = k => k % 2 ? "left" : "right";
  /* A group or a single token; of a fraction a single digit. */
  const argument = digit => {
    if (digit && /^\d/.test(peek())) return ["mn", {}, s[(i = next - peek().length + 1) - 1]];
    if (!is("{")) return nested(atom) || unknown();
    const list = row();
    expect("}");
    return one(list);
  };
  const option = () => {
    if (!is("[")) return null;
    const list = row(true);
    expect("]");
    return one(list);
  };

  const scripts = base => {
    let sub = null, sup = null, limits = base?.limits;
    for (;;) {
      if (is("\\limits")) limits = true;
      else if (is("\\nolimits")) limits = false;
      else if (!sub && is("_")) sub = argument();
      else if (!sup && is("^")) sup = argument();
      else if (!sup && peek() === "'") {
        let primes = "";
        while (is("'")) primes += "\u2032";
        sup = mo(primes, { lspace: "0", rspace: "0" });
        if (is("^")) sup = ["mrow", {}, sup, argument()];
      } else break;
    }
    if (!sub && !sup) return base;
    const tag = (sub ? limits ? "under" : "sub" : "") + (sup ? limits ? "over" : "sup" : "");
    return ["m" + tag, {}, base || ["mrow", {}], ...[sub, sup].filter(x => x)];
  };

  const atom = () => {
    const t = peek();
    if (t === "{") return argument();
    if (t === "^" || t === "_" || t === "'") return null;
    take();
    if (t[0] === "\\" && t[1]) return command(t.slice(1));
    if (/^\d/.test(t)) return ["mn", {}, t];
    if (/^\p{L}/u.test(t)) return ["mi", {}, t];
    if (t === "~") return space(.25);
    if (DELIMITER.test(t)) return stiff(t);
    if (t > "\x7f" || /^[-+=<>*,.;:!?%]$/.test(t)) return mo(t === "-" ? "\u2212" : t === "*" ? "\u2217" : t);
    return unknown();
  };
  const command = name => {
    const own = commands[name.replace(/^[dtc](?=frac|binom)/, "")], size = /^([bB]igg?)[lrm]?$/.exec(name), alphabet = ALPHABETS[name];
    if (own) return own(name);
    if (LIMITS.has(name)) {
      return assign(mo(name.replace(/^(lim|arg)(?=.)/, "$1\u2009"), { movablelimits: "true", lspace: "0", rspace: "0" }), { limits: true, name });
    }
    if (FUNCTIONS.has(name)) return assign(["mi", {}, name], { name });
    if (SPACES[name]) return space(SPACES[name]);
    if (ACCENTS.has(name)) {
      const mark = mo(ACCENTS.get(name), { stretchy: String(/^(?:wide|over|under)/.test(name)) });
      return assign([name[0] === "u" ? "munder" : "mover", { accent: "true" }, argument(), mark], { limits: name.endsWith("brace") });
    }
    if (TEXTS.test(name)) return wordsOf(raw());
    if (alphabet) return eachLetter(argument(), x => [x[0], x[1], Array.from(x[2], c => styled(c, alphabet)).join("")]);
    if (size) {
      const em = { big: 1.2, Big: 1.6, bigg: 2.2, Bigg: 2.8 }[size[1]] + "em";
      return mo(delimiter(), { minsize: em, maxsize: em });
    }
    const c = symbol(name);
    if (PLAIN_SYMBOL.test(c)) return ["mi", /^[A-Z]/.test(name) ? { mathvariant: "normal" } : {}, c];
    return assign(BRACKET.test(c) ? stiff(c) : mo(c), { limits: SUMS.test(name) });
  };

  /* \text{...}, in which $...$ is mathematics again. */
  const wordsOf = text => one(text.split("$").map((p, k) =>
    k % 2 ? ["mrow", {}, ...formula(p)] : ["mtext", {}, p.replace(/\\([%#&_{} ])/g, "$1").replace(/^ | $/g, "\u00a0")]).filter(x => x[2]));
  const delimiter = () => {
    const t = take();
    return t === "." ? "" : t === "<" ? "\u27e8" : t === ">" ? "\u27e9" : DELIMITER.test(t) ? t : t[1] ? symbol(t.slice(1)) : unknown();
  };
  const environment = () => {
    const name = raw(), f = FENCES[name] || "", lined = LINED.test(name);
    let align = lined && !/^(?:gather|equation)/.test(name) ? sides : () => name === "cases" ? "left" : "";
    if (!lined && !Object.hasOwn(FENCES, name)) unknown();
    if (/^alignedat/.test(name)) raw();
    if (name === "array") {
      const spec = raw().replace(/[^lcr]/g, "");
      align = k => ({ l: "left", r: "right" })[spec[k]] || "";
    }
    const inside = table(rows(), align, lined);
    expect("\\end");
    if (raw() !== name) unknown();
    return one([...fence(f[0]), inside, ...fence(f[1])]);
  };
  const fenced = () => {
    const out = [...fence(delimiter()), ...row()];
    while (is("\\middle")) out.push(...fence(delimiter()), ...row());
    expect("\\right");
    return ["mrow", {}, ...out, ...fence(delimiter())];
  };

  /* Commands with a form of their own. */
  const commands = {
    __proto__: null,
    begin: environment,
    left: fenced,
    frac: name => {
      const tree = ["mfrac", {}, argument(1), argument(1)];
      return /^[dc]/.test(name) ? ["mstyle", { displaystyle: "true" }, tree] : tree;
    },
    binom: () => ["mrow", {}, mo("("), ["mfrac", { linethickness: "0" }, argument(), argument()], mo(")")],
    sqrt: () => {
      const root = option();
      return root ? ["mroot", {}, argument(), root] : ["msqrt", {}, argument()];
    },
    overset: name => {
      const mark = argument();
      return [name === "underset" ? "munder" : "mover", {}, argument(), mark];
    },
    xrightarrow: () => ["mover", {}, mo("\u2192", { stretchy: "true" }), argument()],
    operatorname: name => assign(["mi", {}, raw().replace(/\\,/g, "\u2009")], { name, limits: name.endsWith("*") }),
    mathrm: () => eachLetter(argument(), x => [x[0], { mathvariant: "normal" }, x[2]]),
    mathit: () => argument(),
    not: () => {
      const tree = argument();
      return tree[0] === "mo" ? mo(tree[2] + "\u0338") : unknown();
    },
    pmod: () => ["mrow", {}, space(.5), stiff("("), ["mi", {}, "mod"], space(.3), argument(), stiff(")")],
    bmod: () => mo("mod", { lspace: ".22em", rspace: ".22em" }),
    boxed: () => ["mrow", { class: "boxed" }, argument()],
    substack: () => {
      expect("{");
      const tree = table(rows(), () => "");
      expect("}");
      return tree;
    },
    tag: () => (tags.push(space(2), ["mtext", {}, "(" + raw() + ")"]), null),
    label: () => (raw(), null),
    displaystyle: () => ["mstyle", { displaystyle: "true" }, ...row()]
  };
  commands["operatorname*"] = commands.operatorname;
  commands.mathop = commands.mathit;
  commands.underset = commands.stackrel = commands.overset;
  for (const name of ["nonumber", "notag", "hline", "textstyle", "scriptstyle"]) commands[name] = () => null;

  const list = rows();
  if (take()) unknown();
  return [...(list[1] || list[0][1] ? [table(list, sides, true)] : list[0][0]), ...tags];
}

function math(tex, display) {
  try {
    const tree = ["math", { alttext: tex.trim(), ...(display && { display: "block" }) }, ...formula(tex)];
    if (!tree[2]) return null;
    return display ? ["span", { class: "display", tabindex: "0" }, tree] : tree;
  } catch (e) {
    if (e instanceof Unknown) return null;
    throw e;
  }
}
