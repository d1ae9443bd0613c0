/* talk: Questions to the server, and answers as they arrive.
 *
 *   models             of /v1/models; loadModels() asks for them
 *   settings           { temperature: "0.7", ... } as typed; "" is the default. FIELDS says what numbers there are
 *   run(chat, node)    lets the model write the message `node`, or go on with it
 *   runs               where an answer is being written in this tab: id of the conversation -> { node, stop(), status } */
const FIELDS = [ /* name, least, most, step, default where the model has none */
  ["temperature", 0, 2, .1, ""], ["top_k", -1, "", 1, ""], ["top_p", 0, 1, .05, ""], ["min_p", 0, 1, .01, ""], ["max_tokens", 1, "", 1, "no limit"],
  ["min_tokens", 0, "", 1, 0], ["repetition_penalty", 0, 2, .05, 1], ["presence_penalty", -2, 2, .1, 0], ["frequency_penalty", -2, 2, .1, 0],
  ["seed", "", "", 1, "random"]
];
const TEXT_FIELDS = ["stop", "thinking", "extra"];
const LOADING = "The model is loading\u2026";
let models = [], waiting = "", retry = 0, settings = store.get("settings", {});
const runs = new Map();

/* The model of a conversation, though the server may not have it any more; of a new one, the one that was chosen last. */
const modelOf = chat => chat?.model ? models.find(m => m.id === chat.model) || { id: chat.model, state: "not here" }
  : models.find(m => m.id === store.get("model")) || models[0];
