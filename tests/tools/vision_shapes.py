#!/usr/bin/env python3
"""Models that see, of shapes that tests/data/vision has not, with random weights and pictures: llm_cli beside transformers.

    vision_shapes.py [FAMILY...] [--keep DIR] [--args "--isa scalar"] [-v]        env LLM_CLI (./llm_cli)

Needs torch, torchvision, transformers and Pillow (setup.py shapes) and build/data (make data). Each shape (vision_shape_table.py) is a tiny folder
of tests/data/vision with other numbers in its files: sizes of heads, patches, tiles and windows, activations, biases, layers, what the files
leave out. transformers makes the weights, reads the folder with its own processor (the one that uses Pillow; of videos torchvision's) and computes
in float32; compared are the prompt's ids and the log-probabilities of all that could come next at every place. Prints the largest difference
relative to the range: a right engine is under 1e-5, a wrong detail over 1e-3; wider where a JPEG's decoders or torchvision's resizing differ.
A shape that transformers itself refuses is skipped. FAMILY may name shapes: qwen3_vl:0,2.
"""
import argparse
import copy
import inspect
import json
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from PIL import Image, ImageOps

from vision_shape_table import ALL, CONFIG, GONE, PICTURES, SHAPES, SMOL, VIDEOS

ROOT = pathlib.Path(__file__).resolve().parents[2]
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None # which Llama 4 of 5.24 asks for
DATA = ROOT / "build/data/vision"
CLI = os.environ.get("LLM_CLI", str(ROOT / "llm_cli"))


def pillow_resize(self, image, size, resample=None, **more):
    """Pillow's resizing in processors that have torchvision's alone, whose levels differ by one."""
    if image.dtype != torch.uint8 or not size.height: return torchvision_resize(self, image, size, resample, **more)
    how = Image.Resampling[resample.name] if hasattr(resample, "name") else Image.Resampling(resample)
    made = [numpy.array(Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), how)) for x in image.reshape(-1, *image.shape[-3:])]
    return torch.from_numpy(numpy.stack(made)).permute(0, 3, 1, 2).reshape(*image.shape[:-2], size.height, size.width)


torchvision_resize = transformers.image_processing_backends.TorchvisionBackend.resize
transformers.image_processing_backends.TorchvisionBackend.resize = pillow_resize


def merged(old, new):
    """A JSON object with some members replaced, or left out."""
    out = copy.deepcopy(old)
    for key, value in new.items():
        if value is GONE: out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict): out[key] = merged(out[key], value)
        else: out[key] = copy.deepcopy(value)
    return out


def picture(rng, w, h, mode="RGB"):
    """Soft waves, so that no rounding of a resizing decides."""
    y, x = numpy.mgrid[0:h, 0:w]
    planes = [128 + 90 * numpy.sin((x * rng.uniform(.5, 3) + y * rng.uniform(.5, 3)) / rng.uniform(5, 30) + rng.uniform(0, 6)) + rng.uniform(-30, 30) for _ in range(4)]
    planes = [numpy.clip(p, 0, 255).astype(numpy.uint8) for p in planes]
    if mode in ("L", "1"): return Image.fromarray(planes[0]).convert(mode)
    if mode == "I;16": return Image.fromarray(planes[0].astype(numpy.uint16) * 257)
    if mode == "LA": return Image.merge("LA", [Image.fromarray(p) for p in planes[:2]])
    if mode == "P": return Image.merge("RGB", [Image.fromarray(p) for p in planes[:3]]).quantize(20)
    return Image.merge(mode, [Image.fromarray(p) for p in planes[:len(mode)]])


