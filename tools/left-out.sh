#!/usr/bin/env bash
# left-out.sh START: what ctest is told to leave out of the tests of a day that began at START (seconds since 1970).
#
# A test of ranks that runs with 2 and with 4 of them runs with 4 by day in one commit of three, else with 2. Of the
# parts of ops_all and cuda_emulated, which share lists of cases, a commit runs half. Draws are by its hash; `make
# nightly` runs all.
#
# A day is to take half an hour, and machines differ by a factor of three. Building and the sanitized tests come first;
# all that is left takes about 60 % of their time. Where less than that remains, tests of commands and of ranks and
# drills are drawn by the share of it that remains, but a quarter at least.
set -eu
readonly day=1700 least=25
commit=$(git rev-parse HEAD 2>/dev/null || echo none)
elapsed=$(($(date +%s) - $1))
share=100
if [ "$elapsed" -gt 0 ]; then share=$(((day - elapsed) * 10000 / (elapsed * 60))); fi
if [ "$share" -gt 100 ]; then share=100; fi
if [ "$share" -lt $least ]; then share=$least; fi
# number SALT NAME: the same for a commit, below a million.
number() { echo $(($(cksum <<<"$commit$1 $2" | cut -d ' ' -f 1) % 1000000)); }
# one_of N NAME: whether NAME is drawn, with the chance 1/N.
one_of() { [ $(($(number "" "$2") % $1)) = 0 ]; }
in_share() { [ "$(number " share" "$1")" -lt $((share * 10000)) ]; }

all=$(ctest --preset cpu -N -LE 'nightly|unit' | sed -n 's/.*: \([a-z0-9]*\/[a-z0-9_/]*\)$/\1/p')
left=()
# is_run NAME: whether this commit runs it.
is_run() {
  local of=${1#*/}
  case $1 in
    ranks4/* | sockets4/*) one_of 3 "$of" && in_share "$1" ;;
    ranks2/* | sockets2/*) { ! grep -qx "${1/2\//4/}" <<<"$all" || ! one_of 3 "$of"; } && in_share "$1" ;;
    ranks* | sockets* | commands/* | drills/*) in_share "$1" ;;
    ops/*) one_of 2 "$of" ;;
  esac
}
for name in $all; do is_run "$name" || left+=("$name"); done
[ ${#left[@]} = 0 ] && exit
echo "after $elapsed s: ${#left[@]} tests are left out ($share % of those of commands and ranks are drawn); other" \
  "commits, and \`make nightly\`, run them" >&2
echo "-E ^($(IFS='|'; echo "${left[*]}"))\$"
