#!/usr/bin/env python3
"""llm_serve as outside clients see it: openai, langchain, litellm, llm, lm-eval, prometheus. Runs in the environment that `setup.py clients` makes.

    test_clients.py [PART...]      parts: openai async shapes tools embeddings responses langchain litellm router command lm_eval prometheus
Every answer and every event that the openai package receives is also validated against tests/e2e/schemas.py and, strictly, against its own types.
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", ANONYMIZED_TELEMETRY="false", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  OPENAI_API_KEY="none", NO_PROXY="*", no_proxy="*", LANGCHAIN_TRACING_V2="false")

import httpx
import jsonschema
import openai
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import schemas
from serving import MODEL, Server, check, finish, tiny_model

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
CLI = os.environ.get("LLM_CLI", "./llm_cli")
SEEN = []  # (path, streamed, status, body) of every answer the openai package got


class Tee(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A response body that is noted down while it is read."""

    def __init__(self, stream, note):
        self.stream, self.note, self.parts = stream, note, []

    def __iter__(self):
        for part in self.stream:
            self.parts.append(part)
            yield part

    async def __aiter__(self):
        async for part in self.stream:
            self.parts.append(part)
            yield part

    def close(self):
        self.stream.close()
        self.note(b"".join(self.parts))

    async def aclose(self):
        await self.stream.aclose()
        self.note(b"".join(self.parts))


def teed(request, response):
    path, kind, status = request.url.path, response.headers.get("content-type", ""), response.status_code
    response.stream = Tee(response.stream, lambda data: SEEN.append((path, kind.startswith("text/event-stream"), status, data)))
    return response


class Recorder(httpx.HTTPTransport):
    def handle_request(self, request):
        return teed(request, super().handle_request(request))


class AsyncRecorder(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        return teed(request, await super().handle_async_request(request))


def client(s, **more):
    return openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0, timeout=120, http_client=httpx.Client(transport=Recorder()), **more)


SHAPES = {("/v1/chat/completions", False): (schemas.CHAT, ChatCompletion), ("/v1/chat/completions", True): (schemas.CHUNK, ChatCompletionChunk),
          ("/v1/completions", False): (schemas.COMPLETION, Completion), ("/v1/completions", True): (schemas.COMPLETION_CHUNK, Completion), ("/v1/models", False): (schemas.MODELS, None),
          ("/v1/embeddings", False): (schemas.EMBEDDINGS, None)}
STOPPED = ("/v1/completions", True)  # chunks of a stream have finish_reason null, which the package's own type of a completion forbids


def validate_seen(part):
    """Every answer since the last call, against the schema and the package's type."""
    wrong, n = [], 0
    for path, streamed, status, data in SEEN:
        events = [x for x in data.decode().split("\n\n") if x] if streamed else [data.decode()]
        for event in events:
            if streamed and (event.startswith(":") or event == "data: [DONE]"): continue
            if streamed and (not event.startswith("data: ") or "\n" in event):
                wrong.append((path, "an event is more than one data line", event))
                continue
            schema, model = SHAPES.get((path, streamed), ({}, None)) if status == 200 else (schemas.ERROR, None)
            if path.startswith("/v1/models/"): schema, model = {}, Model
            n += 1
            try:
                value = json.loads(event[6:] if streamed else event)
                jsonschema.validate(value, schema)
                for choice in value.get("choices", []):  # the first token of an echoed prompt has no probability, which the package's own type forbids
                    logs = choice.get("logprobs") or {}
                    if None in logs.get("token_logprobs", []): logs.update(token_logprobs=[x or 0 for x in logs["token_logprobs"]], top_logprobs=[x or {} for x in logs["top_logprobs"]])
                if model and (path, streamed) != STOPPED: model.model_validate_json(json.dumps(value), strict=True)
            except (ValueError, jsonschema.ValidationError) as error:
                wrong.append((path, str(error)[:300], event[:300]))
    SEEN.clear()
    check(f"{part}: {n} answers and events have the shape", n and not wrong, wrong[:3])


