/* draw: What is seen.
 *
 *   changed()   draws everything anew from the state, soon; patch() changes only what differs
 *
 * The state: here (the id of the conversation that is seen; "" is a new one), editing, naming (ids of a message, a conversation whose
 * text, title is being edited), query (of the search), attached (files), follow (the newest text is kept in sight), elsewhere (when
 * another tab last said that it writes in a conversation), arrived (when this one came here). */
let here = location.hash.slice(1), editing = "", naming = "", query = "", attached = [], follow = true, arrived = 0;
const trees = new WeakMap(), elsewhere = new Map();
const IDEAS = ["Explain how rainbows form", "Write a haiku about autumn", "Plan a simple dinner for two"];

const current = () => chats.get(here);
const busy = chat => runs.get(chat?.id);
const newest = chat => nodeOf(chat, chat.leaf) || {};
/* Is the answer still being written, here or in another tab? That says so every second. */
const writing = (chat, node) => node.live && (busy(chat) || Date.now() - (elsewhere.get(chat.id) || arrived) < 3000);
const visible = chat => chat ? pathTo(chat, chat.leaf) : [];
const number = n => n.toLocaleString("en");
const act = (what, text, props) => ["button", { "data-do": what, ...props }, text];
const shown = (tag, name, ...kids) => [tag, { class: name }, ...kids];

/* ---- messages */

/* The trees of an answer's text, kept until it changes. */
function rendered(node) {
  let known = trees.get(node);
  if (!known || known.text !== node.text) {
    known = { text: node.text };
    try {
      known.tree = markdown(node.text);
    } catch (e) {
      known.tree = [["p", {}, node.text]]; /* better plain than not at all */
    }
    trees.set(node, known);
  }
  return known.tree;
}
function thoughts(node) {
  const open = node.live && !node.text, title = open ? "Thinking\u2026" : "Thought for " + node.thought + " s";
  return ["details", { class: "think", ...(open && { open: "" }) }, ["summary", {}, title], ["div", {}, node.think]];
}
/* Where the conversation could begin for the model, so that what is sent takes at most half of the context; undefined: nowhere. */
function laterStart(chat, node) {
  const path = pathTo(chat, node.up), total = Math.max(0, ...path.map(n => n.used)), half = contextOf(modelOf(chat)) / 2;
  return path[path.findIndex(n => n.used && total - n.used <= half) + 1 || path.length];
}
/* What stands below an answer that did not end well, with what can be done. */
function notice(chat, node, newest) {
  const all = contextOf(modelOf(chat)), again = act("again", "Try again"), goOn = node.text ? [act("goOn", "Continue")] : [];
  const fresh = [...(laterStart(chat, node) ? [act("shorten", "Leave out the oldest messages")] : []), act("newChat", "New chat")];
  const say = (text, acts, kind = "") => [shown("div", "notice " + kind, ["p", {}, text], ...(newest && !busy(chat) ? acts : []))];
  if (node.live) return writing(chat, node) ? [] : say("This answer was interrupted.", [...goOn, again]);
  if (node.end === "error") {
    const acts = node.act === "settings" ? [act("tune", "Settings"), again] : node.act === "shorten" ? fresh : [...goOn, again];
    return say(node.error + " " + node.more, acts, "error");
  }
  if (node.end === "length" && all && node.used >= all) {
    return say("The context is full: this model reads " + number(all) + " tokens. A larger --max-model-len lets the server read more.", fresh);
  }
  if (node.end === "length") return say("The answer was cut at the limit of tokens.", goOn);
  if (node.end === "abort") return say("Stopped.", goOn);
  return node.text || node.think ? [] : say("The model said nothing.", [again]);
}
function branches(chat, node) {
  const all = childrenOf(chat, node.up), i = all.indexOf(node);
  const go = (name, to, label) => tool("branch", name, label, to ? { "data-to": to.id } : { disabled: "" });
  return all[1] ? [go("left", all[i - 1], "Previous version"), ["span", {}, i + 1 + "/" + all.length], go("right", all[i + 1], "Next version")] : [];
}
/* Attachments: of a message, or of the one that is being written. */
const filesOf = (files, own) => files.map((f, i) => {
  const picture = f.url && ["img", { src: f.url, alt: f.name }], name = ["span", {}, f.name];
  if (own) return shown("span", "chip", picture || icon("file"), name, tool("detach", "close", "Remove " + f.name, { "data-at": i }));
  return picture || shown("details", "chip", ["summary", {}, icon("file"), name], ["pre", { tabindex: "0" }, f.text]);
});
const bubble = node => shown("div", "body", ...filesOf(node.files), ...(node.text ? [["div", { class: "bubble", dir: "auto" }, node.text]] : []));

