#!/bin/sh
# One command for a machine with an NVIDIA GPU, under 10 minutes: sh tests/cuda/gpu.sh [OUT]
# Needs what `make gpu` built elsewhere (programs, libllm_cuda.so for all architectures), or nvcc here. No network. What it prints goes to OUT as
# well; tests/bench/RESULTS_GPU.md is made from OUT/figures.md. Ends with 1 if anything was wrong.
OUT=${1:-build/gpu/out}
LIB=${LLM_CUDA_LIBRARY:-$PWD/libllm_cuda.so} # with the emulation and LLM_TINY=1 the script itself is tried
BAD=0
mkdir -p "$OUT"
[ -f "$LIB" ] && [ -x build/bench_cuda ] || make gpu CUDA_ARCH=native || { echo "libllm_cuda.so or build/bench_cuda is not there, and nvcc neither"; exit 1; }
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo 'no nvidia-smi'; } | tee "$OUT/device.txt"

# step NAME SECONDS COMMAND...: its output to OUT/NAME.txt, its last lines and its verdict here
step() {
    name=$1 most=$2 start=$(date +%s)
    shift 2
    timeout "$most" "$@" >"$OUT/$name.txt" 2>&1
    code=$?
    tail -4 "$OUT/$name.txt" | cut -c1-200
    [ $code = 0 ] || BAD=1
    echo "-- $name: $([ $code = 0 ] && echo right || echo "WRONG (exit $code)"), $(($(date +%s) - start)) s"
}

# Right: operations, sums of two ranks on this one device, NCCL with one rank, graphs, lag, speculation against the CPU; whole models.
step operations 120 env LLM_CUDA_LIBRARY="$LIB" build/dev/test_cuda
for name in llama gemma2 gpt_oss deepseek_v2_lite qwen2_moe olmo2 chatglm3 mixtral; do
    step "checkpoint-$name" 60 python3 tests/e2e/test_checkpoints.py "$name" --args "--device cuda --cuda-library $LIB"
done
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck; do
        for part in fp8 latent mixtures rows sums draws; do
            step "$tool-$part" 45 env LLM_CUDA_LIBRARY="$LIB" compute-sanitizer --tool $tool --error-exitcode 9 build/dev/test_cuda $part
        done
    done
else echo "-- compute-sanitizer is not there"; fi

# Fast: all figures of one process (dummy shapes beside the CPU first), then what takes a process of its own.
step figures 240 build/bench_cuda "$LIB" ${LLM_TINY:+tiny}
step start 90 python3 tests/cuda/gpu_start.py --cuda-library "$LIB"
if python3 -c 'import torch, transformers' 2>/dev/null; then step transformers 120 python3 tests/cuda/gpu_start.py --transformers
else echo "-- transformers is not there"; fi
{ cat "$OUT/device.txt"; echo; cat "$OUT/figures.txt"; cat "$OUT/start.txt" "$OUT/transformers.txt" 2>/dev/null | grep '^|'; } >"$OUT/figures.md"
cat "$OUT/figures.md"
exit $BAD
