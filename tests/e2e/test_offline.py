#!/usr/bin/env python3
"""The offline examples of the documents, run on libllm.so through ctypes (tests/e2e/offline.py): LMDeploy's as they are printed, FastDeploy's line by line.

usage: tests/e2e/test_offline.py     env LLM_LIBRARY (default ./libllm.so). Needs a model for its tokenizer.
"""
import contextlib
import io
import pathlib
import re
import sys
import time
import types

import offline
from serving import MODEL, check, finish, tiny_model

TINY = tiny_model("build/models/tiny8k.gguf", context=8192)
# The document lost its line ends; here they are again. Every line must stand there as it stands here.
FASTDEPLOY = {
    "chat": '''
from fastdeploy import LLM, SamplingParams
msg1=[
    {"role": "system", "content": "I'm a helpful AI assistant."},
    {"role": "user", "content": "把李白的静夜思改写为现代诗"},
]
msg2 = [
    {"role": "system", "content": "I'm a helpful AI assistant."},
    {"role": "user", "content": "Write me a poem about large language model."},
]
messages = [msg1, msg2]
# 采样参数
sampling_params = SamplingParams(top_p=0.95, max_tokens=6400)
# 加载模型
llm = LLM(model="baidu/ERNIE-4.5-0.3B-Paddle", tensor_parallel_size=1, max_model_len=8192)
# 批量进行推理(llm内部基于资源情况进行请求排队、动态插入处理)
outputs = llm.chat(messages, sampling_params)
# 输出结果
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs.text
''',
    "a picture": '''
from fastdeploy.entrypoints.llm import LLM
# 加载模型
llm = LLM(model="baidu/ERNIE-4.5-VL-28B-A3B-Paddle", tensor_parallel_size=1, max_model_len=32768, enable_mm=True, limit_mm_per_prompt={"image": 100}, reasoning_parser="ernie-45-vl")
outputs = llm.chat(
    messages=[
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://paddlenlp.bj.bcebos.com/datasets/paddlemix/demo_images/example2.jpg"}},
            {"type": "text", "text": "图中的文物属于哪个年代"}]}
    ],
    chat_template_kwargs={"enable_thinking": False})
# 输出结果
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs.text
    reasoning_text = output.outputs.reasoning_content
''',
    "generate": r'''
from fastdeploy import LLM, SamplingParams
prompts = [
    "User: 帮我写一篇关于深圳文心公园的500字游记和赏析。\nAssistant: 好的。"
]
# 采样参数
sampling_params = SamplingParams(top_p=0.95, max_tokens=6400)
# 加载模型
llm = LLM(model="baidu/ERNIE-4.5-21B-A3B-Base-Paddle", tensor_parallel_size=1, max_model_len=8192)
# 批量进行推理(llm内部基于资源情况进行请求排队、动态插入处理)
outputs = llm.generate(prompts, sampling_params)
# 输出结果
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs.text
''',
    "early stop": '''
from fastdeploy.engine.sampling_params import SamplingParams
from fastdeploy.entrypoints.llm import LLM
model_name_or_path = "baidu/ERNIE-4.5-0.3B-Paddle"
sampling_params = SamplingParams(temperature=0.1, max_tokens=30)
llm = LLM(model=model_name_or_path, tensor_parallel_size=1, enable_early_stop=True)
output = llm.generate(prompts="who are you?", use_tqdm=True, sampling_params=sampling_params)
print(output)
''',
    "early stop, its numbers": '''
from fastdeploy.engine.sampling_params import SamplingParams
from fastdeploy.entrypoints.llm import LLM
model_name_or_path = "baidu/ERNIE-4.5-0.3B-Paddle"
early_stop_config = {"enable_early_stop":True, "window_size":1000, "threshold":0.9}
sampling_params = SamplingParams(temperature=0.1, max_tokens=30)
llm = LLM(model=model_name_or_path, tensor_parallel_size=1, early_stop_config=early_stop_config)
output = llm.generate(prompts="who are you?", use_tqdm=True, sampling_params=sampling_params)
print(output)
'''}


