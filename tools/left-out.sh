#!/usr/bin/env bash
# left-out.sh START: what ctest is told to leave out of the tests of a day that began at START (seconds since 1970).
#
# A test of ranks that runs with 2 and with 4 of them runs with 4 by day in one commit of three, else with 2. Of the
# parts of ops_all and cuda_emulated, which share lists of cases, a commit runs half. Draws are by its hash, so that the
# same commit has the same tests; `make nightly` runs all.
#
# Building and the sanitized tests are half of a day. A machine that took 45 minutes for that would be cut before the
# end, so drills and all tests of four ranks are left out there.
set -eu
if [ "$(($(date +%s) - $1))" -gt 2700 ]; then
  echo "a slow machine: tests of four ranks and drills are left out" >&2
  echo "-E ^(ranks4|sockets4|drills)/"
  exit
fi
commit=$(git rev-parse HEAD 2>/dev/null || echo none)
all=$(ctest --preset cpu -N -LE 'nightly|unit' -R '^(ranks|sockets|ops/)' | sed -n 's/.*: \([a-z0-9]*\/[a-z0-9_]*\)$/\1/p')
left=()
# draw SHARE NAME: whether NAME is drawn, with the chance 1/SHARE.
draw() { [ "$(($(cksum <<<"$commit $2" | cut -d ' ' -f 1) % $1))" = 0 ]; }
for name in $all; do
  of=${name#*/}
  case $name in
    ranks4/* | sockets4/*) draw 3 "$of" || left+=("$name") ;;
    ranks2/* | sockets2/*)
      more=${name/2\//4/}
      if grep -qx "$more" <<<"$all" && draw 3 "$of"; then left+=("$name"); fi ;;
    ops/*) draw 2 "$of" || left+=("$name") ;;
  esac
done
[ ${#left[@]} = 0 ] && exit
echo "${#left[@]} tests of ranks and of kernels are left out: other commits, and \`make nightly\`, run them" >&2
echo "-E ^($(IFS='|'; echo "${left[*]}"))\$"