const stateOf = m => m.state && m.state !== "loaded" ? m.state : "";
const capital = s => s.slice(0, 1).toUpperCase() + s.slice(1);
const nameOf = m => m.id.replace(/.*\//, "").replace(/\.gguf$/, "");
/* What a conversation takes where nothing is set: the model's own values, or those of the server for conversations. */
const defaultsOf = m => m?.default_sampling_params || {};
const contextOf = m => m?.max_model_len || 0;

const key = () => store.get("key") || session.get("key");
const headers = () => ({ "Content-Type": "application/json", ...(key() && { Authorization: "Bearer " + key() }) });

/* What a status means, in words, and what helps. */
const REASONS = {
  401: ["This server asks for an API key.", "settings"], 404: ["This model is not here any more."], 429: ["The server is busy."],
  503: ["The server is shutting down."], 500: ["The server could not do it."]
};
/* A refused request as an Error; told: { error, more: what the server says, act }. */
function refused(status, { message = "HTTP " + status, code } = {}) {
  const [error, act = ""] = code === "context_length_exceeded" ? ["This is longer than the model can read.", "shorten"] : REASONS[status] || ["The server refused this."];
  return assign(new Error(message), { told: { error, more: act === "settings" ? "" : capital(message), act } });
}

async function loadModels() {
  try {
    const r = await fetch("v1/models", { headers: headers() });
    waiting = r.ok ? "" : { 401: "key", 503: LOADING }[r.status] || "HTTP " + r.status;
    if (r.ok) models = (await r.json()).data;
  } catch (e) {
    waiting = "The server does not answer\u2026";
  }
  clearTimeout(retry);
  if ((waiting && waiting !== "key") || models.some(m => stateOf(m) === "loading")) retry = setTimeout(loadModels, 1500);
  changed();
}

/* The text of a message, that of its files before it. */
function contentOf(node) {
  const file = f => {
    const fence = "`".repeat(Math.max(3, ...(f.text.match(/`+/g) || []).map(x => x.length + 1)));
    return f.name + ":\n" + fence + "\n" + f.text.replace(/\n$/, "") + "\n" + fence;
  };
  return [...node.files.filter(f => !f.url).map(file), node.text].filter(x => x).join("\n\n");
}
/* A message as the model gets it: its text, or with pictures a list of parts. */
function partsOf(node) {
  const text = contentOf(node), pictures = node.files.filter(f => f.url).map(f => ({ type: "image_url", image_url: { url: f.url } }));
  return pictures.length ? [...pictures, ...(text ? [{ type: "text", text }] : [])] : text;
}
/* What is sent for the answer `node`: the messages before it, from where the conversation is still sent. */
function requestOf(chat, node) {
  const path = pathTo(chat, node.up), from = path.findIndex(n => n.id === chat.from), m = modelOf(chat);
  const b = { model: m ? m.id : "", stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, messages: [] };
  if (chat.system) b.messages.push({ role: "system", content: chat.system });
  for (const n of path.slice(Math.max(from, 0))) if (partsOf(n)) b.messages.push({ role: n.role, content: partsOf(n) });
  if (node.text) {
    b.messages.push({ role: "assistant", content: node.text });
    assign(b, { add_generation_prompt: false, continue_final_message: true });
  }
  for (const [name] of FIELDS) {
    const value = settings[name] || defaultsOf(m)[name];
    if (value !== undefined) b[name] = Number(value);
  }
  const stop = (settings.stop || "").split("\n").filter(x => x);
  if (stop.length) b.stop = stop;
  if (settings.thinking) b.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  if (settings.extra) {
    try {
      assign(b, JSON.parse(settings.extra));
    } catch (e) {
      throw new Error("More fields of the request must be JSON: " + e.message);
    }
  }
  return b;
}

/* The data of a stream's events, one after the other. */
async function* eventsOf(r) {
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let buffer = "", part; !(part = await reader.read()).done;) {
    const lines = (buffer + part.value).split("\n");
    buffer = lines.pop();
    for (const line of lines) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
  }
}

async function run(chat, node) {
  const control = new AbortController(), start = now(), had = node.text, m = modelOf(chat);
  const me = { status: models.includes(m) && stateOf(m) ? LOADING : "", node, stop: () => control.abort() };
  let first = 0, tokens = 0, saved = 0;
  const take = data => {
    const usage = data.usage, choice = data.choices?.[0] || {}, { content = "", reasoning_content = "" } = choice.delta || {};
    if (data.error) throw refused(500, data.error);
    if (usage) node.used = usage.total_tokens;
    node.end = choice.finish_reason || node.end;
    if (!content && !reasoning_content) return;
    first = first || now();
    const s = (now() - first) / 1000;
    tokens = usage ? usage.completion_tokens : tokens + 1;
    if (!node.text) node.thought = Math.ceil(s);
    node.think += reasoning_content;
    node.text += content;
    node.stats = tokens + (tokens === 1 ? " token" : " tokens") + " \u00b7 " + (s > .05 ? (tokens / s).toFixed(1) + " tokens/s \u00b7 " : "") + "first after " + ((first - start) / 1000).toFixed(2) + " s";
  };
  assign(node, { live: 1, error: "", more: "", act: "", end: "", model: m ? nameOf(m) : "" });
  runs.set(chat.id, me);
  amend(chat, {}, node);
  try {
    const body = JSON.stringify(requestOf(chat, node));
    const post = () => fetch("v1/chat/completions", { method: "POST", headers: headers(), body, signal: control.signal });
    let r = await post();
    for (; !r.ok; r = await post()) {
      const no = refused(r.status, (await r.json().catch(() => null))?.error);
      if (r.status !== 503 || !/loading/i.test(no.message)) throw no;
      me.status = LOADING;
      changed();
      await new Promise(done => setTimeout(done, 1000));
      control.signal.throwIfAborted();
    }
    me.status = "";
    for await (const data of eventsOf(r)) {
      take(data);
      node.rev = stamp();
      changed(true);
      if (now() - saved > 500) {
        saved = now();
        keep(chat);
      }
    }
    if (!node.end) throw new TypeError();
  } catch (e) {
    const lost = node.text === had ? "The server cannot be reached. Is llm_serve still running?" : "The connection was lost.";
    node.end = control.signal.aborted ? "abort" : "error";
    if (node.end === "error") assign(node, { error: e instanceof TypeError ? lost : e.message }, e.told);
    control.abort();
  }
  runs.delete(chat.id);
  amend(chat, { live: 0 }, node);
  if (chat === current()) speak(node);
  loadModels(); /* this one may have been loaded, and another one may have made room */
}