def part_openai(s):
    c = client(s)
    model = c.models.list().data[0].id
    check("models", model == MODEL and c.models.retrieve(model).id == model)
    ask = dict(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    a = c.chat.completions.create(**ask)
    text = a.choices[0].message.content
    check("chat", "Paris" in text and a.choices[0].finish_reason == "stop" and a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens, a)
    chunks = list(c.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    check("streamed text", "".join(x.choices[0].delta.content or "" for x in chunks if x.choices) == text)
    check("streamed usage", chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == a.usage.completion_tokens and all(x.usage is None for x in chunks[:-1]))
    check("one id, one time", len({(x.id, x.created) for x in chunks}) == 1)
    check("one event a token", len(chunks) >= a.usage.completion_tokens, (len(chunks), a.usage))
    running = list(c.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}, extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    check("running usage", [x.usage.completion_tokens for x in running if x.choices] == sorted(x.usage.completion_tokens for x in running if x.choices))
    with c.chat.completions.stream(**ask) as stream:
        kinds = [event.type for event in stream]
        check("the package's stream helper", stream.get_final_completion().choices[0].message.content == text and kinds[-1] == "content.done" or "content.done" in kinds, kinds[-4:])
    lp = c.chat.completions.create(**ask, logprobs=True, top_logprobs=4).choices[0].logprobs.content
    check("chat logprobs", "".join(x.token for x in lp) == text and b"".join(bytes(x.bytes) for x in lp).decode() == text and all(len(x.top_logprobs) == 4 for x in lp))
    check("the greedy token is the most likely", all(x.logprob == x.top_logprobs[0].logprob and x.token == x.top_logprobs[0].token for x in lp))
    check("logprobs without top_logprobs", c.chat.completions.create(**ask, logprobs=True).choices[0].logprobs.content[0].top_logprobs == [])
    many = c.chat.completions.create(**{**ask, "temperature": 1, "seed": 5}, n=4)
    again = c.chat.completions.create(**{**ask, "temperature": 1, "seed": 5}, n=4)
    texts = [x.message.content for x in many.choices]
    check("n, seed", [x.index for x in many.choices] == [0, 1, 2, 3] and len(set(texts)) > 1 and texts == [x.message.content for x in again.choices], texts)
    pieces = [""] * 4
    for x in c.chat.completions.create(**{**ask, "temperature": 1, "seed": 5}, n=4, stream=True):
        for choice in x.choices: pieces[choice.index] += choice.delta.content or ""
    check("n streamed", pieces == texts, (pieces, texts))
    parts = c.chat.completions.create(**{**ask, "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]})
    check("content in parts", parts.choices[0].message.content == text)
    check("max_completion_tokens", c.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_completion_tokens=3).usage.completion_tokens == 3)

    base = dict(model=model, prompt="The capital of France is", temperature=0, max_tokens=12)
    plain = c.completions.create(**base)
    check("completion", "Paris" in plain.choices[0].text, plain)
    check("completion streamed", "".join(x.choices[0].text for x in c.completions.create(**base, stream=True)) == plain.choices[0].text)
    logs = c.completions.create(**base, logprobs=3, echo=True).choices[0]
    check("echo", logs.text == base["prompt"] + plain.choices[0].text and "".join(logs.logprobs.tokens) == logs.text and logs.logprobs.token_logprobs[0] is None)
    check("offsets", all(logs.text[o:].startswith(t) for o, t in zip(logs.logprobs.text_offset, logs.logprobs.tokens)))
    streamed = list(c.completions.create(**base, logprobs=3, echo=True, stream=True))
    values = [v for x in streamed for y in x.choices if y.logprobs for v in y.logprobs.token_logprobs]
    check("echo streamed: same logprobs", values == logs.logprobs.token_logprobs and "".join(y.text for x in streamed for y in x.choices) == logs.text, (values, logs.logprobs.token_logprobs))
    stop = c.completions.create(**{**base, "prompt": "1 2 3 4 5", "max_tokens": 40}, stop=["9", "never"]).choices[0]
    check("stop", stop.finish_reason == "stop" and stop.stop_reason == "9" and "9" not in stop.text, stop)
    stop2 = "".join(x.choices[0].text for x in c.completions.create(**{**base, "prompt": "1 2 3 4 5", "max_tokens": 40}, stop=["9", "never"], stream=True))
    check("stop streamed", stop2 == stop.text, (stop2, stop.text))
    a, b = (c.completions.create(**{**base, "temperature": 1}, seed=11).choices[0].text for _ in range(2))
    check("seed", a == b and a != c.completions.create(**{**base, "temperature": 1}, seed=12).choices[0].text, (a, b))
    best = c.completions.create(**{**base, "temperature": 1}, seed=3, n=2, best_of=4)
    check("best_of", len(best.choices) == 2 and best.choices[0].cum_log_probs >= best.choices[1].cum_log_probs, best)
    several = c.completions.create(**{**base, "prompt": [base["prompt"], "Two and two make"]}, n=2)
    check("several prompts", [x.index for x in several.choices] == [0, 1, 2, 3] and several.choices[1].text == plain.choices[0].text)
    ids = s.post("/tokenize", {"prompt": base["prompt"]})[1]["tokens"]
    check("ids", c.completions.create(**{**base, "prompt": ids}).choices[0].text == plain.choices[0].text == c.completions.create(**{**base, "prompt": [ids]}).choices[0].text)
    bias = c.completions.create(**{**base, "max_tokens": 1}, logit_bias={str(ids[0]): 100}).choices[0].text
    check("logit_bias", bias == s.post("/detokenize", {"tokens": ids[:1]})[1]["prompt"], bias)
    none = c.completions.create(**{**base, "max_tokens": 0}, echo=True, logprobs=1).choices[0]
    check("scoring only", none.text == base["prompt"] and len(none.logprobs.tokens) == len(ids), none)

    raw = c.chat.completions.with_raw_response.create(**ask)
    check("raw response", raw.status_code == 200 and raw.headers["content-type"].startswith("application/json") and raw.parse().choices[0].message.content == text)
    with c.completions.with_streaming_response.create(**base, stream=True) as raw:
        lines = [x for x in raw.iter_lines() if x]
    check("raw stream", lines[-1] == "data: [DONE]" and all(x.startswith("data: ") for x in lines))
    for name, call, want, param in (
            ("temperature", lambda: c.chat.completions.create(**{**ask, "temperature": 3}), openai.BadRequestError, "temperature"),
            ("messages", lambda: c.chat.completions.create(**{**ask, "messages": []}), openai.BadRequestError, "messages"),
            ("long prompt", lambda: c.completions.create(**{**base, "prompt": "word " * 5000}), openai.BadRequestError, "prompt"),
            ("route", lambda: c.post("/no/such/route", cast_to=object, body={}), openai.NotFoundError, None)):
        try: check("error " + name, False, call())
        except openai.APIStatusError as error: check("error " + name, type(error) is want and error.param == param and len(error.message) > 10, (type(error), error.body))
    sockets = s.descriptors()
    for _ in range(200): c.completions.create(model=model, prompt="a", max_tokens=1, temperature=0)
    check("200 calls over one connection", s.descriptors() <= sockets + 1, (sockets, s.descriptors()))
    stream = c.completions.create(**{**base, "max_tokens": 1500}, stream=True, extra_body={"ignore_eos": True})
    for _ in zip(range(3), stream): pass
    stream.close()
    check("a closed stream ends its request", s.wait_idle(1) is not None)
    validate_seen("openai")
    keyed = Server("--api-key", "alpha", "--strict-model-name")
    for name, c, want in (("key", client(keyed), openai.AuthenticationError), ("model", client(keyed).copy(api_key="alpha"), openai.NotFoundError)):
        try: check("error " + name, False, c.chat.completions.create(**{**ask, "model": "no-such-model"}))
        except openai.APIStatusError as error: check("error " + name, type(error) is want and (name == "key" or error.code == "model_not_found"), (type(error), error.body))
    keyed.stop()
    validate_seen("errors")


def part_models(_):
    """Two models, one at a time: listed, asked in turns, whole and streamed; one that is not there."""
    names = [tiny_model(), tiny_model("build/models/tiny_two.gguf", width=32, heads=2, kv_heads=1)]
    s = Server("--model", names[1], "--max-loaded-models", "1", model=names[0])
    c = client(s)
    check("both are listed", [(x.id, x.state) for x in c.models.list()] == [(names[0], "loaded"), (names[1], "unloaded")])
    for name in names * 2:
        ask = dict(model=name, messages=QUESTION, temperature=0, max_tokens=8)
        a, chunks = c.chat.completions.create(**ask), list(c.chat.completions.create(**ask, stream=True))
        check("the one that was asked", a.model == name and {x.model for x in chunks} == {name}, a)
        check("streamed as whole", "".join(x.choices[0].delta.content or "" for x in chunks if x.choices) == a.choices[0].message.content)
    check("they have taken turns", [(x.id, x.state) for x in c.models.list()] == [(names[0], "unloaded"), (names[1], "loaded")] and c.models.retrieve(names[0]).state == "unloaded")
    try: check("a third is not there", not c.completions.create(model="third", prompt="x"))
    except openai.NotFoundError as error: check("a third is not there", error.code == "model_not_found", error)
    s.stop()


def part_async(s):
    """64 requests at once over one client, greedy, each equal to its answer alone."""
    prompts = [f"Item {i}: the {word} is" for i, word in enumerate(("sky sea sun moon city road tree bird".split()) * 8)]

    async def run():
        async with openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0, timeout=300, http_client=httpx.AsyncClient(transport=AsyncRecorder(limits=httpx.Limits(max_connections=100)))) as c:
            async def one(i, streamed):
                ask = dict(model="default", prompt=prompts[i], temperature=0, max_tokens=16, logprobs=1)
                if not streamed:
                    x = (await c.completions.create(**ask)).choices[0]
                    return x.text, x.logprobs.token_logprobs
                text, values = "", []
                async for x in await c.completions.create(**ask, stream=True):
                    text += x.choices[0].text
                    if x.choices[0].logprobs: values += x.choices[0].logprobs.token_logprobs
                return text, values
            together = await asyncio.gather(*(one(i, i % 2) for i in range(64)))
            alone = [await one(i, False) for i in range(64)]
            return together, alone

    together, alone = asyncio.run(run())
    check("64 at once", together == alone, [(a, b) for a, b in zip(together, alone) if a != b][:2])
    validate_seen("async")


def part_shapes(s):
    """What openai's package does not send: our own fields, and the routes beside OpenAI's."""
    status, a = s.post("/v1/completions", {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "return_token_ids": True, "prompt_logprobs": 1})
    jsonschema.validate(a, schemas.COMPLETION)
    check("token_ids", len(a["choices"][0]["token_ids"]) == 3, a)
    for body in ({}, {"prompt": 1}, {"prompt": "a", "temperature": 9}):
        status, e = s.post("/v1/completions", body)
        jsonschema.validate(e, schemas.ERROR)
        check("error " + str(body), status == 400)


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
           "required": ["city", "days"], "additionalProperties": False}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}, "b": {"$ref": "#/$defs/N"}}, "required": ["a", "b"], "additionalProperties": False, "$defs": {"N": {"type": "integer"}}}}}


