#!/usr/bin/env bash
# Everything that needs a GPU, in the order of what is needed first, in one run:
#
#   tools/gpu-session.sh prepare [JOBS]     without a GPU: builds build-cuda with its tests
#   tools/gpu-session.sh run OUT_FOLDER     on the GPU: tests, sanitizers, training, benchmarks
#
# `run` never stops at a failure. Each part writes OUT_FOLDER/NAME.log; summary.txt has a line for each with
# its exit code and its seconds. PITON_CUDA_PART_SECONDS limits a part (default 300).
set -u -o pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

prepare() {
  # shellcheck disable=SC2046  # the words of fetch-arrow.sh are arguments
  cmake --preset cuda $(tools/fetch-arrow.sh) &&
    cmake --build --preset cuda -j "${1:-$(nproc)}" --target piton unit_device_cuda unit_kernels_cuda \
      unit_comm_rendezvous
}

part() {  # NAME COMMAND...
  local name=$1 begin=$SECONDS code=0
  shift
  timeout "${PITON_CUDA_PART_SECONDS:-300}" "$@" > "$out/$name.log" 2>&1 || code=$?
  printf '%-28s exit %3d  %4d s\n' "$name" "$code" $((SECONDS - begin)) | tee -a "$out/summary.txt"
}

# Ten steps of a small model by both back ends: compare_losses() compares them.
steps=(--mock-data --vocab-size 257 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --train-iters 10
  --log-interval 1 --lr 1e-3 --seed 7)
train() {  # NAME KERNELS MODEL FLAGS...
  local name=$1 kernels=$2 model=$3
  shift 3
  part "$name" build-cuda/piton pretrain --kernels "$kernels" --model "$model" "${steps[@]}" "$@"
}

# The same by two ranks with a GPU each, over NCCL.
train_two() {  # NAME MODEL FLAGS...
  local name=$1 model=$2
  shift 2
  part "$name" tools/launch.sh 2 build-cuda/piton pretrain --kernels cuda --model "$model" "${steps[@]}" "$@"
}

# The largest difference of the losses in two logs, against a tolerance.
compare_losses() {  # LOG OTHER_LOG TOLERANCE
  local difference
  difference=$(paste <(losses "$1") <(losses "$2") | awk 'NF == 2 {d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d; n++}
    NF != 2 {bad = 1} END {if (bad || n != 10) print "missing"; else printf "%.2g", m}')
  printf '%-28s against %s: largest difference of losses %s, wanted at most %s\n' "$1" "$2" "$difference" "$3" |
    tee -a "$out/summary.txt"
  awk -v d="$difference" -v t="$3" 'BEGIN {exit !(d != "missing" && d <= t)}' || failed=yes
}
losses() { grep -oE 'lm loss: [0-9.E+-]+' "$out/$1.log" | cut -d' ' -f3; }

run() {
  out=$1
  failed=
  mkdir -p "$out" || exit 1
  : > "$out/summary.txt"
  [ -x build-cuda/piton ] || { echo "gpu-session: no build-cuda/piton; run: $0 prepare" >&2; exit 1; }
  part device nvidia-smi -q
  part doctor build-cuda/piton doctor
  part unit_device build-cuda/tests/unit_device_cuda
  part unit_kernels build-cuda/tests/unit_kernels_cuda
  part unit_rendezvous build-cuda/tests/unit_comm_rendezvous
  for model in gpt2-tiny llama-tiny; do
    for kernels in cpu cuda; do
      train "train_${model}_$kernels" "$kernels" "$model"
      train "train_${model}_bf16_$kernels" "$kernels" "$model" --bf16
    done
    compare_losses "train_${model}_cuda" "train_${model}_cpu" 1e-4
    compare_losses "train_${model}_bf16_cuda" "train_${model}_bf16_cpu" 5e-3
  done
  # NCCL refuses two ranks on one GPU.
  if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
    train_two two_data gpt2-tiny
    train_two two_zero_3 llama-tiny --zero-stage 3
    train_two two_tensor gpt2-tiny --tensor-model-parallel-size 2
    train_two two_pipeline llama-tiny --pipeline-model-parallel-size 2
    for one in two_data:gpt2 two_zero_3:llama two_tensor:gpt2 two_pipeline:llama; do
      compare_losses "${one%:*}" "train_${one#*:}-tiny_cpu" 1e-4
    done
  else
    echo "one GPU: NCCL was not run" | tee -a "$out/summary.txt"
  fi
  for batch in 8 32; do
    part "step_gpt2_124m_$batch" build-cuda/piton pretrain --kernels cuda --model gpt2-124m --mock-data --bf16 \
      --seq-length 1024 --micro-batch-size "$batch" --train-iters 12 --log-interval 1
    if python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2> /dev/null; then
      part "torch_gpt2_124m_$batch" python3 bench/compare/train_cuda.py --micro-batch-size "$batch"
    fi
  done
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck; do
      part "sanitizer_$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
        build-cuda/tests/unit_kernels_cuda --gtest_filter='*AgreeWithTheReference/fp32_plain'
    done
  fi
  grep -E 'exit +[1-9]' "$out/summary.txt" && failed=yes
  [ -z "$failed" ]
}

case "${1:-}" in
  prepare) prepare "${2:-}" ;;
  run) [ $# -eq 2 ] || usage; run "$2" ;;
  *) usage ;;
esac
