#!/usr/bin/env bash
# What the last ctest of a build folder left out, with the reasons, so that a skipped test never
# passes for one that was run:  tools/list-skipped.sh build
set -euo pipefail
log=$1/Testing/Temporary/LastTest.log
[ -f "$log" ] || { echo "list-skipped: no $log" >&2; exit 1; }

# GoogleTest prints the reason before "[  SKIPPED ] Suite.Test (n ms)"; tests of commands print
# "-- skipped: reason".
awk '
  /^Test: |^[0-9]+\/[0-9]+ Test: / { program = $NF }
  /: Skipped$/ { getline reason; next }
  /^\[  SKIPPED \] .* ms\)$/ {
    print program ": " $4 (reason == "" ? "" : ": " reason); reason = ""
  }
  /^-- skipped: / { sub(/^-- skipped: /, ""); print program ": " $0 }
' "$log" | sort | uniq > "$log.skipped"

sed 's/^/skipped: /' "$log.skipped"
echo "$(wc -l < "$log.skipped") skipped, of what is in $1"
