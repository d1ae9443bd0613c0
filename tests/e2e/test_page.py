#!/usr/bin/env python3
"""The chat page in headless Chromium.

    test_page.py [PART ...]                        parts are the functions named in PARTS; screenshots go to build/page
    test_page.py hostile --seed 100 --texts 500    a campaign of random answers that are written to hurt

Runs in the environment that `setup.py clients` makes, with the system's Chromium. The parts of WITH_MODELS talk to llm_serve and a model; in the others
page_server.py says what a test wants, when it wants it.
"""
import argparse
import base64
import contextlib
import json
import pathlib
import random
import re
import shutil
import sys
import threading
import time

from playwright.sync_api import sync_playwright

import adapters
from page_server import CSP, MODEL, PageServer, refusal, words
from serving import SLOW, Server, check, checkpoint, finish

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path("build/page")
SIZES = {"desktop": (1280, 800), "tablet": (820, 1180), "phone": (390, 844)}
EVIL = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script> [a](javascript:window.hit=1) <b>bold</b> `<i>code</i>` **<u>x</u>**"
ATTACKS = ["[a](javascript:window.hit=1)", "[a](JaVaScRiPt:window.hit=1)", "[a](&#106;avascript:window.hit=1)", "[a](java\tscript:window.hit=1)", "<javascript:window.hit=1>", "[a]: javascript:window.hit=1\n\n[a]",
           "![x](javascript:window.hit=1)", "![x](https://evil.example/x.png)", "[a](data:text/html,<script>window.hit=1</script>)", "[a](https://a.b/\"onclick=\"window.hit=1)", "https://a.b/\"onmouseover=\"window.hit=1",
           "```\"><img src=x onerror=window.hit=1>\nx\n```", "$\\text{<img src=x onerror=window.hit=1>}$", "$\\href{javascript:window.hit=1}{x}$", "| <svg onload=window.hit=1> |\n|---|", "[a](/v1/models)", "[a](//evil.example)",
           "<https://a.b/\" style=\"position:fixed>", "<svg><script>window.hit=1</script></svg>", "<math><mtext><style><img src=x onerror=window.hit=1></style></mtext></math>"]
RICH = (pathlib.Path(__file__).parent / "page_rich.md").read_text()


# ---- a person at the page

class Person:
    """A tab, with what a test does in it."""

    def __init__(self, context, url):
        self.context, self.url, self.errors, self.outside = context, url, [], []
        self.page = context.new_page()
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" and "status of" not in m.text and "ERR_" not in m.text else None)
        self.page.on("request", lambda r: self.outside.append(r.url) if not r.url.startswith((url, "data:", "blob:")) else None)
        self.page.goto(url)
        self.page.wait_for_selector("#list", state="attached")
        self.page.wait_for_function("() => document.activeElement.id === 'input' || innerWidth < 500 || matchMedia('(hover: none)').matches")

    def __getattr__(self, name): return getattr(self.page, name)

    def ask(self, text, wait=True):
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")
        if wait: self.settled()

    def settled(self):
        self.page.wait_for_selector("#send:not(.stop)", timeout=60000)
        self.page.wait_for_timeout(60)

    def last(self): return self.page.locator(".msg.assistant .body").last.inner_text()

    def answers(self): return self.page.locator(".msg.assistant .body").all_inner_texts()

    def texts(self): return self.page.locator(".msg .bubble").all_inner_texts()

    def titles(self): return [x.split("\n")[0] for x in self.page.locator("#list a").all_inner_texts()]

    def button(self, name): return self.page.get_by_role("button", name=name, exact=True)

    def sees(self, text, seconds=5):
        try: self.page.wait_for_function("t => document.body.innerText.includes(t)", arg=text, timeout=seconds * 1000)
        except Exception: return False
        return True

    def shot(self, name):
        self.page.wait_for_timeout(250)
        self.page.screenshot(path=str(FOLDER / (name + ".png")))


@contextlib.contextmanager
def person(browser, url, width=1280, height=800, **options):
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    p = Person(context, url)
    yield p
    check("no error on the page", not p.errors, p.errors)
    check("nothing from outside", not p.outside, p.outside)
    context.close()


def eventually(ok, seconds=5):
    end = time.time() + seconds
    while not ok():
        if time.time() > end: return False
        time.sleep(0.05)
    return True


# ---- with the real model

def talk(browser):
    s = Server("--max-model-len", "2048")
    with person(browser, s.url + "/") as p:
        status, headers, _ = s.request("GET", "/")
        check("the policy", headers["content-security-policy"] == CSP and "unsafe" not in CSP, headers)
        size = sum(len(s.request("GET", path)[2]) for path in ("/", "/page.css", "/page.js"))
        check("under 60 KB in all", size < 60 * 1024, size)
        check("an empty page invites", p.locator(".empty").is_visible() and p.evaluate("document.activeElement.id") == "input")
        check("the model's name", "SmolLM2" in p.locator("#model option").first.inner_text(), p.inner_text("#model"))
        p.click("#tune")
        check("what holds by default", [p.get_attribute("#" + x, "placeholder") for x in ("temperature", "top_k", "top_p", "min_p")] == ["0.8", "40", "0.95", "0.05"])
        p.fill("#temperature", "0")
        p.fill("#max_tokens", "40")
        p.fill("#system", "Answer in one sentence.")
        p.dispatch_event("#system", "change")
        p.click("#tune")
        p.ask("What is the capital of France?")
        check("an answer", "Paris" in p.last(), p.last())
        check("its length and time", re.fullmatch(r"\d+ tokens .*first after \d+\.\d\d s", p.locator(".stats").last.inner_text()), p.locator(".stats").last.inner_text())
        check("the title", "capital of France" in p.inner_text("#title"))
        first = p.last()
        p.button("Regenerate").click()
        p.settled()
        check("regenerated, greedy: the same; the old one is kept", p.last() == first and "2/2" in p.inner_text("#log"), (p.last(), first))
        p.click("#tune")
        p.fill("#max_tokens", "1500")
        p.click("#tune")
        p.ask("Write a very long story about the sea.", wait=False)
        p.wait_for_function("() => [...document.querySelectorAll('.msg.assistant .body')].pop().innerText.length > 60", timeout=60000)
        grown = p.last()
        p.wait_for_timeout(500)
        check("it streams", len(p.last()) > len(grown), (grown, p.last()))
        check("its speed", re.search(r" [\d.]+ tokens/s ", p.locator(".stats").last.inner_text()), p.locator(".stats").last.inner_text())
        p.click("#send")
        p.settled()
        check("stopped", s.wait_idle(2) is not None and len(p.last()) > 60)
        stopped = p.last()
        p.button("Continue").click()
        p.wait_for_function("n => [...document.querySelectorAll('.msg.assistant .body')].pop().innerText.length > n + 40", arg=len(stopped), timeout=60000)
        p.press("#input", "Escape")
        p.settled()
        check("continued where it was", p.last().startswith(stopped[:len(stopped) - 2]), (stopped, p.last()))
        p.reload()
        p.wait_for_selector(".msg")
        check("reload keeps the conversation", p.locator(".msg").count() == 4, p.locator(".msg").count())
        p.click("#tune")
        check("and the settings", p.input_value("#temperature") == "0" and p.input_value("#system") == "Answer in one sentence.")
        p.fill("#max_tokens", "")
        p.dispatch_event("#max_tokens", "change")
        p.click("#new")
        for name, value in (("extra", '{"ignore_eos": true}'), ("system", "word " * 1950)):
            p.fill("#" + name, value)
            p.dispatch_event("#" + name, "change")
        p.click("#tune")
        p.ask("Tell me about the sea.")
        check("an answer that ends with the context says so", p.sees("The context is full: this model reads 2,048 tokens"), p.inner_text("#log")[-400:])
        p.ask("And " + "more of it, " * 40)
        check("a question that does not fit any more says so", p.sees("This is longer than the model can read."), p.inner_text("#log")[-400:])
    check("SIGTERM", s.stop() == 0)


def with_adapters(browser):
    """Adapters are models that can be chosen."""
    model = str(checkpoint("llama"))
    adapters.make(model, str(FOLDER / "poet"), r=4, seed=50, size=0.3)
    s = Server("--enable-lora", "--lora-modules", f"poet={FOLDER}/poet", "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}", model=model, base=("--log-level", "warn"))
    with person(browser, s.url + "/") as p:
        asked = []
        p.page.on("request", lambda r: asked.append(json.loads(r.post_data)) if r.method == "POST" else None)
        p.wait_for_function("() => document.querySelectorAll('#model option').length == 2")
        p.click("#tune")
        for name, value in (("temperature", "0"), ("max_tokens", "20"), ("extra", '{"ignore_eos": true}')):
            p.fill("#" + name, value)
            p.dispatch_event("#" + name, "change")
        p.click("#tune")
        for choice in (0, 1):
            p.click("#new")
            p.select_option("#model", index=choice)
            p.ask("a b c")
            check("the meter", p.locator("#meter").is_visible(), p.inner_text("#log"))
        check("model and adapter answer differently", [a["model"] for a in asked] == [model, "poet"] and p.last() != "" and p.locator(".error").count() == 0, (asked, p.inner_text("#log")))
        second = p.last()
        p.locator("#list a").nth(1).click()
        check("each in its own way", eventually(lambda: p.last() not in ("", second)), (second, p.last()))
    check("SIGTERM", s.stop() == 0)


