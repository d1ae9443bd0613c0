"""GGUF files of checkpoints' folders as llama.cpp's converters write them, for tests that compare both: plain Python, small models only."""
import json
import os
import pathlib
import re
import struct
import subprocess

import adapters
from answers import CLI

KINDS = {"F32": 0, "F16": 1, "BF16": 30}


def write(path, architecture, keys, tensors):
    """keys: name (of the architecture, or in full with a leading dot) to a value or a list of them; tensors: name to (type, row-major shape, bytes)."""
    text = lambda t: struct.pack("<Q", len(t)) + t
    form = lambda v: (7, struct.pack("<?", v)) if isinstance(v, bool) else (4 if v >= 0 else 5, struct.pack("<i", v)) if isinstance(v, int) else (6, struct.pack("<f", v)) if isinstance(v, float) else (8, text(v.encode()))
    keys = {".general.architecture": architecture, **keys}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, v in keys.items():
        out += text((key[1:] if key[0] == "." else architecture + "." + key).encode())
        if isinstance(v, list): out += struct.pack("<IIQ", 9, 5 if type(v[0]) is int else form(v[0])[0], len(v)) + b"".join(form(x)[1] for x in v)
        else: out += struct.pack("<I", 5 if key == ".clip.minicpmv_version" else form(v)[0]) + form(v)[1]
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        out += text(name.encode()) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f: f.write(out + bytes(-len(out) % 32) + data)


def paired(shape, data, d):
    """Rows of q or k of heads of d, in the pairs that a rotation turns."""
    row = len(data) // shape[0]
    return b"".join(data[k * row:k * row + row] for h in range(0, shape[0], d) for i in range(d // 2) for k in (h + i, h + i + d // 2))


def parted(shape, data, d, turned):
    """Rows of q or k, or their biases, of heads of d, of which the first ones stand in pairs: these as halves (GLM-4.1V, as llama.cpp has it)."""
    row = len(data) // shape[0]
    order = [*range(0, turned, 2), *range(1, turned, 2), *range(turned, d)]
    return b"".join(data[(h + i) * row:(h + i + 1) * row] for h in range(0, shape[0], d) for i in order)


def text_config(source):
    config = json.loads((pathlib.Path(source) / "config.json").read_text())
    return {**config, **config.get("text_config", {})}


NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "post_attention_layernorm": "ffn_norm"}
GLM = {"mlp.gate_up_proj": "ffn_up", "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
GEMMA = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
KEYS = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps", "vocab_size": "vocab_size", "attention.sliding_window": "sliding_window",
        "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size"}
WHOLE = re.compile(r"(?:model\.|language_model\.|text_model\.|llm\.)*(?:layers\.(\d+)\.)?((?:embed_tokens|norm|lm_head|input_layernorm|self_attn|mlp\.|post_|pre_feed).*)\.(weight|bias)")


def text(path, source, architecture, extra):
    """A language model: rows of q and k permuted for Llama, one added to Gemma's norms, experts stacked, gate and up in one."""
    config, tensors, out = text_config(source), adapters.folder_tensors(source), {}
    names = {**NAMES, **(GEMMA if architecture == "gemma3" else GLM if architecture == "glm4" else {})}
    d = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for name, (dtype, shape, data) in sorted(tensors.items()):
        found = WHOLE.fullmatch(name)
        if not found: continue # a tower
        blk, part = f"blk.{found[1]}." if found[1] else "", found[2]
        if "norm" in part or found[3] == "bias": dtype, data = "F32", adapters.pack("F32", [x + (architecture == "gemma3") for x in adapters.floats(dtype, data)])
        if architecture == "glm4" and part in ("self_attn.q_proj", "self_attn.k_proj"): data = parted(shape, data, d, int(d * config["rope_parameters"]["partial_rotary_factor"]))
        if architecture == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"): data = paired(shape, data, d)
        if "experts" not in part: out[blk + names[part] + "." + found[3]] = (KINDS[dtype], shape, data)
        elif part.endswith("0.up_proj"):
            get = lambda e, which: tensors["%s%d.%s_proj.weight" % (name[:-16], e, which)]
            for to, parts in (("ffn_gate_up_exps", ("gate", "up")), ("ffn_down_exps", ("down",))):
                _, (rows, cols), _ = get(0, parts[0])
                out[blk + to + ".weight"] = (KINDS[dtype], [config["num_experts"], rows * len(parts), cols], b"".join(get(e, p)[2] for e in range(config["num_experts"]) for p in parts))
    keys = {key: config[word] for key, word in KEYS.items() if config.get(word) is not None}
    write(path, architecture, {**keys, "attention.key_length": d, "attention.value_length": d, "rope.dimension_count": d, **extra(config, out)}, out)


def vocabulary(source):
    """Keys of a byte-level tokenizer and of the chat template."""
    source = pathlib.Path(source)
    read = lambda name: json.loads((source / name).read_text()) if (source / name).exists() else {}
    tokenizer, config = read("tokenizer.json"), read("tokenizer_config.json")
    n = text_config(source)["vocab_size"]
    texts, types = [f"[PAD{i}]" for i in range(n)], [5] * n
    for word, i in tokenizer["model"]["vocab"].items(): texts[i], types[i] = word, 1
    for token in tokenizer["added_tokens"]: texts[token["id"]], types[token["id"]] = token["content"], 3 if token["special"] else 4
    template = source / "chat_template.jinja"
    template = template.read_text() if template.exists() else read("chat_template.json").get("chat_template") or config["chat_template"]
    merges = [x if isinstance(x, str) else " ".join(x) for x in tokenizer["model"]["merges"]]
    special = lambda name: next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == config[name])
    return {".tokenizer.ggml.model": "gpt2", ".tokenizer.ggml.pre": "gpt-2", ".tokenizer.ggml.tokens": texts, ".tokenizer.ggml.token_type": types, ".tokenizer.ggml.merges": merges,
            ".tokenizer.ggml.bos_token_id": special("bos_token"), ".tokenizer.ggml.eos_token_id": special("eos_token"), ".tokenizer.ggml.add_bos_token": False, ".tokenizer.chat_template": template}


