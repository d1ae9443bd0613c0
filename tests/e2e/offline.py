"""llm.h's offline interface from Python: libllm.so through ctypes, with the classes of FastDeploy (LLM, SamplingParams) and LMDeploy (pipeline,
GenerationConfig, TurbomindEngineConfig, PytorchEngineConfig). Standard library only; `make lib` builds what it loads.

The structs are those of >>api-easy in llm.h, field by field; the library is told their sizes (SIZES), so that a later one fits too. Options and parameters go over as JSON, so that every name that llm.h knows may be used.
"""
import ctypes
import json
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_uint32, c_void_p, sizeof

LIBRARY = os.environ.get("LLM_LIBRARY", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "libllm.so"))
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_char_p, c_double)
LOG = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_char_p)
GETENV = ctypes.cast(ctypes.CDLL(None).getenv, c_void_p)  # the library reads no environment of its own
MODELS = {}  # a document's model name to a path


class Prompt(Structure):
    _fields_ = [("prompt", c_char_p), ("prompt_token_ids", POINTER(c_int32)), ("n_prompt_token_ids", c_int32), ("messages", c_char_p), ("json", c_char_p)]


class BatchConfig(Structure):
    _fields_ = [("sampling_params", c_void_p), ("params", c_char_p), ("progress", PROGRESS), ("progress_user", c_void_p)]


class _Completion(Structure):
    _fields_ = [("index", c_int32), ("send_idx", c_int32), ("token_ids", POINTER(c_int32)), ("n_token_ids", c_int32), ("text", c_char_p),
                ("reasoning_content", c_char_p), ("finish_reason", c_char_p), ("cum_logprob", c_double)]


class _Metrics(Structure):
    _fields_ = [(name, c_double) for name in ("arrival_time", "inference_start_time", "first_token_time", "finish_time", "time_in_queue", "model_forward_time",
                                              "model_execute_time")] + [(name, c_int32) for name in ("n_prompt_tokens", "n_cached_tokens", "n_preemptions")] + [("preprocess_cost_time", c_double)]


class _Request(Structure):
    _fields_ = [("request_id", c_char_p), ("prompt", c_char_p), ("prompt_token_ids", POINTER(c_int32)), ("n_prompt_token_ids", c_int32), ("outputs", _Completion),
                ("finished", c_int32), ("metrics", _Metrics), ("num_cached_tokens", c_int32), ("error_code", c_int32), ("error_msg", c_char_p)]


class _Outputs(Structure):
    _fields_ = [("items", POINTER(_Request)), ("n", c_int32), ("n_failed", c_int32), ("ignored", c_char_p)]


class _Sizes(Structure):
    """llm_sizes; 0 for structs that are not used here."""
    _fields_ = [(name, c_uint32) for name in (
        "sizes", "json_limits", "model_config", "render_options", "template_caps", "grammar_config", "sampling", "engine_config", "engine_stats", "request_config",
        "event", "output", "request_metrics", "prompt", "batch_config", "completion_output", "request_output", "setup", "openai_service")]


SIZES = _Sizes(sizes=sizeof(_Sizes), prompt=sizeof(Prompt), batch_config=sizeof(BatchConfig), completion_output=sizeof(_Completion),
               request_metrics=sizeof(_Metrics), request_output=sizeof(_Request))


def library():
    lib = ctypes.CDLL(LIBRARY)
    lib.llm_open_with.restype, lib.llm_open_with.argtypes = c_void_p, [c_char_p, c_char_p, c_void_p, LOG, c_void_p]
    lib.llm_notes.restype, lib.llm_notes.argtypes = c_char_p, [c_void_p]
    lib.llm_free.argtypes = [c_void_p]
    lib.llm_last_error.restype = c_char_p
    for f in (lib.llm_generate_batch_sized, lib.llm_chat_batch_sized):
        f.restype, f.argtypes = POINTER(_Outputs), [POINTER(_Sizes), c_void_p, POINTER(Prompt), c_int32, POINTER(BatchConfig)]
    lib.llm_outputs_free.argtypes = [POINTER(_Outputs)]
    return lib


