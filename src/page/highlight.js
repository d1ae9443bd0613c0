/* highlight: Code in colours.
 *
 *   highlight(text, language)   strings and ["span", {class}, string], whose texts together are `text`
 *
 * A small tokenizer: a language is a list of pairs of a class and an expression, the first that fits wins. Classes: c comment, s string,
 * k keyword, n number, m what is said to the compiler or about markup, f name that is called, v variable or key. No expression goes back
 * far: what is never closed goes to the end, or to that of its line. A language that is not known has no colours. */
const WORDS = words => ["k", "\\b(?:" + words.replace(/ /g, "|") + ")\\b"];
/* Between two marks, with escapes; `not`: what ends it besides. */
const quoted = (mark, not) => mark + "(?:[^" + mark + "\\\\" + not + "]+|\\\\[^])*" + mark + "?";
const DOUBLE = quoted("\"", "\\n"), SINGLE = quoted("'", "\\n"), LINES = quoted("\"", "");
/* From one mark to the other, or to the end of the text. */
const between = (from, to) => from + "[^]*?(?:" + to + "|$(?![^]))", BLOCK = between("\\/\\*", "\\*\\/"), LONG = between("\"\"\"", "\"\"\"");
const COMMENT = ["c", BLOCK + "|\\/\\/.*"], HASH = ["c", "#.*"], STRINGS = ["s", DOUBLE + "|" + SINGLE], START = c => `${c}(?<=^[ \\t]*${c})`;
const NUMBER = ["n", "\\b0[xX][\\da-fA-F_]+\\w*|(?:\\b\\d[\\d_]*(?:\\.(?!\\.)[\\d_]*)?|(?<![.\\w])\\.\\d[\\d_]*)(?:[eE][+-]?\\d+)?[a-zA-Z]*"], CALL = ["f", "\\b[A-Za-z_]\\w*(?=\\()"];
const BRACES = "break case continue default do else for if return switch while true false null const static void new this class enum int float char bool " +
  "catch delete double long namespace override private protected public short throw try using virtual volatile ";
const OBJECTS = BRACES + "async await boolean extends finally implements import in instanceof interface readonly string super var ";
const TAG = [["k", "^<\\/?[\\w:.-]+|\\/?>$"], ["s", "\"[^\"]*\"?|'[^']*'?"], ["v", "[\\w:@.-]+"]];