# ---- models that see: a language model and a file of architecture "clip" beside it

SEEING = {"gemma3": "gemma3", "gemma4": "gemma4", "llama4": "llama4", "glm4v": "glm4", "glm4v_moe": "glm4moe", "glm_ocr": "glm4", "idefics3": "llama", "kimi_vl": "deepseek2", "lfm2_vl": "lfm2", "internvl_tiles": "qwen2", "llava_next": "llama", "llava_onevision": "qwen2", "minicpmv": "qwen2", "mistral3": "llama", "paddleocr_vl": "paddleocr",
          "qwen2_5_vl": "qwen2vl", "qwen2_vl_chat": "qwen2vl", "qwen3_5": "qwen35", "qwen3_vl": "qwen3vl"} # folder to the language model's architecture


def seeing_text(path, source, change=lambda keys: None):
    if SEEING[pathlib.Path(source).name] in ("qwen35", "glm4moe", "deepseek2", "gemma4", "llama4", "lfm2"): # llama.cpp answers the same of what llm_cli makes of them
        made = path.with_name(path.name + ".gguf")
        subprocess.check_call([CLI, "convert", str(source), str(made)], stdout=subprocess.DEVNULL)
        return made.rename(path)

    def extra(config, out):
        scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
        keys = {"rope.freq_base": float(config.get("rope_theta") or scaling["rope_theta"]), **vocabulary(source)}
        if "partial_rotary_factor" in scaling: keys["rope.dimension_count"] = int(config["head_dim"] * scaling["partial_rotary_factor"])
        if "mrope_section" in scaling: keys["rope.dimension_sections"] = [*scaling["mrope_section"], 0]
        if scaling.get("rope_type") == "linear": keys.update({"rope.scaling.type": "linear", "rope.scaling.factor": float(scaling["factor"])})
        if config["model_type"] == "gemma3_text":
            keys["attention.scale"] = config["query_pre_attn_scalar"] ** -0.5
            keys["attention.sliding_window_pattern"] = [(i + 1) % config["sliding_window_pattern"] != 0 for i in range(config["num_hidden_layers"])]
        change(keys)
        return keys
    text(path, source, SEEING[pathlib.Path(source).name], extra)


