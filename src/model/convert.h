/* convert: a Hugging Face folder seen as a GGUF file.
 *
 * What llama.cpp's converter does, so that the same file comes out in names, shapes and values; >>quantize writes it, in any type:
 *
 *     names      by the slots of >>loader: model.layers.3.mlp.up_proj.weight is blk.3.ffn_up.weight
 *     rows       of q and k are put in another order for families whose pairs GGUF has side by side: row i and row i + d / 2 of a head
 *     norms      that are stored minus one get it back
 *     experts    become one tensor of as many matrices, Llama 4's (in, out) as (out, in)
 *     kv_b       of latent attention is cut into keys, (heads, rank, nope), and values, (heads, v, rank)
 *     states     of layers that keep one: see >>convert_recurrent
 *     numbers    that Falcon-H1 multiplies by go into the weights
 *     settings   as keys ARCHITECTURE.*; frequencies that Llama 3 and LongRoPE change as tensors of divisors
 *     words      tokenizer.json as lists; how text is cut by a name, which must give what tokenizer.json gives (>>convert_vocab)
 *
 * A layer of Qwen3, and what is different in others:
 *
 *     input_layernorm             attn_norm       self_attn.q_norm, k_norm       attn_q_norm, attn_k_norm
 *     self_attn.q_proj, k, v      attn_q, k, v    post_attention_layernorm       ffn_norm
 *     self_attn.o_proj            attn_output     mlp.gate_proj, up, down        ffn_gate, ffn_up, ffn_down
 *
 *     mlp.experts.7.gate_proj     ffn_gate_exps, matrix 7; the router is ffn_gate_inp, the shared expert ffn_gate_shexp
 *     gate_up_proj (Phi-3)        ffn_up, twice as wide: gate's rows, then up's
 *     four norms (Gemma 2)        post_attention_layernorm is post_attention_norm there, post_feedforward_layernorm post_ffw_norm
 *     kv_a_proj_with_mqa          attn_kv_a_mqa (DeepSeek)
 *     attention.query_key_value   attn_q, attn_k, attn_v of Ling 1, whose pairs move; attn_qkv of Ling 2, whose do not
 *     lm_head (Ling 1)            output, each column divided by its length, if norm_head says so
 *     mlp.c_fc_0, c_fc_1          ffn_gate, ffn_up (EXAONE 3)
 *
 * Rows of a head of 6 values, pairs (0, 3), (1, 4), (2, 5) in a folder:      0 1 2 3 4 5
 * the same in GGUF, where the two of a pair stand side by side:                0 3 1 4 2 5
 * where only the first 4 turn (Bamba), pairs (0, 2), (1, 3):                   0 2 1 3 4 5
 * q and k change alike, so scores are the same; v has no positions and stays.
 *
 * Vectors, norms and routers are F32, as llama.cpp wants them. Nothing is copied: a row is made when it is asked for. Source:
 * convert_hf_to_gguf.py of llama.cpp, by its files. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "model/tensors.h"
#include "model/gguf.h"

/* How a tensor's rows come about. */
typedef struct llm__convert_row {
    const llm__tensor *const *stack; /* (n) a matrix each; or one */
    int32_t n;
    int64_t first, each; /* row r of matrix m is the stored row first + r, or of one tensor with all of them m * each + first + r */
    int32_t head, turn;  /* not 0: heads of so many rows, of whose first `turn` the halves become neighbours */
    int32_t parted;      /* 1: instead, neighbours become halves */
    int32_t cut;         /* 1: keys, 2: values of kv_b */
    int32_t nope, v;     /* of its heads */
    float add;
    float times;         /* not 0: all values are multiplied by it */
    const float *by;     /* not NULL: and row r by by[r] */
    const float *by_col; /* not NULL: and column c by by_col[c] */
    int decay;           /* 1: the value x becomes -e^x */
    int across;          /* 1: matrices stand as (in, out): row r is the stored column first + r */
    const int32_t *rows; /* not NULL: row r is the stored row rows[r] */
    const int32_t *cols; /* not NULL: of the columns, `unit` at a time, the i-th are the stored ones cols[i] */
    int32_t unit;
    const float *numbers; /* not NULL: these, and no tensor */
} llm__convert_row;

typedef struct llm__conversion {
    llm_model *model;
    llm_text head; /* a GGUF file without tensors */
    llm__gguf keys;
    llm__tensors tensors;  /* as the file will have them; data NULL */
    llm__convert_row *row; /* (tensors.n) */
    size_t cap;
    llm__arena memory;
} llm__conversion;

/* Opens a folder. LLM_ERR_UNSUPPORTED: what GGUF has no form for, or is not converted here. The caller closes *c, after errors too. */
LLM__PRIVATE llm_result llm__convert_open(const char *folder, llm__conversion *c);

/* Row `row`, counted through all matrices, of a tensor of c->tensors. Any thread. */
LLM__PRIVATE void llm__convert_values(const llm__conversion *c, const llm__tensor *t, int64_t row, float *out);

/* The memory of the stored tensors of t, which are not needed any more, is given back to the system. */
LLM__PRIVATE void llm__convert_rest(const llm__conversion *c, const llm__tensor *t);

/* Compares how a model and what was made of it, at `path`, cut a text; where: "in GGUF", for the sentence. */
LLM__PRIVATE llm_result llm__convert_check(const llm_model *m, const char *path, const char *where);

LLM__PRIVATE void llm__convert_close(llm__conversion *c);