def with_eyes(browser):
    """A picture is attached, asked about and answered by a (tiny) model that sees."""
    folder = ROOT / "build/data/vision/qwen2_5_vl"
    s = Server("--max-model-len", "2048", model=str(folder), base=("--log-level", "warn"))
    with person(browser, s.url + "/") as p:
        asked = []
        p.page.on("request", lambda r: asked.append(json.loads(r.post_data)) if r.method == "POST" else None)
        p.click("#tune")
        for name, value in (("temperature", "0"), ("max_tokens", "12"), ("extra", '{"ignore_eos": true}')):
            p.fill("#" + name, value)
            p.dispatch_event("#" + name, "change")
        p.click("#tune")
        p.set_input_files("#pick", [str(folder / "exact.png")])
        check("attached", eventually(lambda: p.locator("#files img").count() == 1))
        p.ask("Describe the picture.")
        check("answered", p.last() and p.locator(".error").count() == 0, p.inner_text("#log"))
        p.shot("with-eyes")
        used = int(p.get_attribute("#meter", "aria-valuenow"))
        plain = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Describe the picture."}], "max_tokens": 12, "temperature": 0, "ignore_eos": True})[1]
        check("the picture takes room in the context", used > plain["usage"]["total_tokens"] + 3, (used, plain["usage"]))
        exact = "data:image/png;base64," + base64.b64encode((folder / "exact.png").read_bytes()).decode()
        body = {k: v for k, v in asked[-1].items() if k not in ("stream", "stream_options")}
        body["messages"][-1]["content"][0]["image_url"]["url"] = exact
        status, answer = s.post("/v1/chat/completions", body)
        check("the same as of the file itself", status == 200 and answer["choices"][0]["message"]["content"].strip() == p.locator(".msg.assistant .body").last.text_content().strip() and answer["usage"]["total_tokens"] == used, (answer, p.last()))
    check("SIGTERM", s.stop() == 0)


def several_models(browser):
    """Models that are loaded when they are asked: their state is told, before and after."""
    first = checkpoint("llama")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    s = Server("--model", str(first), "--model", str(checkpoint("qwen3")), "--max-loaded-models", "1", "--chat-template", template, model=False, base=("--log-level", "warn"))
    with person(browser, s.url + "/") as p:
        p.wait_for_function("() => document.querySelectorAll('#model option').length == 2")
        check("one is loaded", p.locator("#model option").all_inner_texts() == ["llama", "qwen3 (unloaded)"], p.locator("#model option").all_inner_texts())
        p.select_option("#model", index=1)
        check("of one that was never loaded its context is not known", eventually(lambda: p.inner_text("#about") == "qwen3"), p.inner_text("#about"))
        p.click("#tune")
        p.fill("#max_tokens", "5")
        p.dispatch_event("#max_tokens", "change")
        p.click("#tune")
        p.ask("a b c")
        check("it is loaded when it is asked", p.locator(".error").count() == 0 and eventually(lambda: p.locator("#model option").all_inner_texts() == ["llama (unloaded)", "qwen3"]), p.locator("#model option").all_inner_texts())
        check("and its context known", "tokens of context" in p.inner_text("#about"), p.inner_text("#about"))
        p.click("#new")
        p.select_option("#model", index=0)
        p.ask("a b c")
        check("and back", p.locator(".error").count() == 0 and eventually(lambda: p.locator("#model option").all_inner_texts() == ["llama", "qwen3 (unloaded)"]), p.locator("#model option").all_inner_texts())
        p.locator("#list a").nth(1).click()
        check("each conversation keeps its own", eventually(lambda: "qwen3" in p.input_value("#model")), p.input_value("#model"))
    check("SIGTERM", s.stop() == 0)


# ---- the conversation

def injected(browser, s):
    """What the model or the person writes is text, whatever it looks like."""
    s.answer = lambda body: words(EVIL + "\n\n" + EVIL)
    with person(browser, s.url) as p:
        p.ask(EVIL)
        p.wait_for_timeout(200)
        foreign = "#log :is(img, script, b, u, i, iframe, object, embed, form, style, link)"
        check("nothing runs", p.evaluate("window.hit") is None)
        check("nothing becomes markup", p.locator(foreign).count() == 0 and p.locator("#log a").count() == 0, p.locator("#log").inner_html()[:400])
        check("it is there as text", "<script>window.hit=1</script>" in p.inner_text("#log"))
        p.reload()
        p.wait_for_selector(".msg")
        check("nor after a reload", p.evaluate("window.hit") is None and p.locator(foreign).count() == 0)
    s.models = [{**MODEL, "id": EVIL}]
    with person(browser, s.url) as p:
        p.evaluate("() => { window.broken = []; addEventListener('securitypolicyviolation', e => window.broken.push(e.violatedDirective)); }")
        evil = FOLDER / "<img src=x onerror=hit=1>.txt"
        evil.write_text(EVIL)
        p.set_input_files("#pick", str(evil))
        s.answer = lambda body: words("\n\n".join([EVIL, *ATTACKS]), think=EVIL + ATTACKS[0])
        p.ask(EVIL)
        s.answer = lambda body: refusal(400, EVIL)
        p.ask("and an error")
        p.locator("#list .item.on [data-do=rename]").click()
        p.fill(".item input", EVIL)
        p.press(".item input", "Enter")
        p.fill("#search", "onerror")
        p.click("#tune")
        p.fill("#presetName", EVIL)
        p.button("Save").click()
        p.wait_for_timeout(300)
        check("everything else that comes from outside is text too", p.evaluate("window.hit") is None and p.locator("img, iframe, object, embed, b b, u, body style, body script, body link").count() == 0)
        check("nothing has to be stopped by the policy", p.evaluate("window.broken") == [], p.evaluate("window.broken"))
        links = p.evaluate("[...document.querySelectorAll('#log a')].map(a => [a.getAttribute('href'), a.rel, a.target])")
        check("links lead to the web only, in a new tab", links and all(re.match("https?://|mailto:", a) and b == "noreferrer" and c == "_blank" for a, b, c in links if a), links)
        handlers = p.evaluate("[...document.querySelectorAll('#log *, #side *, #settings *, #model *, #files *, #toast *')].flatMap(e => [...e.attributes].map(a => a.name)).filter(n => n.startsWith('on') || n === 'style' || n === 'srcdoc' || n === 'src')")
        check("no element has a handler, a style or a source", handlers == [], handlers)


def heavy(browser, s):
    """Long answers written to hurt: what the page's thread spends on one grows with its length only. tests/unit/page shows the same of many more texts, without a screen."""
    def spent(text):
        s.answer = lambda body: words(text, size=len(text))
        with person(browser, s.url) as p:
            session = p.context.new_cdp_session(p.page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})  # seconds of the processor: other programs do not count
            used = lambda: next(x["value"] for x in session.send("Performance.getMetrics")["metrics"] if x["name"] == "TaskDuration")
            begin = used()
            p.ask("Go")
            check(f"what hurts is drawn: {text[:9]!r}", p.evaluate("document.querySelector('.assistant .body').textContent.length") > 0)
            return used() - begin
    least = min(spent("x"), spent("x"))
    for mark in ("- a\n", "|a|b\n|-|-|\n", "*a* `b` ", "\\(a_b\\) ", "![[]("):
        cost = lambda n: max(0, spent((mark * n)[:n]) - least)
        short, long = cost(8000), cost(32000)
        if long > 7 * short + 0.2: short, long = max(short, cost(8000)), min(long, cost(32000))
        check(f"{mark!r}: four times as long takes at most seven times as long", long <= 7 * short + 0.2, (short, long))
    with person(browser, s.url) as p:  # many small pieces: the text is read when it is drawn, not when something comes
        p.evaluate("""() => { window.reads = window.draws = 0; const replace = String.prototype.replace, title = Object.getOwnPropertyDescriptor(Document.prototype, 'title');
            String.prototype.replace = function (...a) { window.reads += String(a[0]) === '/\\\\r\\\\n?/g'; return replace.apply(this, a); };
            Object.defineProperty(document, 'title', {set(x) { window.draws++; title.set.call(document, x); }}); }""")
        s.answer = lambda body: words("A line of text\n\n" * 100, size=1)
        p.ask("Go")
        reads, draws = p.evaluate("[window.reads, window.draws]")
        check("1,600 pieces: an answer is read once a drawing at most", 0 < reads <= draws < 1600, (reads, draws))
    with person(browser, s.url) as p:
        node = lambda i: {"id": f"n{i}", "up": f"n{i - 1}" if i else "", "role": "assistant" if i % 2 else "user", "text": RICH if i % 2 else "How?", "rev": 1}
        chats = [{"id": "long", "title": "long", "time": 1, "rev": 1, "leaf": "n299", "nodes": {f"n{i}": node(i) for i in range(300)}}]
        (FOLDER / "long.json").write_text(json.dumps(chats + [{"id": f"c{i}", "title": f"chat {i}", "time": 1, "rev": 1, "leaf": "", "nodes": {}} for i in range(500)]))
        p.set_input_files("#load", str(FOLDER / "long.json"))
        p.locator("#list a", has_text="long").click()
        p.wait_for_selector(".msg")
        p.wait_for_timeout(500)
        drawn = p.evaluate("""() => new Promise(done => { const t = document.getElementById('input'), set = Map.prototype.set;
            let n = 0; Map.prototype.set = function (...a) { n++; return set.apply(this, a); }; /* who draws messages notes the key of each */
            t.value += 'x'; t.dispatchEvent(new Event('input', {bubbles: true}));
            setTimeout(() => { Map.prototype.set = set; done(n); }, 300); })""")
        check("300 messages: who types does not wait for them", drawn < 100, drawn)


