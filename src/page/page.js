/* page: What the person does. */
const drafts = new Map(); /* what was typed in each conversation */

/* ---- conversations */

const keep = chat => save(chat).catch(e => toast("This could not be saved: " + e.message));
/* Changes a conversation, or one of its messages. */
function amend(chat, props, node = chat) {
  assign(node, props, { rev: stamp() });
  keep(chat);
  changed();
}
/* Where the window is narrow, the list lies above all else. */
function side(wanted) {
  const on = body.classList.toggle("side", wanted);
  $("menu").ariaExpanded = on;
  $("main").inert = on && innerWidth < 861;
}
const focusInput = () => matchMedia("(hover: hover)").matches && $("input").focus(); /* on a phone the keyboard would come up */
function grow() {
  const t = $("input");
  if (!CSS.supports("field-sizing", "content")) {
    t.style.height = "auto";
    t.style.height = t.scrollHeight + "px";
  }
  drawForm(current(), modelOf(current())); /* no more: who types in a long conversation does not wait for it */
}
function setInput(text, files) {
  $("input").value = text;
  attached = files;
  grow();
  changed();
}
/* Shows the conversation `here`. */
function arrive() {
  editing = naming = "";
  follow = true;
  side(false);
  setInput(...(drafts.get(here) || ["", []]));
  arrived = Date.now();
  fillSettings();
  focusInput();
}
const keepDraft = () => drafts.set(here, [$("input").value, attached]);
function go(id) {
  keepDraft();
  history.pushState(null, "", id ? "#" + id : location.pathname);
  here = id;
  arrive();
}
/* Another tab says that it writes in a conversation, or that it has changed one. */
async function hear({ live, wrote }) {
  if (live) elsewhere.set(live, Date.now());
  if (wrote) await reread(wrote);
  const chat = chats.get(wrote);
  if (chat?.gone) {
    busy(chat)?.stop();
    if (chat === current()) go("");
  }
  changed();
}
setInterval(() => {
  for (const id of runs.keys()) tell({ live: id });
  if (current() && newest(current()).live) changed();
}, 1000);

/* ---- questions */

/* What is typed is asked, or queued while an answer is being written. */
function submit() {
  const text = $("input").value.trim(), files = attached;
  if (text || files.length) {
    setInput("", []);
    question(text, files);
  }
}
/* The first words of a text. */
function titleOf(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length < 61 ? line : line.slice(0, 60).replace(/\s\S{0,20}$/, "") + "\u2026";
}
function question(text, files) {
  let chat = current();
  if (!chat) {
    chat = newChat(store.get("system"), titleOf(text || files[0].name), $("model").value);
    drafts.delete("");
    here = chat.id;
    history.pushState(null, "", "#" + here);
  }
  chat.time = Date.now();
  if (busy(chat) || writing(chat, newest(chat))) amend(chat, {}, addNode(chat, { role: "user", text, files, queued: chat.time, up: writing(chat, newest(chat)) ? "" : chat.leaf }));
  else answer(chat, addNode(chat, { role: "user", text, files, up: chat.leaf }).id);
}
/* Another answer to the message `up`. */
async function answer(chat, up) {
  const node = addNode(chat, { role: "assistant", up });
  follow = true;
  amend(chat, { leaf: node.id });
  await write(chat, node);
}
async function write(chat, node) {
  await run(chat, node);
  const next = queuedOf(chat)[0];
  if (next && !/^(?:error|abort)$/.test(node.end)) sendQueued(chat, next, next.up || node.id);
}
function sendQueued(chat, node, up) {
  amend(chat, { queued: 0, up }, node);
  answer(chat, node.id);
}
function remove(list) {
  for (const c of list) {
    busy(c)?.stop();
    amend(c, { gone: Date.now() });
  }
  if (list.includes(current())) go("");
  DO.undo = () => {
    for (const c of list) amend(c, { gone: 0 });
    DO.untoast();
  };
  toast("Deleted: " + (list.length > 1 ? list.length + " conversations" : list[0].title), act("undo", "Undo"));
}

/* ---- files */

