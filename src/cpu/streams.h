/* streams: several residual streams side by side.
 *
 * AltUp (Alternating Updates, Baykal et al. 2023): a token has n streams of the hidden size, of which a layer computes one. The others are
 * predicted before it and corrected behind it, by factors that a router of n outputs makes from the one: n D multiply-adds n times a row
 * for a residual n times as wide. See >>forward_altup for who calls it.
 *
 *     two streams (1, 2) and (3, 0), the first active, factors ((0, 0.5), (0, 0))
 *     PREDICT    (2.5, 2), (3, 0)         the first gets half of the second
 *     a layer    (3.5, 4) for it
 *     CORRECT    (1, 2) is what the layer has added; with factors (0, -0.5) streams get 1 and 0.5 of it: (3.5, 4), (3.5, 1) */
#pragma once
#include "base/platform.h"
#include "cpu/operations.h"

/* One row: see llm_streams_op. */
LLM__PRIVATE void llm__run_streams(const llm__run *r, int row);
