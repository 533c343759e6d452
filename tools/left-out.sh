#!/usr/bin/env bash
# left-out.sh START: what ctest is told to leave out of the tests of a day that began at START (seconds since 1970).
#
# Tests of four ranks repeat those of two. A commit runs a third of them, drawn by its hash, so that the same commit has
# the same tests; `make nightly` runs all.
#
# Building and the sanitized tests are half of it. A machine that took 45 minutes for that would be cut before the end,
# so drills and all tests of four ranks are left out there.
set -eu
if [ "$(($(date +%s) - $1))" -gt 2700 ]; then
  echo "a slow machine: tests of four ranks and drills are left out" >&2
  echo "-E ^(ranks4|sockets4|drills)/"
  exit
fi
commit=$(git rev-parse HEAD 2>/dev/null || echo none)
left=()
for name in $(ctest --preset cpu -N -LE 'nightly|unit' -R '^(ranks4|sockets4)/' | sed -n 's/.*: \([a-z0-9]*\/[a-z0-9_]*\)$/\1/p'); do
  [ "$(($(cksum <<<"$commit $name" | cut -d ' ' -f 1) % 3))" = 0 ] || left+=("$name")
done
[ ${#left[@]} = 0 ] && exit
echo "${#left[@]} tests of four ranks are left out: other commits, and \`make nightly\`, run them" >&2
echo "-E ^($(IFS='|'; echo "${left[*]}"))\$"
