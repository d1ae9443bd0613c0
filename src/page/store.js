/* store: What the browser keeps.
 *
 *   store.get(name, otherwise = ""), store.set(name, value)   settings, in localStorage
 *   session              the same of this tab
 *   chats                all conversations by their id
 *   save(chat)           writes one. Each is a record of its own in IndexedDB; what another tab has written to it is merged first
 *   openStore(hear)      reads all; hear(message) is called when another tab says something
 *   tell(message)        says something to the other tabs
 *
 * A conversation is { id, title, system, model, leaf, from, time, rev, nodes }: messages by their id, a tree through `up`, so that another
 * answer or an edited question is a branch. What is shown is the path to `leaf`; the model gets it from `from` on. A message is
 * { id, up, role, text, think, files, rev, ... }, a file { name, text } or { name, text: "", url } with a picture. Whatever changes gets a new `rev`: of two versions of a message, or of the conversation's
 * own fields, the later one holds. Nothing is taken out of a record, so that nothing comes back: `gone` marks what was deleted. */
/* Where a browser forbids to keep anything, it holds until the page goes. */
const kept = area => {
  const own = {};
  return {
    get(k, otherwise = "") {
      try {
        const v = window[area].getItem("llm." + k);
        return v === null ? otherwise : JSON.parse(v);
      } catch (e) {
        return own[k] ?? otherwise;
      }
    },
    set(k, v) {
      own[k] = v;
      try {
        window[area].setItem("llm." + k, JSON.stringify(v));
      } catch (e) { /* own has it */ }
    }
  };
};
const store = kept("localStorage"), session = kept("sessionStorage");
const fields = (texts, numbers) => Object.fromEntries([...texts.split(" ").map(k => [k, ""]), ...numbers.split(" ").map(k => [k, 0])]);
const CHAT = fields("title system model leaf from", "gone rev"), NODE = fields("id up role text think end error more act model stats", "rev live queued gone used thought");
let chats = new Map(), disk = null, channel = null;

/* A change is later than all that are known, though the clock may have gone back. Ids begin with a time in eight digits of base 36 and are
 * sorted: what is larger is none. */
let stamped = 0;
const stamp = () => (stamped = Math.max(stamped + 1, Date.now()));
const sane = n => Number.isInteger(n) && n < 36 ** 8;
const seen = rev => { if (sane(rev)) stamped = Math.max(stamped, rev); };
const newId = () => stamp().toString(36) + Math.random().toString(36).slice(2, 8);
function newChat(system, title, model) {
  const chat = { ...CHAT, id: newId(), system, title, model, time: Date.now(), rev: stamp(), nodes: {} };
  chats.set(chat.id, chat);
  return chat;
}
const addNode = (chat, node) => (chat.nodes[node.id = newId()] = { ...NODE, files: [], ...node, rev: stamp() });

/* A message; no name that every object has is one. */
const nodeOf = (chat, id) => Object.hasOwn(chat.nodes, id) ? chat.nodes[id] : undefined;
/* What `b` knows better comes into `a`, whose objects stay the same. */
function merge(a, b) {
  for (const id in b.nodes) {
    if (!nodeOf(a, id)) a.nodes[id] = b.nodes[id];
    else if (a.nodes[id].rev < b.nodes[id].rev) assign(a.nodes[id], b.nodes[id]);
    seen(b.nodes[id].rev);
  }
  seen(b.rev);
  if (a.rev < b.rev) for (const k in CHAT) a[k] = b[k];
  a.time = Math.max(a.time, b.time);
}
/* The conversation that `b`, read from somewhere, is from now on. */
function adopt(b) {
  if (!chats.has(b.id)) chats.set(b.id, b);
  merge(chats.get(b.id), b);
  return chats.get(b.id);
}

const tell = message => channel?.postMessage(message);
const access = (mode, work) => new Promise((done, failed) => {
  const t = disk.transaction("chats", mode);
  t.oncomplete = done;
  t.onabort = () => failed(t.error);
  work(t.objectStore("chats"));
});
async function save(chat) {
  if (disk) {
    await access("readwrite", all => {
      all.get(chat.id).onsuccess = e => {
        if (e.target.result) merge(chat, e.target.result);
        all.put(chat);
      };
    });
  }
  tell({ wrote: chat.id });
}
/* A conversation as it is in the store now. */
const reread = id => disk && access("readonly", all => {
  all.get(id).onsuccess = e => e.target.result && adopt(e.target.result);
});
async function openStore(hear) {
  if (window.BroadcastChannel) {
    channel = new BroadcastChannel("llm");
    channel.onmessage = e => hear(e.data);
  }
  await new Promise(done => {
    const r = indexedDB.open("llm", 1);
    r.onupgradeneeded = () => r.result.createObjectStore("chats", { keyPath: "id" });
    r.onsuccess = () => done(disk = r.result);
    r.onerror = done;
  }).catch(() => {});
  if (!disk) return;
  await access("readwrite", all => {
    all.getAll().onsuccess = e => {
      for (const c of e.target.result) if (c.gone && c.gone < Date.now() - 60000) all.delete(c.id);
        else adopt(c);
    };
  });
}

/* ---- the tree of a conversation */

/* Messages from the first one to `id`. */
function pathTo(chat, id) {
  const path = new Set();
  for (let n = nodeOf(chat, id); n && !path.has(n); n = nodeOf(chat, n.up)) path.add(n);
  return [...path].reverse();
}
const childrenOf = (chat, up) => Object.values(chat.nodes).filter(n => n.up === up && !n.queued && !n.gone).sort((a, b) => a.id < b.id ? -1 : 1);
/* The end of the branch that goes on latest from `id`. */
function endOf(chat, id) {
  for (let kids; (kids = childrenOf(chat, id)).length;) id = last(kids).id;
  return id;
}

const PICTURE = /^data:image\/\w+;base64,[\w+/=]+$/;
/* What a file says is a list of conversations: only what has the right form is taken. */
function imported(text) {
  const take = (x, form) => {
    const out = {};
    for (const k in form) out[k] = typeof x[k] === typeof form[k] && (isText(x[k]) || sane(x[k])) ? x[k] : form[k];
    return out;
  };
  const isId = x => isText(x) && /^[^\W_][\w-]{0,63}$/.test(x);
  const data = JSON.parse(text), list = Array.isArray(data) ? data : data.chats;
  return list.filter(c => c && isId(c.id) && c.nodes && !c.gone).map(c => {
    const nodes = {};
    for (const n of Object.values(c.nodes)) {
      if (!n || !isId(n.id) || !/^(?:user|assistant)$/.test(n.role)) continue;
      const files = Array.isArray(n.files) ? n.files.filter(f => f && isText(f.name) && isText(f.text)) : [];
      nodes[n.id] = { ...take(n, NODE), live: 0, files: files.map(f => ({ ...take(f, { name: "", text: "" }), url: PICTURE.exec(f.url)?.[0] })) };
    }
    for (const id in nodes) pathTo({ nodes }, id)[0].up = ""; /* whatever ring there was */
    return { ...take(c, CHAT), id: c.id, time: Number(c.time) || Date.now(), nodes };
  });
}