SEEDS = [*ATTACKS, EVIL, "[", "]", "![", "](", ")", "(", "<", ">", "`", "``", "```\n", "~~~", "*", "**", "_", "~~", "$", "$$\n", "\\(", "\\)", "\\[", "\\]", "\\", "|", "|-|-|\n", "- ", "1. ", "> ", "# ", "\n", "\n\n", "    ",
         "&", "&lt;", "&#60;", "&#x3c;script&#x3e;", "&NewLine;", "\u202e", "\u2066", "\u200b", "\u00a0", "\x00", "\x1b[31m", "\ufeff", "\u4e2d\u6587\uff1a", "\U0001f600", "e\u0301" * 20, "- [ ] ", "<br>", "word ", "x" * 300,
         "<iframe srcdoc='<script>parent.hit=1</script>'>", "<base href=//evil.example/>", "<meta http-equiv=refresh content='0;url=//evil.example'>", "<link rel=prefetch href=//evil.example>", "<a href=x ping=//evil.example>",
         "<svg><use href='//evil.example/x.svg#a'/></svg>", "<style>@import '//evil.example'</style>", "<form action=//evil.example><button autofocus>", "<details open ontoggle=window.hit=1>", "<x data-do=removeAll>",
         "![x](data:image/svg+xml;base64,PHN2Zy8+)", "[x](blob:null/1)", "[x]: //evil.example\n\n[x]", "<https://evil.example/a>", "http://evil.example/<script>", "mailto:a@evil.example?body=<b>", "```html\n<script>window.hit=1</script>\n```\n",
         "```onload=hit\n", "```constructor\nx\n```\n", "$\\includegraphics{//evil.example}$", "$\\style{a}{b}$", "\\begin{matrix}", "\\frac{", "}{", "$\\text{</mtext><script>window.hit=1</script>}$", "{{constructor.constructor('window.hit=1')()}}", "${window.hit=1}"]
SOUND = r"""() => { const of = s => [...document.querySelectorAll(s)], bad = [];
    if (window.hit !== undefined) bad.push('a script ran');
    if (window.broken.length) bad.push('stopped by the policy only: ' + window.broken[0]);
    for (const e of of('#log *')) {
        if (/^(img|script|iframe|object|embed|form|style|link|base|meta|use|video|audio|template|x|font|image)$/i.test(e.localName)) bad.push(e.localName);
        for (const a of e.attributes) if (/^on|^(style|src|srcdoc|srcset|action|ping|formaction|id|name|xlink:href)$/i.test(a.name)) bad.push(a.name + '=' + a.value);
        if (e.hasAttribute('href') && !(e.localName === 'a' && /^(https?:\/\/|mailto:)/i.test(e.getAttribute('href')) && e.rel === 'noreferrer' && e.target === '_blank')) bad.push(e.outerHTML.slice(0, 200));
        if (e.dataset?.do && !/^(copyCode|copy|again|edit|goOn|branch)$/.test(e.dataset.do)) bad.push('data-do=' + e.dataset.do);
    }
    return bad; }"""