LAYER = re.compile(r"(?:encoder\.layers?|encoder\.blocks|transformer\.layers|model\.layers|blocks)\.(\d+)\.(.*?)(?:\.linear)?(\.weight|\.bias|\.(?:input|output)_m(?:in|ax))?")
PARTS = {"ln1": "input_layernorm layer_norm1 layernorm_before norm1 attention_norm", "attn_post_norm": "post_attention_layernorm", "ffn_post_norm": "post_feedforward_layernorm", "ln2": "pre_feedforward_layernorm layer_norm2 layernorm_after norm2 ffn_norm", "attn_q": "self_attn.q_proj attention.q_proj",
         "attn_k": "self_attn.k_proj attention.k_proj", "attn_v": "self_attn.v_proj attention.v_proj", "attn_qkv": "attn.qkv wqkv", "attn_q_norm": "attn.q_norm self_attn.q_norm", "attn_k_norm": "attn.k_norm self_attn.k_norm", "ls1": "lambda_1", "ls2": "lambda_2",
         "attn_out": "self_attn.o_proj self_attn.out_proj attention.projection_layer attn.proj attention.o_proj wo", "ffn_up": "mlp.fc1 mlp.linear_fc1 mlp.up_proj feed_forward.up_proj",
         "ffn_gate": "mlp.gate_proj feed_forward.gate_proj", "ffn_down": "mlp.fc2 mlp.linear_fc2 mlp.down_proj feed_forward.down_proj",
         "v.patch_embd": "patch_embedder.input_proj patch_embedding.linear embeddings.patch_embedding embeddings.patch_embeddings.projection patch_conv patch_embed.proj", "v.class_embd": "class_embedding embeddings.class_embedding embeddings.cls_token",
         "v.position_embd": "positional_embedding_vlm patch_embedder.position_embedding_table embeddings.position_embedding embeddings.position_embeddings pos_embed patch_embed.pos_emb", "v.pre_ln": "layernorm_pre pre_layrnorm ln_pre", "v.norm_embd": "post_conv_layernorm", "mm.post_norm": "merger.post_projection_norm",
         **{f"mm.{x}": f"merger.{x}_proj" for x in ("gate", "up", "down")},
         "mm.model.mlp.1": "vision_adapter.mlp.fc1", "mm.model.mlp.2": "vision_adapter.mlp.fc2", "v.post_ln": "layernorm_post post_layernorm merger.ln_q merger.norm encoder.final_layernorm", "mm.model.fc": "model.connector.modality_projection.proj merger.proj", "mm.input_projection": "multi_modal_projector.mm_input_projection model.embed_vision.embedding_projection", "v.std_bias": "std_bias", "v.std_scale": "std_scale",
         "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm", "mm.input_norm": "multi_modal_projector.norm multi_modal_projector.pre_norm mlp_AR.pre_norm", "mm.patch_merger": "multi_modal_projector.patch_merger.merging_layer downsample",
         "mm.model.mlp.0": "multi_modal_projector.layer_norm", "mm.0": "merger.mlp.0 merger.linear_fc1", "mm.2": "merger.mlp.2 merger.linear_fc2", "model.image_newline": "image_newline",
         "resampler.attn.out": "resampler.attn.out_proj", "resampler.kv": "resampler.kv_proj", **{f"resampler.{x}": f"resampler.{x}" for x in ("ln_q", "ln_kv", "ln_post", "query", "proj")}}
