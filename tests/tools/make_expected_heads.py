#!/usr/bin/env python3
"""Makes tests/data/checkpoints/head_*/expected.json with torch and transformers: what heads that guess from hidden states must guess.

    make_expected_heads.py [HEAD...]      (default: all)

Was run with torch 2.15.0 and transformers 5.24.0, float32 on a CPU. transformers has no such heads, but their layers: the hidden states are
those of the model's own class, and a head's layer is one of that class (with a model's next layer), or Llama's with wider projections
(EAGLE-3), over the rows that vLLM's and FastDeploy's classes for these heads prepare. Row i reads token i and the hidden state of position
i - 1; row 0 is zeros. Of the seeds 0, 1, 2, ... the first is taken with which no guess and no choice of experts hangs on rounding.
Takes a minute; no test runs it.
"""
import json
import logging
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

import checkpoints
from make_expected import MIN_MARGIN, MIN_ROUTE_GAP, TYPES, load, route_gaps

DRAFTS = 4  # guesses behind each prompt


def weights(family, seed=None):
    return {name: torch.frombuffer(bytearray(data), dtype=TYPES.get(dtype, torch.int64)).view(shape) for name, (dtype, shape, data) in checkpoints.read(family, seed)[0].items()}


def floats(t): return {name: x.float() for name, x in t.items()}


def norm(x, weight, eps): return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


