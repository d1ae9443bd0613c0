# make help lists the targets.
CC ?= cc
CXX ?= c++
CFLAGS ?= -O2 -g
WARN = -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wc++-compat
LIBS = -lm -lpthread

all: llm_cli ## the programs

build:
	@mkdir -p build

build/llm.o: llm.h | build
	$(CC) -std=c11 $(CFLAGS) $(WARN) -fvisibility=hidden -x c -DLLM_IMPLEMENTATION -c llm.h -o $@

llm_cli: llm_cli.c llm.h build/llm.o
	$(CC) -std=c11 $(CFLAGS) $(WARN) llm_cli.c build/llm.o -o $@ $(LIBS)

build/test_%: tests/test_%.c tests/test.h llm.h | build
	$(CC) -std=c11 $(CFLAGS) $(WARN) -Wno-unused-function $< -o $@ $(LIBS)

clean: ## removes what was built
	rm -rf build llm_cli llm_serve libllm.so libllm_cuda.so

.PHONY: all clean
