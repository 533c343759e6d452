#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS: runs every fuzzer of BUILD for SECONDS, from the examples under tests/fuzz.
set -u
build=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
failed=0
for fuzzer in "$build"/fuzz/*_fuzz; do
  [ -x "$fuzzer" ] || { echo "fuzz: no fuzzer in $build/fuzz" >&2; exit 1; }
  name=$(basename "$fuzzer")
  found="$build/fuzz/corpus/$name"
  mkdir -p "$found"
  examples=("$root/tests/fuzz/corpus/$name")
  [ -d "${examples[0]}" ] || examples=()
  echo "== $name, $seconds s"
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz/crash-$name-" "$found" "${examples[@]}" 2>&1 | tail -15
  [ "${PIPESTATUS[0]}" = 0 ] || { echo "fuzz: $name found something" >&2; failed=1; }
done
exit $failed
