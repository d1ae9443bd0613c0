#!/bin/sh
# Prompts with one picture beside llama.cpp, on random models of SmolVLM's and Qwen2.5-VL-3B's shape, in turns; a line for each row of RESULTS.md.
#   PEER=folder of llama-server sh tests/bench/see.sh [DIR]     4 GB in DIR (build/see), made once; 6 minutes on two cores; LLM_SERVE as in see.py
set -eu
dir=${1:-build/see}
mkdir -p "$dir"
made() { [ -s "$dir/$3" ] || python3 tests/bench/random_gguf.py "$1" "$dir/$1.gguf" --tower "$dir/$3" --tower-type "$2"; }
row() {
    made "$1" "$2" "$1-$2.gguf"
    echo "== $1, tower in $2, a picture of $3"
    python3 tests/bench/see.py "$dir/$1.gguf" "$dir/$1-$2.gguf" --size "$3" --peer "$PEER" -r 2 -t 2 --ops "$4"
}
row smolvlm500m q8_0 1024x256 1077
row smolvlm500m f16 1024x256 1077
row smolvlm500m bf16 1024x256 1077
row qwenvl3b f16 280x280 519
