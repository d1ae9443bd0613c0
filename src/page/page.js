"use strict";
const $ = id => document.getElementById(id);
const FIELDS = ["temperature", "top_p", "top_k", "max_tokens", "repetition_penalty", "seed"];
const store = {
  get(k, d) {
    try { const v = localStorage.getItem("llm." + k); return v === null ? d : JSON.parse(v); } catch (e) { return d; }
  },
  set(k, v) {
    try { localStorage.setItem("llm." + k, JSON.stringify(v)); } catch (e) { /* a full or closed store loses only history */ }
  }
};
const IDEAS = ["Explain how rainbows form", "Write a haiku about autumn", "Plan a simple dinner for two"];
let chats = store.get("chats", []), current = store.get("current", null), running = null;

function chat() { return chats.find(c => c.id === current) || null; }
function save() {
  store.set("chats", chats.slice(0, 100).map(c => ({ ...c, messages: c.messages.filter(m => !m.live) })));
  store.set("current", current);
}
function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const k in props || {}) {
    if (k === "on") for (const n in props.on) e.addEventListener(n, props.on[n]);
    else if (k === "class") e.className = props[k];
    else e.setAttribute(k, props[k]);
  }
  for (const c of children) e.append(c);
  return e;
}

function button(text, click, props) { return el("button", { type: "button", on: { click }, ...props }, text); }

/* Markdown, as nodes: text never becomes markup. */
function inline(tag, text) {
  const rule = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/, into = el(tag);
  for (let m; (m = rule.exec(text)); text = text.slice(m.index + m[0].length)) {
    into.append(text.slice(0, m.index));
    if (m[1] !== undefined) into.append(el("code", null, m[1]));
    else if (m[2] !== undefined) into.append(inline("strong", m[2]));
    else if (m[3] !== undefined) into.append(inline("em", m[3]));
    else into.append(el("a", { href: m[5], rel: "noopener noreferrer nofollow", target: "_blank" }, m[4]));
  }
  into.append(text);
  return into;
}
function codeBlock(lang, text) {
  const head = el("div", null, el("span", null, lang || "text"), button("Copy", e => copyText(text, e.target)));
  return el("div", { class: "code" }, head, el("pre", null, el("code", null, text)));
}
const ITEM = /^\s*(?:[-*+]|\d+[.)])\s+/, BLOCK = /^\s*(```|~~~|#{1,6}\s|>\s?)/;
function tableRow(tag, line) {
  return el("tr", null, ...line.trim().replace(/^\||\|$/g, "").split("|").map(s => inline(tag, s.trim())));
}
function markdown(text) {
  const out = document.createDocumentFragment(), lines = text.split("\n");
  let i = 0;
  const take = ok => { const from = i; while (i < lines.length && ok(lines[i], i - from)) i++; return lines.slice(from, i); };
  while (i < lines.length) {
    const line = lines[i];
    let m;
    if ((m = /^\s*(```+|~~~+)\s*(\S*)/.exec(line))) {
      i++;
      out.append(codeBlock(m[2], take(l => !l.trim().startsWith(m[1])).join("\n")));
      i++;
    } else if ((m = /^(#{1,6})\s+(.*)/.exec(line))) {
      out.append(inline("h" + Math.min(m[1].length + 1, 4), m[2]));
      i++;
    } else if (ITEM.test(line)) {
      const number = parseInt(line, 10), list = isNaN(number) ? el("ul") : el("ol", { start: number });
      while (i < lines.length && ITEM.test(lines[i])) {
        const item = take((l, n) => !n || (/^\s{2,}\S/.test(l) && !ITEM.test(l)));
        list.append(inline("li", item.map((l, n) => n ? l.trim() : l.replace(ITEM, "")).join(" ")));
      }
      out.append(list);
    } else if (/^>\s?/.test(line)) {
      out.append(inline("blockquote", take(l => /^>\s?/.test(l)).map(l => l.replace(/^>\s?/, "")).join("\n")));
    } else if (line.includes("|") && i + 1 < lines.length && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[i + 1])) {
      i += 2;
      out.append(el("table", null, tableRow("th", line), ...take(l => l.includes("|")).map(l => tableRow("td", l))));
    } else if (!line.trim()) i++;
    else out.append(inline("p", take((l, n) => !n || (l.trim() && !BLOCK.test(l) && !ITEM.test(l))).join("\n")));
  }
  return out;
}
function copyText(text, button) {
  const old = button.textContent;
  const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = old; }, 1200); };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
  else {
    const t = el("textarea"); t.value = text; document.body.append(t); t.select();
    try { document.execCommand("copy"); done(); } catch (e) { /* the browser refuses: nothing to do */ }
    t.remove();
  }
}

