#!/usr/bin/env python3
"""Runs groups of tests one after the other and adds up what they say.

    run.py check | test | isa | arm | clients | cuda | memory | load | sanitize | sanitize_vision | fuzz | shared

Every step is a command whose last line with figures is "N passed, N failed[, N skipped]" or "name: A/B equal". Its output goes to
build/logs/STEP.log; failures are shown. The last line here is the sum of all.
"""
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/e2e")
import checkpoints
import serving

SHARED = pathlib.Path("../shared")
MODELS = {"SMOLLM2_GGUF": "models/SmolLM2-135M-Instruct.Q4_1.gguf", "GEMMA_GGUF": "models/gemma-3-270m-q4_k_m.gguf"}
PYTHON = "build/python/bin/python"  # made by setup.py, with the packages that tests use
TOTAL = [0, 0, 0]
LOCK = threading.Lock()
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 2)


def figures(text):
    for line in reversed(text.splitlines()):
        m = re.search(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", line)
        if m: return [int(m[1]), int(m[2]), int(m[3] or 0)]
        m = re.search(r"(\d+)/(\d+) equal", line)
        if m: return [int(m[1]), int(m[2]) - int(m[1]), 0]
    return None


def run(command, out, env, timeout):
    """(exit code or why there is none, seconds of processors): how long a step takes where others compute tells little."""
    try:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    except OSError as error:
        return str(error), 0
    late = threading.Event()
    timer = threading.Timer(timeout, lambda: (late.set(), p.kill()))
    timer.start()
    _, status, usage = os.wait4(p.pid, 0)
    timer.cancel()
    p.returncode = os.waitstatus_to_exitcode(status)
    return "time over" if late.is_set() else p.returncode, usage.ru_utime + usage.ru_stime


def log_of(name):
    return pathlib.Path("build/logs") / (name.replace(" ", "-").replace("/", "-") + ".log")


def result_of(name, command, env=None, timeout=1800):
    """(what a command said, its exit code or why there is none, how long it took)"""
    log, start = log_of(name), time.time()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out: code, spent = run(command, out, env, timeout)
    return log.read_text(errors="replace"), code, f"{time.time() - start:7.1f} s ({spent:.0f} of processors)"


def count(name, got, took, text, code):
    with LOCK:
        for i in range(3): TOTAL[i] += got[i]
        print(f"{name:34s} {got[0]:7d} passed {got[1]:4d} failed {got[2]:4d} skipped {took}", flush=True)
        if got[1]:
            bad = [x for x in text.splitlines() if "FAIL" in x or "error" in x.lower()][:15] + text.splitlines()[-10:]
            print("    " + "\n    ".join(x[:300] for x in bad) + f"\n    exit {code}; the whole output: {log_of(name)}", flush=True)


def step(name, command, env=None, timeout=1800, quiet=False):
    """One command. It fails when it says so, when it exits otherwise than 0, when it hangs, or when it tested nothing. quiet: it has no figures, and
    is one check. Returns its output."""
    text, code, took = result_of(name, command, env, timeout)
    got = figures(text) or [int(quiet and not code), 0, 0]
    if not got[1] and (code or not any(got)): got[1] = 1
    count(name, got, took, text, "0, but nothing was tested" if code == 0 else code)
    return text


def together(*jobs, waiting=()):
    """Steps side by side, as many at once as there are cores; the longest should stand first. A job is a function or what step() takes. Beside
    them runs one after the other what waits more than it computes."""
    def one(job): return job() if callable(job) else step(*job)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool, concurrent.futures.ThreadPoolExecutor(1) as beside:
        for done in [*(beside.submit(one, job) for job in waiting), *(pool.submit(one, job) for job in jobs)]: done.result()


def counted(name, good, bad):
    """What was checked here: how many were right, and a line for each that was not."""
    with LOCK:
        TOTAL[0] += good
        TOTAL[1] += len(bad)
        print(f"{name:34s} {good:7d} passed {len(bad):4d} failed", *bad, sep="\n    ", flush=True)


def skip(name, why):
    TOTAL[2] += 1
    print(f"{name:34s} skipped: {why}", flush=True)


def make(*targets):
    """Builds. One that went well is not counted; one in which a compiler warns has failed."""
    name = "build " + " ".join(targets)
    text, code, took = result_of(name, ["make", f"-j{JOBS}", "--no-print-directory", *targets])
    warnings = re.findall(r"^\S+:\d+:\d+: warning: .*", text, re.M)
    count(name, [0, int(code != 0 or len(warnings) > 0), 0], took, "\n".join(["FAILED: " + line for line in warnings[:10]] or [text]), code)


def isas():
    p = subprocess.run(["./llm_cli", "--version"], capture_output=True, text=True)
    m = re.search(r"instruction sets: ([a-z0-9 ]+)", p.stdout)
    return m[1].split() if m else ["scalar"]


def families(name, args="", names=(), env=None, more=()):
    """A step: llm_cli with these options on tiny checkpoints, all of them where no names are given."""
    return name, [sys.executable, "tests/e2e/test_checkpoints.py", *names, "--args", args, *more], env


def outside_truth():
    """What other programs give for the same inputs, as steps that can stand side by side, the long ones first."""
    goldens = [*sorted(glob.glob("build/data/token_goldens/*.jsonl")), *sorted(glob.glob("build/data/vocabularies/*.inp"))]
    return [("small KV caches", [sys.executable, "tests/e2e/test_kv.py"], MODELS),
            ("golden", [sys.executable, "tests/e2e/test_golden.py"]), ("tokens", [sys.executable, "tests/e2e/test_tokens.py", *goldens]),
            ("templates", [sys.executable, "tests/e2e/test_templates.py"]), ("encoders", [sys.executable, "tests/e2e/test_encoders.py"])]


def shared_tokens(name, goldens, options=()):
    folder = pathlib.Path("build/models") # the names by which the goldens know the models
    folder.mkdir(parents=True, exist_ok=True)
    for alias, variable in (("smollm2.gguf", "SMOLLM2_GGUF"), ("gemma.gguf", "GEMMA_GGUF")):
        link, target = folder / alias, pathlib.Path(MODELS[variable]).resolve()
        if target.exists() and not link.exists(): link.symlink_to(target)
    step(name, [sys.executable, str(SHARED / "tools/check_tokenize.py"), *options, *goldens], {"LLM_MODELS": str(folder)})


def shared():
    """The checkers and data of a folder beside this one, for who has it."""
    if not SHARED.exists(): return skip("shared", f"{SHARED} is not there")
    step("shared checkpoints", [sys.executable, str(SHARED / "tools/check_checkpoints.py"), str(SHARED / "checkpoints")])
    shared_tokens("shared tokens of Hugging Face", sorted(glob.glob(str(SHARED / "cases/token_goldens/*.jsonl"))))
    inputs = sorted(glob.glob(str(SHARED / "cases/tokenizers/*.gguf.inp")))
    shared_tokens("shared tokens of llama.cpp", [x for x in inputs if os.path.exists(x[:-4])])
    for vocabulary, folder in (("llama-bpe", "llama3"), ("qwen2", "qwen3")): # these two come as tokenizer.json
        shared_tokens("shared tokens of llama.cpp, " + vocabulary, [x for x in inputs if x.endswith(f"ggml-vocab-{vocabulary}.gguf.inp")], ("--model", str(SHARED / "tokenizers" / folder)))
    step("shared templates", [sys.executable, str(SHARED / "tools/check_render.py"), str(SHARED / "cases/chat_templates/expected.json")])
    for model in ("smollm2", "gemma"): step("shared golden " + model, [sys.executable, str(SHARED / "tools/check_golden.py"), "--model", model, "--factor", "1.03"], MODELS)


def has_all_sets():
    """Does this processor run the last kernels there are for x86? Then what emulates them has nothing to add."""
    with open("/proc/cpuinfo") as f: flags = re.search(r"^flags\s*:(.*)", f.read(), re.M)
    return bool(flags) and {"avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"} <= set(flags[1].split())


def emulated():
    """The AVX-512 kernels where the CPU need not have it: by SIMDe, which setup.py installs; as steps that can stand side by side. They do not ask
    what else there is: build/dev/unit, which has the same objects for it."""
    return [("AVX-512 emulated backend", ["build/emu/unit", "backend", "--", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"]),
            ("AVX-512 emulated linear", ["build/emu/unit", "linear"])]


UNIT_LONG = ("backend", "speculate", "model", "film", "fuel", "easy", "engine", "sim") # groups of unit tests that take seconds


def unit_groups():
    p = subprocess.run(["build/dev/unit", "--list"], capture_output=True, text=True)
    return p.stdout.split()


def answer(program):
    """One real answer of the default model."""
    model = MODELS["SMOLLM2_GGUF"]
    if not os.path.exists(model): return skip("a real answer", "make model has not been run")
    answered = step("a real answer", [program, "-m", model, "-p", "What is the capital of France? Answer in one sentence.", "-n", "64", "--temp", "0"], quiet=True)
    if "Paris" not in answered:
        TOTAL[1] += 1
        print("    FAILED: the answer is: " + answered[:300])


def unit_steps(env=None):
    """The unit tests as steps that can stand side by side, the long groups first."""
    quick = set(unit_groups()) - set(UNIT_LONG)
    return [("unit tests: others", ["build/dev/unit", *sorted(quick)], env), *((f"unit tests: {name}", ["build/dev/unit", name], env) for name in UNIT_LONG)]


def check():
    """What every commit should pass, in 90 seconds on two cores: src/ and llm.h belong together, everything compiles (the parts one by one, llm.h
    without its code being made), unit tests, the longest of them shortened, one real answer."""
    step("llm.h is what src/ gives", [sys.executable, "src/amalgamate.py", "--check"], quiet=True)
    make("build/dev/unit", "build/dev/llm_cli", "build/dev/llm_serve")
    together(*unit_steps({"LLM_TEST_BRIEF": "1"}), ("hygiene, quick", [sys.executable, "tests/tools/hygiene.py", "quick"]), ("structure", [sys.executable, "tests/tools/structure.py"]),
             lambda: answer("build/dev/llm_cli"))


def script(name, path, env=None):
    return name, [sys.executable, path], env


def test():
    """First everything is built; then stands side by side what only computes, the long steps first; what looks at the clock runs last, two at once."""
    native = has_all_sets()
    make("all", "lib", "build/dev/unit", "replays", *CUDA_SOME_NEEDS, *([] if native else ["build/emu/unit"]))
    together(
        script("hygiene", "tests/tools/hygiene.py"),
        *cuda_some(),
        *outside_truth(),
        *unit_steps(),
        ("connections, planted defects", [sys.executable, "tests/tools/test_connections.py", "--third"]),
        *([] if native else emulated()),
        script("examples", "tests/e2e/test_examples.py"),
        script("structure, bad edits", "tests/tools/test_structure.py"),
        script("quantised folders", "tests/e2e/test_quantised.py"),
        script("grammar", "tests/e2e/test_grammar.py"),
        script("programs of other versions", "tests/e2e/test_abi.py"),
        script("adapters", "tests/e2e/test_lora.py"),
        script("quantize", "tests/e2e/test_quantize.py"),
        *((f"chat page, {name}", ["node", f"tests/unit/page/test_{name}.js"]) for name in ("hostile", "renderer")),
        *each_isa(whole=False),
        script("release", "tests/e2e/test_dist.py"),
        script("structure", "tests/tools/structure.py"),
        lambda: step("Unicode tables", [sys.executable, "src/text/gen_unicode.py", "--check"], quiet=True),
        script("offline, documents", "tests/e2e/test_offline.py"),
        script("old folders", "tests/e2e/test_old_files.py"),
        script("quantize, folders", "tests/e2e/test_quantize_folder.py"),
        script("Ollama's clients", "tests/e2e/test_ollama.py"),
        script("names of other servers", "tests/e2e/test_related.py"),
        script("full disks", "tests/e2e/test_disk.py"),
        script("routes described", "tests/e2e/test_openapi.py"),
        script("llm_cli, failing allocations", "tests/e2e/test_nth.py"),
        replayed,
        waiting=[script(name, f"tests/e2e/test_{path}.py") for name, path in (
            ("models that see", "vision"), ("several models", "models"), ("models of the Hub", "pull"), ("kept contexts", "contexts"), ("every parameter", "parameters"),
            ("install", "install"))])
    together(*(script(name, f"tests/e2e/{path}.py") for name, path in (
        ("llm_serve, bad inputs", "test_serve_bad"), ("llm_serve", "test_serve"), ("llm_serve, load", "load"), ("llm_cli", "test_cli"),
        ("llm_serve, documents", "test_documents"))),
        waiting=[script("llm_cli in a terminal", "tests/e2e/test_pty.py"), script("llm_serve as a service", "tests/e2e/test_service.py")])


def shared_out(way, ways, names):
    """Of the names those that this way takes, so that each name is taken by two of the ways."""
    half = len(ways) // 2
    return [name for i, name in enumerate(names) if len(ways) < 3 or ways.index(way) in (i % len(ways), (i + half) % len(ways))]


def each_isa(whole):
    """Tiny checkpoints and models that see, on every instruction set and in two halves, as steps that can stand side by side. Not whole: all of them on
    the best set; the others, whose kernels the unit tests compare one by one, and the halves, in which they compute each family, share them."""
    sets, halves = ["--isa " + name for name in isas()], "-tp 2 --device cpu"
    *others, best = *sets[:-1], halves, sets[-1]
    called = lambda what, way: f"{what} " + way.removesuffix(" --device cpu")
    taken = lambda way, names: names if whole or way == best else shared_out(way, others, names)
    for way in [best, *others]: yield families(called("checkpoints", way), way, taken(way, checkpoints.FAMILIES))
    for way in [best, *others]: yield called("models that see,", way), [sys.executable, "tests/e2e/test_vision.py", *taken(way, VISION), "--args", way]


VISION = ("ernie4_5_vl_moe", "gemma3", "llava_onevision", "minicpmv", "mistral3", "qwen2_5_vl", "qwen3_vl")


def isa():
    make("build/emu/unit")
    together(*emulated(), *each_isa(whole=True))


def arm():
    make("build/arm/unit", "build/arm/llm_cli")
    qemu = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    step("ARM kernels", [*qemu, "build/arm/unit", "linear"])
    step("ARM kernels, without dot products", [*qemu, "-cpu", "cortex-a53", "build/arm/unit", "linear"])
    step("ARM operations", [*qemu, "build/arm/unit", "backend"])
    step(*families("ARM checkpoints", names=("llama", "gemma2", "gpt_oss", "deepseek_v2_lite", "qwen2_moe", "mixtral"), env={"LLM_CLI": "build/arm/llm_cli"}))


CUDA_SOME_NEEDS = ("build/libllm_cuda_emu.so", "build/dev/test_cuda", "build/cuda_bugs", "build/cuda_bugs_san")
CUDA_SOME = ("gemma2", "gpt_oss", "deepseek_v2_lite", "mamba2")


def cuda_checkpoints(names, args, whole=False):
    """A step: tiny checkpoints on the emulation."""
    return families(f"CUDA checkpoints {args}".strip(), "--device cuda --cuda-library build/libllm_cuda_emu.so " + args, names, more=[] if whole else ["--brief"])


def cuda_sees(args, *options):
    """A step: the same of models that see; what a tower runs on is the language model's table of operations."""
    args = f"--device cuda --cuda-library build/libllm_cuda_emu.so {args}"
    return f"CUDA models that see {args.partition('.so ')[2]}".strip(), [sys.executable, "tests/e2e/test_vision.py", "--files", *options, "--args", args]


def cuda_bugs():
    """The emulation is tested too: each planted bug is found by the mode that is there for it, and what is right stays right."""
    said = lambda program, name, seed: subprocess.run(["build/" + program, name], env=dict(os.environ, CUEMU_SEED=str(seed), CUEMU_WAIT_S="1", ASAN_OPTIONS="detect_leaks=0"), capture_output=True, text=True)
    results = [("right under every order", all(said("cuda_bugs", "right", s).stdout == "right\n" for s in (0, 1, 2, 3, 4, 6))), ("a race", any(said("cuda_bugs", "race", s).stdout == "wrong\n" for s in (1, 2, 4))),
               ("a missing __syncwarp", said("cuda_bugs", "sync", 1).stdout == "wrong\n"), ("threads that never meet", "deadlock" in said("cuda_bugs", "diverged", 0).stderr),
               ("a write out of bounds", "heap-buffer-overflow" in said("cuda_bugs_san", "bounds", 0).stderr), ("an array that lies at odd addresses", "not 16-byte aligned" in said("cuda_bugs", "aligned", 0).stderr),
               ("more shared memory than a block has", "bytes of shared memory" in said("cuda_bugs", "shared", 0).stderr), ("a kernel loaded too late", "waits for all" in said("cuda_bugs", "late", 0).stderr),
               ("memory freed while others wait", "cudaFree waits for all" in said("cuda_bugs", "freed", 0).stderr), ("the same with all loaded and nothing freed", said("cuda_bugs", "loaded", 0).stdout == "right\n"),
               ("communicators that end one by one", "ncclCommDestroy waits" in said("cuda_bugs", "destroyed", 0).stderr),
               ("a kernel that reads before it has waited", all(said("cuda_bugs", name, s).stdout == "wrong\n" for s in (0, 1, 2) for name in ("early", "early graph"))),
               ("a kernel that never waits", all("has not waited" in said("cuda_bugs", name, 0).stderr for name in ("early never", "early never graph"))),
               ("products of a warpgroup are right", all(said("cuda_bugs", "group", s).stdout == "right\n" for s in (0, 1, 2, 3, 4, 6))),
               ("such a product of what was stored without a fence", all("without a fence.proxy.async" in said("cuda_bugs", "group stores", s).stderr for s in (0, 1))),
               ("one without a fence of its sums", "no wgmma.fence for d" in said("cuda_bugs", "group fence", 0).stderr), ("one whose sums are touched", "touched before wgmma.wait_group" in said("cuda_bugs", "group touched", 0).stderr),
               ("one whose tile is overwritten too early", said("cuda_bugs", "group overwritten", 0).stdout == "wrong\n"),
               ("early kernels that wait are right", all(said("cuda_bugs", name, s).stdout == "right\n" for s in (0, 1, 2, 3, 4, 6) for name in ("early wait", "early wait graph")))]
    counted("CUDA emulation, planted bugs", sum(ok for _, ok in results), ["not found by the emulation: " + name for name, ok in results if not ok])


def cuda_absent():
    """The programs, where no libllm_cuda.so stands beside them, need no CUDA library and ask for none: in what the system's loader says of every file."""
    folder = pathlib.Path("build/alone")
    folder.mkdir(parents=True, exist_ok=True)
    model, good, bad = checkpoints.folder("llama"), 0, []
    for name in ("llm_cli", "llm_serve"):
        shutil.copy(name, folder / name)
        runs = [["--version"]] + ([["score", "-m", str(model), "--token-ids", "[1, 2, 3]"]] if name == "llm_cli" else [])
        for args in runs:
            p = subprocess.run([folder / name, *args], env=dict(os.environ, LD_DEBUG="libs,files"), capture_output=True, text=True)
            right = p.returncode == 0 and "libc.so" in p.stderr and not re.search("cuda|nccl|cublas|nvidia", p.stderr, re.I)
            good += right
            if not right: bad.append(f"{name} {args}: exit {p.returncode}: {[x for x in p.stderr.splitlines() if re.search('cuda|nccl|cublas|nvidia', x, re.I)][:3]}")
    counted("programs without CUDA", good, bad)


def nvcc():
    return shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda/bin/nvcc")), None)


def cuda_compiled():
    """What nvcc makes of every kernel for each architecture, as steps that can stand side by side: no warning, nothing of a step in local memory, and on sm_90a no more instructions than its budget."""
    if not nvcc(): return skip("nvcc, all architectures", "nvcc is not there") or []
    step("nvdisasm", [sys.executable, "tests/tools/setup.py", "sass"], quiet=True)
    return [(f"CUDA, kernels of sm_{arch}", [sys.executable, "tests/cuda/sass.py", "--arch", arch]) for arch in ("80", "89", "90a", "100")]


def cuda_some():
    """Three minutes of the CUDA code, as steps that can stand side by side: each operation once, some checkpoints on two devices."""
    return [("CUDA operations", ["build/dev/test_cuda", "operations"], {"CUEMU_SEED": "1", "LLM_TEST_BRIEF": "1"}), cuda_checkpoints(CUDA_SOME, "-tp 2"),
            ("CUDA llm_serve in two processes", [sys.executable, "tests/cuda/test_cuda_nodes.py", "brief"]),
            cuda_sees("-tp 2", "minicpmv", "qwen2_5_vl", "--chats", "two images"), cuda_bugs, cuda_absent]


def cuda_orders(operations, whole):
    """Operations under other orders of the threads; of whole models, in which an order can break nothing else, one in its shortest ways. Orders from 2 on are drawn at random: they stand in runs that differ in more, fused products and sm_80."""
    brief = {} if whole else {"LLM_TEST_BRIEF": "1"}
    named = [*operations, *([] if whole else ["operations"])]
    yield "CUDA operations, order 1", named, {"CUEMU_SEED": "1", **brief}
    yield "CUDA operations, order 2, fused products and sums", named, {"CUEMU_SEED": "2", "LLM_CUDA_LIBRARY": "build/libllm_cuda_fma.so", **brief}
    yield "CUDA operations, order 4, as sm_80", named, {"CUEMU_SEED": "4", "CUEMU_ARCH": "80", "LLM_TEST_SLOW": "8", **brief}
    if not whole: yield "CUDA models, order 1", [*operations, "models"], {"CUEMU_SEED": "1", "LLM_TEST_BRIEF": "1"}


def cuda():
    """Every step prints a line when it ends, with its time; the first lines of what failed stand below it, and the last line says whether anything did. Some 40 minutes on two cores.
    With LLM_TEST_WHOLE=1 more than that: every checkpoint on one device and on two, where else each third is on two alone, and all of its greedy tokens; all operations and
    whole models under every order, those with states in every way, and what each kind of head guesses on two devices."""
    start, whole = time.time(), bool(os.environ.get("LLM_TEST_WHOLE"))
    two = checkpoints.FAMILIES if whole else checkpoints.FAMILIES[1::3]
    one = [x for x in checkpoints.FAMILIES if whole or x not in two]
    library = os.path.abspath("build/libllm_cuda_emu.so")
    cuda_absent()
    make("build/libllm_cuda_emu.so", "build/libllm_cuda_san.so", "build/cuda_bugs", "build/cuda_bugs_san", "build/libllm_cuda_fma.so", "build/libllm_cuda_count.so", "build/dev/test_cuda", "build/san/test_cuda", "build/bench_cuda")
    cuda_bugs()
    six = ("llama_rope_yarn", "qwen3_moe", "gemma3_text", "glm4_moe", "mixtral", "phi3_longrope")
    invariant = {"VLLM_BATCH_INVARIANT": "1", "LLM_CUDA_LIBRARY": library, "LLM_TEST_SLOW": "8", "LLM_TEST_MODEL": serving.tiny_model(), "LLM_TEST_FLAGS": "--device cuda -tp 2"}
    on_it, operations = {"LLM_CUDA_LIBRARY": library}, ["build/dev/test_cuda"]
    together(
        ("CUDA operations, ASan+UBSan", ["build/san/test_cuda"], {"LLM_CUDA_LIBRARY": "build/libllm_cuda_san.so", "LLM_TEST_SLOW": "8", "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}, 3600),
        ("CUDA llm_serve, the whole suite", [sys.executable, "tests/e2e/test_serve.py"], invariant, 3600),
        ("CUDA operations and models, order 0", operations, {"CUEMU_SEED": "0"}),
        *cuda_orders(operations, whole),
        ("CUDA counts of launches and accesses", [sys.executable, "tests/cuda/counts.py"]),
        *(cuda_checkpoints(names, args, whole) for args, names in (("", one), ("-tp 2", two), ("-tp 4", six if whole else six[1::2]), ("-pp 2", six))),
        ("CUDA quantised folders", [sys.executable, "tests/e2e/test_quantised.py", "methods", "families", "mixes", "--device", "cuda", "--cuda-library", library], {"MIXES": "40"}),
        ("CUDA encoders", [sys.executable, "tests/e2e/test_encoders.py"], {"LLM_TEST_FLAGS": f"--device cuda --batch-invariant --cuda-library {library}"}),
        ("CUDA adapters", [sys.executable, "tests/e2e/test_lora.py", "families", "scaled"], on_it),
        ("CUDA llm_serve in several processes", [sys.executable, "tests/cuda/test_cuda_nodes.py"], on_it),
        ("CUDA llm_serve in Ray's workers", [sys.executable, "tests/cuda/test_cuda_ray.py"], on_it),
        ("CUDA llm_serve, answers of the CPU", [sys.executable, "tests/cuda/test_cuda_serve.py"], on_it),
        ("CUDA figures, tiny", ["sh", "tests/cuda/gpu.sh", "figures"], {**on_it, "LLM_TINY": "1", "OUT": "build/gpu/tiny", "GPU_SECONDS": "3000"}),
        *cuda_compiled())
    print(f"{'CUDA, all':34s} {(time.time() - start) / 60:.1f} minutes", flush=True)


def clients():
    step("outside clients", ["build/clients/bin/python", "tests/e2e/test_clients.py"])
    step("chat page in Chromium", ["build/clients/bin/python", "tests/e2e/test_page.py"])


def memory():
    """Every allocation fails once, and then all from each on: of calls of the library (unit tests), of llm_cli with the C library's own."""
    make("all", "build/dev/unit")
    step("calls, each allocation", ["build/dev/unit", "starved"])
    step("llm_cli, each allocation", [sys.executable, "tests/e2e/test_nth.py", "--all"], timeout=3600)
    step("llm_cli, all from each on", [sys.executable, "tests/e2e/test_nth.py", "--all", "--many"], timeout=3600)


def load():
    step("load, tiny model", [sys.executable, "tests/e2e/load.py", "--seconds", "60", "--wrk"])
    step("load, SmolLM2", [sys.executable, "tests/e2e/load.py", "--seconds", "60", "--wrk", "--model", MODELS["SMOLLM2_GGUF"], "closed", "term"])


def sanitize():
    # gcc before 14 misaligns vectors of 64 bytes in the frames that look for use after return (its bug 110027); a test measures memory
    os.environ["ASAN_OPTIONS"] = "detect_stack_use_after_return=0:allocator_may_return_null=1:quarantine_size_mb=16"
    os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1"
    os.environ["TSAN_OPTIONS"] = "report_thread_leaks=0" # a server that ends because it may have no more threads leaves the system those it has
    make("build/san/unit", "build/san/llm_cli")
    step("unit tests, ASan+UBSan", ["build/san/unit"], timeout=3600)
    step("llm_cli, ASan+UBSan", [sys.executable, "tests/e2e/test_cli.py"], {"LLM_CLI": "build/san/llm_cli"}, timeout=3600)
    step("llm_cli in a terminal, ASan+UBSan", [sys.executable, "tests/e2e/test_pty.py"], {"LLM_CLI": "build/san/llm_cli"}, timeout=3600)
    served("ASan+UBSan", "build/san/llm_serve")
    make("build/tsan/unit")
    step("engine, TSan", ["build/tsan/unit", "threads", "engine", "backend"], timeout=3600)
    served("TSan", "build/tsan/llm_serve")
    sanitize_vision()


def sanitize_vision():
    """Every chat of every family and everything about pictures, in builds that look for faults of memory and for races."""
    os.environ["ASAN_OPTIONS"] = "detect_stack_use_after_return=0:allocator_may_return_null=1:quarantine_size_mb=16"
    os.environ["TSAN_OPTIONS"] = "report_thread_leaks=0"
    for build, name in (("san", "ASan+UBSan"), ("tsan", "TSan")):
        make(f"build/{build}/llm_cli", f"build/{build}/llm_serve")
        env = {"LLM_CLI": f"build/{build}/llm_cli", "LLM_SERVE": f"build/{build}/llm_serve", "LLM_TEST_SLOW": "8"}
        step("models that see, " + name, [sys.executable, "tests/e2e/test_vision.py"], env, timeout=3600)


def served(name, program):
    """The server's suite with another build of it."""
    make(program)
    env = {"LLM_SERVE": program, "LLM_TEST_SLOW": "8", "LLM_TEST_MODEL": serving.tiny_model()}
    for what, script in (("", "test_serve.py"), (", bad inputs", "test_serve_bad.py"), (", load", "load.py")):
        step(f"llm_serve{what}, {name}", [sys.executable, "tests/e2e/" + script], env, timeout=3600)


def seeds(name):
    """A few small inputs of the right form for fuzzers to begin with, those of tests/fuzz/corpus among them: {file name: bytes}."""
    out = {x.name: x.read_bytes() for x in sorted(pathlib.Path("tests/fuzz/corpus", name).glob("*"))}
    if name in ("fuzz_tokenizer", "fuzz_regex"):
        for path in sorted(glob.glob("build/data/tokenizers/*/tokenizer.json")):
            d, folder = json.loads(pathlib.Path(path).read_text()), pathlib.Path(path).parent.name
            for i, pattern in enumerate(sorted(set(re.findall(r'"Regex": ("(?:[^"\\]|\\.)*")', json.dumps(d))))):
                if name == "fuzz_regex": out[f"{folder}-{i}"] = json.loads(pattern).encode() + b"\0I'LL see 1234 x\n\n  (Ab) \xc5\xbf"
            vocab = dict(list(d["model"]["vocab"].items())[:300])
            d["model"]["vocab"] = vocab
            pairs = [m.split(" ") if isinstance(m, str) else m for m in d["model"]["merges"]]
            d["model"]["merges"] = [p for p in pairs if p[0] in vocab and p[1] in vocab and p[0] + p[1] in vocab][:100]
            d["added_tokens"] = [dict(a, id=vocab.get(a["content"], 300 + i)) for i, a in enumerate(d["added_tokens"][:8])]
            if name == "fuzz_tokenizer": out[folder] = json.dumps(d).encode()
    if name == "fuzz_tokenizer":
        out["ranks"] = b"YQ== 0\nYg== 1\nYWI= 2\n\1" + b'{"added_tokens_decoder":{"5":{"content":"<s>"}},"bos_token":"<s>"}'
        out["sentencepiece"] = b"\n\x09\n\5<unk>\x18\2\n\5\n\3\xe2\x96\x81\n\3\n\1a\n\3\n\1b\n\x0b\n\4\xe2\x96\x81a\x15\0\0\0\x40\x12\2\x18\2"
    if name == "fuzz_grammar":
        forms = [(1, x) for x in ('{"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":120},"b":{"enum":["x","yy"]}},"required":["a"]}', '{"type":"array","items":{"$ref":"#"},"minItems":1,"maxItems":3}',
                                  '{"anyOf":[{"type":"string","pattern":"^a+b?$"},{"const":{"k":[1,null]}},{"type":"number","exclusiveMinimum":0.25}],"allOf":[{"minLength":2}]}', '{"prefixItems":[{"type":"boolean"}],"items":{"format":"date"}}')]
        forms += [(3, "(a|b)*c{2,5}[^x-z]?"), (4, '["yes","no","not"]'), (5, 'root ::= "a" b* | "(" root ")"\nb ::= [0-9]{1,3} | "x"'), (6, '{"structures":[{"begin":"<f>","schema":{},"end":"</f>"}],"triggers":["<f"]}')]
        for i, (kind, text) in enumerate(forms): out[str(i)] = bytes([kind - 1]) + text.encode() + b'\0{"a":1,"b":"x"}'
    others = {"fuzz_json": "json/*", "fuzz_template": "chat_templates/templates/*"}
    small = [x for x in sorted(glob.glob("build/data/" + others[name])) if os.path.getsize(x) < 20000] if name in others else []
    out.update((pathlib.Path(x).name, pathlib.Path(x).read_bytes()) for x in small[:60])
    return out


def corpus(name):
    """The folder with what a fuzzer begins with, and what it has found since."""
    folder = pathlib.Path("build/fuzz/corpus") / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in seeds(name).items(): (folder / ("seed-" + file)).write_bytes(data)
    return str(folder)


def fuzz_names():
    return [pathlib.Path(x).stem for x in sorted(glob.glob("tests/fuzz/fuzz_*.c"))]


def replayed():
    """Every fuzzer once over its corpus, without libFuzzer."""
    make("replays")
    for name in fuzz_names(): step(name + ", its corpus", ["build/dev/" + name.replace("fuzz_", "replay_"), corpus(name)])


def fuzz():
    seconds = os.environ.get("FUZZ_S", "60")
    for name in fuzz_names():
        make("build/fuzz/" + name)
        step(name, ["build/fuzz/" + name, "-max_total_time=" + seconds, "-timeout=20", "-rss_limit_mb=4096", "-max_len=65536", "-print_final_stats=0",
                    "-artifact_prefix=build/fuzz/" + name + "-", corpus(name)], timeout=int(seconds) + 300, quiet=True)


GROUPS = {f.__name__: f for f in (check, test, isa, arm, clients, cuda, memory, load, sanitize, sanitize_vision, fuzz, shared)}


def main():
    if os.path.exists(PYTHON) and os.path.abspath(sys.executable) != os.path.abspath(PYTHON): os.execv(PYTHON, [PYTHON, *sys.argv])
    if len(sys.argv) != 2 or sys.argv[1] not in GROUPS: sys.exit(__doc__)
    make("data")
    GROUPS[sys.argv[1]]()
    print(f"{TOTAL[0]} passed, {TOTAL[1]} failed, {TOTAL[2]} skipped")
    sys.exit(1 if TOTAL[1] else 0)


main()