function article(node, kind, label, ...kids) {
  return ["article", { class: "msg " + kind, key: node.id, "data-id": node.id, "aria-label": label, ...(node.live && { "aria-busy": "true" }) },
    shown("h2", "hidden", label), ...kids];
}
function message(chat, node, newest) {
  const user = node.role === "user", run = busy(chat), stats = ["span", { class: "stats", title: node.model }, node.stats];
  if (editing === node.id) {
    return article(node, "user", "You", shown("div", "edit", ["textarea", { rows: "4", "aria-label": "Message", dir: "auto", "data-focus": "" }, node.text],
      ["div", {}, act("cancelEdit", "Cancel"), act("sendEdit", "Send", { class: "main", ...(run && { disabled: "" }) })]));
  }
  const again = run ? [] : [user ? tool("edit", "edit", "Edit") : tool("again", "again", "Regenerate")];
  const tools = shown("div", "tools", ...(node.live ? [] : [tool("copy", "copy", "Copy"), ...again, ...branches(chat, node)]), stats);
  if (user) return article(node, "user", "You", bubble(node), tools);
  const body = [...(node.think ? [thoughts(node)] : []), ...rendered(node)];
  if (!node.text && writing(chat, node)) body.push(shown("div", "wait", run?.status || ""));
  return article(node, "assistant", "Answer", shown("div", "body", ...body), ...notice(chat, node, newest), tools);
}
const queuedOf = chat => Object.values(chat.nodes).filter(n => n.queued && !n.gone).sort((a, b) => a.queued - b.queued);
const waitingMessage = (chat, node) => article(node, "user queued", "Queued message", bubble(node), shown("div", "tools", ["span", {}, "Queued"],
  ...(busy(chat) ? [] : [act("sendQueued", "Send now")]), tool("unqueue", "edit", "Back to the input"), tool("dropQueued", "close", "Remove")));
function welcome() {
  const status = waiting === "key" ? [REASONS[401][0]] : waiting ? [["span", { class: "dot" }], waiting] : ["Conversations stay in this browser."];
  const acts = waiting === "key" ? [act("tune", "Settings")] : IDEAS.map(text => act("idea", text));
  return shown("div", "empty", ["h2", {}, "What can I help with?"], ["p", { role: "status" }, ...status], ["div", {}, ...acts]);
}
function drawLog(chat) {
  const log = $("log"), path = visible(chat), from = path[0]?.id !== chat?.from && chat?.from;
  const rows = path.flatMap((n, i) => [...(n.id === from ? [["p", { class: "cut" }, "The model does not get what is above. ", act("sendAll", "Send all")]] : []),
    message(chat, n, i === path.length - 1)]);
  if (chat) rows.push(...queuedOf(chat).map(n => waitingMessage(chat, n)));
  patch(log, rows.length ? rows : [welcome()]);
  if (follow) log.scrollTop = log.scrollHeight;
  $("jump").hidden = follow;
}

/* ---- the list of conversations */

