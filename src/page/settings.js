/* settings: The panel in which everything is set.
 *
 *   fillSettings()        draws it with what holds now
 *   setting(id, value)    somebody has changed one */
const PRESETS = { Default: {}, Precise: { temperature: "0.2" }, Creative: { temperature: "1.1" }, "Always the same": { temperature: "0" } };
const ownPresets = () => store.get("presets", {});

const field = (id, label, props, wide) => ["label", wide ? { class: "wide" } : {}, label, [props.rows ? "textarea" : "input", { id, ...props }]];
const choice = (id, label, options) => ["label", {}, label, ["select", { id }, ...Object.entries(options).map(([value, text]) => ["option", { value }, text])]];
const group = (title, ...kids) => ["fieldset", {}, ["legend", {}, title], ...kids];

function fillSettings() {
  const chat = current(), m = modelOf(chat), own = Object.keys(ownPresets()), acts = (...list) => shown("div", "acts", ...list);
  const names = Object.fromEntries(["", ...Object.keys(PRESETS), ...own].map(x => [x, x || "Choose\u2026"]));
  const numbers = FIELDS.map(([id, min, max, step, usual]) =>
    field(id, capital(id).replace(/_/g, " "), { type: "number", min, max, step, placeholder: defaultsOf(m)[id] ?? usual }));
  patch($("settings"), [
    shown("div", "bar", ["h2", {}, "Settings"], tool("tune", "close", "Close the settings")),
    group("Preset", choice("preset", "Use", names), field("presetName", "Save what is set as", { placeholder: "Name" }),
      acts(act("savePreset", "Save"), ...own.map(name => act("dropPreset", "Delete " + name, { "data-name": name })))),
    group("Conversation", field("system", "System prompt", { rows: "3", placeholder: "How should the model behave?" }, true)),
    group("Sampling", ...numbers, choice("thinking", "Thinking", { "": "default", on: "on", off: "off" }),
      field("stop", "Stop texts, one a line", { rows: "2" }, true),
      field("extra", "More fields of the request", { rows: "2", placeholder: "{\"ignore_eos\": true}" }, true)),
    group("This browser", choice("theme", "Theme", { "": "system", light: "light", dark: "dark" }),
      choice("enter", "Enter key", { "": "sends", line: "starts a line" }),
      field("key", "API key", { type: "password", autocomplete: "off", placeholder: "if the server asks" }),
      shown("label", "check", ["input", { id: "keep", type: "checkbox" }], "Remember the key")),
    group("Conversations", acts(...(chat ? [act("exportText", "Export as Markdown"), act("exportOne", "Export as JSON")] : []),
      act("exportAll", "Export all"), act("import", "Import"), act("removeAll", "Delete all"))),
    ["p", {}, "Keys: Ctrl+Shift+O new chat, Ctrl+K search, Ctrl+, settings, Up edits the last message."]
  ]);
  for (const id of [...FIELDS.map(f => f[0]), ...TEXT_FIELDS]) $(id).value = settings[id] || "";
  for (const id of ["theme", "enter", "system"]) $(id).value = store.get(id);
  if (chat) $("system").value = chat.system;
  $("key").value = key();
  $("keep").checked = !!store.get("key");
}

function setting(id, value) {
  if (id === "system" && current()) amend(current(), { system: value });
  else if (/^(?:system|theme|enter)$/.test(id)) store.set(id, value);
  else if (/^ke/.test(id)) {
    session.set("key", $("key").value);
    store.set("key", $("keep").checked ? $("key").value : "");
    loadModels();
  } else if (id === "preset") {
    const { system, ...rest } = { ...PRESETS, ...ownPresets() }[value] || settings;
    store.set("settings", settings = rest);
    if (system) setting("system", system);
    fillSettings();
    $("preset").value = value;
  } else if (id !== "presetName") store.set("settings", assign(settings, { [id]: value }));
  applySettings();
}
function applySettings() {
  document.documentElement.style.colorScheme = store.get("theme"); /* "" leaves it to the system */
  $("input").enterKeyHint = store.get("enter") ? "enter" : "send";
}

assign(DO, {
  tune: () => {
    const d = $("settings"), on = !d.open;
    if (on) fillSettings();
    if (!on) d.close();
    else if (innerWidth < 1100) d.showModal();
    else d.show();
    $("tune").ariaExpanded = on;
    if (!on) $("tune").focus();
  },
  savePreset: () => {
    const name = $("presetName").value.trim();
    if (!name) return $("presetName").focus();
    store.set("presets", { ...ownPresets(), [name]: { ...settings, system: $("system").value } });
    $("presetName").value = "";
    fillSettings();
    $("preset").value = name;
  },
  dropPreset: e => {
    const { [e.dataset.name]: dropped, ...rest } = ownPresets();
    store.set("presets", rest);
    fillSettings();
  }
});
