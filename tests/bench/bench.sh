#!/bin/sh
# llm_cli bench on a model; with PEER=DIR (llama-bench and llama-batched-bench in it) five rounds in turn and the ratios of the medians.
set -eu
model=$1
[ -e "$model" ] || { echo "bench: $model is not there: run make model" >&2; exit 1; }
if [ -z "${PEER:-}" ]; then
    exec ./llm_cli bench -m "$model"
fi
[ -e ../shared/tools/pair_bench.py ] || { echo "bench: ../shared/tools/pair_bench.py is not there" >&2; exit 1; }
exec python3 ../shared/tools/pair_bench.py --ours ./llm_cli --peer "$PEER" --model "$model" --tests pp512,tg128,tg128@8
