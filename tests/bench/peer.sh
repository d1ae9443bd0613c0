#!/bin/sh
# Builds llama.cpp's programs out of the source package of llama-cpp-python on PyPI: what make bench PEER=DIR/bin is measured beside.
# usage: peer.sh DIR      About 8 minutes on two cores. Needs python3 and a C++ compiler.
set -eu
dir=$(mkdir -p "${1:?usage: peer.sh DIR}" && cd "$1" && pwd)
version=0.3.36
programs="llama-bench llama-batched-bench llama-server llama-completion llama-perplexity"
python3 -m venv "$dir/python"
PATH=$dir/python/bin:$PATH
pip install -q --disable-pip-version-check scikit-build-core cmake ninja
pip download -q --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation -d "$dir" "llama-cpp-python==$version"
tar -xzf "$dir/llama_cpp_python-$version.tar.gz" -C "$dir"
# gcc's _tile_loadconfig says that it reads 8 of its 64 bytes, so gcc 12 leaves out the rest and AMX ends in an illegal instruction
sed -i 's/^    _tile_loadconfig(&tc);/    asm volatile("" ::"m"(tc));\n&/' "$dir/llama_cpp_python-$version/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
cmake -S "$dir/llama_cpp_python-$version/vendor/llama.cpp" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF
cmake --build "$dir" --target $programs