const LANGUAGES = {
  __proto__: null,
  python: [HASH, ["s", "(?:\\b[rRbBfFuU]{1,2})?(?:" + LONG + "|" + between("'''", "'''") + "|" + DOUBLE + "|" + SINGLE + ")"], ["m", START("@") + "[\\w.]+"],
    WORDS("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal " +
      "not or pass raise return try while with yield True False None"), NUMBER, CALL],
  c: [COMMENT, ["m", START("#") + "[ \\t]*\\w+(?:[ \\t]*<[^>\\n]*>)?"], STRINGS, WORDS(BRACES + "auto constexpr explicit extern goto inline noexcept nullptr operator " +
    "register signed sizeof size_t struct template typedef typename union unsigned u?int(?:8|16|32|64)_t NULL"), NUMBER, CALL],
  javascript: [COMMENT, ["s", DOUBLE + "|" + SINGLE + "|" + quoted("`", "") + "|\\/(?<=(?:[(,=:[!&|?{};]|^|return)[ \\t]*\\/)" +
    "(?![*/ ])(?:[^\\/\\\\[\\n]|\\\\.|\\[(?:[^\\]\\\\\\n]|\\\\.){0,99}\\]){1,99}\\/[a-z]*"], WORDS(OBJECTS + "any as debugger export from function let number of " +
    "type typeof undefined with yield"), NUMBER, CALL],
  java: [COMMENT, ["m", "@\\w+"], ["s", LONG + "|" + DOUBLE + "|" + SINGLE], WORDS(OBJECTS + "abstract assert byte final foreach is package " +
    "record synchronized throws transient"), NUMBER, CALL],
  go: [COMMENT, ["s", DOUBLE + "|" + SINGLE + "|`[^`]*`?"], WORDS("break case chan const continue default defer else fallthrough for func go goto if import " +
    "interface map package range return select struct switch type var nil true false any bool byte error float32 float64 u?int(?:8|16|32|64)? rune " +
    "string"), NUMBER, CALL],
  rust: [COMMENT, ["m", "#!?\\[[^\\]\\n]*\\]?"], ["s", "\\bb?r(?<hash>#{0,9})" + between("\"", "\"\\k<hash>") + "|b?" + LINES + "|b?'(?:[^'\\\\\\n]|\\\\[^'\\n]{1,9})'"], WORDS("as async await break const " +
    "continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type unsafe " +
    "use where while true false bool char str String [iu](?:8|16|32|64|128|size) f32 f64"), NUMBER, ["f", "\\b[A-Za-z_]\\w*!?(?=\\()|\\b[a-z_]+!"]],
  bash: [["c", "(?<![^\\s;(])#.*"], ["s", LINES + "|'[^']*'?"], ["v", "\\$(?:\\w+|\\{[^}\\n]*\\}?|[#?@*!$-])|\\b\\w+(?==)"], ["k", "(?<![-\\w./])(?:if|then|else|elif|" +
    "fi|for|in|do|done|while|until|case|esac|function|return|export|local|echo|printf|cd|source|read|set|unset|exit|exec|eval|trap)(?![-\\w./=])"],
    ["n", "(?<![-\\w./])\\d+(?![-\\w./])"]],
  sql: [["c", "--.*|" + BLOCK], ["s", "'(?:[^']+|'')*'?"], ["v", "\"[^\"\\n]*\"?|`[^`\\n]*`?"], WORDS("add all alter and as asc begin between by case check " +
    "column commit create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is " +
    "join key left like limit not null offset on or order outer over partition primary references returning right select set table then " +
    "union unique update using values view when where with boolean date int integer numeric real text timestamp varchar"), NUMBER, CALL],
  json: [["v", "\"(?:[^\"\\\\\\n]|\\\\.)*\"(?=\\s{0,99}:)"], STRINGS, COMMENT, WORDS("true false null"), ["n", "-?\\b\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?"]],
  html: [["c", between("<!--", "-->")], ["m", "<[!?]\\w[^>]*>?"], ["tag", "<\\/?[A-Za-z](?:[^<>\"']+|\"[^\"]*\"?|'[^']*'?)*>?"], ["n", "&#?\\w{1,31};"]],
  css: [["c", BLOCK], STRINGS, ["m", "@[\\w-]+|!important"], ["v", "[\\w-](?<=[{;]\\s*[\\w-])[\\w-]*(?=\\s{0,99}:)|--[\\w-]+"], ["n", "#[\\da-fA-F]{3,8}\\b|" +
    "(?<![\\w-])[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:%|[a-z]+)?"], ["f", "\\b[a-z][\\w-]*(?=\\()"], ["k", "[.#][A-Za-z][\\w-]*"]],
  yaml: [["c", "(?<!\\S)#.*"], ["v", "[\\w./-](?<=^[ \\t]*(?:- {1,3}){0,9}[\\w./-])[\\w./-]*(?=:\\s|[ \\t]*=)"], ["k", START("\\[") + ".*\\]|(?<=[:=-] {1,9})(?:true|false|null|yes|no|on|off)(?!\\S)"],
    STRINGS, ["n", "(?<=[:=-] {1,9})-?\\d[\\d.]*(?![^\\s,])"], ["m", "^---"]],
  diff: [["m", "^(?:@@|diff|index|---|\\+\\+\\+).*"], ["s", "^\\+.*"], ["k", "^-.*"]]
};
/* Languages, each with its other names. */
const ALIASES = new Map(("python py python3,javascript js jsx mjs ts tsx typescript,java cs csharp c# kotlin,c h cpp c++ cc hpp cuda,go golang,rust rs," +
  "bash sh shell zsh console,sql postgresql mysql sqlite,json jsonc jsonl,html xml svg vue,css scss,yaml yml toml ini,diff patch").split(",")
  .flatMap(list => list.split(" ").map((name, i, all) => [name, all[0]])));

function tokens(text, rules, flags) {
  const out = [], rule = new RegExp(rules.map(([, source], i) => `(?<g${i}>${source})`).join("|"), flags);
  let from = 0;
  for (const m of text.matchAll(rule)) {
    if (!m[0]) continue;
    if (m.index > from) out.push(text.slice(from, m.index));
    const name = rules.find((_, i) => m.groups["g" + i] !== undefined)[0];
    if (name === "tag") out.push(...tokens(m[0], TAG, "g"));
    else out.push(["span", { class: name }, m[0]]);
    from = m.index + m[0].length;
  }
  if (from < text.length) out.push(text.slice(from));
  return out;
}
function highlight(text, language) {
  const lower = language.toLowerCase(), name = ALIASES.get(lower), rules = LANGUAGES[name];
  return rules ? tokens(text, rules, name === "sql" ? "gim" : "gm") : text ? [text] : [];
}
