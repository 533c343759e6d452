#!/usr/bin/env bash
# mutate.sh [--seed N] [--count N] [--paths "src/nn src/ops"] [--tests REGEX] [--folder DIR] [--anew yes]
#
# How much the tests see. Makes COUNT small faults in the sources: another relation, operator or
# constant, a condition negated, a call left out (tools/mutate/faults.h). They are drawn by SEED from all
# that can be made below PATHS. One build has them all, each behind a switch (tools/mutate/weave.h); those
# that do not compile are left out, and others drawn in their place. A run of every test without a fault
# says which test cases reach which fault. Then each fault is switched on, and the cases that reach it run
# until one fails: unit tests first, the folder's own before the others, then those of several ranks and of
# the binary from outside. A test that takes three times as long has seen it. What fails has to pass again
# without the fault.
#
# All happens in a copy of the tree below DIR (build-mutants), which is made where there is none, and anew
# with --anew. DIR/seed-N.txt has a line for each fault; those that it has are not tried again, so that a
# run that was ended goes on. --tests runs tests of these names alone. Ends with 1 if less than nine tenths
# are seen.
set -u
seed=1 count=100 jobs=${JOBS:-$(nproc)} anew=no chosen=.
paths="src/train src/parallel src/optim src/model src/nn src/ops src/generate src/checkpoint src/data src/comm"
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/build-mutants
usage() { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --seed) seed=$2 ;;
    --count) count=$2 ;;
    --paths) paths=$2 ;;
    --folder) folder=$2 ;;
    --tests) chosen=$2 ;;
    --anew) anew=$2 ;;
    *) usage ;;
  esac
  shift 2
done
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
original=$folder/original source=$folder/source build=$folder/source/build
log=$folder/log.txt reach=$folder/reach-$seed results=$folder/seed-$seed.txt
drawn=$folder/drawn-$seed.txt dropped=$folder/dropped-$seed.txt places=$folder/places-$seed.txt
export PITON_GRACE_SECONDS=1 GTEST_FAIL_FAST=1
temporary=$(mktemp -d /tmp/mutants.XXXXXX) || exit 1
trap 'rm -rf "$temporary"' EXIT

fail() { echo "mutate: $1" >&2; exit 1; }
build_of() { nice -n 10 ninja -C "$build" -j "$jobs" -k 0 "$@"; }
target_of() {  # of a test of ctest: the target that it runs
  case $1 in
    ranks*/*) echo "ranks_${1#*/}" ;;
    commands/*) echo piton ;;
    *) echo "${1#*/}" ;;
  esac
}

# --- The copy --------------------------------------------------------------------------------------