def saved(rng, folder, i, w, h, kind):
    """A file of a kind: a mode of PNG, or JPEG with what it has; its name."""
    if kind.startswith("jpeg"):
        name, more = f"p{i}.jpg", {}
        p = picture(rng, w, h, "CMYK" if "cmyk" in kind else "L" if "grey" in kind else "RGB")
        if "turned" in kind:
            exif = Image.Exif()
            exif[0x0112] = rng.choice((3, 6, 8, 5))
            more["exif"] = exif
        p.save(folder / name, quality=95, subsampling=0, progressive="progressive" in kind, **more)
        return name
    name = f"p{i}.{'bmp' if kind == 'bmp' else 'gif' if kind == 'gif' else 'png'}"
    picture(rng, w, h, "RGB" if kind == "bmp" else "P" if kind == "gif" else kind).save(folder / name)
    return name


KINDS = ("RGB", "RGB", "L", "LA", "RGBA", "P", "1", "jpeg", "jpeg progressive", "jpeg grey", "jpeg turned", "bmp", "gif")


def weights(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, b in model.named_buffers(): # of Gemma 4: bounds, and what brings rows to a standard
            if name.endswith(("_min", "_max")): b.fill_((-1 if "min" in name else 1) * random.uniform(0.7, 1.2))
            elif name.endswith(("std_bias", "std_scale")): b.copy_(("scale" in name) + torch.randn_like(b) * 0.2)
        for name, p in model.named_parameters():
            if p.dim() > 1 and "pos" not in name and "embed" not in name: p.copy_(torch.randn_like(p) * 1.3 / max(p[0].numel(), 1) ** 0.5)
            elif p.dim() > 1 or "class_embedding" in name or "newline" in name: p.copy_(torch.randn_like(p) * 0.6)
            elif name.endswith("bias"): p.copy_(torch.randn_like(p) * 0.1)
            else: p.copy_((0 if "correction" in name else 1) + torch.randn_like(p) * 0.1)


def reference_parts(m):
    """A message for transformers' templates."""
    def part(x):
        if x["type"] == "image_url": return {"type": "image"}
        return {"type": x["type"]} if x["type"] == "video" else x
    content = m["content"] if isinstance(m["content"], str) else [part(x) for x in m["content"]]
    return {**m, "content": [{"type": "text", "text": content}] if isinstance(content, str) and m.get("_parts") else content}


def places(model, given):
    """Places whose count goes on behind the largest of a video's, as in the papers' code and vLLM; transformers 5 goes on behind its height or width, however long it is."""
    kinds = given["mm_token_type_ids"][0].tolist()
    names = inspect.signature(model.model.get_rope_index).parameters
    at, _ = model.model.get_rope_index(**{name: given[name] for name in names if name in given})
    for end in (i for i in range(1, len(kinds)) if kinds[i - 1] == 2 and kinds[i] != 2):
        begin = max(i for i in range(end) if i == 0 or kinds[i - 1] != 2)
        at[:, :, end:] += at[:, :, begin:end].max() + 1 - at[0, 0, end]
    return at


def reference(folder, model, processor, messages, files, videos, how):
    """Ids and log-probabilities of all that could come after each."""
    text = processor.apply_chat_template([reference_parts(m) for m in messages], tokenize=False, add_generation_prompt=True)
    def opened(name): return ImageOps.exif_transpose(Image.open(folder / name))
    more = {}
    if files: more["images"] = [[opened(x) for x in files]] if "LlavaOnevision" in type(processor).__name__ else [opened(x) for x in files]
    if videos:
        more["videos"] = [numpy.stack([numpy.array(opened(x).convert("RGB")) for x in v["video"]]) for v in videos]
        n = len(videos[0]["video"])
        more["video_metadata"] = [transformers.video_utils.VideoMetadata(total_num_frames=len(v["video"]), fps=v["fps"], frames_indices=list(range(n)), duration=n / v["fps"]) for v in videos]
        more |= {"fps": videos[0]["fps"], "do_sample_frames": False}
        if "Qwen3" in type(processor).__name__: text = text.replace("<|vision_start|><|video_pad|><|vision_end|>", "<|video_pad|>") # 5.24 leaves this pair around those it makes
    given = processor(text=[text], return_tensors="pt", add_special_tokens=False, **more, **how)
    for key in list(given):
        if torch.is_tensor(given[key]) and given[key].is_floating_point(): given[key] = given[key].float()
    if videos and "mm_token_type_ids" in given and "Qwen3" not in type(processor).__name__: given["position_ids"] = places(model, given)
    with torch.no_grad(): logits = model(**given).logits[0]
    return given["input_ids"][0].tolist(), torch.log_softmax(logits.double(), -1).numpy(), text


def ours(folder, chat, vocabulary, extra):
    p = subprocess.run([CLI, "score", "-m", str(folder), "--dtype", "float32", "--messages", str(chat), "--json", "--top-logprobs", str(vocabulary), *extra], capture_output=True, text=True, timeout=120)
    if p.returncode: raise RuntimeError(p.stderr.strip().splitlines()[-1][:300] if p.stderr.strip() else f"exit {p.returncode}")
    return json.loads(p.stdout)


def difference(got, ids, want):
    if got["token_ids"] != ids:
        at = next((i for i, (a, b) in enumerate(zip(got["token_ids"], ids)) if a != b), min(len(ids), len(got["token_ids"])))
        raise RuntimeError(f"ids differ from place {at}: {len(got['token_ids'])} and {len(ids)}; ours {got['token_ids'][max(at - 3, 0):at + 5]}, theirs {ids[max(at - 3, 0):at + 5]}")
    off = 0
    for i, row in enumerate([*got["top_logprobs"][1:], got["next"]]):
        a = numpy.full(want.shape[1], numpy.nan)
        for k, x in row: a[int(k)] = x
        off = max(off, float(numpy.nanmax(numpy.abs(a - want[i])) / (want[i].max() - want[i].min())))
    return off


def chats(rng, folder, shape, video):
    """Messages, the pictures of each, the videos of each."""
    sizes = shape.get("sizes") or [(rng.randint(20, 150), rng.randint(20, 150)) for _ in range(3)] + [(40, 150), (170, 33)]
    names = [saved(rng, folder, i, w, h, shape.get("kinds", KINDS)[rng.randrange(len(shape.get("kinds", KINDS)))]) for i, (w, h) in enumerate(sizes)]
    def image(name): return {"type": "image_url", "image_url": {"url": "file:" + name}}
    def text(s): return {"type": "text", "text": s}
    for name in names: yield [{"role": "user", "content": [image(name), text("What is left behind near the harbour?")]}], [name], []
    yield [{"role": "user", "content": [image(names[0]), image(names[1]), text("Which?")]}, {"role": "assistant", "content": "one"},
           {"role": "user", "content": [image(names[2]), text("And now?")]}], names[:3], []
    yield [{"role": "user", "content": [text("One of them"), image(names[1]), text("is not the other:"), image(names[0]), image(names[1])]}], [names[1], names[0], names[1]], []
    if not video: return
    tower = transformers.AutoConfig.from_pretrained(folder).vision_config
    f = tower.patch_size * tower.spatial_merge_size
    k = -(-60 // f)
    for n, w, h, fps in ((4, k * f, k * f + f, 2.0), (5, k * f + f, k * f, 1.0), (2, 90, 40, 3.0), (7, 70, 120, 2.5)): # two of sizes that need no resizing
        frames = []
        for k in range(n):
            picture(rng, w, h).save(folder / f"v{n}_{k}.png")
            frames.append(f"v{n}_{k}.png")
        part = {"type": "video", "video": frames, "fps": fps}
        yield [{"role": "user", "content": [{**part, "video": ["file:" + x for x in frames]}, text("What moves?")]}], [], [part]


def make(where, family, i, shape):
    base, seed = DATA / shape.get("base", "idefics3" if family == "smolvlm" else family), 1000 * i + len(family)
    folder = where / f"{family}_{i}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.json", "chat_template.jinja", "special_tokens_map.json", CONFIG, PICTURES, ALL, VIDEOS):
        if (base / name).exists(): shutil.copy(base / name, folder)
    for of, name in ((of, name) for of in (SMOL if family == "smolvlm" else {}, shape) for name in (CONFIG, PICTURES, ALL, VIDEOS)):
        change = of.get(name)
        if change is None: continue
        if change is GONE: (folder / name).unlink(missing_ok=True)
        else: (folder / name).write_text(json.dumps(merged(json.loads((folder / name).read_text()) if (folder / name).exists() else {}, change), indent=1))
    settings = json.loads((folder / CONFIG).read_text())
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    weights(model, seed)
    model.save_pretrained(folder)
    (folder / CONFIG).write_text(json.dumps(settings, indent=1))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder, transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()


def run(where, family, i, shape, extra, verbose):
    rng = random.Random(f"{family} {i}")
    try:
        folder, model = make(where, family, i, shape)
        try: processor = transformers.AutoProcessor.from_pretrained(folder, backend="pil")
        except Exception: processor = transformers.AutoProcessor.from_pretrained(folder, use_fast=False)
        processor.chat_template = processor.chat_template or processor.tokenizer.chat_template
    except Exception as err:
        print(f"{family} {i} ({shape['what']}): transformers: {type(err).__name__}: {str(err)[:300]}")
        return 0, 0, 1
    good = bad = 0
    how = shape.get("processor", {})
    asked = ("--mm-processor-kwargs", json.dumps(how)) if how else ()
    for n, (messages, files, videos) in enumerate(chats(rng, folder, shape, shape.get("video"))):
        chat = folder / f"chat{n}.json"
        chat.write_text(json.dumps(messages))
        said = f"{family} {i} ({shape['what']}), {[(x, Image.open(folder / x).mode, *Image.open(folder / x).size) for x in files] or videos[0]['video']}"
        try: ids, want, text = reference(folder, model, processor, messages, files, videos, how)
        except Exception as err:
            print(f"{said}: transformers: {type(err).__name__}: {str(err)[:300]}")
            if verbose:
                import traceback; traceback.print_exc()
            continue
        try: off = difference(ours(folder, chat, want.shape[1], [*extra, *asked]), ids, want)
        except RuntimeError as err: off = err
        wide = any(x.endswith("jpg") for x in files) or any(Image.open(folder / v["video"][0]).width in (90, 70) for v in videos) # decoders, and torchvision's resizing, differ by a level
        ok = isinstance(off, float) and off < (4e-2 if wide else 2e-5) * shape.get("noise", 1)
        good, bad = good + ok, bad + (not ok)
        if not ok or verbose: print(f"{said}: {off if not isinstance(off, float) else f'{off:.1e}'}{'' if ok else ' FAILED'}", flush=True)
    return good, bad, 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family", nargs="*")
    p.add_argument("--keep")
    p.add_argument("--args", default="")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    where = pathlib.Path(a.keep or tempfile.mkdtemp())
    good = bad = none = 0
    for family, shapes in SHAPES.items():
        if a.family and not any(x.partition(":")[0] == family for x in a.family): continue
        for i, shape in enumerate(shapes):
            picked = [x.partition(":")[2] for x in a.family if x.partition(":")[0] == family]
            if picked and picked[0] and str(i) not in picked[0].split(","): continue
            g, b, n = run(where, family, i, shape, shlex.split(a.args), a.v)
            print(f"{family} {i} ({shape['what']}): {g} equal, {b} not" + (", transformers refuses it" if n else ""), flush=True)
            good, bad, none = good + g, bad + b, none + n
    if not a.keep: shutil.rmtree(where)
    print(f"{good} passed, {bad} failed, {none} skipped")
    sys.exit(bad > 0)


if __name__ == "__main__": main()