PARTS = {word: to for to, words in PARTS.items() for word in words.split()}
MOON = {"norm0": "ln1", "norm1": "ln2", "mlp.fc0": "ffn_up", "mlp.fc1": "ffn_down"} # other names of these
LINEARS = {"llama4": ("mm.model.fc",), "kimivl": ("mm.1", "mm.2"), "lfm2": ("mm.1", "mm.2"), "paddleocr": ("mm.1", "mm.2"), "internvl": ("mm.model.mlp.1", "mm.model.mlp.3"), "pixtral": ("mm.1", "mm.2"), "mlp": ("mm.0", "mm.2")}
TYPES = {"gemma3": "gemma3", "gemma4": "gemma4v", "llama4": "llama4", "glm4v": "glm4v", "glm4v_moe": "glm4v", "glm_ocr": "glm4v", "idefics3": "idefics3", "internvl": "internvl", "kimi_vl": "kimivl", "lfm2_vl": "lfm2", "llava_next": "mlp", "llava_onevision": "mlp", "minicpmv": "resampler", "mistral3": "pixtral", "paddleocr_vl": "paddleocr",
         "qwen2_5_vl": "qwen2.5vl_merger", "qwen2_vl": "qwen2vl_merger", "qwen3_5": "qwen3vl_merger", "qwen3_vl": "qwen3vl_merger"}


def tower_name(name, kind, deep):
    """What llama.cpp calls a tensor; None: it is none of the tower's."""
    name = re.sub(r"^(model\.)?(vision_tower\.vision_model|vision_tower|vision_model|visual\.vision_model|visual|vpm)\.", "", name)
    layer, level = LAYER.fullmatch(name), re.fullmatch(r"deepstack_merger_list\.(\d+)\.(?:linear_)?(.*)", name)
    if level: return f"v.deepstack.{deep[int(level[1])]}.{level[2]}"
    parts = {**PARTS, **MOON} if kind == "kimivl" else {**PARTS, "post_attention_layernorm": "ln2"} if kind == "llama4" else PARTS
    if layer: return f"v.blk.{layer[1]}.{parts[layer[2]]}{layer[3] or '.weight'}"
    base, end = (name, "") if name.startswith("std_") else re.fullmatch(r"(.*?)([._](?:weight|bias))?", name).groups()
    if kind == "lfm2": base = base.removeprefix("model.")
    if base.startswith(("multi_modal_projector.linear_", "mlp_AR.linear_")): base = LINEARS[kind][int(base[-1]) - 1]
    elif base not in PARTS: return None
    base = "mm.input_norm" if kind == "lfm2" and base == "multi_modal_projector.layer_norm" else PARTS.get(base, base)
    return base if base in ("v.class_embd", "model.image_newline", "resampler.query", "v.std_bias", "v.std_scale") else base + (end or ".weight").replace("_", ".")


def swapped(tensors):
    """The matrices within a layer by each other's name, as early converters have them."""
    turn = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    return {re.sub("ffn_up|ffn_down", lambda m: turn[m[0]], name): x for name, x in tensors.items()}


def across(shape, data):
    """A matrix of two bytes a value, transposed."""
    rows, cols = shape
    return b"".join(data[(r * cols + c) * 2:][:2] for c in range(cols) for r in range(rows))


