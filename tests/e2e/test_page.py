#!/usr/bin/env python3
"""The chat page in headless Chromium: send, stream, stop, regenerate, edit, reload, what is injected stays text, phone width, both themes.

    test_page.py [FOLDER]      screenshots go to FOLDER (build/page)
Runs in the environment that `setup.py clients` makes, with the system's Chromium. A page of its own answers in place of the model where a test must know
what the model says: requests of the page are caught and answered here.
"""
import json
import pathlib
import shutil
import sys
import time

from playwright.sync_api import sync_playwright

from serving import Server, check, finish

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/page")
EVIL = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script> [a](javascript:window.hit=1) <b>bold</b> `<i>code</i>` **<u>x</u>**"
RICH = """Here is how a *bubble sort* works, and what it **costs**.

## The idea

1. Compare two neighbours.
2. Swap them when they are in the wrong order.
3. Repeat until nothing is swapped.

```python
def sort(a):
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a
```

| case | comparisons | swaps |
| --- | --- | --- |
| best | n - 1 | 0 |
| worst | n(n - 1) / 2 | n(n - 1) / 2 |

> Use the library's `sorted()` for anything real.

- stable: equal items keep their order
- in place: no second list

See [Wikipedia](https://en.wikipedia.org/wiki/Bubble_sort) for more.
"""


def canned(page, text):
    """Lets the page's requests be answered with `text`."""
    events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
    events += [{"choices": [{"index": 0, "delta": {"content": text[i:i + 9]}, "finish_reason": None}]} for i in range(0, len(text), 9)]
    events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(text) // 4, "total_tokens": 9 + len(text) // 4}}]
    body = "".join("data: " + json.dumps(x) + "\n\n" for x in events) + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))


def send(page, text):
    page.fill("#input", text)
    page.press("#input", "Enter")


def settled(page):
    page.wait_for_selector("#send:not(.stop)", timeout=60000)


def last(page):
    return page.locator(".msg.assistant .body").last.inner_text()


def shot(page, name):
    page.wait_for_timeout(250)
    page.screenshot(path=str(FOLDER / (name + ".png")))


def talk(page, s, errors):
    """With the real model."""
    page.goto(s.url)
    check("an empty page invites", page.locator(".empty").is_visible() and page.evaluate("document.activeElement.id") == "input")
    shot(page, "empty")
    page.click("#tune")
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "40")
    page.fill("#system", "Answer in one sentence.")
    page.dispatch_event("#system", "change")
    page.click("#tune")
    send(page, "What is the capital of France?")
    settled(page)
    check("an answer", "Paris" in last(page), last(page))
    check("its speed", "tokens/s" in page.locator(".msg.assistant .tools").last.inner_text(), page.locator(".msg.assistant .tools").last.inner_text())
    check("the title", "capital of France" in page.inner_text("#title"))
    first = last(page)
    page.get_by_role("button", name="Regenerate").click()
    settled(page)
    check("regenerated, greedy: the same", last(page) == first, (last(page), first))
    page.click("#tune")
    page.fill("#max_tokens", "1500")
    page.click("#tune")
    send(page, "Write a very long story about the sea.")
    page.wait_for_function("() => { const b = document.querySelectorAll('.msg.assistant .body'); return b[b.length - 1].innerText.length > 60; }", timeout=60000)
    grown = last(page)
    page.wait_for_timeout(400)
    check("it streams", len(last(page)) > len(grown), (grown, last(page)))
    page.click("#send")
    settled(page)
    check("stopped", s.wait_idle(2) is not None and len(last(page)) > 60)
    stopped = last(page)
    page.reload()
    check("reload keeps the conversation", page.locator(".msg").count() == 4 and last(page) == stopped, page.locator(".msg").count())
    check("and the settings", page.input_value("#temperature") == "0" and page.input_value("#system") == "Answer in one sentence.")
    page.locator(".msg.user").first.hover()
    page.get_by_role("button", name="Edit").first.click()
    page.fill(".edit textarea", "What is the capital of Italy?")
    page.get_by_role("button", name="Send").first.click()
    settled(page)
    check("edited: what came after is gone", page.locator(".msg").count() == 2 and "Italy" in last(page), last(page))
    page.click("#new")
    check("a new conversation is empty", page.locator(".msg").count() == 0)
    send(page, "Hello")
    settled(page)
    check("two conversations", page.locator("#list a").count() == 2)
    page.locator("#list a").last.click()
    check("the other one again", "Italy" in last(page))
    page.locator("#list .row").first.hover()
    page.locator("#list .row button").first.click()
    check("one deleted", page.locator("#list a").count() == 1)
    check("no error on the page", not errors, errors)