function fill(node, m) {
  node.replaceChildren();
  if (m.role === "user") { node.append(m.content); return; }
  if (m.reasoning) {
    const d = el("details", { class: "think" }, el("summary", null, "Thinking"), m.reasoning);
    d.open = !m.content;
    node.append(d);
  }
  node.append(markdown(m.content || ""));
  if (m.error) node.append(el("p", { class: "error" }, m.error));
  if (m.live && !m.content) node.append(el("div", { class: "wait" }));
}
function message(m, i) {
  const body = el("div", { class: "body" }), tools = el("div", { class: "tools" });
  const node = el("div", { class: "msg " + m.role }, body, tools);
  fill(body, m);
  if (m.live) { m.node = body; m.tools = tools; return node; }
  if (m.role === "user") tools.append(button("Edit", () => edit(node, i)));
  else {
    tools.append(button("Copy", e => copyText(m.content, e.target)));
    const again = () => { if (!running) { chat().messages.pop(); answer(); } };
    if (i === chat().messages.length - 1) tools.append(button("Regenerate", again));
    if (m.stats) tools.append(el("span", null, m.stats));
  }
  return node;
}
function edit(node, i) {
  if (running) return;
  const area = el("textarea", { rows: "4" });
  area.value = chat().messages[i].content;
  const go = () => { const text = area.value.trim(); if (text) { chat().messages.length = i; say(text); } };
  area.addEventListener("keydown", e => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) go();
    if (e.key === "Escape") draw();
  });
  const buttons = el("div", null, button("Send", go), " ", button("Cancel", draw));
  node.replaceChildren(el("div", { class: "edit" }, area, buttons));
  area.focus();
}
function welcome() {
  const ideas = IDEAS.map(text => button(text, () => say(text)));
  const head = [el("h2", null, "What can I help with?"), el("p", null, "Everything stays on this machine.")];
  return el("div", { class: "empty" }, ...head, el("div", null, ...ideas));
}
function side(on) {
  document.body.classList.toggle("side", on);
  $("menu").setAttribute("aria-expanded", String(document.body.classList.contains("side")));
}
function draw() {
  const c = chat(), log = $("log");
  $("title").textContent = c ? c.title : "New chat";
  document.title = (c ? c.title + " - " : "") + "llm.h";
  $("list").replaceChildren(...chats.map(x => {
    const a = el("a", { href: "#", on: { click: e => { e.preventDefault(); open(x.id); } } }, x.title);
    const del = button("\u00d7", () => remove(x.id), { title: "Delete " + x.title, "aria-label": "Delete " + x.title });
    return el("div", { class: "row" + (x.id === current ? " on" : "") }, a, del);
  }));
  log.replaceChildren(...(c && c.messages.length ? c.messages.map(message) : [welcome()]));
  $("system").value = c ? c.system || "" : store.get("system", "");
  log.scrollTop = log.scrollHeight;
}
function stop() { if (running) running.abort(); }
function open(id) { stop(); current = id; side(false); save(); draw(); $("input").focus(); }
function remove(id) {
  stop();
  chats = chats.filter(c => c.id !== id);
  if (current === id) current = chats.length ? chats[0].id : null;
  save();
  draw();
}

