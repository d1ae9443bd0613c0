"""JSON Schemas of what llm_serve answers: OpenAI's shapes, strict (a missing or an unknown field fails), with the fields we add by name."""

TEXT, INT, NUMBER, BOOL = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "number"}, {"type": "boolean"}


def null(schema):
    return {"anyOf": [schema, {"type": "null"}]}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def thing(required, optional=None):
    """An object with exactly these fields."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required), "additionalProperties": False}


LOGPROB = {"type": "number", "maximum": 0}
USAGE = thing({"prompt_tokens": INT, "completion_tokens": INT, "total_tokens": INT},
              {"prompt_tokens_details": null(thing({"cached_tokens": INT})), "completion_tokens_details": null(thing({"reasoning_tokens": INT}))})
TOKEN = {"token": TEXT, "logprob": LOGPROB, "bytes": null(array({"type": "integer", "minimum": 0, "maximum": 255}))}
CHAT_LOGPROBS = thing({"content": null(array(thing({**TOKEN, "top_logprobs": array(thing(TOKEN))}))), "refusal": {"type": "null"}})
COMPLETION_LOGPROBS = thing({"tokens": array(TEXT), "token_logprobs": array(null(LOGPROB)), "text_offset": array(INT),
                             "top_logprobs": null(array(null({"type": "object", "additionalProperties": LOGPROB})))})
STOP_REASON = {"stop_reason": {"anyOf": [TEXT, INT, {"type": "null"}]}}
OURS = {**STOP_REASON, "sentence_length": INT, "cum_log_probs": NUMBER, "token_ids": null(array(INT)), "prompt_logprobs": {}, "prompt_token_ids": null(array(INT))}
EXTRA = {"metrics": {"type": "object"}, "prompt_logprobs": {}, "prompt_token_ids": null(array(INT))}
CHAT_FINISH = {"enum": ["stop", "length", "tool_calls", "content_filter", "function_call"]}
FINISH = {"enum": ["stop", "length", "content_filter"]}


def head(kind, prefix):
    return {"id": {"type": "string", "pattern": f"^{prefix}-[0-9a-zA-Z]+$"}, "object": {"const": kind}, "created": {"type": "integer", "minimum": 1600000000},
            "model": {"type": "string", "minLength": 1}, "system_fingerprint": {"type": "string", "pattern": "^b"}}


CALL_ID = {"type": "string", "pattern": "^call_[0-9a-zA-Z]+$"}
CALL = thing({"id": CALL_ID, "type": {"const": "function"}, "function": thing({"name": TEXT, "arguments": TEXT})})
CALL_DELTA = {"anyOf": [thing({"index": INT, "id": CALL_ID, "type": {"const": "function"}, "function": thing({"name": TEXT, "arguments": {"const": ""}})}),
                        thing({"index": INT, "function": thing({"arguments": {"type": "string", "minLength": 1}})})]}
MESSAGE = thing({"role": {"const": "assistant"}, "content": null(TEXT), "refusal": null(TEXT)}, {"tool_calls": array(CALL, minItems=1), "reasoning_content": TEXT, "reasoning": TEXT, "annotations": array({})})
CHAT = thing({**head("chat.completion", "chatcmpl"), "usage": USAGE, "choices": array(thing(
    {"index": INT, "message": MESSAGE, "logprobs": null(CHAT_LOGPROBS), "finish_reason": CHAT_FINISH}, OURS), minItems=1)}, EXTRA)
DELTA = thing({}, {"tool_calls": array(CALL_DELTA, minItems=1, maxItems=1), "role": {"const": "assistant"}, "content": null(TEXT), "reasoning_content": TEXT, "reasoning": TEXT, "refusal": null(TEXT)})
CHUNK = thing({**head("chat.completion.chunk", "chatcmpl"), "choices": array(thing(
    {"index": INT, "delta": DELTA, "finish_reason": null(CHAT_FINISH)}, {"logprobs": null(CHAT_LOGPROBS), **OURS}))}, {"usage": null(USAGE), **EXTRA})
COMPLETION_CHOICE = thing({"index": INT, "text": TEXT, "logprobs": null(COMPLETION_LOGPROBS), "finish_reason": FINISH}, OURS)
COMPLETION = thing({**head("text_completion", "cmpl"), "usage": USAGE, "choices": array(COMPLETION_CHOICE, minItems=1)}, EXTRA)
COMPLETION_CHUNK = thing({**head("text_completion", "cmpl"), "choices": array(thing(
    {"index": INT, "text": TEXT, "finish_reason": null(FINISH)}, {"logprobs": null(COMPLETION_LOGPROBS), **OURS}))}, {"usage": null(USAGE), **EXTRA})
EMBEDDINGS = thing({"object": {"const": "list"}, "model": TEXT, "usage": thing({"prompt_tokens": INT, "total_tokens": INT}), "data": array(thing(
    {"object": {"const": "embedding"}, "index": INT, "embedding": {"anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9+/]+=*$"}, array(NUMBER, minItems=1)]}}), minItems=1)}, {"id": TEXT, "created": INT})
MODELS = thing({"object": {"const": "list"}, "data": array({"type": "object", "required": ["id", "object", "created", "owned_by", "state", "status"], "properties": {
    "id": TEXT, "object": {"const": "model"}, "created": INT, "owned_by": TEXT, "max_model_len": INT, "modalities": thing({"vision": {"type": "boolean"}}), "state": {"enum": ["unloaded", "loading", "loaded", "failed"]},
    "status": thing({"value": {"enum": ["unloaded", "loading", "loaded"]}}, {"failed": {"const": True}})},
    "if": {"properties": {"state": {"const": "loaded"}}}, "then": {"required": ["max_model_len", "modalities"]}}, minItems=1)})
ERROR = thing({"error": thing({"message": {"type": "string", "minLength": 5, "maxLength": 900}, "type": TEXT, "param": null(TEXT), "code": null(TEXT)})})