async function plainText(file) {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  if (text.includes("\0")) throw new Error();
  return { name: file.name, text };
}
/* Drawn anew, since the browser keeps it and sends it often: as a JPEG of 1,600 pixels at most, or without loss where it came so and is small. */
async function picture(file) {
  const p = await createImageBitmap(file), share = Math.min(1, 1600 / Math.max(p.width, p.height)), width = Math.ceil(p.width * share), height = Math.ceil(p.height * share);
  const canvas = make(["canvas", { width, height }]), pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, width, height);
  pen.drawImage(p, 0, 0, width, height);
  return { name: file.name, text: "", url: canvas.toDataURL(file.size < 5e5 && /png|gif|bmp/.test(file.type) ? "image/png" : "image/jpeg") };
}
async function attach(list) {
  for (const f of list) {
    const seen = /^image\/(?!svg)/.test(f.type), blind = modelOf(current())?.modalities?.vision === false;
    let no = seen ? blind && " is a picture: this model reads text only." : f.size > 4e6 && " is larger than 4 MB.";
    try {
      const file = !no && await (seen ? picture : plainText)(f);
      if (file) attached = [...attached, file];
    } catch (e) {
      no = seen ? " is no picture that can be read." : " is not a text in UTF-8.";
    }
    if (no) toast(f.name + no);
  }
  changed();
  focusInput();
}
function download(name, text) {
  const a = make(["a", { href: URL.createObjectURL(new Blob([text])), download: name }]);
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 9999);
}
const fileName = ending => current().title.replace(/[^\p{L}\p{N}]+/gu, "-") + ending;
const exported = list => JSON.stringify({ format: "llm.h", chats: list }, null, 1);
const section = n => "## " + (n.role === "user" ? "You" : "Answer") + "\n\n" + contentOf(n) + "\n";
async function load(file) {
  try {
    const list = imported(await file.text());
    for (const c of list) amend(adopt(c), { gone: 0 });
    toast(list.length + " imported.");
  } catch (e) {
    toast("This file holds no conversations. " + e.message);
  }
}

/* ---- what a click does: DO[what](the element) */

/* One answer at a time: what asks for another one does nothing while one is being written. */
const alone = work => e => { if (!busy(current())) work(e); };
const idAt = e => e.closest("[data-id]").dataset.id, nodeAt = e => current().nodes[idAt(e)], chatAt = e => chats.get(idAt(e));
function copy(e, text) {
  copyText(text, () => {
    const kids = e.tree.slice(2);
    patch(e, isText(kids[0]) ? ["Copied"] : [icon("check")]);
    setTimeout(() => patch(e, kids), 1500);
    say("Copied");
  });
}
assign(DO, {
  skip: () => $("input").focus(),
  side: () => {
    side();
    $(body.classList.contains("side") ? "unside" : "menu").focus();
  },
  newChat: () => go(""),
  jump: () => { follow = true; },
  idea: e => question(e.textContent, []),
  attach: () => $("pick").click(),
  detach: e => { attached = attached.filter((f, i) => i !== Number(e.dataset.at)); },
  newLine: () => {
    const t = $("input");
    t.setRangeText("\n", t.selectionStart, t.selectionEnd, "end");
    t.focus();
    grow();
  },
  queue: submit,
  untoast: () => patch($("toast"), []),
  copyCode: e => copy(e, e.closest(".code").querySelector("code").textContent),
  copy: e => copy(e, contentOf(nodeAt(e))),
  edit: e => { editing = nodeAt(e).id; },
  cancelEdit: () => { editing = ""; },
  sendEdit: alone(e => {
    const { files, up } = nodeAt(e), text = e.closest(".edit").querySelector("textarea").value.trim();
    editing = "";
    if (text) answer(current(), addNode(current(), { role: "user", text, files, up }).id);
  }),
  again: alone(e => answer(current(), nodeAt(e).up)),
  goOn: alone(e => write(current(), nodeAt(e))),
  shorten: alone(e => {
    amend(current(), { from: laterStart(current(), nodeAt(e)).id });
    write(current(), nodeAt(e));
  }),
  sendAll: () => amend(current(), { from: "" }),
  branch: e => {
    follow = false;
    amend(current(), { leaf: endOf(current(), e.dataset.to) });
  },
  sendQueued: alone(e => sendQueued(current(), nodeAt(e), current().leaf)),
  dropQueued: e => amend(current(), { gone: 1 }, nodeAt(e)),
  unqueue: e => {
    const node = nodeAt(e), typed = $("input").value;
    DO.dropQueued(e);
    setInput(node.text + (typed && "\n" + typed), [...node.files, ...attached]);
    $("input").focus();
  },
  rename: e => { naming = chatAt(e).id; },
  remove: e => remove([chatAt(e)]),
  removeAll: () => remove(alive()),
  exportText: () => download(fileName(".md"), "# " + current().title + "\n\n" + visible(current()).map(section).join("\n")),
  exportOne: () => download(fileName(".json"), exported([current()])),
  exportAll: () => download("llm-chats.json", exported(alive())),
  import: () => $("load").click()
});