def stand_in():
    """The modules that the examples import."""
    for name in ("fastdeploy", "fastdeploy.engine", "fastdeploy.engine.sampling_params", "fastdeploy.entrypoints", "fastdeploy.entrypoints.llm", "lmdeploy"):
        module = sys.modules[name] = types.ModuleType(name)
        vars(module).update({x: getattr(offline, x) for x in ("LLM", "SamplingParams", "pipeline", "GenerationConfig", "TurbomindEngineConfig", "PytorchEngineConfig")})
    offline.MODELS.update({name: TINY for name in ("baidu/ERNIE-4.5-0.3B-Paddle", "baidu/ERNIE-4.5-21B-A3B-Base-Paddle", "internlm/internlm-chat-7b")})
    offline.MODELS["baidu/ERNIE-4.5-VL-28B-A3B-Paddle"] = tiny_model("build/models/tiny32k.gguf", context=32768)


def run(source):
    names = {"__name__": "example"}
    with contextlib.redirect_stdout(io.StringIO()) as out: exec(source, names)
    return names, out.getvalue()


def whole(x, ids=False):
    """Every field of a RequestOutput is filled in."""
    o, m = x.outputs, x.metrics
    good = x.request_id and (x.prompt or ids) and len(x.prompt_token_ids) > 0 and x.finished == 1 and x.error_code == 0 and x.error_msg is None
    return good and len(o.token_ids) > 0 and o.send_idx == len(o.token_ids) - 1 and o.finish_reason in ("stop", "length") and m.arrival_time > 1e9 and (
        m.arrival_time <= m.inference_start_time <= m.finish_time and m.model_execute_time >= m.model_forward_time >= m.first_token_time > 0 and m.time_in_queue >= 0
        and 0 < m.preprocess_cost_time < 60 and m.model_execute_time >= m.preprocess_cost_time + m.time_in_queue + m.model_forward_time - 1e-6
        and abs(m.inference_start_time - m.arrival_time - m.preprocess_cost_time - m.time_in_queue) < 1e-3)


def documents():
    read = lambda name: (pathlib.Path("tests/data/documents") / name).read_text(encoding="utf-8")
    squeeze = lambda s: re.sub(r"\s+", "", s)
    everything = squeeze(read("early_stop.txt") + read("offline.txt"))
    for name, source in FASTDEPLOY.items():
        check(f"{name}: as the document has it", squeeze(source) in everything)
        names, printed = run(source)
        outputs = names.get("outputs") or names["output"]
        if name == "a picture": # there are no images here: that request fails by itself, in words
            check(name, outputs[0].error_code == 400 and "text" in outputs[0].error_msg and outputs[0].outputs.finish_reason == "error", outputs)
            continue
        check(f"{name}: answers", len(outputs) == (2 if name == "chat" else 1) and all(whole(x) for x in outputs), outputs)
        if name == "chat": check("chat: through the template", all("helpful AI assistant" in x.prompt for x in outputs) and [x.outputs.index for x in outputs] == [0, 1], outputs)
        if name == "generate": check("generate: the prompt alone", outputs[0].prompt == names["prompts"][0], outputs[0].prompt)
        if "early" in name: check(f"{name}: printed", "prompt_token_ids" in printed and len(outputs[0].outputs.token_ids) <= 30, printed)
    blocks = re.findall(r"^from lmdeploy import .*?^print\(response\)$", read("pipeline.txt"), re.M | re.S)
    check("LMDeploy: its five examples", len(blocks) == 5, len(blocks))
    for i, block in enumerate(blocks):
        names, printed = run(block)
        r = names["response"]
        check(f"LMDeploy, example {i + 1}", len(r) == 2 and all(x.generate_token_len > 0 and x.input_token_len > 0 and x.finish_reason in ("stop", "length") for x in r) and "text" in printed, r)
        if "GenerationConfig" in block: check(f"LMDeploy, example {i + 1}: 1024 tokens at most", all(x.generate_token_len <= 1024 for x in r), r)


