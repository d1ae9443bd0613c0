#!/usr/bin/env python3
"""Writes a GGUF file of random bf16 weights in Qwen3-0.6B's shape (1.2 GB), which both llm.h and llama.cpp read: for timings, it says nothing.

    random_gguf.py FILE [LAYERS]        needs PyPI's gguf
"""
import sys

import gguf
import numpy as np

HIDDEN, FF, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 1024, 3072, 16, 8, 128, 151936


def main():
    path, layers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 28
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "qwen3")
    w.add_context_length(40960)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(layers)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(VOCAB)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))] + [chr(256 + i) for i in range(68)]  # GPT-2's bytes
    tokens = letters + [f"{a}{b}" for a in letters[:64] for b in letters[:64]]
    tokens += [f"<{i}>" for i in range(VOCAB - len(tokens))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    w.add_token_merges([f"{a} {b}" for a in letters[:64] for b in letters[:64]])
    w.add_eos_token_id(VOCAB - 1)

    def matrix(name, rows, cols):
        bits = (rng.standard_normal((rows, cols), dtype=np.float32) * 0.02).view(np.uint32) >> 16
        w.add_tensor(name, bits.astype(np.uint16).view(np.uint8).reshape(rows, cols * 2), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def ones(name, n):
        w.add_tensor(name, np.ones(n, dtype=np.float32))

    matrix("token_embd.weight", VOCAB, HIDDEN)
    ones("output_norm.weight", HIDDEN)
    for i in range(layers):
        b = f"blk.{i}."
        for name, rows, cols in (("attn_q", HEADS * HEAD_DIM, HIDDEN), ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN), ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
                                 ("attn_output", HIDDEN, HEADS * HEAD_DIM), ("ffn_gate", FF, HIDDEN), ("ffn_up", FF, HIDDEN), ("ffn_down", HIDDEN, FF)):
            matrix(f"{b}{name}.weight", rows, cols)
        for name, n in (("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM)): ones(f"{b}{name}.weight", n)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