function ageOf(time) {
  const days = Math.floor((new Date().setHours(24, 0, 0, 0) - time) / 864e5);
  return days < 1 ? "Today" : days < 2 ? "Yesterday" : days < 8 ? "Last week" : "Older";
}
/* Where the query stands in a conversation: "" in its title, or a piece of text; null nowhere. */
function found(chat) {
  const q = query.toLowerCase(), place = n => n.gone ? -1 : n.text.toLowerCase().indexOf(q);
  if (!q || chat.title.toLowerCase().includes(q)) return "";
  const n = Object.values(chat.nodes).find(x => place(x) >= 0);
  return n ? n.text.slice(Math.max(0, place(n) - 20), place(n) + 60) : null;
}
function row(chat, hit) {
  const on = chat.id === here, title = chat.title, key = { key: chat.id, "data-id": chat.id, class: on ? "item on" : "item" }, tab = on ? {} : { tabindex: "-1" };
  if (naming === chat.id) return ["div", key, ["input", { "aria-label": "Title", value: title, "data-focus": "" }]];
  const dot = busy(chat) ? [["span", { class: "dot", role: "img", "aria-label": "Writing" }]] : [];
  return ["div", key, ["a", { href: "#" + chat.id, title, ...(on && { "aria-current": "page" }) }, ...dot, title, ...(hit ? [["small", {}, hit]] : [])],
    tool("rename", "edit", "Rename " + title, tab), tool("remove", "delete", "Delete " + title, tab)];
}
const alive = () => [...chats.values()].filter(c => !c.gone).sort((a, b) => b.time - a.time);
function drawList() {
  const out = [];
  let age = "";
  for (const c of alive()) {
    const hit = found(c);
    if (hit === null) continue;
    if (age !== ageOf(c.time)) out.push(["h2", { key: age = ageOf(c.time) }, age]);
    out.push(row(c, hit));
  }
  patch($("list"), out.length || !query ? out : [["p", {}, "Nothing was found."]]);
}

/* ---- the input, the model, the context */

function drawForm(chat, m) {
  const run = busy(chat), empty = !$("input").value.trim() && !attached.length, send = $("send");
  const known = m && !models.includes(m) ? [...models, m] : models;
  assign(send, { className: run ? "send stop" : "send", disabled: !run && empty, title: run ? "Stop" : "Send" }).ariaLabel = send.title;
  patch(send, [icon(run ? "stop" : "up")]);
  $("queue").hidden = !run || empty;
  patch($("files"), filesOf(attached, true));
  patch($("model"), known.map(x => ["option", { value: x.id }, nameOf(x) + (stateOf(x) ? " (" + stateOf(x) + ")" : "")]));
  if (m) $("model").value = m.id;
  drawMeter(chat, contextOf(m), $("meter"));
}
function drawMeter(chat, all, e) {
  const path = visible(chat), k = path.findLastIndex(n => n.used), rest = [...path.slice(k + 1), { text: $("input").value, files: attached }];
  const used = Math.round(rest.reduce((n, x) => n + contentOf(x).length / 4, k < 0 ? 0 : path[k].used)), share = Math.min(100, Math.round(used / all * 100));
  const title = "Context: " + number(used) + " of " + number(all) + " tokens";
  assign(e, { title, hidden: !all || !used, className: share > 95 ? "bad" : share > 80 ? "warn" : "", ariaValueMax: all, ariaValueNow: Math.min(used, all), ariaValueText: title });
  patch(e, [["progress", { max: 100, value: share, "aria-hidden": "true" }], share + "%"]);
}

/* ---- all of it */

let pending = 0, cost = 0;
function draw() {
  const start = now(), chat = current(), m = modelOf(chat), title = chat ? chat.title : "New chat";
  pending = 0;
  drawLog(chat);
  drawList();
  drawForm(chat, m);
  if (busy(chat)) speak(busy(chat).node);
  $("title").textContent = title;
  document.title = title + " - llm.h";
  $("about").textContent = m ? nameOf(m) + (contextOf(m) ? ", " + number(contextOf(m)) + " tokens of context" : "") : "";
  const focus = document.querySelector("[data-focus]");
  if (focus) {
    focus.removeAttribute("data-focus");
    focus.focus();
    focus.select();
  }
  cost = now() - start;
}
/* While an answer grows, drawing leaves most of the time to everything else. */
function changed(often) {
  if (!pending) pending = setTimeout(draw, often ? Math.max(30, cost * 5) : 0);
}

/* ---- what is said */

/* To those who do not see: whole blocks of an answer as they come, not every word. */
let spoken = null;
const say = text => $("say").append(make(["p", {}, text]));
function speak(node) {
  const tree = rendered(node), end = node.live ? tree.length - 1 : tree.length;
  if (!spoken || spoken.node !== node) {
    spoken = { node, n: 0 };
    patch($("say"), []);
  }
  for (; spoken.n < end; spoken.n++) say(textOf([tree[spoken.n]]));
  if (node.error && !node.live) say(node.error);
}
let timer = 0;
function toast(text, ...acts) {
  clearTimeout(timer);
  patch($("toast"), [["span", {}, text], ...acts, tool("untoast", "close", "Close")]);
  timer = setTimeout(() => patch($("toast"), []), 12000);
}