def hostile_text(rng, length):
    """About so many characters of what is written to hurt."""
    out = ""
    while len(out) < length:
        piece = "".join(rng.choice(SEEDS) for _ in range(rng.randint(1, 3))) * rng.choice((1, 1, 1, 2, 30))
        at = rng.choice((len(out), rng.randint(0, len(out))))
        out = out[:at] + piece[:length // 4 + 4] + out[at + rng.choice((0, 0, 1, 3)):]
    return out


def hostile(browser, s):
    """Random hostile answers, HOSTILE.texts of them beginning with HOSTILE.seed: no script, no foreign element, no request; the slowest takes time in proportion to its length."""
    slowest = (0, "")
    with person(browser, s.url) as p:
        p.context.add_init_script("window.broken = []; addEventListener('securitypolicyviolation', e => window.broken.push(e.violatedDirective + ' ' + e.blockedURI));")
        p.reload()
        session = p.context.new_cdp_session(p.page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        used = lambda: next(x["value"] for x in session.send("Performance.getMetrics")["metrics"] if x["name"] == "TaskDuration")

        def answered(text, think="", size=0):
            s.answer = lambda body: words(text, think, size=size or len(text))
            p.click("#new")
            begin = used()
            p.ask("Go")
            return used() - begin
        for seed in range(HOSTILE.seed, HOSTILE.seed + HOSTILE.texts):
            rng = random.Random(seed)
            text, think = hostile_text(rng, rng.choice((200, 2000, 8000))), hostile_text(rng, rng.choice((1, 300)))
            took = answered(text, think, rng.choice((3, 40, 0)) if len(text) < 3000 else 0)
            bad = p.evaluate(SOUND)
            check(f"hostile text, --seed {seed} --texts 1", not bad and not p.outside and not p.errors, (bad[:3], p.outside[:2], p.errors[:2]))
            check("it is all there", p.locator(".msg.assistant").count() == 1 and p.locator(".error").count() == 0, f"--seed {seed} --texts 1")
            if len(text) > 5000: slowest = max(slowest, (took, text))
        p.reload()
        p.wait_for_selector(".msg.assistant")
        check("nor when it is read again", p.evaluate(SOUND) == [] and set(s.fetched) <= {"/", "/page.css", "/page.js", "/v1/models"}, (p.evaluate(SOUND), set(s.fetched)))
        if slowest[1]:
            least, text = answered("x"), slowest[1]
            once, more = (min(answered(t) for _ in range(2)) - least for t in (text, text * 4))
            check("the slowest: four times as long takes at most seven times as long", more <= 7 * once + 0.2, (once, more, text[:200]))


def streaming(browser, s):
    """While an answer grows: what is selected stays so, thoughts are open, it is saved, other conversations can be read."""
    with person(browser, s.url) as p:
        go = threading.Event()
        s.answer = lambda body: words("First paragraph here.\n\nSecond " + "grows and " * 20, wait=go, after=4)
        p.ask("Go", wait=False)
        p.wait_for_function("() => document.querySelectorAll('.assistant .body p').length == 2")
        p.evaluate("""() => { const t = document.querySelectorAll('.assistant .body p')[1].firstChild, r = document.createRange();
            r.setStart(document.querySelector('.assistant .body p').firstChild, 2); r.setEnd(t, 3); getSelection().removeAllRanges(); getSelection().addRange(r); }""")
        selected = p.evaluate("getSelection().toString()")
        go.set()
        p.settled()
        check("what is selected stays selected", p.evaluate("getSelection().toString()") == selected and "Sec" in selected, (selected, p.evaluate("getSelection().toString()")))
        go.clear()
        s.answer = lambda body: words("The answer.", think="I think about it. " * 5, wait=go, after=8)
        p.ask("Think", wait=False)
        p.wait_for_selector("details.think[open]")
        check("thoughts are open while they come", "I think" in p.inner_text("details.think"))
        p.shot("thinking")
        go.set()
        p.settled()
        check("and closed after them", p.locator("details.think[open]").count() == 0 and "Thought for" in p.inner_text("details.think summary"))
        go.clear()
        s.answer = lambda body: words("A line\n\n" * 60, wait=go, after=40)
        p.ask("Many lines", wait=False)
        p.wait_for_function("() => [...document.querySelectorAll('.assistant .body')].pop().querySelectorAll('p').length > 40")
        check("the newest text is in sight", eventually(lambda: p.evaluate("(e => e.scrollHeight - e.scrollTop - e.clientHeight < 2)(document.getElementById('log'))")))
        p.locator("#log").hover()
        p.mouse.wheel(0, -300)
        p.wait_for_timeout(200)
        top = p.evaluate("document.getElementById('log').scrollTop")
        go.set()
        p.settled()
        check("who has scrolled up stays there", p.evaluate("document.getElementById('log').scrollTop") == top and p.button("To the newest message").is_visible())
        p.button("To the newest message").click()
        check("and comes back by a button", eventually(lambda: p.evaluate("(e => e.scrollHeight - e.scrollTop - e.clientHeight < 2)(document.getElementById('log'))")))
        go.clear()
        s.answer = lambda body: words("Long " * 40, wait=go, after=9)
        p.ask("Long", wait=False)
        p.wait_for_function("() => [...document.querySelectorAll('.assistant .body')].pop().innerText.length > 50")
        p.wait_for_timeout(900)
        p.click("#new")
        check("another conversation can be read meanwhile", p.locator(".empty").is_visible() and p.locator("#list .dot").count() == 1)
        s.answer = lambda body: words("Elsewhere.")
        p.ask("Two at once")
        check("and asked something", p.last() == "Elsewhere.")
        go.set()
        check("the first one goes on", eventually(lambda: p.locator("#list .dot").count() == 0))
        p.locator("#list a", has_text="Go").click()
        check("to its end", len(p.last()) == 199, len(p.last()))
        go.clear()
        s.answer = lambda body: words("Half of this " * 10, wait=go, after=5)
        p.ask("Again", wait=False)
        p.wait_for_function("() => [...document.querySelectorAll('.assistant .body')].pop().innerText.length > 30")
        p.wait_for_timeout(900)
        p.reload()
        check("what has come is saved; it is told that it is not all", p.sees("This answer was interrupted.", 8) and p.last().startswith("Half of this"), p.inner_text("#log")[-300:])
        go.set()
        s.answer = lambda body: words(" and the rest.")
        half = p.last()
        p.button("Continue").click()
        p.settled()
        check("it goes on from there", p.last() == half + " and the rest." and s.asked[-1]["continue_final_message"] and s.asked[-1]["messages"][-1]["content"] == half, (p.last(), s.asked[-1]))


def queueing(browser, s):
    with person(browser, s.url) as p:
        go = threading.Event()
        s.answer = lambda body: words("To " + body["messages"][-1]["content"], wait=go, after=1, size=2)
        p.ask("one", wait=False)
        p.wait_for_selector("#send.stop")
        p.ask("two", wait=False)
        p.ask("three", wait=False)
        check("both wait", eventually(lambda: p.locator(".queued").count() == 2) and len(s.asked) and s.asked[-1]["messages"][-1]["content"] == "one")
        p.shot("queued")
        p.locator(".queued").last.hover()
        p.locator(".queued").last.get_by_role("button", name="Remove").click()
        p.wait_for_timeout(100)
        p.fill("#input", "four")
        check("there is a button for it too", p.button("Queue this message").is_visible())
        p.button("Queue this message").click()
        go.set()
        check("they are asked one after the other", eventually(lambda: p.answers() == ["To one", "To two", "To four"]), p.answers())
        check("with what came before", [m["content"] for m in s.asked[-1]["messages"]] == ["one", "To one", "two", "To two", "four"], s.asked[-1])
        go.clear()
        p.ask("five", wait=False)
        p.wait_for_selector("#send.stop")
        p.ask("six", wait=False)
        p.press("#input", "Escape")
        p.settled()
        check("a stop does not send it", p.locator(".queued").count() == 1 and p.sees("Stopped."))
        go.set()
        p.button("Back to the input").click()
        check("it can be taken back", p.input_value("#input") == "six" and eventually(lambda: p.locator(".queued").count() == 0))
        p.press("#input", "Enter")
        p.settled()
        check("and sent", p.last() == "To six")
        p.button("Regenerate").last.click()
        p.settled()
        go.clear()
        p.ask("seven", wait=False)
        p.wait_for_selector("#send.stop")
        p.ask("eight", wait=False)
        p.button("Previous version").last.click()
        check("another version can be read meanwhile", eventually(lambda: p.texts()[-2:] == ["six", "eight"]), p.texts())
        go.set()
        check("the queued message follows the answer that was awaited", eventually(lambda: p.texts()[-3:] == ["six", "seven", "eight"]) and eventually(lambda: p.last() == "To eight"), p.texts())
    with person(browser, s.url) as p:
        s.answer = lambda body: words("Half an answer " * 9, wait=threading.Event(), after=3)
        p.ask("one", wait=False)
        p.wait_for_selector("#send.stop")
        p.press("#input", "Escape")
        p.settled()
        s.answer = lambda body: words("Answer")
        p.button("Edit").click()
        p.fill(".edit textarea", "two")
        p.button("Send").first.click()
        p.settled()
        p.button("Edit").click()
        p.fill(".edit textarea", "edited")
        go = threading.Event()
        s.answer = lambda body: words("To " + body["messages"][-1]["content"], wait=go, after=1, size=2)
        p.ask("three", wait=False)
        check("while an answer is written no edited question can be sent", eventually(lambda: p.locator(".edit .main").is_disabled()))
        p.press(".edit textarea", "Control+Enter")
        check("nor by keys, and what was edited stays", p.input_value(".edit textarea") == "edited")
        p.press(".edit textarea", "Escape")
        p.button("Previous version").first.click()
        check("a version that was stopped offers nothing meanwhile", p.sees("Stopped.") and p.locator(".notice button").count() == 0, p.inner_text("#log"))
        p.ask("four", wait=False)
        check("what is asked below another version waits", eventually(lambda: p.locator(".queued").count() == 1), p.inner_text("#log"))
        check("one answer at a time", [a["messages"][-1]["content"] for a in s.asked[-3:]] == ["one", "two", "three"], [a["messages"] for a in s.asked])
        p.press("#input", "Escape")
        p.settled()
        check("and it can be stopped", p.locator("#list .dot").count() == 0 and p.locator(".queued").count() == 1)
        check("then the notice offers again what it can", p.button("Continue").is_visible())
        go.set()
    with person(browser, s.url) as p:
        s.answer = lambda body: words("Answer")
        p.ask("one")
        p.button("Edit").click()
        p.fill(".edit textarea", "two")
        p.button("Send").first.click()
        p.settled()
        go = threading.Event()
        s.answer = lambda body: words("To " + body["messages"][-1]["content"], wait=go, after=1, size=2)
        p.ask("three", wait=False)
        p.wait_for_selector("#send.stop")
        p.button("Previous version").first.click()
        p.ask("four", wait=False)
        check("what is asked below another version waits, too", eventually(lambda: p.locator(".queued").count() == 1), p.inner_text("#log"))
        go.set()
        check("and is answered below that", eventually(lambda: [m["content"] for m in s.asked[-1]["messages"]] == ["one", "Answer", "four"]), s.asked[-1]["messages"])


def branching(browser, s):
    n = iter(range(1, 99))
    s.answer = lambda body: words(f"Answer {next(n)}")
    with person(browser, s.url) as p:
        p.ask("Question")
        p.button("Regenerate").click()
        p.settled()
        check("another answer", p.last() == "Answer 2" and "2/2" in p.inner_text("#log"))
        p.ask("More")
        p.button("Previous version").first.click()
        check("the old one is kept", eventually(lambda: p.answers() == ["Answer 1"]), p.answers())
        p.ask("Else")
        check("and goes on by itself", [m["content"] for m in s.asked[-1]["messages"]] == ["Question", "Answer 1", "Else"])
        p.button("Next version").first.click()
        check("beside the other one", eventually(lambda: p.answers() == ["Answer 2", "Answer 3"]), p.answers())
        p.locator(".msg.user").first.hover()
        p.button("Edit").first.click()
        p.fill(".edit textarea", "Question, edited")
        p.button("Send").first.click()
        p.settled()
        check("an edited question is a branch", p.answers() == ["Answer 5"] and p.texts() == ["Question, edited"], (p.answers(), p.texts()))
        p.button("Previous version").first.click()
        check("of which the old one is there", eventually(lambda: p.texts()[0] == "Question"))
        p.reload()
        p.wait_for_selector(".msg")
        check("also after a reload", p.texts()[0] == "Question" and p.answers() == ["Answer 2", "Answer 3"], (p.texts(), p.answers()))
        p.fill("#input", "half a question")
        p.reload()
        p.wait_for_selector(".msg")
        check("so does what was being typed", eventually(lambda: p.input_value("#input") == "half a question"), p.input_value("#input"))
        p.fill("#input", "")
        p.press("#input", "ArrowUp")
        check("Up edits the last question", p.input_value(".edit textarea") == "More")
        p.press(".edit textarea", "Escape")
        check("Escape leaves it", p.locator(".edit").count() == 0)


def keeping(browser, s):
    """The list: renamed, looked for, deleted and taken back, written to a file and read again."""
    s.answer = lambda body: words("About " + body["messages"][-1]["content"] + " and the zebra.")
    with person(browser, s.url, accept_downloads=True) as p:
        for text in ("apples", "pears", "plums"):
            p.click("#new")
            p.ask(text)
        check("three conversations, the newest first", p.titles() == ["plums", "pears", "apples"], p.titles())
        at_once = p.evaluate("(b => { b.click(); return document.activeElement.matches('.item input'); })(document.querySelector('#list .item.on [data-do=rename]'))")
        check("what is typed at once is the new title", at_once)
        p.fill(".item input", "Stone fruit")
        p.press(".item input", "Enter")
        check("renamed", eventually(lambda: p.titles()[0] == "Stone fruit") and p.inner_text("#title") == "Stone fruit", p.titles())
        p.fill("#search", "about pears")
        check("found by what was said", p.titles() == ["pears"] and "About pears" in p.inner_text("#list"), p.inner_text("#list"))
        p.fill("#search", "stone")
        check("found by its title", p.titles() == ["Stone fruit"])
        p.fill("#search", "nowhere")
        check("not found", p.titles() == [] and p.sees("Nothing was found."))
        p.fill("#search", "")
        p.locator("#list .item.on [data-do=remove]").click()
        check("deleted", eventually(lambda: p.titles() == ["pears", "apples"]), p.titles())
        p.button("Undo").click()
        check("and taken back", eventually(lambda: p.titles() == ["Stone fruit", "pears", "apples"]), p.titles())
        p.locator("#list a").nth(1).click()
        p.click("#tune")
        with p.expect_download() as d: p.button("Export as Markdown").click()
        check("as Markdown", d.value.suggested_filename == "pears.md" and "## You\n\npears\n" in pathlib.Path(d.value.path()).read_text())
        with p.expect_download() as d: p.button("Export all").click()
        path = FOLDER / "chats.json"
        shutil.copy(d.value.path(), path)
        check("all as JSON", [c["title"] for c in json.loads(path.read_text())["chats"]] == ["Stone fruit", "pears", "apples"])
        with p.expect_download() as d: p.button("Export as JSON").click()
        check("one as JSON", [c["title"] for c in json.loads(pathlib.Path(d.value.path()).read_text())["chats"]] == ["pears"])
        p.button("Delete all").click()
        check("all deleted", eventually(lambda: p.titles() == []))
        p.set_input_files("#load", str(path))
        check("all read from the file", eventually(lambda: p.titles() == ["Stone fruit", "pears", "apples"]), p.titles())
        p.locator("#list a", has_text="pears").click()
        check("with their messages", p.last() == "About pears and the zebra.")
        hostile = [{"id": "__proto__", "nodes": {"a": {}}}, {"id": "x1", "title": EVIL, "time": "x", "leaf": "b", "nodes": {"a": {"id": "a", "up": "b", "role": "user", "text": EVIL, "files": [{"name": 7}, None]},
                   "b": {"id": "b", "up": "a", "role": "assistant", "text": EVIL, "think": {"x": 1}, "live": 1, "node": "x"}, "c": {"id": "../c", "role": "system"}}}, None, 7]
        path.write_text(json.dumps(hostile))
        p.set_input_files("#load", str(path))
        check("of a hostile file what has the form", eventually(lambda: p.locator("#list a").count() == 4) and p.evaluate("window.hit") is None)
        p.locator("#list a").first.click()
        p.wait_for_timeout(200)
        check("a ring of messages ends", p.locator(".msg").count() > 0 and p.locator("#log img").count() == 0)
        node = {"role": "assistant", "text": "named", "rev": 1, "end": "error", "error": "No.", "act": "toString"}
        path.write_text(json.dumps([{"id": "valueOf", "title": "names", "time": 9e12, "rev": 1, "leaf": "toString", "nodes": {"a": {**node, "id": "toString", "up": "constructor"}}},
                                    {"id": "y1", "title": "no leaf", "time": 9e12, "rev": 1, "leaf": "constructor", "nodes": {}}]))
        p.set_input_files("#load", str(path))
        for title, messages in (("no leaf", 0), ("names", 1)):
            p.locator("#list a", has_text=title).click()
            check("names that every object has are names as others: " + title, eventually(lambda: p.inner_text("#title") == title) and p.locator(".msg").count() == messages and not p.errors, p.errors)
        more = [{"id": "valueOf", "title": "names", "time": 9e12, "rev": 1, "leaf": "b", "nodes": {"a": {**node, "id": "hasOwnProperty", "up": "toString"}}}]
        path.write_text(json.dumps(more))
        p.set_input_files("#load", str(path))
        p.sees("1 imported.")
        with p.expect_download() as d: p.evaluate("document.querySelector('[data-do=exportOne]').click()")
        check("also where they come to a conversation", set(json.loads(pathlib.Path(d.value.path()).read_text())["chats"][0]["nodes"]) == {"toString", "hasOwnProperty"})
        for _ in range(2): p.locator("#list a").first.locator("..").locator("[data-do=remove]").dispatch_event("click")
        check("removed again", eventually(lambda: p.locator("#list a").count() == 4))
        path.write_text("{not json")
        p.set_input_files("#load", str(path))
        check("a file that is none is told", p.sees("This file holds no conversations."))
        p.locator("#list a", has_text="pears").click()
        p.reload()
        check("all is there after a reload", eventually(lambda: p.locator("#list a").count() == 4))
        check("and the same conversation", eventually(lambda: "pears" in p.inner_text("#title")))
        p.fill("#input", "half a question")
        p.go_back()
        check("the browser's back goes back", eventually(lambda: "pears" not in p.inner_text("#title")), p.inner_text("#title"))
        check("without what was being typed", p.input_value("#input") == "")
        p.go_forward()
        check("which is there again", eventually(lambda: "pears" in p.inner_text("#title")) and p.input_value("#input") == "half a question", (p.inner_text("#title"), p.input_value("#input")))


def clocks(browser, s):
    """A change holds though the clock has gone back, or a file comes from one that was ahead."""
    with person(browser, s.url) as p:
        p.context.add_init_script("{ const now = Date.now; Date.now = () => now() - (localStorage.back || 0); }")
        p.ask("before")
        p.evaluate("localStorage.back = 9e7")

        def renamed(title):
            p.locator("#list .item.on [data-do=rename]").click()
            p.fill(".item input", title)
            p.press(".item input", "Enter")
            p.wait_for_timeout(100)
            p.reload()
            p.wait_for_selector("#list a")
            return p.titles()[0] == title
        p.reload()
        p.wait_for_selector(".msg")
        check("a clock that has gone back: a new title holds", renamed("after"), p.titles())
        p.ask("And then?")
        p.button("Regenerate").last.click()
        p.settled()
        p.reload()
        p.wait_for_selector(".msg")
        check("so does another answer, the newest last", p.texts() == ["before", "And then?"] and "2/2" in p.inner_text("#log"), p.inner_text("#log"))
        for name, rev in (("ahead", int(time.time()) * 1000 + 10 ** 9), ("nonsense", 9e99)):
            node = {"id": "q1", "role": "user", "text": "queued", "queued": 1, "rev": rev}
            (FOLDER / "ahead.json").write_text(json.dumps([{"id": name, "title": name, "time": 9e12, "rev": rev, "nodes": {"q1": node}}]))
            p.set_input_files("#load", str(FOLDER / "ahead.json"))
            p.locator("#list a", has_text=name).click()
            p.button("Remove").click()
            p.wait_for_timeout(100)
            p.reload()
            check(f"what a file says with a time that is {name}: a change holds", eventually(lambda: p.inner_text("#title") == name) and p.locator(".queued").count() == 0)
        p.evaluate("""() => new Promise(done => { const r = indexedDB.open("llm"); r.onsuccess = () => { const t = r.result.transaction("chats", "readwrite"); t.oncomplete = done;
            for (const rev of [Infinity, NaN, undefined]) t.objectStore("chats").put({id: "bad" + rev, title: "bad", time: 1, rev, nodes: {}}); }; })""")
        p.reload()
        p.click("#new")
        p.ask("last")
        check("a record without a sane time sets none", re.fullmatch("#[0-9a-z]{9,14}", p.evaluate("location.hash")), p.evaluate("location.hash"))


def two_tabs(browser, s):
    """Nothing that is written in one tab is lost by the other."""
    s.answer = lambda body: words("To " + body["messages"][-1]["content"])
    with person(browser, s.url) as p:
        q = Person(p.context, s.url)
        p.ask("from the first")
        check("the other tab hears of it", eventually(lambda: q.titles() == ["from the first"]), q.titles())
        q.ask("from the second")
        p.ask("first again")
        both = {"from the first", "from the second"}
        check("both have both", eventually(lambda: set(p.titles()) == set(q.titles()) == both), (p.titles(), q.titles()))
        q.locator("#list a", has_text="from the first").click()
        check("and what is in them", eventually(lambda: q.texts() == ["from the first", "first again"]), q.texts())
        go = threading.Event()
        s.answer = lambda body: words("Slow answer to " + body["messages"][-1]["content"], wait=go, after=2)
        p.ask("slow", wait=False)
        check("an answer is seen in the other tab as it comes", eventually(lambda: q.locator(".assistant .body").last.inner_text().startswith("Slow answer")), q.inner_text("#log"))
        q.wait_for_timeout(3500)
        check("and is not taken for interrupted", "interrupted" not in q.inner_text("#log"))
        q.ask("meanwhile", wait=False)
        check("what is asked there meanwhile waits here", eventually(lambda: p.locator(".queued").count() == 1), p.inner_text("#log"))
        s.answer = lambda body: words("To " + body["messages"][-1]["content"])
        go.set()
        want = ["from the first", "first again", "slow", "meanwhile"]
        check("and is asked by the one that was busy", eventually(lambda: p.texts() == want and q.texts() == want and q.last() == "To meanwhile"), (p.texts(), q.texts(), q.last()))
        for a, text in ((p, "at once, first"), (q, "at once, second")): a.ask(text, wait=False)
        p.settled(), q.settled()
        p.wait_for_timeout(500)
        p.reload()
        p.wait_for_selector(".msg")
        said = p.evaluate("""() => new Promise(done => { const r = indexedDB.open("llm"); r.onsuccess = () => r.result.transaction("chats").objectStore("chats").getAll().onsuccess =
            e => done(e.target.result.flatMap(c => Object.values(c.nodes).map(n => n.text))); })""")
        check("two questions at once: both are kept, with their answers", all(x in said for x in ("at once, first", "at once, second", "To at once, first", "To at once, second")), said)
        p.locator("#list .item.on [data-do=remove]").click()
        check("deleted in both", eventually(lambda: len(p.titles()) == len(q.titles()) == 1), (p.titles(), q.titles()))
        check("no error in the other tab", not q.errors, q.errors)


# ---- what goes wrong

def errors(browser, s):
    with person(browser, s.url) as p:
        s.answer = lambda body: refusal(400, "temperature is <b>bad</b>")
        p.ask("x")
        check("a refusal is told in words", "Temperature is <b>bad</b>" in p.inner_text(".notice.error"), p.inner_text("#log"))
        p.shot("error")
        s.answer = lambda body: words("Better.")
        p.button("Try again").click()
        p.settled()
        check("tried again", p.last() == "Better." and p.locator(".notice").count() == 0)
        check("the failed one is not in the way", [m["role"] for m in s.asked[-1]["messages"]] == ["user"], s.asked[-1])
        p.click("#new")
        p.ask("A question of " + "twenty words " * 9)
        check("a long title ends with a word", p.inner_text("#title") == "A question of twenty words twenty words twenty words twenty\u2026", p.inner_text("#title"))
        for status, code, text, words_for in ((429, None, "queue is full", "The server is busy."), (500, None, "engine failed", "The server could not do it."), (404, "model_not_found", "no such model", "This model is not here any more."),
                                               (400, "context_length_exceeded", "2000 tokens, 1000 at most", "longer than the model can read")):
            s.answer = lambda body: refusal(status, text, code)
            p.click("#new")
            p.ask("x")
            check(f"{status} in words", words_for in p.inner_text(".notice.error"), p.inner_text("#log"))
        s.answer = lambda body: iter([*list(words("Half an answer"))[:-1], None])
        p.click("#new")
        p.ask("x")
        check("a lost connection is told, and what had come is kept", "connection was lost" in p.inner_text(".notice") and p.last() == "Half an answer", p.inner_text("#log"))
        s.answer = lambda body: iter([*list(words("Half"))[:-1], {"error": {"message": "the engine stopped", "code": None}}])
        p.click("#new")
        p.ask("x")
        check("an error in the stream", "The engine stopped" in p.inner_text(".notice") and p.last() == "Half", p.inner_text("#log"))
        s.answer = lambda body: words("")
        p.click("#new")
        p.ask("x")
        check("an empty answer", "The model said nothing." in p.inner_text(".notice"))
        tries = []
        def loading(body):
            tries.append(1)
            return words("Ready now.") if len(tries) > 2 else refusal(503, "Loading model")
        s.answer = loading
        p.click("#new")
        p.ask("x", wait=False)
        check("a model that loads is waited for", p.sees("The model is loading"))
        p.settled()
        check("until it answers", p.last() == "Ready now.")
        s.key = "secret"
        p.click("#new")
        p.ask("x")
        check("a key is asked for", "This server asks for an API key." in p.inner_text(".notice.error"))
        p.locator(".notice").get_by_role("button", name="Settings").click()
        p.fill("#key", "secret")
        p.dispatch_event("#key", "change")
        s.answer = lambda body: words("With a key.")
        p.click("#tune")
        p.button("Try again").click()
        p.settled()
        check("and used", p.last() == "With a key.")
        check("it is not remembered unless wished", p.evaluate("localStorage.getItem('llm.key')") in (None, '""'))
        p.click("#tune")
        p.check("#keep")
        p.click("#tune")
        check("remembered when wished", p.evaluate("localStorage.getItem('llm.key')") == '"secret"')
        q = Person(p.context.browser.new_context(), s.url)
        check("a server that wants a key says so before the first question", q.sees("This server asks for an API key.") and q.locator(".empty").get_by_role("button", name="Settings").is_visible())
        q.context.close()
        context = p.context.browser.new_context()
        context.add_init_script("for (const name of ['localStorage', 'sessionStorage', 'indexedDB']) Object.defineProperty(window, name, {get() { throw new DOMException('denied', 'SecurityError'); }})")
        q = Person(context, s.url)
        check("a browser that keeps nothing is told", q.sees("This browser keeps nothing"))
        q.click("#tune")
        q.fill("#key", "secret")
        q.dispatch_event("#key", "change")
        q.click("#tune")
        s.answer = lambda body: words("All the same.")
        q.ask("x")
        check("and works", q.last() == "All the same." and not q.errors, (q.inner_text("#log"), q.errors))
        context.close()
        s.key = ""
        p.route("**/v1/chat/completions", lambda route: route.abort())
        p.ask("x")
        check("a lost server is told", "cannot be reached" in p.inner_text(".notice.error"))


def context(browser, s):
    """The meter, and what can be done at the context's end."""
    with person(browser, s.url) as p:
        s.answer = lambda body: words("Some text. " * 5, prompt=300)
        p.ask("one")
        used = int(p.get_attribute("#meter", "aria-valuenow"))
        check("the meter", 300 < used < 320 and p.get_attribute("#meter", "aria-valuemax") == "1000" and "31%" in p.inner_text("#meter"), (used, p.inner_text("#meter")))
        p.fill("#input", "x" * 2000)
        check("with what is being typed", eventually(lambda: int(p.get_attribute("#meter", "aria-valuenow")) > 800) and "warn" in p.get_attribute("#meter", "class"))
        p.fill("#input", "")
        s.answer = lambda body: words("More text.", prompt=700)
        p.ask("two")
        s.answer = lambda body: words("This is cut", end="length", prompt=998)
        p.ask("three")
        check("an answer cut at the context's end says so", "The context is full: this model reads 1,000 tokens" in p.inner_text(".notice"), p.inner_text("#log"))
        p.shot("context-full")
        s.answer = lambda body: words(" no more.", prompt=200)
        p.button("Leave out the oldest messages").click()
        p.settled()
        check("it goes on without the oldest", [m["content"] for m in s.asked[-1]["messages"]] == ["two", "More text.", "three", "This is cut"] and p.last() == "This is cut no more.", s.asked[-1]["messages"])
        check("what is left out is shown", p.sees("The model does not get what is above."))
        p.button("Send all").click()
        s.answer = lambda body: words("Cut by number", end="length", prompt=20)
        p.ask("four")
        check("all is sent again", [m["content"] for m in s.asked[-1]["messages"]][0] == "one" and "cut at the limit of tokens" in p.inner_text(".notice"))


# ---- settings

def settings(browser, s):
    with person(browser, s.url) as p:
        values = {"temperature": "0.7", "top_k": "11", "top_p": "0.6", "min_p": "0.1", "max_tokens": "50", "min_tokens": "2", "repetition_penalty": "1.2", "presence_penalty": "0.3", "frequency_penalty": "0.4", "seed": "7"}
        p.ask("x")
        check("by default the model's own values", {k: s.asked[-1].get(k) for k in ("temperature", "top_k", "top_p", "min_p", "max_tokens", "seed")} ==
              {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "max_tokens": None, "seed": None}, s.asked[-1])
        p.click("#tune")
        for k, v in values.items(): p.fill("#" + k, v)
        p.fill("#stop", "END\n###")
        p.fill("#extra", '{"ignore_eos": true}')
        p.select_option("#thinking", "off")
        p.fill("#system", "Be brief.")
        p.fill("#presetName", "Mine")
        p.button("Save").click()
        p.click("#tune")
        p.ask("y")
        sent = s.asked[-1]
        check("all that is set is sent", all(sent[k] == float(v) for k, v in values.items()) and sent["stop"] == ["END", "###"] and sent["ignore_eos"] is True and sent["chat_template_kwargs"] == {"enable_thinking": False}
              and sent["messages"][0] == {"role": "system", "content": "Be brief."}, sent)
        p.click("#tune")
        p.select_option("#preset", "Default")
        check("a preset takes all back", p.input_value("#temperature") == "" and p.input_value("#stop") == "")
        p.select_option("#preset", "Precise")
        check("another one", p.input_value("#temperature") == "0.2")
        p.reload()
        p.click("#tune")
        p.select_option("#preset", "Mine")
        check("one's own", p.input_value("#seed") == "7" and p.input_value("#system") == "Be brief.")
        p.fill("#extra", "{nothing")
        p.dispatch_event("#extra", "change")
        p.click("#tune")
        p.ask("z")
        check("what is not JSON is told", "must be JSON" in p.inner_text(".notice.error"))
        p.click("#tune")
        p.button("Delete Mine").click()
        check("deleted", p.locator("#preset option", has_text="Mine").count() == 0)
        p.select_option("#theme", "dark")
        check("the theme", p.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 24, 26)")
        p.select_option("#enter", "line")
        p.click("#tune")
        p.fill("#input", "a")
        p.press("#input", "Enter")
        check("Enter may start a line", p.input_value("#input") == "a\n")
        p.press("#input", "Control+Enter")
        p.settled()
        check("then Ctrl+Enter sends", p.texts()[-1] == "a")
    s.models = [MODEL, {**MODEL, "id": "poet", "parent": MODEL["id"], "max_model_len": 500}, {**MODEL, "id": "big", "state": "unloaded"}, {**MODEL, "id": "mid", "state": "loading"}]
    with person(browser, s.url) as p:
        p.wait_for_function("() => document.querySelectorAll('#model option').length == 4")
        check("all models, with their state", p.locator("#model option").all_inner_texts() == ["small", "poet", "big (unloaded)", "mid (loading)"])
        p.select_option("#model", "poet")
        p.ask("x")
        check("the one that was chosen", s.asked[-1]["model"] == "poet" and p.get_attribute("#meter", "aria-valuemax") == "500")
        p.click("#new")
        p.select_option("#model", MODEL["id"])
        p.ask("y")
        p.locator("#list a", has_text="x").click()
        check("each conversation has its own", eventually(lambda: p.input_value("#model") == "poet"))
        s.models = s.models[:1]
        p.reload()
        check("one that has gone is named", eventually(lambda: "poet (not here)" in p.inner_text("#model")), p.inner_text("#model"))
        s.answer = lambda body: words("Here.", end="length") if body["model"] == MODEL["id"] else refusal(404, "no such model", "model_not_found")
        p.ask("z")
        check("and asked: no other one answers in its name", s.asked[-1]["model"] == "poet" and p.sees("This model is not here any more."), p.inner_text("#log"))
        p.select_option("#model", MODEL["id"])
        p.button("Try again").click()
        p.settled()
        check("until another one is chosen", s.asked[-1]["model"] == MODEL["id"] and p.last() == "Here." and p.locator("#model option").count() == 1, p.inner_text("#log"))
    s.models = refusal(503, "Loading model")
    with person(browser, s.url) as p:
        check("a server that loads", p.sees("The model is loading"))
        p.shot("loading")
        s.models = [MODEL]
        check("until it is ready", eventually(lambda: p.locator("#model option").count() == 1, 8))


def files(browser, s):
    with person(browser, s.url) as p:
        code = FOLDER / "sort.py"
        code.write_text("print('```')\n")
        (FOLDER / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
        p.set_input_files("#pick", [str(code), str(FOLDER / "picture.png")])
        check("a text is attached", eventually(lambda: p.locator("#files .chip").count() == 1))
        check("what is no picture is refused", p.sees("picture.png is no picture that can be read."))
        check("which hides nothing", not p.evaluate("""(() => { const [a, b] = ['#toast', '.box'].map(x => document.querySelector(x).getBoundingClientRect()); return a.bottom > b.top && b.bottom > a.top; })()"""))
        p.shot("attached")
        p.ask("What does it do?")
        check("it is sent", s.asked[-1]["messages"][0]["content"] == "sort.py:\n````\nprint('```')\n````\n\nWhat does it do?", s.asked[-1]["messages"])
        check("and shown with the message", p.locator(".msg .chip").count() == 1 and p.locator("#files .chip").count() == 0)
        p.locator(".msg .chip summary").click()
        check("it can be read", "print(" in p.locator(".msg .chip pre").inner_text())
        p.set_input_files("#pick", [str(code)])
        p.button("Remove sort.py").click()
        check("and taken off", eventually(lambda: p.locator("#files .chip").count() == 0))
        p.evaluate("""() => { const d = new DataTransfer(); d.items.add(new File(['dropped text'], 'notes.txt'));
            for (const name of ['dragover', 'drop']) document.querySelector('#log').dispatchEvent(new DragEvent(name, {dataTransfer: d, bubbles: true, cancelable: true})); }""")
        check("dropped", eventually(lambda: p.locator("#files .chip", has_text="notes.txt").count() == 1))
        p.ask("")
        check("a file alone can be sent", s.asked[-1]["messages"][-1]["content"] == "notes.txt:\n```\ndropped text\n```")
        (FOLDER / "zero.bin").write_bytes(b"a\0b")
        (FOLDER / "large.txt").write_bytes(b"a" * 4000001)
        for name, why in (("zero.bin", "is not a text in UTF-8."), ("large.txt", "is larger than 4 MB.")):
            p.set_input_files("#pick", str(FOLDER / name))
            check(name + " " + why, p.sees(name + " " + why) and p.locator("#files .chip").count() == 0)


# ---- pictures

DRAW = """(() => { const c = document.createElement('canvas'); [c.width, c.height] = SIZE; const p = c.getContext('2d'), d = p.createImageData(c.width, c.height);
    for (let i = 0, x = 1; i < d.data.length; i++) d.data[i] = i % 4 === 3 ? 255 : NOISE ? (x = x * 16807 % 2147483647) % 256 : i / 97 % 256;
    p.putImageData(d, 0, 0); return c.toDataURL(KIND); })()"""


def drawn(p, path, width, height, kind="image/png", noise=False):
    """A picture that the browser makes, in a file. Its data URI."""
    url = p.evaluate(DRAW.replace("SIZE", f"[{width}, {height}]").replace("KIND", repr(kind)).replace("NOISE", "true" if noise else "false"))
    path.write_bytes(base64.b64decode(url.split(",", 1)[1]))
    return url


def facts(p, url):
    """[width, height, pixels] as the browser sees them."""
    return p.evaluate("""async url => { const i = new Image(); i.src = url; await i.decode(); const c = document.createElement('canvas'); [c.width, c.height] = [i.naturalWidth, i.naturalHeight];
        const p = c.getContext('2d'); p.drawImage(i, 0, 0); return [c.width, c.height, Array.from(p.getImageData(0, 0, 9, 9).data)]; }""", url)


def pictures(browser, s):
    """Chosen, pasted, dropped; removed; sent as parts of the message; kept with the conversation."""
    s.models = [{**MODEL, "modalities": {"vision": True}}]
    with person(browser, s.url, accept_downloads=True) as p:
        small, large, webp, vector = (FOLDER / n for n in ("small.png", "large.png", "photo.webp", "drawing.svg"))
        url = drawn(p, small, 30, 20)
        drawn(p, large, 2000, 500, noise=True)
        drawn(p, webp, 40, 40, "image/webp")
        vector.write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=1'><script>window.hit=1</script></svg>")
        p.set_input_files("#pick", [str(small)])
        check("a thumbnail", eventually(lambda: p.locator("#files .chip img").count() == 1) and p.get_attribute("#files img", "alt") == "small.png")
        p.button("Remove small.png").click()
        check("taken off", eventually(lambda: p.locator("#files .chip").count() == 0))
        p.set_input_files("#pick", [str(small), str(large)])
        check("several", eventually(lambda: p.locator("#files .chip img").count() == 2))
        p.shot("pictures-attached")
        p.ask("What is this?")
        sent = s.asked[-1]["messages"][-1]["content"]
        check("sent as parts, the text last", [x["type"] for x in sent] == ["image_url", "image_url", "text"] and sent[2]["text"] == "What is this?", str(sent)[:200])
        first, second = (x["image_url"]["url"] for x in sent[:2])
        check("a small one pixel for pixel", first.startswith("data:image/png;base64,") and facts(p, first) == facts(p, url))
        check("a large one made smaller", second.startswith("data:image/jpeg;base64,") and facts(p, second)[:2] == [1600, 400] and len(second) < 1.4e6, (facts(p, second)[:2], len(second)))
        check("shown with the question", p.locator(".msg.user img").count() == 2 and p.locator("#files .chip").count() == 0)
        p.shot("pictures-sent")
        p.reload()
        p.wait_for_selector(".msg.user img")
        check("and again when the conversation is loaded", p.evaluate("[...document.querySelectorAll('.msg.user img')].map(i => i.src)") == [first, second])
        p.ask("And its colour?")
        check("sent again with the next question", s.asked[-1]["messages"][0]["content"] == sent and s.asked[-1]["messages"][-1]["content"] == "And its colour?")
        for how in ("paste", "drop"):
            p.evaluate("""([how, url]) => { const data = new DataTransfer(), bytes = Uint8Array.from(atob(url.split(',')[1]), c => c.charCodeAt(0)); data.items.add(new File([bytes], how + '.png', {type: 'image/png'}));
                const e = how === 'paste' ? new ClipboardEvent(how, {clipboardData: data, bubbles: true, cancelable: true}) : new DragEvent(how, {dataTransfer: data, bubbles: true, cancelable: true});
                document.querySelector('#input').dispatchEvent(e); }""", [how, url])
            check(how, eventually(lambda: p.locator("#files .chip", has_text=how + ".png").locator("img").count() == 1))
        p.set_input_files("#pick", [str(webp), str(vector)])
        check("a drawing is a text", eventually(lambda: p.locator("#files .chip").count() == 4) and p.locator("#files img").count() == 3)
        p.ask("")
        sent = s.asked[-1]["messages"][-1]["content"]
        check("pictures need no words, and come in forms that the server reads", [x["type"] for x in sent] == ["image_url"] * 3 + ["text"] and "<svg" in sent[3]["text"] and all(re.match("data:image/(png|jpeg);", x["image_url"]["url"]) for x in sent[:3]), str(sent)[:200])
        p.locator(".msg.user").last.hover()
        p.button("Edit").last.click()
        p.fill(".edit textarea", "Edited")
        p.button("Send").first.click()
        p.settled()
        check("an edited question keeps its pictures", [x["type"] for x in s.asked[-1]["messages"][-1]["content"]] == ["image_url"] * 3 + ["text"])
        p.click("#tune")
        with p.expect_download() as d: p.button("Export as JSON").click()
        p.click("#tune")
        chat = json.loads(pathlib.Path(d.value.path()).read_text())["chats"][0]
        user = next(n for n in chat["nodes"].values() if n["files"])
        user["files"] += [{"name": "evil", "text": "", "url": u} for u in (s.url + "evil.png", "javascript:window.hit=1", "data:text/html,<script>window.hit=1</script>", "data:image/svg+xml;base64,PHN2Zz4=")]
        file = FOLDER / "pictures.json"
        file.write_text(json.dumps([{**chat, "id": "other", "title": "Read again", "leaf": user["id"]}]))
        p.set_input_files("#load", str(file))
        p.locator("#list a", has_text="Read again").click()
        check("read from a file: pictures only, and nothing is asked for", eventually(lambda: p.locator(".msg.user .chip").count() == 4) and p.locator(".msg.user img").count() == 2 and "/evil.png" not in s.fetched and p.evaluate("window.hit") is None, s.fetched)
    s.models = [{**MODEL, "modalities": {"vision": False}}]
    with person(browser, s.url) as p:
        p.set_input_files("#pick", [str(small)])
        check("a model without eyes", p.sees("small.png is a picture: this model reads text only.") and p.locator("#files .chip").count() == 0)
        p.shot("pictures-refused")
    s.models = [{**MODEL, "state": "unloaded"}]
    with person(browser, s.url) as p:
        s.answer = lambda body: refusal(400, "messages[0].content[0]: llama is not a multimodal model, it takes no image and no video")
        p.set_input_files("#pick", [str(small)])
        check("one of which nothing is known yet", eventually(lambda: p.locator("#files img").count() == 1))
        p.ask("What is this?")
        check("the server's words", "it takes no image and no video" in p.inner_text(".notice.error"), p.inner_text("#log"))


# ---- for everybody

CONTRAST = """() => {
  const parse = c => { const v = c.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const over = (a, b) => a.slice(0, 3).map((x, i) => x * a[3] + b[i] * (1 - a[3])).concat(1);
  const lum = c => { const v = c.slice(0, 3).map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const ratio = (a, b) => { const x = lum(a), y = lum(b); return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); };
  const back = e => { const chain = []; for (; e; e = e.parentElement) chain.unshift(parse(getComputedStyle(e).backgroundColor)); return chain.reduce((b, c) => over(c, b), [255, 255, 255, 1]); };
  const bad = [], seen = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT);
  for (let e; (e = seen.nextNode());) {
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || (e.matches('input, textarea, select') && e.type !== 'checkbox');
    if (!text && e.tagName !== 'svg' || !r.width || s.visibility === 'hidden' || e.closest('.hidden, .skip, [hidden], :disabled, dialog:not([open])') || e.closest('math')) continue;
    let seen = 1; for (let x = e; x; x = x.parentElement) seen *= getComputedStyle(x).opacity;
    if (!seen) continue;
    const large = parseFloat(s.fontSize) >= 24 || (parseFloat(s.fontSize) >= 18.66 && s.fontWeight >= 700), b = back(e), least = e.tagName === 'svg' ? 3 : large ? 3 : 4.5;
    const n = ratio(over(parse(s.color), b), b);
    if (n < least) bad.push([e.tagName, e.className.toString(), (e.textContent || '').slice(0, 30), n.toFixed(2)]);
  }
  return bad;
}"""
UNNAMED = """() => [...document.querySelectorAll('button, a, input, textarea, select, [role=meter], [role=region], [role=log], dialog, nav, aside, article')]
  .filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.innerText.trim() || (e.labels && e.labels[0] && e.labels[0].innerText.trim()))).map(e => e.outerHTML.slice(0, 120))"""


def looks(browser, s):
    """Three sizes, two themes: pictures, contrast, names; nothing sticks out sideways."""
    for theme in ("light", "dark"):
        for name, (width, height) in SIZES.items():
            s.answer = lambda body: words(RICH, think="First I look at the question.\nThen I answer it.")
            with person(browser, s.url, width, height, color_scheme=theme, device_scale_factor=1 if width > 1000 else 2) as p:
                label = f"{theme}-{name}"
                good = lambda what: (check(f"{label}, {what}: contrast", not p.evaluate(CONTRAST), p.evaluate(CONTRAST)), check(f"{label}, {what}: names", not p.evaluate(UNNAMED), p.evaluate(UNNAMED)),
                                     check(f"{label}, {what}: nothing sticks out", p.evaluate("document.documentElement.scrollWidth <= innerWidth"), p.evaluate("document.documentElement.scrollWidth")))
                p.shot(label + "-empty")
                good("empty")
                p.ask("How does a bubble sort work?")
                p.shot(label)
                good("an answer")
                p.evaluate("document.getElementById('log').scrollTop = 0")
                p.shot(label + "-top")
                p.locator(".msg.user").first.hover()
                p.button("Edit").first.click()
                for button in (".edit .main", ".edit button:not(.main)", "#tune", ".row [data-do=attach]", ".code button"):
                    p.locator(button).first.hover()
                    check(f"{label}, {button} under the pointer: contrast", not p.evaluate(CONTRAST), p.evaluate(CONTRAST))
                p.shot(label + "-edit")
                p.press(".edit textarea", "Escape")
                check(f"{label}: markdown", [p.locator(".body " + x).count() for x in ("h4", "table tr", "pre", "ol > li", "math", ".task input", "del")] == [2, 3, 2, 5, 4, 2, 1],
                      [p.locator(".body " + x).count() for x in ("h4", "table tr", "pre", "ol > li", "math", ".task input", "del")])
                check(f"{label}: a wide table scrolls by itself", p.evaluate("innerWidth > 500 || (e => e.scrollWidth > e.clientWidth)(document.querySelector('.wide'))"))
                p.click("#tune")
                p.shot(label + "-settings")
                good("settings")
                broken = p.evaluate("""() => [...document.querySelectorAll('dialog label')].filter(e => { const r = document.createRange(); r.selectNodeContents(e.firstChild.nodeType === 3 ? e.firstChild : e.lastChild);
                    return r.getClientRects().length > 1; }).map(e => e.textContent)""")
                check(f"{label}: labels do not break", not broken, broken)
                p.keyboard.press("Escape")
                check(f"{label}: Escape closes the settings", not p.evaluate("document.getElementById('settings').open"))
                if width < 861:
                    check(f"{label}: the list is out of the way", not p.locator("#list").is_visible())
                    p.click("#menu")
                    check(f"{label}: and comes when asked", p.locator("#list").is_visible() and p.get_attribute("#menu", "aria-expanded") == "true")
                    p.shot(label + "-list")
                    good("list")
                    check(f"{label}: the keyboard is in the list, not below it", p.evaluate("document.activeElement.id") == "unside" and p.evaluate("document.getElementById('main').inert"))
                    p.keyboard.press("Escape")
                    check(f"{label}: and back", p.evaluate("document.activeElement.id") == "menu" and not p.locator("#list").is_visible() and not p.evaluate("document.getElementById('main').inert"))
                    p.fill("#input", "one")
                    low = p.evaluate("document.getElementById('input').clientHeight")
                    p.button("New line").click()
                    p.keyboard.type("two")
                    check(f"{label}: a new-line key", p.input_value("#input") == "one\ntwo")
                    check(f"{label}: the input grows", p.evaluate("document.getElementById('input').clientHeight") > low + 15)
                    check(f"{label}: large enough to touch", p.evaluate("[...document.querySelectorAll('.row button:not([hidden])')].every(e => e.getBoundingClientRect().height >= 34)"))
                s.answer = lambda body: refusal(400, "the conversation has 2000 tokens", "context_length_exceeded")
                p.ask("And another one, which is a good deal longer than the first one was, so that it has to be set in more than one line on a phone?")
                p.shot(label + "-error")
                good("error")


def everybody(browser, s):
    """By keyboard alone, and what a screen reader is told."""
    with person(browser, s.url) as p:
        s.answer = lambda body: words("First block.\n\nSecond block.")
        p.keyboard.type("Hello")
        p.keyboard.press("Enter")
        p.settled()
        check("what comes is said, whole blocks", p.locator("#say p").all_inner_texts() == ["First block.", "Second block."] and p.get_attribute("#say", "role") == "log")
        check("the conversation itself is not read out word by word", p.get_attribute("#log", "aria-live") is None and p.get_attribute("#log", "role") == "region")
        check("messages have a heading each", p.locator("#log article h2").all_inner_texts() == ["You", "Answer"])
        p.fill("#input", "ni")
        taken = p.evaluate("""() => [{isComposing: true}, {keyCode: 229}].map(how => !document.getElementById("input").dispatchEvent(
            new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true, ...how})))""")
        check("Enter that ends a word of an input method sends nothing", taken == [False, False] and p.input_value("#input") == "ni" and len(s.asked) == 1, (taken, p.input_value("#input")))
        p.fill("#input", "")
        p.keyboard.press("Control+Shift+O")
        check("a new conversation", eventually(lambda: p.locator(".empty").is_visible()) and p.evaluate("document.activeElement.id") == "input")
        p.keyboard.press("Control+k")
        check("search", p.evaluate("document.activeElement.id") == "search")
        p.keyboard.press("Tab")
        check("then the list", "Hello" in p.evaluate("document.activeElement.textContent"))
        p.keyboard.press("Enter")
        check("opened", eventually(lambda: p.locator(".msg").count() == 2) and p.evaluate("document.activeElement.id") == "input")
        p.keyboard.press("Control+,")
        check("settings", p.evaluate("document.getElementById('settings').open"))
        p.keyboard.press("Control+,")
        p.focus("body")
        p.evaluate("document.activeElement.blur()")
        names, seen = [], set()
        for _ in range(40):
            p.keyboard.press("Tab")
            e = p.evaluate("""() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
                return [e === document.body ? '' : e.getAttribute('aria-label') || e.textContent.trim().slice(0, 20) || e.id, s.outlineStyle !== 'none' || e.id === 'input', r.width > 0 && r.bottom > 0]; }""")
            if e[0] == "": continue  # the end of the page
            names.append(e[0])
            seen.add((e[1], e[2]))
        wanted = {"Skip to the message", "New chat", "Search conversations", "Settings", "Conversation", "Copy", "Edit", "Regenerate", "Attach files", "Model", "Message", "Rename Hello", "Delete Hello"}
        check("Tab reaches everything", wanted <= set(names), wanted - set(names))
        check("and the focus is seen", seen == {(True, True)}, (seen, names))
        p.reload()
        p.wait_for_selector(".msg")
        p.evaluate("document.activeElement.blur()")
        p.keyboard.press("Shift+Tab")
        p.keyboard.press("Tab")
        while p.evaluate("document.activeElement.className") != "skip": p.keyboard.press("Tab")
        p.keyboard.press("Enter")
        check("the first stop skips to the message", p.evaluate("document.activeElement.id") == "input")
        p.locator("#list .item.on [data-do=rename]").focus()
        p.keyboard.press("Enter")
        p.keyboard.type("Named by keys")
        p.keyboard.press("Enter")
        check("renamed", eventually(lambda: p.titles() == ["Named by keys"]), p.titles())
        s.answer = lambda body: words("One ", end="stop")
        p.evaluate("navigator.clipboard.writeText = t => { window.copied = t; return Promise.resolve(); }")
        p.button("Copy").last.focus()
        p.keyboard.press("Enter")
        check("copied as Markdown", p.evaluate("window.copied") == "First block.\n\nSecond block." and eventually(lambda: "Copied" in p.inner_text("#say")))
        tree = p.locator("body").aria_snapshot()
        check("landmarks", all(x in tree for x in ("complementary", "main", "navigation \"Conversations\"", "banner" if "banner" in tree else "heading", "meter \"Context used\"")), tree[:800])


WITH_MODELS = [talk, with_adapters, with_eyes, several_models]
PARTS = [*WITH_MODELS, injected, heavy, hostile, streaming, queueing, branching, keeping, clocks, two_tabs, errors, context, settings, files, pictures, looks, everybody]


HOSTILE = argparse.Namespace(seed=1, texts=20)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("parts", nargs="*", metavar="PART", choices=[x.__name__ for x in PARTS] + [[]])
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--texts", type=int, default=20)
    a.parse_args(namespace=HOSTILE)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium: sys.exit("test_page: chromium is not there: python3 tests/tools/setup.py clients installs it")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for part in PARTS:
            if HOSTILE.parts and part.__name__ not in HOSTILE.parts: continue
            start = time.time()
            if part in WITH_MODELS: part(browser)
            else:
                with PageServer() as s: part(browser, s)
            print(f"{part.__name__}: {time.time() - start:.1f} s", flush=True)
        browser.close()
    finish()


if __name__ == "__main__": main()
