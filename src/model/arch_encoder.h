/* arch_encoder: models that give vectors of texts, and generate nothing.
 *
 * In an encoder every token sees those before and behind it (Devlin et al. 2019), so a text is computed in one step, and nothing of it can
 * be used for another. Where norms and positions stand:
 *
 *   bert, roberta     x = norm(word + position + kind);  x = norm(x + att(x));  x = norm(x + mlp(x))
 *   ernie             the same, with a vector of the first kind of task
 *   megatron-bert     x = word + position + kind;  x += att(norm(x));  x += mlp(norm(x)), and a norm at the end; so xlm-roberta-xl, and
 *                     roberta-prelayernorm, whose embedding is normed, too
 *   distilbert        the same without kinds
 *   mpnet             the same without kinds; a number of each head for how far keys are away is added to scores: see llm_attention_op
 *   nomic_bert, gte   as bert with a gated MLP, and RoPE in place of the table of positions
 *   modernbert        x = norm(word);  x += att(norm(x)), in the first layer att(x);  x += mlp(norm(x));  RoPE
 *   gemma3, gemma4    as these generate, where config.json says that attention has two directions
 *
 * A window has two sides: with |i - j| <= 2, the fifth token of nine sees tokens 2 to 6. An operation's window is the side and one:
 *
 *   modernbert        local_attention 128            64 on each side
 *   gemma3            sliding_window 512            256 on each side (less than 512 / 2 + 1)
 *   embedding_gemma2  sliding_window 512            512 on each side
 *
 * Layers of a ModernBERT of seven, every third of which sees everything, with a base of RoPE of its own; the first has no norm before it:
 *
 *     layer     0      1     2     3     4     5     6
 *     sees     all   window       all   window      all
 *     base    160k    10k   10k  160k   10k   10k  160k
 *     reads    x      norm  norm  norm  norm  norm  norm
 *
 * What becomes of the last hidden states is >>pooler. Sources: modeling_*.py of transformers, of nomic_bert that of its publisher,
 * and for GGUF llama.cpp's bert, nomic-bert, modern-bert and gemma-embedding. */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

/* Whether it is an encoder, its kinds of tokens and places, and variants that are refused: when shapes are known. */
LLM__PRIVATE void llm__arch_encoder_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* What each layer sees, when the layers are known. */
LLM__PRIVATE void llm__arch_encoder(llm__facts *f, llm__arch *a);
