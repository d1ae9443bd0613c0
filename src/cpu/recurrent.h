/* recurrent: layers that keep a state of the past instead of keys and values.
 *
 * A state lies in the pages of its sequence: see llm_conv_op. A thread has some columns of some heads to itself, of all sequences, and
 * walks through the rows of each in order, page by page: the state comes from the page before, and then is changed in place.
 *
 *     page 0 (16 tokens)      page 1                       a chunk of positions 10 to 20:
 *     keys, values 0 ... 15   keys, values 16 ... 31       rows 10 ... 15   S of page 0 is what 0 ... 9 left, and becomes that of 0 ... 15
 *     S behind 15             S behind 20                  rows 16 ... 20   S of page 1 begins as that of page 0, which stays as it is
 *
 * Rows behind those that count (llm_step's seq_keep) are guesses: their states are a thread's own, and forgotten.
 *
 * So whatever is done with pages (sharing, copying, swapping, keeping in files) is done with states, too, and the prefix cache finds a
 * state wherever it finds a page. The price: a page has a state whatever it has of tokens, so it should be a long one
 * (llm__state_page), and what is shared is whole pages. vLLM aligns its pages with states in the same way.
 *
 * One row costs dk dv multiply-adds three times a head, from the first cache. The chunked form of the papers multiplies matrices instead,
 * which gains on devices; but its bits depend on where chunks begin. */
#pragma once
#include "base/platform.h"
#include "cpu/operations.h"

/* One row: dst *= act(gate), with the norms that belong to it. */
LLM__PRIVATE void llm__run_gate(const llm__run *r, int row);

LLM__PRIVATE void llm__run_conv(const llm__run *r);

LLM__PRIVATE void llm__run_recur(const llm__run *r);