def part_tools(s):
    """openai's package: choices, streams, pydantic models; instructor; langchain. SmolLM2 calls nothing by itself, so calls are required."""
    import pydantic
    c = client(s)
    ask = dict(model="default", messages=[{"role": "user", "content": "What will the weather be in Paris during the next 3 days?"}], tools=[WEATHER, ADD], temperature=0, max_tokens=100)
    schemas_of = {x["function"]["name"]: x["function"]["parameters"] for x in (WEATHER, ADD)}

    def right(calls): return calls and all(not jsonschema.validate(json.loads(x.function.arguments), schemas_of[x.function.name]) for x in calls)
    a = c.chat.completions.create(**ask, tool_choice="required").choices[0]
    check("required", a.finish_reason == "tool_calls" and a.message.content is None and right(a.message.tool_calls), a)
    b = c.chat.completions.create(**ask, tool_choice={"type": "function", "function": {"name": "add"}}).choices[0]
    check("named", [x.function.name for x in b.message.tool_calls] == ["add"] and right(b.message.tool_calls), b)
    for choice in c.chat.completions.create(**{**ask, "temperature": 1.3, "seed": 4}, n=4, tool_choice="required", parallel_tool_calls=False).choices:
        check("hot, n", choice.finish_reason == "length" or (len(choice.message.tool_calls) == 1 and right(choice.message.tool_calls)), choice)
    none = c.chat.completions.create(**ask, tool_choice="none").choices[0]
    check("none", none.message.tool_calls is None and none.message.content, none)
    chunks = list(c.chat.completions.create(**ask, tool_choice="required", stream=True))
    deltas = [y for x in chunks for choice in x.choices for y in choice.delta.tool_calls or []]
    check("streamed", deltas[0].function.name == a.message.tool_calls[0].function.name and deltas[0].id and "".join(x.function.arguments for x in deltas) == a.message.tool_calls[0].function.arguments and len(deltas) > 4 and chunks[-1].choices[0].finish_reason == "tool_calls", deltas)
    with c.chat.completions.stream(**ask, tool_choice="required") as stream:
        check("the stream helper", stream.get_final_completion().choices[0].message.tool_calls[0].function.arguments == a.message.tool_calls[0].function.arguments)
    told = ask["messages"] + [{"role": "assistant", "content": None, "tool_calls": [x.model_dump() for x in a.message.tool_calls]}, {"role": "tool", "tool_call_id": a.message.tool_calls[0].id, "content": "Sunny, 20 degrees"}]
    check("the result is told", c.chat.completions.create(**{**ask, "messages": told}).choices[0].message.content)

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=30)
        country: str = pydantic.Field(max_length=30)

    class Trip(pydantic.BaseModel):
        cities: list[City] = pydantic.Field(max_length=2)
        days: int
    parsed = c.chat.completions.parse(model="default", messages=[{"role": "user", "content": "Plan a trip to Paris."}], response_format=City, temperature=0, max_tokens=100).choices[0].message.parsed
    check("parse a model", isinstance(parsed, City), parsed)
    tool = openai.pydantic_function_tool(City, name="city")
    call = c.chat.completions.parse(model="default", messages=ask["messages"], tools=[tool], tool_choice="required", temperature=0, max_tokens=100).choices[0].message.tool_calls[0]
    check("parse a call", isinstance(call.function.parsed_arguments, City), call)
    validate_seen("tools")
    import instructor
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        trip = instructor.from_openai(client(s), mode=mode).chat.completions.create(model="default", response_model=Trip, messages=[{"role": "user", "content": "Three days in Paris and Rome."}], temperature=0, max_tokens=200, max_retries=0)
        check(f"instructor {mode}", isinstance(trip, Trip), trip)
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=s.url + "/v1", api_key="none", model="default", temperature=0, max_tokens=100, max_retries=0)
    calls = chat.bind_tools([WEATHER, ADD], tool_choice="required").invoke(ask["messages"][0]["content"]).tool_calls
    check("langchain calls", calls[0]["name"] in schemas_of and set(calls[0]["args"]) == set(schemas_of[calls[0]["name"]]["required"]), calls)
    check("langchain structured output", isinstance(chat.with_structured_output(City, method="function_calling").invoke("A city: Paris, France."), City))
    SEEN.clear()


