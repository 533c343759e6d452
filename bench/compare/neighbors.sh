#!/bin/sh
# A training step alone and with one spinning process on each core, in turns.
#
#   bench/compare/neighbors.sh [ROUNDS] [OPTION of piton bench train ...]
#
# Default: 3 rounds of GPT-2 124M in bf16, 4 x 256. Wants a built piton and a machine on which nothing else
# runs. Prints the best step of each and the ratio.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- --model gpt2-124m --bf16 --micro-batch-size 4 --seq-length 256

step() {
  build/piton bench train "$@" --rounds 4 --json --quiet 2>/dev/null | tr ',' '\n' |
    sed -n 's/^"best_seconds"://p' | head -n 1
}

spinners=
stop() { [ -z "$spinners" ] || kill $spinners 2>/dev/null || true; spinners=; }
trap stop EXIT
quiet=
busy=
for round in $(seq "$rounds"); do
  alone=$(step "$@")
  for core in $(seq 0 $(($(nproc) - 1))); do
    taskset -c "$core" sh -c 'while :; do :; done' &
    spinners="$spinners $!"
  done
  beside=$(step "$@")
  stop
  echo "round $round: alone $alone s, with a spinning process on each core $beside s"
  quiet="$quiet $alone"
  busy="$busy $beside"
done
least() { printf '%s\n' "$@" | sort -g | head -n 1; }
awk -v a="$(least $quiet)" -v b="$(least $busy)" 'BEGIN {printf "best: %s s and %s s, %.2f x\n", a, b, b / a}'