/* ---- events */

const on = (target, name, react) => target.addEventListener(name, react);
on(document, "click", e => {
  const b = e.target.closest("[data-do]"), a = e.target.closest("#list a");
  if (b) {
    e.preventDefault(); /* it sends no form */
    DO[b.dataset.do](b);
    if (editing || naming) draw(); /* what is typed next goes there */
    else changed();
  } else if (a && !e.ctrlKey && !e.metaKey && !e.shiftKey) {
    e.preventDefault();
    go(a.hash.slice(1));
  } else if (!e.target.closest("#side")) side(false);
});
on($("form"), "submit", e => {
  e.preventDefault();
  if (busy(current())) busy(current()).stop();
  else submit();
});
on($("input"), "input", grow);
on($("input"), "paste", e => {
  if (e.clipboardData.files.length) e.preventDefault();
  attach([...e.clipboardData.files]);
});
on(document, "keydown", e => {
  if (e.isComposing || e.keyCode === 229) return; /* an input method's; Safari says of the Enter that ends its word the number only */
  const t = e.target, command = e.ctrlKey || e.metaKey, enter = e.key === "Enter", inside = place => t.closest(place);
  const mine = e.key === "ArrowUp" && t.id === "input" && !t.value && [...document.querySelectorAll(".msg [data-do=edit]")].pop();
  if (e.key === "Escape") {
    if (inside(".edit, .item")) editing = naming = "";
    else if ($("settings").open) DO.tune();
    else if (body.classList.contains("side")) DO.side();
    else if (busy(current())) busy(current()).stop();
  } else if (command && e.shiftKey && e.key === "O") go("");
  else if (command && e.key === "k") {
    side(true);
    $("search").focus();
  } else if (command && e.key === ",") DO.tune();
  else if (enter && inside(".item input")) t.blur();
  else if (enter && command && inside(".edit")) DO.sendEdit(t);
  else if (enter && t.id === "input" && (store.get("enter") ? command : !e.shiftKey)) submit();
  else if (mine) DO.edit(mine);
  else return;
  e.preventDefault();
  changed();
});
on(document, "focusout", e => {
  const title = naming && e.target.closest(".item input") && e.target.value.trim();
  if (title) amend(chatAt(e.target), { title });
  naming = title ? "" : naming;
});
on($("search"), "input", e => {
  query = e.target.value.trim();
  changed();
});
on($("settings"), "change", e => setting(e.target.id, e.target.value));
on($("model"), "focus", loadModels);
on($("model"), "change", e => {
  store.set("model", e.target.value);
  if (current()) amend(current(), { model: e.target.value });
  changed();
  fillSettings();
});
on($("log"), "scroll", () => {
  const log = $("log");
  $("jump").hidden = follow = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
});
for (const [id, take] of [["pick", attach], ["load", ([file]) => load(file)]]) {
  on($(id), "change", e => {
    take([...e.target.files]);
    e.target.value = "";
  });
}
for (const name of ["dragover", "dragleave", "drop"]) {
  on(document, name, e => {
    if (!e.dataTransfer.types.includes("Files")) return;
    e.preventDefault();
    body.classList.toggle("drop", name === "dragover");
    if (name === "drop") attach([...e.dataTransfer.files]);
  });
}
on(window, "pagehide", () => session.set("draft", $("input").value));
on(window, "popstate", () => {
  keepDraft();
  here = location.hash.slice(1);
  arrive();
});
on(window, "storage", () => {
  settings = store.get("settings", {});
  applySettings();
});

for (const e of document.querySelectorAll("[data-icon]")) {
  e.prepend(make(icon(e.dataset.icon)));
  e.title = e.ariaLabel || "";
}
applySettings();
openStore(hear).catch(() => {}).then(() => {
  if (!disk) toast("This browser keeps nothing: conversations are lost when the page is closed.");
  if (!current() || current().gone) here = "";
  drafts.set(here, [session.get("draft"), []]);
  arrive();
  loadModels();
});
