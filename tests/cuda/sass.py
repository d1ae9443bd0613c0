#!/usr/bin/env python3
"""What the compiler made of the kernels of llm_cuda.cu, as a table in Markdown: make sass

    sass.py [--arch 90a] [--csv] [PATTERN]     kernels whose name has PATTERN

Of each kernel: registers, shared memory (static), bytes in local memory, global loads by width, copies that pass the registers (LDGSTS), shared
loads, products of tensor cores, conversions; then of the loop that loads most from global memory: its instructions, the bytes that a thread
loads in it, its products of tensor cores, instructions a byte (of PRODUCTS a product), what BUDGET says of that, and the ceiling that follows.
Of products with weights only their bytes count; of a kernel that has no such loop all of it does. A multiprocessor of an H200 issues 4 instructions of 32 lanes a clock, and its
share of the memory is 16.5 bytes a clock (4.3 TB/s, 132 of them, 1.98 GHz): so 7.76 instructions for each byte of a lane leave no time for
anything else, and a loop with twice as many gives half of the bandwidth at most. Loops inside count once, branches that are rarely taken as if
they always were: so the ceiling is a low estimate. The last column is what all threads that fit a multiprocessor load in one turn of that loop,
in KiB; some 32 must be under way to use the whole bandwidth.

Ends with 1 if a kernel of a step keeps anything in local memory, if its loop needs more instructions than BUDGET says or BUDGET has no row of it, or if from sm_90 on
a kernel does not wait for the one before it (ACQBULK), or a product for few rows asks for no weights before it does.
Needs nvcc, and nvdisasm (setup.py sass fetches it).
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/sass"
BYTES_A_CLOCK, ISSUES = 16.5, 4
LOADING = ("kernel_pack", "kernel_plain")  # they run while weights are loaded, and may keep arrays in local memory
# bytes of 32 weights of a kind
SUB = {"F32": 128, "F16": 64, "BF16": 64, "F8": 32, "Q4Z": 18, "Q4M": 20, "Q5Z": 22, "Q5M": 24, "Q6": 28, "Q8": 34, "T4": 20, "T4X": 20, "G8": 40}
PAGES = ("AUTO", "F32", "F16", "BF16", "E4M3", "E5M2", "INT8", "INT4")
KINDS = ("F32", "F16", "BF16", "F8", "Q4Z", "Q4M", "Q5Z", "Q5M", "Q6", "Q8", "T4", "T4X", "G8")
# What arithmetic limits: instructions a product of tensor cores count.
PRODUCTS = ("kernel_attention_chunk", "kernel_attention_groups", "kernel_linear_mma")
TENSOR = ("HMMA", "HGMMA", "IMMA")  # of a warp, of four; of bytes
# What has its values in registers and goes over them again and again: all instructions count, for so many bytes a thread.
WHOLE = {"kernel_draw_parts": 64, "kernel_recur<8>": 128, "kernel_recur<16>": 256}  # of a state as much as a token reads
# Instructions as nvcc 13.0 makes them for sm_90a, the ways that are rarely taken with them; a twentieth more is let pass. Of every kernel of a step there is a row.
STORED, WIDTHS = ("F16", "BF16", "BYTES"), (64, 128, 256)
BUDGET = {"kernel_linear_few<F32, 1>": 1.02, "kernel_linear_few<F16, 1>": 2.59, "kernel_linear_few<BF16, 1>": 2.58}
BUDGET |= {f"kernel_linear_rows<{kind}, 1>": n for kind, n in zip(KINDS[3:], (3.41, 5.43, 4.92, 5.26, 4.72, 4.98, 2.31, 7.69, 8.15, 2.64))}
BUDGET |= {f"kernel_linear_rows<{kind}, 8>": n for kind, n in zip(KINDS[1:], (4.83, 3.89, 6.40, 13.24, 12.11, 11.33, 10.81, 10.76, 6.06, 13.38, 15.34, 6.89))}
BUDGET |= {f"kernel_linear_band<{kind}, {rows}>": n for rows, each in ((16, (6.06, 5.55, 6.52, 6.02, 5.18, 3.38, 9.10, 9.88, 2.89)), (32, (6.72, 6.15, 7.07, 6.54, 5.57, 3.74, 9.72, 10.50, 3.20)), (64, (8.81, 8.12, 8.95, 8.25, 6.98, 4.74, 12.43, 12.78)))
           for kind, n in zip(KINDS[4:], each)}
BUDGET |= {f"kernel_widen<{kind}>": n for kind, n in zip(KINDS[3:], (3.19, 12.41, 8.46, 13.06, 9.04, 10.12, 7.27, 10.56, 13.15, 5.00))}
BUDGET |= {f"kernel_linear_mma<{kind}, {by}>": n for by, each in ((0, (10.66, 10.66, 10.38, 10.72, 10.69, 11.81, 11.72, 11.72, 10.75, 13.88, 14.09, 10.59)), (1, (30.00, 30.00, 43.12, 42.25, 44.75, 51.38, 54.00, 51.25, 43.25, 62.50, 62.88, 43.75)))
           for kind, n in zip(KINDS[1:], each)}
BUDGET |= {f"kernel_attention_split<{stored}, {hd}>": n for stored, each in zip(STORED, ((4.32, 2.88, 2.12), (4.29, 2.84, 2.12), (12.46, 10.16, 8.83))) for hd, n in zip(WIDTHS, each)}
BUDGET |= {f"kernel_attention_chunk<{stored}, {hd}>": n for stored, each in zip(STORED, ((12.5, 9.23, 8.50), (12.5, 9.23, 8.50), (15.5, 12.2, 10.4))) for hd, n in zip(WIDTHS, each)}
BUDGET |= {f"kernel_attention_groups<{stored}, {hd}>": n for stored, each in zip(STORED, ((121, 101), (121, 101), (184, 142))) for hd, n in zip(WIDTHS, each)}
BUDGET |= {f"kernel_attention<{pages}, 4>": n for pages, n in zip(PAGES[1:], (6.70, 9.61, 9.45, 13.48, 12.40, 11.89, 12.20))}
BUDGET |= {f"kernel_index_scores<{pages}>": n for pages, n in zip(PAGES[1:], (1.90, 2.97, 2.97, 3.73, 4.20, 3.77, 3.71))}
BUDGET |= {"kernel_linear_few<F32, 4>": 2.97, "kernel_linear_f32": 6.61, "kernel_narrow": 2.29, "kernel_rescale": 0.86, "kernel_finish": 15.95,
           "kernel_embed": 3.82, "kernel_rope": 2.07, "kernel_sum": 1.34, "kernel_residual": 2.66, "kernel_norm<0>": 2.17, "kernel_norm<1>": 4.06, "kernel_norm<2>": 1.88, "kernel_gather": 2.05, "kernel_gate": 2.00, "kernel_state": 0.69, "kernel_turn": 0.86, "kernel_xielu": 9.20, "kernel_qkv": 3.39,
           "kernel_attention<F32, 1>": 5.54, "kernel_attention_join": 1.30, "kernel_latent_absorb": 3.92, "kernel_latent_split<false>": 2.64, "kernel_latent_split<true>": 2.64, "kernel_latent_values": 2.23,
           "kernel_latent_adapt": 3.11, "kernel_index_write": 2.64, "kernel_index_product<false>": 1.97, "kernel_index_product<true>": 2.44, "kernel_index_choose": 8.50, "kernel_streams": 3.31, "kernel_route": 0.58, "kernel_slots": 11.12, "kernel_combine": 4.83, "kernel_weigh": 5.19, "kernel_lora_down": 3.15, "kernel_lora_up": 2.02, "kernel_draw_parts": 51.53, "kernel_conv<4>": 7.04, "kernel_conv<16>": 15.67, "kernel_recur<8>": 17.17, "kernel_recur<16>": 10.55, "kernel_draw": 12.15}


def nvcc():
    return os.environ.get("NVCC") or shutil.which("nvcc") or next((str(p) for p in pathlib.Path("/usr/local").glob("cuda*/bin/nvcc")), None)


def nvdisasm():
    return shutil.which("nvdisasm") or next((str(p) for p in FOLDER.glob("python/nvidia/*/bin/nvdisasm")), None)


def compile_cubin(arch):
    """The object of one architecture, and what ptxas said of it; kept while the source is older."""
    source, cubin, said = ROOT / "llm_cuda.cu", FOLDER / f"llm_cuda_{arch}.cubin", FOLDER / f"ptxas_{arch}.txt"
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not said.exists() or said.stat().st_mtime < source.stat().st_mtime:
        split = ["-split-compile=0"] if arch == "90a" else []  # in half the time, but ptxas then takes other registers: on sm_100 it spills, where the library's build does not
        p = subprocess.run([nvcc(), "-O3", "-std=c++20", *split, "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-Xcompiler", "-Wall", "-Xptxas", "-v", "-cubin", "-o", str(cubin), str(source)],
                           capture_output=True, text=True, cwd=ROOT)
        if p.returncode: sys.exit(p.stdout + p.stderr)
        said.write_text(p.stdout + p.stderr)
    return cubin, said.read_text()


def kernel_name(mangled):
    """_Z17kernel_linear_fewILi2ELi8EEv... -> kernel_linear_few<BF16, 8>"""
    m = re.match(r"_Z(?:L)?(\d+)(\w+)", mangled)
    name, rest = m[2][:int(m[1])], m[2][int(m[1]):]
    values = re.findall(r"L([ib])(\d+)E", rest[:rest.index("EE") + 1]) if rest.startswith("I") and "EE" in rest else []
    words = [("true" if v == "1" else "false") if t == "b" else v for t, v in values]
    if name.startswith(("kernel_linear", "kernel_widen")) and words: words[0] = KINDS[int(words[0])]
    if name in ("kernel_attention_split", "kernel_attention_chunk", "kernel_attention_groups"): words[0] = ("F16", "BF16", "BYTES")[int(words[0])]
    if name in ("kernel_attention", "kernel_index_scores"): words[0] = PAGES[int(words[0])]
    return name + (f"<{', '.join(words)}>" if words else "")


def resources(text):
    """By mangled name: bytes of local memory, spilled bytes, registers, bytes of static shared memory."""
    found = {}
    for m in re.finditer(r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores.*?\n.*?Used (\d+) registers([^\n]*)", text):
        shared = re.search(r"(\d+) bytes smem", m[5])
        found[m[1]] = (int(m[2]), int(m[3]), int(m[4]), int(shared[1]) if shared else 0)
    return found


def block_sizes():
    """Threads of a block, from the launch bounds in the source."""
    text = (ROOT / "llm_cuda.cu").read_text()
    for name, value in re.findall(r"(?:enum \{|constexpr int|,) ?([A-Z_]+) = (\d+)", text): text = re.sub(rf"__launch_bounds__\({name}\b", f"__launch_bounds__({value}", text)
    return {name: int(n) for n, name in re.findall(r"__launch_bounds__\((\d+)[^;{]*?\)\s+(kernel_\w+)\(", text)}


WIDTH = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def load_width(opcode):
    return next((WIDTH[part] for part in reversed(opcode.split(".")) if part in WIDTH), 4)


class Kernel:
    def __init__(self, lines):
        self.ops, self.labels, branches = [], {}, []
        for line in lines:
            label = re.match(r"(\.L_x_\d+):", line)
            if label: self.labels[label[1]] = len(self.ops)
            m = re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)(.*)", line)
            if not m: continue
            target = re.search(r"`\((\.L_x_\d+)\)", m[2])
            if m[1].startswith("BRA") and target: branches.append((len(self.ops), target[1]))
            self.ops.append(m[1])
        self.loops = [(self.labels[t], at) for at, t in branches if t in self.labels and self.labels[t] <= at and at - self.labels[t] > 2]

    def count(self, prefix, begin=0, end=None):
        return sum(op.startswith(prefix) for op in self.ops[begin:end])

    def loads(self, begin=0, end=None):
        """Global loads by width."""
        n = {1: 0, 2: 0, 4: 0, 8: 0, 16: 0}
        for op in self.ops[begin:end]:
            if re.match(r"LDG\b|LDG\.", op) or op.startswith("LDGSTS"): n[load_width(op)] += 1
        return n

    def main_loop(self, name):
        """(instructions, bytes a thread loads, products) of the loop that loads most; the smallest of several. Of products with weights only those
        count: of one row what is read through the cache of constants (__ldg), in vectors. Of a kernel that
        copies past the registers to multiply it is the innermost loop that does both, of one without such a loop all of it."""
        if name in WHOLE: return sum(not op.startswith("NOP") for op in self.ops), WHOLE[name], 0
        best, copies = None, self.count("LDGSTS") > 0 and self.count(TENSOR) > 0
        few, rows, band = (re.match(rf"kernel_linear_{which}<(\w+)", name) for which in ("few", "rows", "band"))
        for begin, at in self.loops:
            ops, products = self.ops[begin:at + 1], self.count(TENSOR, begin, at + 1)
            loaded = sum(w * n for w, n in self.loads(begin, at + 1).items())
            if few: loaded = sum(op.startswith("LDG.E.128.CONSTANT") for op in ops) * 16
            if copies: loaded = sum(load_width(op) for op in ops if op.startswith("LDGSTS")) if products else 0
            if rows and loaded: loaded = (2 if rows[1] in ("F16", "BF16") else 4) * SUB[rows[1]]  # a lane's share of 32 rows of a unit, of which some copies take the rest
            size = sum(not op.startswith("NOP") for op in ops)
            again = [self.ops[b:e + 1] for b, e in self.loops if begin < b and e < at and self.count(TENSOR, b, e + 1)]
            if rows and loaded: size, products = size + sum(not op.startswith("NOP") for loop in again for op in loop), products + sum(op.startswith(TENSOR) for loop in again for op in loop)  # those go twice
            if band and loaded:  # a unit of 128 x 128 weights; of tiles of 64 rows its two steps are a loop inside, which is counted again
                size, products, loaded = size + sum(not op.startswith("NOP") for loop in again for op in loop), products + sum(op.startswith(TENSOR) for loop in again for op in loop), 2 * SUB[band[1]]
            if loaded and (best is None or (size < best[0] if copies else (loaded, -size) > (best[1], -best[0]))): best = (size, loaded, products)
        return best or (sum(not op.startswith("NOP") for op in self.ops), sum(w * n for w, n in self.loads().items()), self.count(TENSOR))


def disassemble(cubin):
    text = subprocess.run([nvdisasm(), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    for part in text.split("//--------------------- .text.")[1:]:
        yield part[:part.index(" ")], Kernel(part.splitlines())


def threads_resident(block, registers, shared):
    """Threads that fit a multiprocessor of sm_90, dynamic shared memory left out."""
    if not block: return 0
    warps = -(-block // 32)
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    blocks = min(2048 // block, 32, by_registers, 232448 // (shared + 1024))
    return blocks * block


def waits(k, few):
    """What is wrong with how a kernel waits for the one before, or ''. Of products for few rows one wait is that of groups, one that of
    blocks without work, in an order that is the compiler's; the weights stand before everybody's."""
    at = [i for i, op in enumerate(k.ops) if op.startswith("ACQBULK")]
    if not at: return "no wait for the kernel before"
    return "" if not few or any(k.count("LDG.E.128", a, b) for a, b in zip(at, at[1:])) else "no weights before the wait"


CONVERSIONS = ("F2F", "F2I", "I2F", "I2FP", "F2FP", "HADD2.F32", "PRMT")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--arch", default="90a")
    p.add_argument("--csv", action="store_true")
    p.add_argument("pattern", nargs="?", default="")
    a = p.parse_args()
    if not nvcc() or not nvdisasm(): sys.exit("sass.py: nvcc or nvdisasm is not there: python3 tests/tools/setup.py sass")
    cubin, said = compile_cubin(a.arch)
    used, blocks, rows, wrong = resources(said), block_sizes(), [], []
    for mangled, k in disassemble(cubin):
        if mangled not in used: continue
        name, (local, spilled, registers, shared) = kernel_name(mangled), used[mangled]
        family = name.split("<")[0]
        loads, (size, loaded, products) = k.loads(), k.main_loop(name)
        each, loading = size / max(1, products if family in PRODUCTS else loaded), family in LOADING
        ceiling = min(1, ISSUES * 32 / BYTES_A_CLOCK / size * loaded)
        flight = threads_resident(blocks.get(family, 0), registers, shared) * loaded / 1024
        if local and not loading: wrong.append(f"{name}: {local} bytes of local memory, {spilled} of them spilled")
        late = waits(k, name.startswith("kernel_linear_few<")) if int(a.arch.rstrip("a")) >= 90 else ""
        if late: wrong.append(f"{name}: {late}")
        if a.arch == "90a" and not loading and each > BUDGET.get(name, 0) * 1.05: wrong.append(f"{name}: {each:.2f} instructions a {'product' if family in PRODUCTS else 'byte'}, {BUDGET.get(name, 0):.2f} expected")
        rows.append((name, registers, shared, local, loads[16], loads[8], loads[4], loads[1] + loads[2], k.count("LDGSTS"), k.count("LDS"), k.count(TENSOR) + k.count("QMMA"),
                     sum(k.count(c) for c in CONVERSIONS), size, loaded, products, f"{each:.2f}", f"{BUDGET[name]:.2f}" if name in BUDGET else "-", "-" if family in PRODUCTS else f"{ceiling:.2f}", f"{flight:.0f}"))
    wrong += [line for line in said.splitlines() if "warning" in line]
    if a.arch == "90a": wrong += [f"{name}: has a budget, but is not there" for name in sorted(set(BUDGET) - {r[0] for r in rows})]
    head = ("kernel", "registers", "shared", "local", "loads of 16", "8", "4", "1, 2", "LDGSTS", "LDS", "mma", "conversions", "loop", "bytes", "products", "instructions a byte or product", "budget", "ceiling", "KiB in flight")
    if len(rows) < 80: wrong.append(f"{len(rows)} kernels found, at least 80 expected")
    rows = [r for r in sorted(rows) if a.pattern in r[0]]
    if a.csv: print("\n".join(",".join(map(str, r)).replace(", ", " ") for r in [head, *rows]))
    else: print("\n".join("| " + " | ".join(map(str, r)) + " |" for r in [head, ("---",) * len(head), *rows]))
    every = [sum(r[i] for r in rows) for i in (4, 5, 6, 7, 8, 10)]
    print(f"\n{len(rows)} kernels: {every[0]} loads of 16 bytes, {every[1]} of 8, {every[2]} of 4, {every[3]} of 1 or 2; {every[4]} LDGSTS, {every[5]} products of tensor cores")
    for line in wrong: print("FAILED: " + line)
    print(f"{len(rows)} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__": main()
