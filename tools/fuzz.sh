#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS [RUNS]: every fuzzer of BUILD, from the examples under tests/fuzz, until it has had SECONDS
# of processor time (a busy machine costs no inputs) or, where RUNS is given, as many inputs.
# An input counts as one that hangs after five minutes: on a loaded machine seconds mean nothing.
# JOBS of them at a time; FUZZERS="a_fuzz b_fuzz" names some alone, FUZZ_SHARE=2/4 takes the second quarter.
set -u
build=$1
seconds=$2
runs=${3:--1}
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${JOBS:-$(nproc)}

fuzz_one() {
  local fuzzer=$1 name found log pid stat used=0 status
  local ticks
  ticks=$(getconf CLK_TCK)
  name=$(basename "$fuzzer")
  found="$build/fuzz/corpus/$name"
  log="$build/fuzz/$name.log"
  mkdir -p "$found"
  local examples=("$root/tests/fuzz/corpus/$name")
  [ -d "${examples[0]}" ] || examples=()
  "$fuzzer" -runs="$runs" -timeout=300 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz/crash-$name-" "$found" "${examples[@]}" >"$log" 2>&1 &
  pid=$!
  while stat=$(cat "/proc/$pid/stat" 2>/dev/null) && [ "$(ps -o stat= -p "$pid")" != Z ]; do
    read -r -a stat <<<"${stat##*) }"
    used=$(((stat[11] + stat[12]) / ticks))
    # libFuzzer ends in order, with its figures, on this signal.
    [ "$used" -lt "$seconds" ] || kill -USR1 "$pid"
    sleep 1
  done
  wait "$pid"
  status=$?
  printf '== %s: %s s of processor time, exit %s, inputs %s\n' "$name" "$used" "$status" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  [ "$status" = 0 ] && return
  tail -30 "$log"
  echo "fuzz: $name found something" >&2
  return 1
}

export build seconds runs root
export -f fuzz_one
ls "$build"/fuzz/*_fuzz >/dev/null 2>&1 || { echo "fuzz: no fuzzer in $build/fuzz" >&2; exit 1; }
place=0
for fuzzer in ${FUZZERS:-$(cd "$build/fuzz" && ls -- *_fuzz)}; do
  place=$((place + 1))
  [ -z "${FUZZ_SHARE:-}" ] || [ $((place % ${FUZZ_SHARE#*/})) = $((${FUZZ_SHARE%/*} % ${FUZZ_SHARE#*/})) ] || continue
  printf '%s\0' "$build/fuzz/$fuzzer"
done | xargs -0 -n 1 -P "$jobs" bash -c 'fuzz_one "$0"'