class Eagle3:
    """One Llama layer whose attention reads the embedding and the state side by side."""

    def __init__(self, model, config, t):
        c = config.get("transformer_layer_config", config)
        made = transformers.LlamaConfig(**{k: v for k, v in c.items() if k not in ("architectures", "model_type")})
        made._attn_implementation = "eager"
        self.layer, self.rotary, self.eps = LlamaDecoderLayer(made, 0).eval(), LlamaRotaryEmbedding(made), made.rms_norm_eps
        d, h = made.head_dim, made.hidden_size
        for name, heads in (("q_proj", made.num_attention_heads), ("k_proj", made.num_key_value_heads), ("v_proj", made.num_key_value_heads)):
            setattr(self.layer.self_attn, name, torch.nn.Linear(2 * h, heads * d, bias=bool(c.get("attention_bias"))))
        base = "midlayer." if "midlayer.hidden_norm.weight" in t else "layers.0."
        self.hidden_norm = t[base + "hidden_norm.weight"].float()
        state = {k[len(base):]: v.float() for k, v in t.items() if k.startswith(base) and "hidden_norm" not in k}
        self.layer.load_state_dict(state)
        self.t, self.model, self.normed = floats(t), model, config.get("norm_before_residual", False)
        self.words = torch.arange(t["d2t"].shape[0]) + t["d2t"]
        n = model.config.num_hidden_layers
        self.taps = config.get("eagle_aux_hidden_state_layer_ids") or sorted((min(2, n - 1), n // 2, max(n - 3, 0)))

    def embedding(self, ids): return self.t["embed_tokens.weight"][ids] if "embed_tokens.weight" in self.t else self.model.get_input_embeddings()(ids)
    def states(self, hidden): return torch.cat([hidden[i][0] for i in self.taps], -1) @ self.t["fc.weight"].T

    def run(self, e, f):
        """Rows of embeddings and states: what the head goes on from, and what it says, of the last row."""
        normed = norm(f, self.hidden_norm, self.eps)
        x = normed if self.normed else f
        rows = torch.cat([self.layer.input_layernorm(e), normed], -1)[None]
        n = rows.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        x = x + self.layer.self_attn(hidden_states=rows, position_embeddings=self.rotary(rows, torch.arange(n)[None]), attention_mask=mask)[0][0]
        x = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
        logits = torch.full((self.model.config.vocab_size,), float("-inf"))
        logits[self.words] = norm(x[-1], self.t["norm.weight"], self.eps) @ self.t["lm_head.weight"].T
        return x[-1], logits


class Next:
    """A layer of the model's own class behind the last, in a model of this one layer."""
    FORMS = {"model.mtp_layers.0.": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"), "model.layers.3.": ("enorm", "hnorm", "eh_proj", "shared_head.norm")}

    def __init__(self, model, config, t):
        t = floats(t)
        base = next((x for x in self.FORMS if any(name.startswith(x) for name in t)), "model.mtp_block.0.")
        names = [f"{base}{x}.weight" for x in self.FORMS[base]] if base in self.FORMS else [f"model.mtp_{x}.0.weight" for x in ("emb_norm", "hidden_norm", "linear_proj")] + [None]
        self.token, self.state, fc, out = (t.get(x) for x in names)
        self.across, self.raw = "mtp_layers" in base, "layers.3" in base
        self.fc = fc.chunk(2, -1)[::-1] if self.across else fc.chunk(2, -1)
        c = json.loads(json.dumps(model.config.to_dict()))
        c.update(num_hidden_layers=1, first_k_dense_replace=0, mlp_layer_types=None, layer_types=None)
        if "mtp_block" in base: c.update(moe_layer_start_index=1)
        self.one = type(model)(type(model.config)(**c)).float().eval()
        self.one.set_attn_implementation("eager")
        if hasattr(self.one, "set_experts_implementation"): self.one.set_experts_implementation("eager")
        with tempfile.TemporaryDirectory() as work:
            self.one = self.filled(pathlib.Path(work), base, names, t, model, out)
        self.model, self.eps, self.kept = model, model.config.rms_norm_eps, []
        self.one.model.layers[0].register_forward_hook(lambda m, a, x: self.kept.append((x[0] if isinstance(x, tuple) else x)[0]))

    def filled(self, work, base, names, t, model, out):
        """The model of one layer, read as a folder: so that experts come into its own form."""
        own = {k.replace(base, "model.layers.0."): v for k, v in t.items() if k.startswith(base) and k not in names and ".embed_tokens" not in k and "shared_head.head" not in k}
        whole = model.state_dict()
        own |= {"model.embed_tokens.weight": whole["model.embed_tokens.weight"], "model.norm.weight": whole["model.norm.weight"] if out is None else out, "lm_head.weight": whole["lm_head.weight"]}
        if model.config.tie_word_embeddings: del own["lm_head.weight"]
        self.one.config.save_pretrained(work)
        import safetensors.torch
        safetensors.torch.save_file({k: v.contiguous() for k, v in own.items()}, work / "model.safetensors", metadata={"format": "pt"})
        made, said = type(model).from_pretrained(work, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if hasattr(made, "set_experts_implementation"): made.set_experts_implementation("eager")
        assert not said["missing_keys"] and not said["unexpected_keys"], said
        return made.eval()

    def embedding(self, ids): return self.model.get_input_embeddings()(ids)
    def states(self, hidden): return hidden[-1][0]

    def run(self, e, f):
        x = norm(e, self.token, self.eps) @ self.fc[0].T + norm(f, self.state, self.eps) @ self.fc[1].T
        x[0] = 0
        self.kept.clear()
        found = self.one(inputs_embeds=x[None], use_cache=False, output_hidden_states=True)
        return self.kept[0][-1] if self.raw else found.hidden_states[-1][0, -1], found.logits[0, -1]


def answer(model, head, ids):
    """The model's next token behind a prompt, and what the head guesses then."""
    with torch.no_grad():
        said = model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        best = said.logits[0, -1].topk(2).values
        gap, token = (best[0] - best[1]).item(), said.logits[0, -1].argmax().item()
        f = head.states(said.hidden_states)
        f = torch.cat([torch.zeros(1, f.shape[-1]), f])
        e = head.embedding(torch.tensor(ids + [token])).clone()
        e[0], guesses = 0, []
        for _ in range(DRAFTS):
            state, logits = head.run(e, f)
            best = logits.topk(2)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            guesses.append(best.indices[0].item())
            e = torch.cat([e, head.embedding(torch.tensor([guesses[-1]]))])
            f = torch.cat([f, state[None]])
    return {"token_ids": ids, "next": token, "guesses": guesses, "min_margin": round(gap, 5)}


def make(name):
    config = json.loads((checkpoints.DATA / name / "config.json").read_text())
    family = {"head_eagle3": "llama", "head_eagle3_speculators": "qwen3"}.get(name, name[len("head_"):])
    folder = checkpoints.folder(family)
    model = load(family, folder, weights(family)) if family != "mimo" else mimo(folder)
    for seed in range(200):
        t, gaps = weights(name, seed), []
        head = (Eagle3 if "eagle3" in name else Next)(model, config, t)
        with route_gaps(gaps): out = [answer(model, head, ids) for ids in checkpoints.prompts(family)]
        if min(p["min_margin"] for p in out) >= MIN_MARGIN and min(gaps, default=1) >= MIN_ROUTE_GAP: break
    else: sys.exit(f"{name}: no seed is good")
    found = {"head_of": family, "weights_sha256": checkpoints.digest(name, seed), "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "min_margin": min(p["min_margin"] for p in out), "prompts": out}
    target = checkpoints.DATA / name
    (target / "expected.json").write_text(checkpoints.expected_text(found))
    lines = (target / "tensors.txt").read_text().splitlines()
    (target / "tensors.txt").write_text("\n".join([f"seed {seed}"] + [x for x in lines if not x.startswith("seed ")]) + "\n")
    print(name, f"seed {seed}", {k: v for k, v in found.items() if k != "prompts"}, flush=True)


def mimo(folder):
    """Qwen 2 under another name, with layers behind it."""
    c = json.loads((folder / "config.json").read_text())
    made = transformers.Qwen2Config(**{k: v for k, v in c.items() if k not in ("architectures", "model_type", "auto_map", "rope_scaling")})
    model = transformers.Qwen2ForCausalLM._from_config(made, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict({k: v.float() for k, v in weights("mimo").items() if "mtp" not in k})
    return model.eval()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    for one in sys.argv[1:] or [x for x in checkpoints.HEADS if "qwen3_" not in x]: make(one) # make_expected_plain.py has the others
