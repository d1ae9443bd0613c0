/* openai_rank: how well documents answer a query.
 *
 * /v1/rerank has a query and documents and gives the documents best first, as vLLM, Jina and Cohere write it; with `texts` in place of
 * `documents`, as text-embeddings-inference does. /v1/score has texts on two sides, one and many or as many on each, and gives a number for
 * each pair, as vLLM does. Each pair is a request of its own, so they are computed side by side. Two kinds of models tell the number:
 *
 *   a reranker of BERT's kind    both texts stand in one, and its classifier gives one value, mostly as a sigmoid (>>pooler)
 *   Qwen3-Reranker               a chat asks whether the document meets the query (Zhang et al. 2025): the probability of "yes" beside that
 *                                of "no" as the next token. All pairs of a query share the chat's begin, which is computed once
 *
 * A query with two documents, and what comes back; `return_documents` false leaves the documents out, `top_n` takes the best:
 *
 *   /v1/rerank  {"query": "Who painted it?", "documents": ["A river.", "Monet did."]}
 *               {"id": "rerank-...", "model": "...", "results": [
 *                  {"index": 1, "relevance_score": 0.98, "document": {"text": "Monet did."}},
 *                  {"index": 0, "relevance_score": 0.01, "document": {"text": "A river."}}], "usage": {"prompt_tokens": 21, ...}}
 *   /rerank     {"query": "Who painted it?", "texts": ["A river.", "Monet did."]}
 *               [{"index": 1, "score": 0.98}, {"index": 0, "score": 0.01}]
 *   /v1/score   {"text_1": "Who painted it?", "text_2": ["A river.", "Monet did."]}
 *               {"object": "list", "data": [{"index": 0, "object": "score", "score": 0.01}, ...]} */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"

/* Reads the pairs and submits them. 0: an error was kept. */
LLM__PRIVATE int llm__rank_submit(llm_openai_call *k);

/* The whole answer, when all have ended. */
LLM__PRIVATE void llm__rank_whole(llm_openai_call *k, llm_text *out);
