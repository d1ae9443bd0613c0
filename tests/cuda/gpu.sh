#!/bin/sh
# What a machine with an NVIDIA GPU can tell, in two calls of at most nine minutes each, without network:
#
#     sh tests/cuda/gpu.sh figures     whether it computes right, then figures: each part of bench_cuda in a process of its own
#     sh tests/cuda/gpu.sh checks      whole models, operations under compute-sanitizer, the time of a start, transformers beside it
#
# Needs what `make gpu` built elsewhere, which prints the paths to carry, or nvcc here. Into $OUT (or build/gpu/out) go two files a call: a table,
# figures.md or checks.md, and all that was said, figures.tar.gz or checks.tar.gz. Ends with 1 if anything was wrong. With LLM_CUDA_LIBRARY
# naming the emulation and LLM_TINY=1 the script itself is tried.
CALL=${1:-figures}
OUT=${OUT:-build/gpu/out}
LIB=${LLM_CUDA_LIBRARY:-$PWD/libllm_cuda.so}
SAID=$(mktemp -d)
BEGIN=$(date +%s)
MOST=${GPU_SECONDS:-530}
BAD=0
mkdir -p "$OUT"
for file in "$LIB" build/bench_cuda build/dev/test_cuda llm_cli; do
    [ -f "$file" ] || { make gpu CUDA_ARCH=native || { echo "$file is not there, and could not be built"; exit 1; }; break; }
done

# Libraries of NVIDIA's that are in no place where the loader looks may lie in Python packages.
for name in libcublasLt.so.13 libnccl.so.2; do
    ldconfig -p 2>/dev/null | grep -q "$name" && continue
    found=$(find / -name "$name" -not -path '/proc/*' 2>/dev/null | head -1)
    [ -n "$found" ] && export LD_LIBRARY_PATH="$(dirname "$found"):$LD_LIBRARY_PATH"
    echo "-- $name: ${found:-is not there}"
done
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo 'no nvidia-smi'; } >"$SAID/machine.txt" 2>/dev/null
cat "$SAID/machine.txt"

# step NAME SECONDS COMMAND...: what it says to SAID/NAME.txt, its last lines and its verdict here; not begun when less than a quarter of its time
# is left
step() {
    name=$1 most=$2 start=$(date +%s)
    shift 2
    [ -z "$LLM_TINY" ] || most=$((4 * most)) # the emulation
    left=$((BEGIN + MOST - start))
    [ $((4 * left)) -ge "$most" ] || { echo "-- $name: no time left"; BAD=1; return 1; }
    [ "$most" -le "$left" ] || most=$left
    timeout "$most" "$@" >"$SAID/$name.txt" 2>&1
    code=$?
    tail -2 "$SAID/$name.txt" | cut -c1-200
    [ $code = 0 ] || BAD=1
    echo "-- $name: $([ $code = 0 ] && echo right || echo "WRONG (exit $code)"), $(($(date +%s) - start)) s"
}

figures() {
    TINY=${LLM_TINY:+--tiny} RATES=
    OPERATIONS=${LLM_TINY:+attention} # the emulation has all of them in steps of their own (make test-cuda)
    build/bench_cuda --list >"$SAID/parts.txt"
    while read -r part seconds; do
        step "$part" "$seconds" build/bench_cuda "$LIB" $TINY $RATES "$part" </dev/null
        [ "$part" != device ] || RATES=$(sed -n 's/^rates /--rates /p' "$SAID/device.txt")
        [ "$part" != right ] || step operations 100 env LLM_CUDA_LIBRARY="$LIB" build/dev/test_cuda "${OPERATIONS:-operations}" </dev/null
    done <"$SAID/parts.txt"
}

checks() {
    step models 90 env LLM_CUDA_LIBRARY="$LIB" build/dev/test_cuda models
    for name in llama gemma2 gpt_oss deepseek_v2_lite qwen2_moe olmo2 chatglm3 mixtral; do
        step "checkpoint-$name" 40 python3 tests/e2e/test_checkpoints.py "$name" --args "--device cuda --cuda-library $LIB"
    done
    step start 60 python3 tests/cuda/gpu_start.py --cuda-library "$LIB"
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck; do
            for part in attention latent sums linear draws mixtures rows fp8; do
                step "$tool-$part" 60 env LLM_CUDA_LIBRARY="$LIB" LLM_TEST_SLOW=8 compute-sanitizer --tool $tool --error-exitcode 9 build/dev/test_cuda $part
            done
        done
    else echo "-- compute-sanitizer is not there"; fi
    if python3 -c 'import torch, transformers' 2>/dev/null; then step transformers 90 python3 tests/cuda/gpu_start.py --transformers
    else echo "-- transformers is not there"; fi
}

case $CALL in
    figures | checks) $CALL ;;
    *) echo "gpu.sh figures | checks"; exit 2 ;;
esac
{
    cat "$SAID/machine.txt"
    grep -h '^device: ' "$SAID"/*.txt
    echo
    echo "| part | what | measured | of 4.3 TB/s or 790 TFLOP/s | of what this device gives | goal |"
    echo "| --- | --- | --- | --- | --- | --- |"
    { cut -d' ' -f1 "$SAID/parts.txt" 2>/dev/null; echo start; echo transformers; } | while read -r part; do grep -h '^|' "$SAID/$part.txt" 2>/dev/null; done
} >"$OUT/$CALL.md"
cat "$OUT/$CALL.md"
tar -czf "$OUT/$CALL.tar.gz" -C "$SAID" . && rm -r "$SAID"
echo "-- $CALL: $([ $BAD = 0 ] && echo right || echo "SOMETHING WAS WRONG"), $(($(date +%s) - BEGIN)) s; $OUT/$CALL.md, $OUT/$CALL.tar.gz"
exit $BAD
