#!/bin/sh
# llm_cli bench on a model; with PEER=DIR (llama-bench and llama-batched-bench in it) five rounds in turn and the ratios of the medians.
set -eu
model=$1
[ -e "$model" ] || { echo "bench: $model is not there: run make model" >&2; exit 1; }
[ -n "${PEER:-}" ] || exec ./llm_cli bench -m "$model"
exec python3 tests/bench/pair_bench.py --peer "$PEER" --model "$model"