def part_embeddings(s):
    from langchain_openai import OpenAIEmbeddings
    c = client(s)
    texts = ["The sky is blue.", "The sky is blue today.", "SELECT name FROM table"]
    plain, coded = c.embeddings.create(model="default", input=texts, encoding_format="float"), c.embeddings.create(model="default", input=texts)
    check("float and base64", all(len(a.embedding) == len(b.embedding) and max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-7 for a, b in zip(plain.data, coded.data)) and plain.usage.prompt_tokens > 10, plain.usage)
    dot = lambda i, j: sum(x * y for x, y in zip(plain.data[i].embedding, plain.data[j].embedding))
    check("likeness", abs(dot(0, 0) - 1) < 1e-5 and dot(0, 1) > dot(0, 2), (dot(0, 1), dot(0, 2)))
    ids = s.post("/tokenize", {"prompt": texts[0]})[1]["tokens"]
    check("ids", c.embeddings.create(model="default", input=ids).data[0].embedding == coded.data[0].embedding)
    check("dimensions", len(c.embeddings.create(model="default", input="a", dimensions=64).data[0].embedding) == 64)
    e = OpenAIEmbeddings(base_url=s.url + "/v1", api_key="none", model="default", check_embedding_ctx_length=False)
    check("langchain embeddings", len(e.embed_documents(texts)) == 3 and len(e.embed_query("a")) == len(plain.data[0].embedding))
    validate_seen("embeddings")