def tower_tensors(source, kind, config):
    """Everything of the tower, by llama.cpp's names."""
    v, out = config["vision_config"], {}
    heads = v.get("num_heads") or v.get("num_attention_heads")
    for name, (dtype, shape, data) in sorted(adapters.folder_tensors(source).items()):
        if name.startswith("resampler.attn.in_proj"):
            for i, x in enumerate("qkv"): out[f"resampler.attn.{x}.{name.split('_')[-1]}"] = (dtype, [shape[0] // 3, *shape[1:]], data[len(data) // 3 * i:][:len(data) // 3])
            continue
        to = None if WHOLE.fullmatch(name) and "merger" not in name and "visual" not in name and "vision" not in name else tower_name(name, kind, v.get("deepstack_visual_indexes"))
        if not to: continue
        if to == "resampler.proj.weight": data = across(shape, data)
        if to.endswith("attn_qkv.weight") or to.endswith("attn_qkv.bias"):
            if kind not in ("qwen3vl_merger", "glm4v"):
                for i, x in enumerate("qkv"): out[to.replace("qkv", x)] = (dtype, [shape[0] // 3, *shape[1:]], data[len(data) // 3 * i:][:len(data) // 3])
                continue
        if kind == "pixtral" and re.search(r"attn_[qk]\.weight", to): data = paired(shape, data, v["hidden_size"] // heads)
        if to == "v.patch_embd.weight" and len(shape) == 5: # a tensor a frame
            n, size = shape[3] * shape[4] * 2, shape[0] * 3
            for k in (0, 1): out[to + (".1" if k else "")] = (dtype, [*shape[:2], *shape[3:]], b"".join(data[(2 * i + k) * n:][:n] for i in range(size)))
            continue
        if to == "mm.soft_emb_norm.weight": dtype, data = "F32", adapters.pack("F32", [x + 1 for x in adapters.floats(dtype, data)])
        if kind in ("gemma4v", "lfm2") and to == "v.patch_embd.weight": # channel by channel
            side = round((shape[1] // 3) ** 0.5)
            data, shape = b"".join(data[r * shape[1] * 2 + (i * 3 + c) * 2:][:2] for r in range(shape[0]) for c in range(3) for i in range(side * side)), [shape[0], 3, side, side]
        if not shape: shape = [1]
        if to.startswith("v.position_embd"): shape = [x for x in shape if x != 1]
        if to == "v.class_embd": shape = shape[-1:]
        if len(shape) == 1 or dtype == "BF16": dtype, data = "F32", adapters.pack("F32", adapters.floats(dtype, data))
        out[to] = (dtype, shape, data)
    return {name: (KINDS[dtype], shape, data) for name, (dtype, shape, data) in out.items()}


def mmproj(path, source, change=lambda keys, tensors: None):
    """What a model sees with. change: edits keys and tensors before they are written."""
    source = pathlib.Path(source)
    config = json.loads((source / "config.json").read_text())
    processor = json.loads((source / "preprocessor_config.json").read_text()) if (source / "preprocessor_config.json").exists() else json.loads((source / "processor_config.json").read_text())["image_processor"]
    kind, v = TYPES[config["model_type"]], config["vision_config"]
    number = lambda x: x[0] if isinstance(x, list) else x
    size, layers = number(v.get("image_size", 560)), v.get("depth") or v["num_hidden_layers"]
    tensors = tower_tensors(source, kind, config)
    floats = lambda name: [float(x) for x in processor.get("image_" + name) or processor.get("norm_" + name)]
    keys = {".clip.has_vision_encoder": True, ".clip.projector_type": kind, "vision.projection_dim": text_config(source)["hidden_size"], "vision.patch_size": number(v["patch_size"]),
            "vision.embedding_length": v.get("embed_dim") or v["hidden_size"], "vision.attention.head_count": v.get("num_heads") or v["num_attention_heads"],
            "vision.feed_forward_length": v.get("intermediate_size") or v["hidden_size"], "vision.attention.layer_norm_epsilon": v.get("layer_norm_eps") or v.get("rms_norm_eps", 1e-5 if kind == "pixtral" else 1e-6),
            "vision.image_mean": floats("mean"), "vision.image_std": floats("std")}
    if kind == "gemma3": keys["vision.projector.scale_factor"] = size // v["patch_size"] // int(config["mm_tokens_per_image"] ** 0.5)
    if kind == "glm4v": # its pictures count twice for the folder's bounds
        keys.update({".clip.use_silu": True, "vision.image_min_pixels": processor["size"]["shortest_edge"] // 2, "vision.image_max_pixels": processor["size"]["longest_edge"] // 2})
    if kind == "lfm2": keys.update({".clip.use_gelu": True, "vision.projector.scale_factor": config["downsample_factor"]})
    if kind == "paddleocr": keys.update({".clip.use_gelu": True, "vision.image_min_pixels": processor["min_pixels"], "vision.image_max_pixels": processor["max_pixels"]})
    if kind == "gemma4v": keys["vision.image_max_pixels"] = processor["max_soft_tokens"] * (v["patch_size"] * v["pooling_kernel_size"]) ** 2
    if kind == "llama4": keys.update({".clip.use_gelu": True, "vision.projector.scale_factor": round(1 / v["pixel_shuffle_ratio"]), "vision.preproc_max_tiles": processor["max_patches"]})
    if kind == "kimivl": keys["vision.image_max_pixels"] = processor["in_token_limit"] * v["patch_size"] ** 2
    if kind == "idefics3": keys.update({"vision.projector.scale_factor": config["scale_factor"], "vision.preproc_image_size": processor["size"]["longest_edge"]})
    if kind == "internvl":
        keys["vision.projector.scale_factor"] = round(1 / config["downsample_ratio"])
        keys.update({"vision.preproc_min_tiles": processor["min_patches"], "vision.preproc_max_tiles": processor["max_patches"]})
    if kind == "pixtral": keys.update({".clip.use_silu": True, "vision.spatial_merge_size": config["spatial_merge_size"]})
    if kind == "resampler":
        keys.update({".clip.minicpmv_version": 3, ".clip.minicpmv_query_num": config["query_num"]})
        size, tensors = config["slice_config"]["scale_resolution"], swapped(tensors)
    if kind == "mlp":
        keys.update({"vision.image_grid_pinpoints": [x for h, w in config["image_grid_pinpoints"] for x in (w, h)], "vision.mm_patch_merge_type": "spatial_unpad"})
        if "vision_aspect_ratio" in config: keys["vision.image_aspect_ratio"] = config["vision_aspect_ratio"]
        looked = config["vision_feature_layer"]
        if isinstance(looked, list): keys["vision.feature_layer"] = [range(layers + 1)[x] for x in looked]
        layers = max(range(layers + 1)[x] for x in (looked if isinstance(looked, list) else [looked])) # what comes behind the last layer that is looked at is left out
        tensors = swapped({name: x for name, x in tensors.items() if not name.startswith("v.blk.") or int(name.split(".")[2]) < layers})
    if "merger" in kind:
        keys.update({"vision.image_min_pixels": processor.get("min_pixels") or processor["size"]["shortest_edge"], "vision.image_max_pixels": processor.get("max_pixels") or processor["size"]["longest_edge"]})
        if v.get("spatial_merge_size", 2) != 2: keys["vision.spatial_merge_size"] = v["spatial_merge_size"]
    if kind == "qwen2.5vl_merger": keys.update({".clip.use_silu": True, "vision.n_wa_pattern": v["fullatt_block_indexes"][0] + 1, "vision.window_size": v["window_size"]})
    if kind == "qwen3vl_merger": size = int(v["num_position_embeddings"] ** 0.5) * v["patch_size"]
    keys.update({"vision.image_size": size, "vision.block_count": layers})
    change(keys, tensors)
    write(path, "clip", keys, tensors)


def seeing(folder, to):
    """Both files of a model that sees, made once in the folder `to`: their paths."""
    to = pathlib.Path(to)
    to.mkdir(parents=True, exist_ok=True)
    paths = to / "model.gguf", to / "mmproj.gguf"
    for path, make in zip(paths, (seeing_text, mmproj)):
        part = path.with_suffix(f".{os.getpid()}")
        make(part, folder)
        part.rename(path)
    return paths