function say(text) {
  let c = chat();
  if (!c) {
    const id = Date.now() + "-" + Math.random().toString(36).slice(2);
    c = { id, title: text.replace(/\s+/g, " ").slice(0, 60), system: $("system").value, messages: [] };
    chats.unshift(c);
    current = c.id;
  }
  c.messages.push({ role: "user", content: text });
  answer();
}
function body(c) {
  const b = { model: "", stream: true, stream_options: { include_usage: true }, messages: [] };
  if (c.system) b.messages.push({ role: "system", content: c.system });
  for (const m of c.messages) if (m.content) b.messages.push({ role: m.role, content: m.content });
  for (const f of FIELDS) if ($(f).value !== "") b[f] = Number($(f).value);
  return b;
}
function setRunning(controller) {
  running = controller;
  $("send").setAttribute("aria-label", controller ? "Stop" : "Send");
  $("send").classList.toggle("stop", !!controller);
}
async function answer() {
  const c = chat(), m = { role: "assistant", content: "", live: true }, request = body(c), controller = new AbortController();
  c.messages.push(m);
  setRunning(controller);
  save();
  draw();
  const start = performance.now();
  let first = 0, tokens = 0;
  const show = () => {
    const log = $("log"), near = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    fill(m.node, m);
    const s = (performance.now() - first) / 1000;
    const speed = (tokens / s).toFixed(1), wait = ((first - start) / 1000).toFixed(2);
    m.stats = first && s > 0.05 ? tokens + " tokens, " + speed + " tokens/s, first after " + wait + " s" : "";
    m.tools.textContent = m.stats;
    if (near) log.scrollTop = log.scrollHeight;
  };
  let pending = false;
  const later = () => {
    if (!pending) requestAnimationFrame(() => { pending = false; if (m.live) show(); });
    pending = true;
  };
  try {
    const headers = { "Content-Type": "application/json" };
    if ($("key").value) headers.Authorization = "Bearer " + $("key").value;
    const how = { method: "POST", headers, body: JSON.stringify(request), signal: controller.signal };
    const r = await fetch("v1/chat/completions", how);
    if (!r.ok) {
      const e = await r.json().catch(() => null);
      throw new Error(e && e.error ? e.error.message : "HTTP " + r.status);
    }
    const reader = r.body.getReader(), decoder = new TextDecoder();
    for (let buffer = "", part; !(part = await reader.read()).done;) {
      buffer += decoder.decode(part.value, { stream: true });
      for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
        const event = buffer.slice(0, end);
        if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
        const data = JSON.parse(event.slice(6));
        if (data.error) throw new Error(data.error.message);
        if (data.usage) tokens = data.usage.completion_tokens;
        const delta = data.choices.length ? data.choices[0].delta : null;
        if (!delta || delta.role) continue;
        if (!first && (delta.content || delta.reasoning_content)) first = performance.now();
        if (delta.reasoning_content) m.reasoning = (m.reasoning || "") + delta.reasoning_content;
        if (delta.content) m.content += delta.content;
        if (!data.usage) tokens++;
        later();
      }
    }
    show();
  } catch (e) {
    if (e.name !== "AbortError") m.error = e.message || "The server is gone.";
  }
  delete m.live; delete m.node; delete m.tools;
  setRunning(null);
  save();
  if (chat() === c) draw();
  $("input").focus();
}

function grow() { const t = $("input"); t.style.height = "auto"; t.style.height = t.scrollHeight + "px"; }
$("form").addEventListener("submit", e => {
  e.preventDefault();
  if (running) { stop(); return; }
  const text = $("input").value.trim();
  if (!text) return;
  $("input").value = "";
  grow();
  say(text);
});
$("input").addEventListener("input", grow);
$("input").addEventListener("keydown", e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $("form").requestSubmit();
});
document.addEventListener("keydown", e => {
  if (e.key === "Escape" && running) stop();
  if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === "o") { e.preventDefault(); open(null); }
});
$("new").addEventListener("click", () => open(null));
$("menu").addEventListener("click", e => { e.stopPropagation(); side(); });
document.querySelector("main").addEventListener("click", () => side(false));
$("tune").addEventListener("click", () => {
  $("settings").hidden = !$("settings").hidden;
  $("tune").setAttribute("aria-expanded", String(!$("settings").hidden));
});
$("system").addEventListener("change", () => {
  const c = chat(), text = $("system").value;
  if (c) c.system = text;
  else store.set("system", text);
  save();
});
for (const f of FIELDS) { $(f).value = store.get(f, ""); $(f).addEventListener("change", () => store.set(f, $(f).value)); }
function theme(t) { document.documentElement.dataset.theme = t; store.set("theme", t); }
theme(store.get("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
fetch("v1/models").then(r => r.json()).then(d => {
  const m = d.data[0];
  $("model").textContent = m.id.replace(/.*\//, "").replace(/\.gguf$/, "") + " \u00b7 " + m.max_model_len + " tokens";
}).catch(() => {});
if (current && !chat()) current = null;
draw();
