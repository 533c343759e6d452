#!/usr/bin/env bash
# arm64.sh [PROGRAM ...]: builds Piton for 64-bit ARM on an x86-64 machine and runs test programs in an emulator of the
# processor (qemu-user). Without names: build/piton, the tests of the kernels, and those of what else has a file for
# each processor. Needs Debian's packages g++-aarch64-linux-gnu and qemu-user-static; the libraries of ARM are
# downloaded into build-arm64/root, where they change nothing of this system.
set -eu
cd "$(dirname "$0")/.."
build=$PWD/build-arm64
export PITON_ARM64_ROOT=${PITON_ARM64_ROOT:-$build/root}
packages=(libcli11-dev libtomlplusplus-dev libtomlplusplus3 libfmt-dev libfmt9 libspdlog-dev libspdlog1.10
  nlohmann-json3-dev libsimdjson-dev libsimdjson14 libpcre2-dev libpcre2-8-0 libicu-dev libicu72 libzstd-dev libzstd1
  zlib1g-dev zlib1g libbz2-dev libbz2-1.0 liblzma-dev liblzma5 libxxhash-dev libxxhash0 libcpp-httplib-dev
  libcpp-httplib0.11 libssl-dev libssl3 libbrotli-dev libbrotli1 libgtest-dev libgmock-dev googletest)
programs=("$@")
[ $# -gt 0 ] || programs=(unit_kernels_cpu unit_kernels unit_pickle unit_comm_ranks unit_base unit_doctor unit_evaluate ops_all)

for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v $tool >/dev/null || {
    echo "arm64: no $tool; run: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2
    exit 1
  }
done
if [ ! -d "$PITON_ARM64_ROOT/usr/include" ]; then
  apt=$build/apt
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,debs} "$PITON_ARM64_ROOT"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$apt/lists"
    -o Dir::Cache="$apt/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=)
  apt-get "${options[@]}" update
  (cd "$apt/debs" && apt-get "${options[@]}" download "${packages[@]}")
  for file in "$apt"/debs/*.deb; do dpkg -x "$file" "$PITON_ARM64_ROOT"; done
fi

cmake -G Ninja -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/arm64-toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DPITON_MPI=OFF -DPITON_CUDA=OFF >/dev/null
cmake --build "$build" --target piton "${programs[@]}"
libraries=$PITON_ARM64_ROOT/usr/lib/aarch64-linux-gnu:$PITON_ARM64_ROOT/lib/aarch64-linux-gnu
emulated() { qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$@"; }
status=0
for program in "${programs[@]}"; do
  echo "== $program"
  emulated "$build/tests/$program" --gtest_brief=1 || status=1
done

# Losses of the two processors, whose sums have another order, side by side.
if [ -x build/piton ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  seq 2000 | awk '{ print "{\"text\": \"" $1 " times " $1 + 1 " is " $1 * ($1 + 1) "\"}" }' >"$work/text.jsonl"
  build/piton preprocess --input "$work/text.jsonl" --output-prefix "$work/text" --tokenizer-type ByteTokenizer --append-eod >/dev/null
  train=(pretrain --data-path "$work/text_text_document" --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 64
    --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 4
    --train-iters 5 --lr 1e-3 --log-interval 1 --threads 1)
  for precision in "" --bf16; do
    build/piton "${train[@]}" $precision 2>&1 | grep -oE 'lm loss: [0-9.E+-]+' >"$work/x86" || true
    emulated "$build/piton" "${train[@]}" $precision 2>&1 | grep -oE 'lm loss: [0-9.E+-]+' >"$work/arm" || true
    echo "== losses ${precision:-fp32}: x86-64, ARM"
    paste "$work/x86" "$work/arm"
    [ -s "$work/arm" ] || status=1
  done
fi
exit $status
