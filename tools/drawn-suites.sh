#!/usr/bin/env bash
# drawn-suites.sh BUILD: of the unit suites of a build folder, those that this commit runs by day: one of two, drawn
# by its hash. Half of the time that suites are compiled and run is saved; `make test` and `make nightly` run all.
set -eu
commit=$(git rev-parse HEAD 2>/dev/null || echo none)
all=$(ctest --test-dir "$1" -N -L unit | sed -n 's/.*: unit\/\([a-z0-9_]*\)$/\1/p')
for name in $all; do
  [ "$(($(cksum <<<"$commit $name" | cut -d ' ' -f 1) % 2))" = 0 ] || echo "$name"
done