class Value:
    """A struct's values as an object that needs no library: texts decoded, arrays as lists."""

    def __init__(self, struct):
        for name, kind in struct._fields_:
            v = getattr(struct, name)
            if isinstance(v, Structure): v = Value(v)
            elif kind == POINTER(c_int32): v = v[:getattr(struct, "n_" + name)]
            elif isinstance(v, bytes): v = v.decode()
            setattr(self, name, v)

    def __repr__(self): return repr(self.__dict__)


class SamplingParams(dict):
    """Any parameters by name: FastDeploy's SamplingParams and LMDeploy's GenerationConfig."""

    def __init__(self, **fields): super().__init__(fields)


GenerationConfig = TurbomindEngineConfig = PytorchEngineConfig = SamplingParams


class LLM:
    def __init__(self, model, **options):
        """notes: what was taken without effect, a line each; log: what was told, [(level, line)]; ignored: parameters of the latest call without effect."""
        self.lib, self.log, self.ignored = library(), [], ""
        self.listener = LOG(lambda user, level, line: self.log.append((level, line.decode())))
        self.handle = self.lib.llm_open_with(MODELS.get(model, model).encode(), json.dumps(options).encode(), GETENV, self.listener, None)
        if not self.handle: raise ValueError(self.lib.llm_last_error().decode())
        self.notes = self.lib.llm_notes(self.handle).decode().splitlines()

    def __del__(self):
        if getattr(self, "handle", None): self.lib.llm_free(self.handle)

    def _run(self, f, prompts, params, use_tqdm, kwargs=None):
        array = (Prompt * max(1, len(prompts)))()
        for p, to in zip(prompts, array):
            if isinstance(p, str): to.prompt = p.encode()
            elif isinstance(p, dict): to.json = json.dumps(p).encode()
            elif p and isinstance(p[0], int): to.prompt_token_ids, to.n_prompt_token_ids = (c_int32 * len(p))(*p), len(p)
            else: to.messages = json.dumps(p).encode()
        progress = use_tqdm if callable(use_tqdm) else lambda done: 0
        fields = dict(params or {}, **({"chat_template_kwargs": kwargs} if kwargs else {}))
        config = BatchConfig(None, json.dumps(fields).encode(), PROGRESS(lambda user, what, done: progress(done) or 0), None)
        out = f(ctypes.byref(SIZES), self.handle, array, len(prompts), ctypes.byref(config))
        if not out: raise RuntimeError(self.lib.llm_last_error().decode())
        values = [Value(out.contents.items[i]) for i in range(out.contents.n)]
        self.ignored = out.contents.ignored.decode() if out.contents.ignored else ""
        self.lib.llm_outputs_free(out)
        return values

    def generate(self, prompts, sampling_params=None, use_tqdm=True):
        one = isinstance(prompts, (str, dict)) or bool(prompts) and isinstance(prompts[0], int)
        return self._run(self.lib.llm_generate_batch_sized, [prompts] if one else prompts, sampling_params, use_tqdm)

    def chat(self, messages, sampling_params=None, use_tqdm=True, chat_template_kwargs=None):
        one = isinstance(messages, (str, dict)) or bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]
        return self._run(self.lib.llm_chat_batch_sized, [messages] if one else messages, sampling_params, use_tqdm, chat_template_kwargs)


class Response:
    """LMDeploy's answer."""

    def __init__(self, output):
        self.text, self.generate_token_len, self.input_token_len = output.outputs.text, output.outputs.n_token_ids, output.n_prompt_token_ids
        self.finish_reason, self.session_id = output.outputs.finish_reason, output.outputs.index

    def __repr__(self): return f"Response({self.__dict__})"


def pipeline(model_path, model_name=None, backend_config=None, chat_template_config=None, log_level="ERROR"):
    options = dict(backend_config or {}, log_level=log_level.lower())
    for name, value in (("model_name", model_name), ("chat_template_config", chat_template_config)):
        if value: options[name] = value
    llm = LLM(model_path, **{k: v for k, v in options.items() if v not in (None, "")})

    def run(prompts, gen_config=None, do_preprocess=True, use_tqdm=False, **params):
        fields = dict(gen_config or {}, **params, **({} if do_preprocess else {"do_preprocess": False}))
        answers = [Response(x) for x in llm.chat([prompts] if isinstance(prompts, str) else prompts, fields, use_tqdm)]
        return answers[0] if isinstance(prompts, str) else answers
    run.llm = llm
    return run
