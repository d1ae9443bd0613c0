#!/bin/sh
# One command for a machine with an NVIDIA GPU, under 10 minutes: sh tests/gpu.sh [OUT]
# Needs the repository and what `make all build/test_cuda && make cuda` built (it builds what is missing where nvcc is there). Checkpoints: those of
# ../shared, or copies under build/gpu/checkpoints. Results go to OUT (tests/bench/RESULTS_GPU.md is made from them).
OUT=${1:-build/gpu/out}
LIB=$PWD/libllm_cuda.so
CHECKPOINTS=build/gpu/checkpoints
[ -d "$CHECKPOINTS" ] || CHECKPOINTS=../shared/checkpoints
mkdir -p "$OUT"
if command -v nvcc >/dev/null 2>&1; then make cuda CUDA_ARCH=native build/test_cuda all || exit 1; fi
[ -f "$LIB" ] || { echo "libllm_cuda.so is not there, and nvcc neither"; exit 1; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$OUT/device.txt"

# Right: operations against the CPU table, then whole models.
LLM_CUDA_LIBRARY=$LIB timeout 120 build/test_cuda >"$OUT/operations.txt" 2>&1; tail -3 "$OUT/operations.txt"
for name in llama gemma2 gpt_oss deepseek_v2_lite qwen2_moe olmo2 chatglm3 mixtral; do
    [ -d "$CHECKPOINTS/$name" ] && timeout 60 python3 tests/gpu_checkpoint.py "$CHECKPOINTS/$name" --device cuda --cuda-library "$LIB"
done | tee "$OUT/checkpoints.txt"
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck; do
        for part in attention rows draws; do
            LLM_CUDA_LIBRARY=$LIB timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 build/test_cuda $part >"$OUT/$tool-$part.txt" 2>&1
            echo "$tool $part: exit $?"
        done
    done | tee "$OUT/sanitizer.txt"
fi

# Fast: random weights of real shapes, made on the device.
shape() { # NAME HIDDEN FF LAYERS HEADS KV_HEADS VOCAB DTYPE TIED
    mkdir -p "build/gpu/$1"
    printf '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,"num_attention_heads":%d,
"num_key_value_heads":%d,"vocab_size":%d,"max_position_embeddings":8192,"rms_norm_eps":1e-5,"rope_theta":500000.0,"tie_word_embeddings":%s,"torch_dtype":"bfloat16"}' \
        "$2" "$3" "$4" "$5" "$6" "$7" "$8" >"build/gpu/$1/config.json"
}
shape llama3-8b 4096 14336 32 32 8 128256 false
shape small-0.6b 1024 3072 28 16 8 151936 true
for model in small-0.6b llama3-8b; do
    timeout 200 ./llm_cli bench -m "build/gpu/$model" --load-format dummy --device cuda --cuda-library "$LIB" --dtype bfloat16 --max-model-len 4096 \
        -p 2048 -n 128 -b 1,8,64 -r 3 --json | tee "$OUT/bench-$model.jsonl"
done
timeout 60 ./llm_cli bench -m build/gpu/llama3-8b --load-format dummy --device cuda --cuda-library "$LIB" --dtype bfloat16 --max-model-len 1024 --enforce-eager -p 0 -n 64 -b 1 -r 2 --json \
    | tee "$OUT/bench-eager.jsonl"
