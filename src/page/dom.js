/* dom: Trees on the screen.
 *
 *   $(id)                the element
 *   patch(parent, trees) makes the children of an element those of the trees, and keeps what is the same: what is selected stays
 *                        selected and what has the focus keeps it while text grows. A tree may have a `key` among its attributes
 *   icon(name)           a tree
 *   tool(what, icon, label)   a button; a click on it, as on everything with data-do, calls DO[what](the button)
 *
 * Text never becomes markup: nodes are made one by one. */
const $ = id => document.getElementById(id);
const W3 = "http://www.w3.org/", NAMESPACES = { svg: W3 + "2000/svg", math: W3 + "1998/Math/MathML" };
const body = document.body, DO = {}, now = () => performance.now();

function make(tree, space = W3 + "1999/xhtml") {
  if (isText(tree)) return document.createTextNode(tree);
  const [tag, props, ...kids] = tree, e = document.createElementNS(NAMESPACES[tag] || space, tag);
  for (const k in props) if (k !== "key") e.setAttribute(k, props[k]);
  for (const kid of kids) e.append(make(kid, e.namespaceURI));
  e.tree = tree;
  return e;
}
const keyOf = tree => tree && !isText(tree) ? tree[1].key : undefined;
const fits = (node, tree) => isText(tree) ? node.nodeType === 3 : node.tree && node.tree[0] === tree[0] && keyOf(node.tree) === keyOf(tree);

function update(node, tree) {
  if (isText(tree)) {
    let same = 0; /* what is selected in the beginning stays so */
    while (same < tree.length && node.data[same] === tree[same]) same++;
    if (node.data !== tree) node.replaceData(same, node.length, tree.slice(same));
  } else if (node.tree !== tree) {
    const [, old] = node.tree, [, props] = tree;
    for (const k in old) if (!(k in props)) node.removeAttribute(k);
    for (const k in props) if (props[k] !== old[k] && k !== "key") node.setAttribute(k, props[k]);
    patch(node, tree.slice(2));
    node.tree = tree;
  }
}
function patch(parent, trees) {
  const keyed = new Map();
  for (const c of parent.children) if (keyOf(c.tree) !== undefined) keyed.set(keyOf(c.tree), c);
  let node = parent.firstChild;
  for (const tree of trees) {
    const known = keyed.get(keyOf(tree)) || (node && fits(node, tree) && node);
    if (known) update(known, tree);
    if (known === node && node) node = node.nextSibling;
    else parent.insertBefore(known || make(tree, parent.namespaceURI), node);
  }
  while (node) {
    const gone = node;
    node = node.nextSibling;
    gone.remove();
  }
}

const ICONS = {
  new: "M12 5v14M5 12h14", menu: "M4 7h16M4 12h16M4 17h16", close: "M6 6l12 12M18 6L6 18", up: "M12 19V5M6 11l6-6 6 6", down: "M12 5v14M6 13l6 6 6-6",
  stop: "M7 7h10v10H7z", copy: "M9 9h11v11H9zM15 9V4H4v11h5", edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3", again: "M20 12a8 8 0 1 1-2.3-5.6L20 9M20 4v5h-5",
  delete: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13", clip: "M19 11l-8 8a5 5 0 0 1-7-7l9-9a3.3 3.3 0 0 1 5 5l-9 8a1.6 1.6 0 0 1-2-2l7-7",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4", line: "M19 6v6a2 2 0 0 1-2 2H6M10 10l-4 4 4 4", left: "M14 6l-6 6 6 6", right: "M10 6l6 6-6 6",
  search: "M10.5 17a6.5 6.5 0 1 1 0-13 6.5 6.5 0 0 1 0 13zM15.5 15.5L20 20", file: "M6 3h8l4 4v14H6zM14 3v5h4", check: "M5 13l4 4L19 7"
};
const icon = name => ["svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, ["path", { d: ICONS[name] }]];
const tool = (what, name, label, props) =>
  ["button", { class: "tool", "data-do": what, title: label, "aria-label": label, ...props }, icon(name)];

function copyText(text, done) {
  const old = () => {
    const t = make(["textarea", {}]), focus = document.activeElement;
    t.value = text;
    body.append(t);
    t.select();
    if (document.execCommand("copy")) done();
    t.remove();
    if (focus) focus.focus();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, old);
  else old(); /* a page that came by plain HTTP from another machine */
}