def injected(page, s, errors):
    """What the model or the user writes is text, whatever it looks like; nothing outside is asked for."""
    canned(page, EVIL + "\n\n" + EVIL)
    page.goto(s.url)
    send(page, EVIL)
    settled(page)
    page.wait_for_timeout(300)
    check("nothing runs", page.evaluate("window.hit") is None)
    check("nothing becomes markup", page.locator("#log img, #log script, #log b, #log u, #log i").count() == 0 and page.locator("#log a").count() == 0, page.locator("#log").inner_html()[:400])
    check("it is there as text", "<script>window.hit=1</script>" in page.inner_text("#log"))
    page.reload()
    check("nor after a reload", page.evaluate("window.hit") is None and page.locator("#log img").count() == 0)
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=400, content_type="application/json", body=json.dumps({"error": {"message": "temperature is <b>bad</b>", "type": "x", "param": None, "code": None}})))
    page.click("#new")
    send(page, "x")
    settled(page)
    check("an error is told", "temperature is <b>bad</b>" in last(page), last(page))
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda route: route.abort())
    page.get_by_role("button", name="Regenerate").click()
    settled(page)
    check("a lost server is told", page.locator(".error").count() == 1 and len(page.inner_text(".error")) > 10, last(page))
    page.unroute("**/v1/chat/completions")


def looks(browser, s):
    """Screenshots of both themes and of a phone; nothing may stick out sideways."""
    for theme in ("light", "dark"):
        for name, width, height in (("desktop", 1280, 860), ("phone", 390, 780)):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1 if width > 1000 else 2)
            page = context.new_page()
            canned(page, RICH)
            page.goto(s.url)
            send(page, "How does a bubble sort work?")
            settled(page)
            shot(page, f"{theme}-{name}")
            page.evaluate("document.getElementById('log').scrollTop = 0")
            shot(page, f"{theme}-{name}-top")
            check(f"{theme} {name}: markdown", page.locator(".body h2, .body h3").count() == 1 and page.locator(".body table tr").count() == 3 and page.locator(".body pre").count() == 1 and page.locator(".body li").count() == 5 and page.locator(".body a").count() == 1)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            check(f"{theme} {name}: nothing sticks out", wide <= 0 and page.evaluate("document.getElementById('send').getBoundingClientRect().right") <= width, wide)
            page.click("#tune")
            shot(page, f"{theme}-{name}-settings")
            page.click("#tune")
            if name == "phone":
                check("the list is out of the way", not page.locator("#list").is_visible())
                page.click("#menu")
                check("and comes when asked", page.locator("#list").is_visible())
                shot(page, f"{theme}-{name}-list")
            contrast = page.evaluate("""() => { const lum = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; }); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
                const s = getComputedStyle(document.body), a = lum(s.color), b = lum(s.backgroundColor); return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); }""")
            check(f"{theme} {name}: readable", contrast > 7, contrast)
            context.close()


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium: sys.exit("test_page: chromium is not there: python3 tests/tools/setup.py clients installs it")
    FOLDER.mkdir(parents=True, exist_ok=True)
    s = Server("--max-model-len", "4096")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for part in (talk, injected):
            context, errors, outside = browser.new_context(viewport={"width": 1200, "height": 800}), [], []
            page = context.new_page()
            page.on("pageerror", lambda e: errors.append(str(e)))
            page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
            page.on("request", lambda r: outside.append(r.url) if not r.url.startswith((s.url, "data:", "blob:")) else None)
            start = time.time()
            part(page, s, errors)
            check(f"{part.__name__}: nothing from outside", not outside, outside)
            print(f"{part.__name__}: {time.time() - start:.1f} s", flush=True)
            context.close()
        looks(browser, s)
        browser.close()
    check("SIGTERM", s.stop() == 0)
    finish()


main()