def part_responses(s):
    """responses.create, plain and streamed, with tools and with a model."""
    import pydantic
    c = client(s)
    ask = dict(model="default", input=QUESTION[0]["content"], temperature=0, max_output_tokens=40)
    a = c.responses.create(**ask)
    check("response", "Paris" in a.output_text and a.status == "completed" and a.usage.total_tokens == a.usage.input_tokens + a.usage.output_tokens and a.id.startswith("resp_"), a)
    check("the same as a chat", a.output_text == c.chat.completions.create(model="default", messages=QUESTION, temperature=0, max_tokens=40).choices[0].message.content)
    parts = c.responses.create(**{**ask, "input": [{"role": "user", "content": [{"type": "input_text", "text": QUESTION[0]["content"]}]}]})
    check("items", parts.output_text == a.output_text)
    events = list(c.responses.create(**ask, stream=True))
    kinds = [x.type for x in events]
    from openai.types.responses import Response, ResponseStreamEvent # the SDK itself fills an object with whatever came
    try: check("every field that the SDK's types want", Response.model_validate(a.to_dict()) and all([pydantic.TypeAdapter(ResponseStreamEvent).validate_python(x.to_dict()) for x in events]))
    except pydantic.ValidationError as e: check("every field that the SDK's types want", False, str(e)[:500])
    check("events", kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"] and kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
          and set(kinds[4:-4]) == {"response.output_text.delta"} and [x.sequence_number for x in events] == list(range(len(events))), kinds)
    check("streamed text", "".join(x.delta for x in events if x.type.endswith("text.delta")) == a.output_text == events[-1].response.output_text)
    logged = {**ask, "include": ["message.output_text.logprobs"], "top_logprobs": 3}
    chat = c.chat.completions.create(model="default", messages=QUESTION, temperature=0, max_tokens=40, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    rows = lambda logs: [(x.token, x.logprob, [(y.token, y.logprob) for y in x.top_logprobs]) for x in logs]
    whole = c.responses.create(**logged)
    check("log-probabilities as a chat's", rows(whole.output[0].content[0].logprobs) == rows(chat) and whole.top_logprobs == 3, whole.output)
    events = list(c.responses.create(**logged, stream=True))
    check("log-probabilities streamed", rows(y for x in events if x.type.endswith("text.delta") for y in x.logprobs) == rows(events[-4].logprobs) == rows(events[-1].response.output[0].content[0].logprobs) == rows(chat))
    try: check("their types", Response.model_validate(whole.to_dict()) and all([pydantic.TypeAdapter(ResponseStreamEvent).validate_python(x.to_dict()) for x in events]))
    except pydantic.ValidationError as e: check("their types", False, str(e)[:500])
    with c.responses.stream(**ask) as stream: check("the stream helper", [x for x in stream] and stream.get_final_response().output_text == a.output_text)
    short = c.responses.create(**{**ask, "max_output_tokens": 2})
    check("incomplete", short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens", short)
    tool = {"type": "function", "name": "add", "parameters": ADD["function"]["parameters"], "strict": True}
    asked = {**ask, "input": "What is 2 plus 3?", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 80}
    call = c.responses.create(**asked).output[0]
    check("a call", call.type == "function_call" and set(json.loads(call.arguments)) == {"a", "b"}, call)
    events = list(c.responses.create(**asked, stream=True))
    check("a call streamed", "".join(x.delta for x in events if x.type.endswith("arguments.delta")) == call.arguments == events[-1].response.output[0].arguments and len(events[-1].response.output) == 1, [x.type for x in events])
    told = c.responses.create(**{**ask, "input": [{"role": "user", "content": "What is 2 plus 3?"}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "5"}]})
    check("its result is told", told.output_text, told)

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        country: str = pydantic.Field(max_length=20)
    check("parse a model", isinstance(c.responses.parse(model="default", input="A city: Paris, France.", text_format=City, temperature=0, max_output_tokens=80).output_parsed, City))
    try: check("nothing is kept", False, c.responses.create(**ask, previous_response_id=a.id))
    except openai.BadRequestError as error: check("nothing is kept", error.param == "previous_response_id", error)
    SEEN.clear()


def part_langchain(s):
    from langchain_openai import ChatOpenAI, OpenAI
    chat = ChatOpenAI(base_url=s.url + "/v1", api_key="none", model="default", temperature=0, max_tokens=24, max_retries=0, stream_usage=True)
    a = chat.invoke(QUESTION[0]["content"])
    check("langchain chat", "Paris" in a.content and a.usage_metadata["total_tokens"] > 0 and a.response_metadata["finish_reason"] == "stop", a)
    pieces = list(chat.stream(QUESTION[0]["content"]))
    check("langchain stream", "".join(x.content for x in pieces) == a.content and any(x.usage_metadata for x in pieces))
    batch = chat.batch([QUESTION[0]["content"], "Say hello."])
    check("langchain batch", batch[0].content == a.content and len(batch) == 2)
    lp = chat.bind(logprobs=True).invoke(QUESTION[0]["content"]).response_metadata["logprobs"]["content"]
    check("langchain logprobs", "".join(x["token"] for x in lp) == a.content)
    text = OpenAI(base_url=s.url + "/v1", api_key="none", model="default", temperature=0, max_tokens=8, max_retries=0).invoke("The capital of France is")
    check("langchain completion", "Paris" in text, text)


def part_litellm(s):
    import litellm
    litellm.suppress_debug_info = True
    how = dict(model="openai/default", api_base=s.url + "/v1", api_key="none", num_retries=0)
    a = litellm.completion(messages=QUESTION, temperature=0, max_tokens=24, **how)
    check("litellm chat", "Paris" in a.choices[0].message.content and a.usage.total_tokens > 0, a)
    pieces = litellm.completion(messages=QUESTION, temperature=0, max_tokens=24, stream=True, **how)
    check("litellm stream", "".join(x.choices[0].delta.content or "" for x in pieces) == a.choices[0].message.content)
    t = litellm.text_completion(prompt="The capital of France is", temperature=0, max_tokens=8, **{**how, "model": "text-completion-openai/default"})
    check("litellm completion", "Paris" in t.choices[0].text, t)
    try: check("litellm error", False, litellm.completion(messages=QUESTION, temperature=9, **how))
    except litellm.BadRequestError as error: check("litellm error", "temperature" in str(error))
    both = asyncio.run(asyncio.wait_for(gather_litellm(litellm, how), 120))
    check("litellm async", both == [a.choices[0].message.content] * 8)


async def gather_litellm(litellm, how):
    answers = await asyncio.gather(*(litellm.acompletion(messages=QUESTION, temperature=0, max_tokens=24, **how) for _ in range(8)))
    return [x.choices[0].message.content for x in answers]


def part_router(_):
    """Two replicas behind litellm's router: 100 requests are shared, and the loss of one replica loses none."""
    import litellm
    litellm.suppress_debug_info = True
    servers = [Server("--max-num-seqs", "8") for _ in range(2)]
    router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": {"model": "openai/default", "api_base": x.url + "/v1", "api_key": "none", "max_retries": 0}} for x in servers],
                            num_retries=4, retry_after=0, allowed_fails=0, cooldown_time=60, timeout=120)
    counts = [0, 0]

    async def run():
        turn, done = asyncio.Semaphore(16), 0

        async def one(i):
            nonlocal done
            async with turn:
                a = await router.acompletion(model="m", messages=[{"role": "user", "content": f"Count to {i % 7}."}], temperature=0, max_tokens=12)
            done += 1
            if done == 50:
                counts[:] = [x.metric("request_success_total") for x in servers]
                servers[1].process.kill()
            return i, a.choices[0].message.content
        return await asyncio.gather(*(one(i) for i in range(100)), return_exceptions=True)

    got = asyncio.run(run())
    lost = [x for x in got if isinstance(x, BaseException)]
    check("the router loses nothing", not lost, lost[:3])
    check("both replicas served", min(counts) >= 10, counts)
    texts = {}
    for i, text in (x for x in got if not isinstance(x, BaseException)): texts.setdefault(i % 7, set()).add(text)
    check("replicas answer alike", all(len(x) == 1 for x in texts.values()), texts)
    servers[1].process.wait()
    check("the other replica ends well", servers[0].stop() == 0)