def batches():
    """What the documents do not show: order, one failing alone, names, progress, cancelling, refusals."""
    llm = offline.LLM(TINY, session_len=512, max_batch_size=3, tp=1, block_size=64)
    seen = []
    prompts = [[5, 6, 7 + i] for i in range(20)]
    prompts[4], prompts[9] = [5, 10 ** 6], "x" * 40000
    out = llm.generate(prompts, offline.GenerationConfig(max_new_tokens=6, temperature=0, ignore_eos=True, random_seed=3, stop_words=None), use_tqdm=seen.append)
    check("a batch in order", [x.outputs.index for x in out] == list(range(20)) and all(whole(x, ids=True) and x.prompt == "" and len(x.outputs.token_ids) == 6 for i, x in enumerate(out) if i not in (4, 9)), out)
    check("one fails alone", out[4].error_code == 400 and "1000000" in out[4].error_msg and out[9].error_code == 400 and "512" in out[9].error_msg and out[9].outputs.text == "", out[4])
    check("progress", len(seen) == 20 and seen == sorted(seen) and seen[-1] == 1, seen)
    alone = llm.generate(prompts[7], {"max_tokens": 6, "temperature": 0, "ignore_eos": True})
    check("alone as in the batch", alone[0].outputs.token_ids == out[7].outputs.token_ids, alone)
    again = llm.generate([list(range(5, 205))] * 2, {"max_tokens": 2, "temperature": 0})
    third = llm.generate([list(range(5, 205))], {"max_tokens": 2, "temperature": 0})
    check("cached tokens", third[0].num_cached_tokens >= 64 and third[0].outputs.token_ids == again[0].outputs.token_ids, third)
    two = llm.generate("Shanghai is", {"n": 2, "temperature": 1, "seed": 1, "max_tokens": 4, "ignore_eos": True})
    check("two answers to one prompt", len(two) == 2 and two[0].outputs.token_ids != two[1].outputs.token_ids, two)
    check("no prompts, no answers", llm.generate([]) == [])
    bad = llm.generate(["a", "b"], {"temperature": 9})
    check("a wrong parameter is told to each", [x.error_code for x in bad] == [400, 400] and "temperature" in bad[0].error_msg, bad)
    bad = llm.chat([[{"role": "user"}], [{"role": "user", "content": "a"}]], {"max_tokens": 2})
    check("a wrong message is told to its chat", bad[0].error_code == 400 and "content" in bad[0].error_msg and whole(bad[1]) and "a<|im_end|>" in bad[1].prompt, bad)
    thought = llm.chat("a", {"max_tokens": 3, "temperature": 0, "ignore_eos": True})
    check("without thoughts there are none", thought[0].outputs.reasoning_content is None, thought)
    begin = time.time()
    try: check("cancelled", not llm.generate(prompts[:3] * 100, {"max_tokens": 300, "ignore_eos": True}, use_tqdm=lambda done: 1))
    except RuntimeError as e: check("cancelled", "cancelled" in str(e) and time.time() - begin < 20, e)
    check("and it goes on", whole(llm.generate("a", {"max_tokens": 2})[0]))
    open_thoughts = offline.LLM(TINY, max_model_len=256, reasoning_parser="deepseek_r1")
    thought = open_thoughts.chat("a", {"max_tokens": 3, "temperature": 0, "ignore_eos": True})
    check("thoughts apart", thought[0].outputs.reasoning_content and thought[0].outputs.text == "", thought)
    for options, says in (({"max_model_lenn": 5}, "max_model_len"), ({"max_model_len": 10 ** 9}, "1000000000"), ({"reasoning_parser": "x"}, "reasoning_parser"),
                          ({"enable_early_stop": True, "early_stop_config": {"enable_early_stop": False}}, "contradict"), ({"quant_policy": 3}, "quant_policy")):
        try: check(f"refused: {options}", not offline.LLM(TINY, **options))
        except ValueError as e: check(f"refused: {options}", says in str(e), e)
    real = offline.LLM(MODEL, max_model_len=512).chat("What is the capital city of France? Answer in one sentence.", {"temperature": 0, "max_tokens": 12})
    check("a real answer", "Paris" in real[0].outputs.text, real)


def main():
    stand_in()
    documents()
    batches()


main()
finish()