if [ "$anew" = yes ] || [ ! -d "$original" ]; then
  rm -rf "$original" "$source" "$folder"/reach-* "$folder"/*-[0-9]*.txt
  for copy in "$original" "$source"; do
    mkdir -p "$copy"
    (cd "$root" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$copy" || exit 1
  done
  [ -e "$folder/shared" ] || ln -s "$root/../shared" "$folder/shared"
  # Every test says which of its cases runs.
  echo "target_sources(piton_test_support INTERFACE $source/tools/mutate/cases.cpp)" >> "$source/cmake/tests.cmake"
fi
: > "$log"
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >> "$log" 2>&1 || fail "cmake fails, see $log"
build_of mutants >> "$log" 2>&1 || fail "the tree does not build, see $log"

# --- One build of many faults ----------------------------------------------------------------------

(cd "$original" && "$build/tests/mutants" list "$seed" $paths) > "$folder/all-$seed.txt" || exit 1
touch "$dropped" "$results"
names=$(ctest --test-dir "$build" -N -LE nightly | sed -n 's/^ *Test *#[0-9]*: //p' |
  grep -E '^(unit/unit_|ops/|ranks|commands/)' | grep -v unit_kernels_cuda | grep -E "$chosen")
targets=$(for name in $names; do target_of "$name"; done | sort -u)

# The faults of the errors in FILE: those whose lines an error names; else those whose lines stand anywhere
# near one; else those that made variables of constants and are named.
faults_of_errors() {  # FILE
  sed -E "s#^($source/|(\.\./)+)##; s#from ($source/|(\.\./)+)#from #" "$1" |
    awk -v places="$places" '
      BEGIN {
        while ((getline line < places) > 0) {
          split(line, word, " ")
          n++; number[n] = word[1]; file[n] = word[2]; first[n] = word[3]; last[n] = word[4]; variable[n] = word[5]
        }
      }
      match($0, /src\/[A-Za-z0-9_\/.]+:[0-9]+/) {
        split(substr($0, RSTART, RLENGTH), at, ":")
        for (i = 1; i <= n; i++) {
          if (file[i] != at[1] || at[2] + 0 < first[i] || at[2] + 0 > last[i]) continue
          if (/: error: /) exact[number[i]] = 1; else near[number[i]] = 1
        }
      }
      { for (i = 1; i <= n; i++) if (variable[i] != "" && index($0, variable[i])) named[number[i]] = 1 }
      END {
        for (i in exact) { print i; found = 1 }
        if (!found) for (i in near) { print i; found = 1 }
        if (!found) for (i in named) print i
      }'
}

while true; do
  # The first of the list that are not dropped, as many as are wanted.
  awk -v count="$count" 'FILENAME == ARGV[1] { out[$1] = 1; next } !($1 in out) && wanted++ < count' "$dropped" \
    "$folder/all-$seed.txt" > "$drawn.next"
  # Files that have lost their last fault are as they were.
  cut -d ' ' -f 2 "$drawn" "$drawn.next" 2>/dev/null | sort -u | while read -r file; do
    cut -d ' ' -f 2 "$drawn.next" | grep -qx "$file" || cp "$original/$file" "$source/$file"
  done
  mv "$drawn.next" "$drawn"
  "$build/tests/mutants" weave "$drawn" "$original" "$source" "$source/tools/mutate/switch.h" > "$places" || exit 1
  awk 'FILENAME == ARGV[1] { has[$1] = 1; next } !($1 in has) { print $1 }' "$places" "$drawn" > "$folder/new"
  if [ ! -s "$folder/new" ]; then
    build_of $targets > "$folder/build.txt" 2>&1 && break
    cat "$folder/build.txt" >> "$log"
    faults_of_errors "$folder/build.txt" | sort -un > "$folder/new"
    [ -s "$folder/new" ] || fail "the woven tree does not build, and no fault is near the errors, see $log"
  fi
  echo "mutate: faults that do not compile: $(paste -sd ' ' "$folder/new")"
  cat "$folder/new" >> "$dropped"
done
echo "mutate: seed $seed: $(wc -l < "$drawn") faults in one build, $(wc -l < "$dropped") do not compile"

# --- Running a test ---------------------------------------------------------------------------------

# Fails where the test does, or takes longer than SECONDS (124, 137). FILTER as of GoogleTest.
passes() {  # NAME SECONDS FILTER PLACE
  mkdir -p "$temporary/$4"
  (
    cd "$build" || exit 1
    export TMPDIR=$temporary/$4 GTEST_FILTER=$3
    ulimit -v 32000000
    case $1 in
      unit/* | ops/*) exec nice -n 15 timeout -k 10 "$2" "tests/$(target_of "$1")" ;;
      *) exec nice -n 15 timeout -k 10 "$2" ctest -R "^$1\$" --timeout "$2" --output-on-failure ;;
    esac
  ) >> "$log.$4" 2>&1 < /dev/null
  local code=$?
  rm -rf "${temporary:?}/$4"
  return $code
}

# Runs NAME without a fault, and writes what it reaches: FAULT NAME MILLISECONDS FILTER
measure() {  # NAME PLACE
  local file=$reach/${1//\//+} start
  [ -s "$file" ] && return
  rm -f "$file.log"
  start=$(date +%s%N)
  if PITON_FAULT_LOG=$file.log passes "$1" 1800 '*' "$2"; then
    awk -v name="$1" -v whole=$((($(date +%s%N) - start) / 1000000)) '
      /^=/ { if (substr($1, 2) + 0 > ms[$2]) ms[$2] = substr($1, 2) + 0; next }
      !($0 in has) {
        has[$0] = 1
        if ($2 == "-") { everywhere[$1] = 1 } else { cases[$1] = cases[$1] ":" $2; of[$1, ++size[$1]] = $2 }
      }
      END {
        print "-", name, whole, "*"
        for (fault in everywhere) print fault, name, whole, "*"
        for (fault in cases) {
          if (fault in everywhere) continue
          sum = 300
          for (i = 1; i <= size[fault]; i++) sum += ms[of[fault, i]]
          print fault, name, (sum < whole ? sum : whole), (length(cases[fault]) < 90000 ? substr(cases[fault], 2) : "*")
        }
      }' "$file.log" > "$file"
  else
    echo "mutate: $1 fails without a fault and is left out" | tee "$file" >&2
  fi
}

# Whether a test of those of FILE (lines of measure) sees fault NUMBER: prints "seen by ..." or nothing.
look() {  # NUMBER PLACE FILE
  local name milliseconds filter limit code
  while read -r _ name milliseconds filter; do
    limit=$((3 * milliseconds / 1000 + 15))
    PITON_FAULT=$1 passes "$name" "$limit" "$filter" "$2"
    code=$?
    [ $code = 0 ] && continue
    if passes "$name" $((2 * limit)) "$filter" "$2"; then
      echo "seen by $name$([ $code -ge 124 ] && [ $code != 134 ] && [ $code != 139 ] && echo ", code $code")"
      return
    fi
    echo "mutate: $name fails now and then without a fault ($filter)" >&2
  done < "$3"
}

# Goes through faults without a verdict, with the tests of KIND; PLACE of PLACES.
go_through() {  # KIND PLACE PLACES
  local number rest file line kind changes own verdict start position=0
  while IFS= read -r line; do
    position=$((position + 1))
    [ $((position % $3)) = "$2" ] || continue
    read -r number file rest <<< "$line"
    grep -q "^$number " "$results" && continue
    start=$SECONDS
    own=${file#src/}
    own=unit/unit_${own%%/*}
    cat "$reach"/* | grep "^$number " | grep -E " $1" |
      awk -v own="$own" '{ print ($2 == own ? 0 : 1), $0 }' | sort -k1,1n -k4,4n | cut -d ' ' -f 2- > "$folder/tests.$2"
    verdict=$(look "$number" "$2" "$folder/tests.$2")
    if [ -z "$verdict" ] && [ "$1" = "$last_kind" ]; then
      verdict=survived
      cat "$reach"/* | grep -q "^$number " || verdict="survived, not reached"
    fi
    [ -z "$verdict" ] && continue
    IFS=$'\t' read -r rest changes <<< "$line"
    read -r _ _ _ line kind <<< "$rest"
    echo "$number $verdict: $file:$line: $kind: ${changes/$'\t'/ -> } ($((SECONDS - start)) s)" | tee -a "$results"
  done < "$drawn"
}

mkdir -p "$reach"
last_kind='(ranks|commands)'
for kind in '(unit|ops)/' "$last_kind"; do
  places_at_once=1
  [ "$kind" = "$last_kind" ] || places_at_once=$jobs
  for ((place = 0; place < places_at_once; ++place)); do
    i=0
    for name in $(echo "$names" | grep -E "^$kind"); do
      [ $((i++ % places_at_once)) = "$place" ] && measure "$name" "$place"
    done &
  done
  wait
  for ((place = 0; place < places_at_once; ++place)); do
    go_through "$kind" "$place" "$places_at_once" &
  done
  wait
done

seen=$(grep -c '^[0-9]* seen' "$results")
all=$(wc -l < "$results")
echo "mutate: seed $seed: $seen of $all faults are seen; the others:"
grep '^[0-9]* survived' "$results"
[ "$all" = 0 ] || [ $((10 * seen)) -ge $((9 * all)) ]