def part_command(s):
    """The `llm` command, told of the server in its own file of models."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(
            f"- model_id: local\n  model_name: default\n  api_base: {s.url}/v1\n- model_id: local-text\n  model_name: default\n  api_base: {s.url}/v1\n  completion: true\n")
        command = pathlib.Path(sys.executable).parent / "llm"
        run = lambda *args: subprocess.run([command, *args], capture_output=True, text=True, timeout=120, env=dict(os.environ, LLM_USER_PATH=folder))
        for args in (("-m", "local"), ("-m", "local", "--no-stream")):
            p = run(*args, "-o", "temperature", "0", "-o", "max_tokens", "24", QUESTION[0]["content"])
            check("llm " + " ".join(args), p.returncode == 0 and "Paris" in p.stdout, p)
        p = run("-m", "local-text", "-o", "temperature", "0", "-o", "max_tokens", "8", "The capital of France is")
        check("llm completion", p.returncode == 0 and "Paris" in p.stdout, p)


# A small multiple-choice file: (beginning, choices, the right one).
CHOICES = [
    ("The capital of France is", ["Paris", "London", "Berlin", "Madrid"], 0), ("The sun rises in the", ["east", "west", "kitchen", "bottle"], 0), ("Two plus two equals", ["five", "four", "nine", "eleven"], 1),
    ("A dog is a kind of", ["tool", "animal", "planet", "number"], 1), ("Water freezes at zero degrees", ["Celsius", "kilograms", "meters", "dollars"], 0), ("The opposite of hot is", ["cold", "warm", "green", "loud"], 0),
    ("Shakespeare wrote the play", ["Windows", "Hamlet", "Excel", "Python"], 1), ("The largest ocean is the", ["Pacific Ocean", "Sahara", "Moon", "Thames"], 0), ("Bees make", ["honey", "steel", "paper money", "glass"], 0),
    ("A triangle has three", ["sides", "wheels", "eyes", "names"], 0), ("The Earth orbits around the", ["Sun", "Moon", "table", "cat"], 0), ("Fish live in", ["water", "books", "fire", "offices"], 0)]


def part_lm_eval(s):
    import logging
    logging.disable(logging.WARNING)
    import lm_eval
    from lm_eval.tasks import TaskManager
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "choices.jsonl")
        data.write_text("".join(json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in CHOICES))
        pathlib.Path(folder, "choices.yaml").write_text(
            f"task: choices\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data}\ntest_split: test\noutput_type: multiple_choice\n"
            'doc_to_text: "{{question}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: answer\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n')
        tasks, runs = TaskManager(include_path=folder, include_defaults=False), []
        for concurrent, batch in ((1, 1), (8, 4)):
            runs.append(lm_eval.simple_evaluate("local-completions", tasks=["choices"], task_manager=tasks, log_samples=True, bootstrap_iters=0, cache_requests=False, model_args={
                "model": MODEL, "base_url": s.url + "/v1/completions", "tokenizer_backend": "remote", "num_concurrent": concurrent, "batch_size": batch, "max_retries": 1, "max_length": 2048}))
    scores = [[[tuple(r[0]) if isinstance(r[0], (list, tuple)) else tuple(r) for r in sample["resps"]] for sample in sorted(run["samples"]["choices"], key=lambda x: x["doc_id"])] for run in runs]
    acc = [run["results"]["choices"]["acc,none"] for run in runs]
    check("lm-eval: 1 and 8 at once agree", acc[0] == acc[1] and scores[0] == scores[1], (acc, scores[0][:1], scores[1][:1]))
    check("lm-eval: better than chance", acc[0] > 0.6, acc)
    print(f"lm-eval: accuracy {acc[0]:.3f} over {len(CHOICES)} questions")
    worst = 0
    for i in range(0, len(CHOICES), 2):
        question, choices, _ = CHOICES[i]
        skip = len(s.post("/tokenize", {"prompt": question, "add_special_tokens": False})[1]["tokens"])
        for j, choice in enumerate(choices[:2]):
            ids = s.post("/tokenize", {"prompt": question + " " + choice, "add_special_tokens": False})[1]["tokens"]
            p = subprocess.run([CLI, "score", "-m", MODEL, "--token-ids", json.dumps(ids), "--json"], capture_output=True, text=True)
            worst = max(worst, abs(sum(json.loads(p.stdout)["logprobs"][skip:]) - float(scores[0][i][j][0])))
    check("lm-eval: sums equal llm_cli score", worst < 1e-4, worst)
    print(f"lm-eval: largest difference from llm_cli score {worst:.2g}")


def part_prometheus(s):
    from prometheus_client.parser import text_string_to_metric_families
    families = {x.name: x for x in text_string_to_metric_families(s.request("GET", "/metrics")[2].decode())}
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions", "prompt_tokens", "generation_tokens", "request_success", "time_to_first_token_seconds",
                 "time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prompt_tokens", "request_generation_tokens", "prefix_cache_queries", "prefix_cache_hits"):
        check("metric vllm:" + name, "vllm:" + name in families, sorted(families))
    for name, family in families.items():
        check("help of " + name, family.documentation)
        if family.type != "histogram": continue
        buckets = [x for x in family.samples if x.name.endswith("_bucket")]
        count = next(x.value for x in family.samples if x.name.endswith("_count"))
        check("buckets of " + name, [x.value for x in buckets] == sorted(x.value for x in buckets) and buckets[-1].labels["le"] == "+Inf" and buckets[-1].value == count, buckets[-2:])


def main():
    parts = {k[5:]: v for k, v in globals().items() if k.startswith("part_")}
    wanted = sys.argv[1:] or list(parts)
    s = Server("--max-num-seqs", "64", "--max-model-len", "2048")
    for name in wanted:
        start = time.time()
        try: parts[name](s)
        except Exception as error:  # one client's surprise must not hide the others
            traceback.print_exc()
            check(f"{name} runs to its end", False, f"{type(error).__name__}: {error}")
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
        check(f"{name}: the server lives", s.alive())
    check("SIGTERM", s.stop() == 0)
    finish()


main()
