/* convert_encoder: what GGUF files of encoders have, under llama.cpp's names.
 *
 *     folder                              GGUF
 *     word_embeddings, tok_embeddings     token_embd           LayerNorm behind them    token_embd_norm
 *     position_embeddings                 position_embd, without RoBERTa's first rows, which are those of padding
 *     token_type_embeddings               token_types          attention.output.LayerNorm, norm1    attn_output_norm
 *     pooler.dense, classifier.dense,     cls                  output.LayerNorm, norm2              layer_output_norm
 *       head.dense of ModernBERT
 *     classifier, classifier.out_proj     cls.output           head.norm                            cls.norm
 *     2_Dense, 3_Dense                    dense_2, dense_3
 *
 * A ModernBERT of four layers, whose layers 1 and 2 see 8 tokens on each side:
 *
 *     attention.sliding_window 16, attention.sliding_window_pattern 3, rope.freq_base 160000, rope.freq_base_swa 10000
 *
 * How a window is told differs too: the whole width (ModernBERT, EmbeddingGemma), and every third or sixth layer, from the first on or to
 * the last. A file of a reranker also says `classifier.sigmoid`, which llama.cpp passes over, and one whose vectors stay as they are
 * `embedding_normalize`. WordPiece's words stand with U+2581 in front where they begin, and without ## where they go on. Source:
 * conversion/bert.py and gemma.py of llama.cpp. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "model/convert_add.h"

/* What an encoder has that GGUF has no form for. */
LLM__PRIVATE llm_result llm__convert_encoder_refuse(const llm_model *m);

/* The name that llama.cpp has for the architecture; NULL: the family's own. */
LLM__PRIVATE const char *llm__convert_encoder_arch(const llm_model *m);

/* Keys of pooling, dense layers, classifiers and windows, under `arch`. */
LLM__PRIVATE void llm__convert_encoder_keys(const llm_model *m, const char *arch, llm_text *keys, uint64_t *n_keys);

/* The words of a WordPiece or Unigram tokenizer.json, whose model is of this type. */
LLM__PRIVATE llm_result llm__convert_pieces(const llm_model *m, const llm_json *d, llm_text *keys, uint64_t *n_keys);

/* Ids around a text of an encoder, and between two. */
LLM__PRIVATE void llm__convert_frame(const llm_model *m, llm_text *keys, uint64_t *n_keys);

/* Adds the tensors that no layer has. */
LLM__PRIVATE void llm__convert_encoder_tensors(llm__converting *g);
