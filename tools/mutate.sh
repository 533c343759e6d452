#!/usr/bin/env bash
# mutate.sh [--seed N] [--count N] [--paths "src/nn src/ops"] [--tests REGEX] [--folder DIR] [--anew yes]
#
# How much the tests see. Makes COUNT small faults in the sources: another relation, operator or
# constant, a condition negated, a call left out (tools/mutate/faults.h). They are drawn by SEED from all
# that can be made below PATHS. One build has them all, each behind a switch (tools/mutate/weave.h); those
# that do not compile are left out, and others drawn in their place. A run of every test without a fault
# says which test cases reach which fault. Then each fault is switched on, and the cases that reach it run
# until one fails: unit tests first, then those of several ranks and of the binary from outside, the quick
# ones before the slow, the folder's own before the others. A test that takes three times as long has seen
# it: three times the processor time, or three times as long again and again, as the machine may be busy.
# What fails has to pass without the fault, and to fail again with it.
#
# All happens in a copy of the tree below DIR (build-mutants), which is made where there is none, and again
# with --anew. DIR/seed-N.txt has a line for each fault; those that it has are not tried again, so that a
# run that was ended continues. --tests runs tests of these names alone. Ends with 1 if less than nine tenths
# are seen.
set -u
seed=1 count=100 jobs=${JOBS:-$(nproc)} niceness=${NICE:-15} anew=no chosen=.
paths="src/train src/parallel src/optim src/model src/nn src/ops src/generate src/checkpoint src/data src/comm"
paths+=" src/huggingface src/megatron src/gguf src/pickle src/convert src/text src/cli"
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/build-mutants
usage() { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
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
temporary=$(mktemp -d -p "$([ -d /dev/shm ] && echo /dev/shm || echo /tmp)" mutants.XXXXXX) || exit 1
trap 'rm -rf "$temporary"' EXIT

fail() { echo "mutate: $1" >&2; exit 1; }
build_of() { nice -n 10 ninja -C "$build" -j "$jobs" -k 0 "$@"; }
target_of() {  # of a test of ctest: the target that it runs
  case $1 in
    ranks*/comm_*) echo "ranks_${1#*/}" ;;
    ranks*/*) echo ranks_all ;;
    drills/*) echo drills_all ;;
    commands/*) echo piton ;;
    *) echo "${1#*/}" ;;
  esac
}

# --- The copy --------------------------------------------------------------------------------------

if [ "$anew" = yes ] || [ ! -d "$original" ]; then
  rm -rf "$original" "$source" "$folder"/reach-* "$folder"/*-[0-9]*.txt "$folder"/output.*
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
  # The first of the list that are not dropped, as many as are needed.
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

# Fails where the test does, or takes longer than SECONDS (124, 137). FILTER as of GoogleTest. What it prints
# is in DIR/output.PLACE, and the seconds of a processor that it took in DIR/processor.PLACE.
passes() {  # NAME SECONDS FILTER PLACE
  local code TIMEFORMAT='%U %S'
  mkdir -p "$temporary/$4"
  { time { (
    cd "$build" || exit 1
    export TMPDIR=$temporary/$4 GTEST_FILTER=$3
    ulimit -v 8000000  # KiB
    case $1 in
      unit/* | ops/*) exec nice -n "$niceness" timeout -k 10 "$2" "tests/$(target_of "$1")" ;;
      # Tests of the binary have a folder by their name.
      *) exec flock "$folder/lock.${1//\//+}" nice -n "$niceness" timeout -k 10 "$2" ctest -R "^$1\$" --timeout "$2" --output-on-failure ;;
    esac
  ) > "$folder/output.$4" 2>&1 < /dev/null; }; } 2> "$folder/processor.$4"
  code=$?
  rm -rf "${temporary:?}/$4"
  # What ctest ended.
  [ $code != 0 ] && grep -q '\*\*\*Timeout' "$folder/output.$4" && code=124
  return $code
}
took_too_long() { [ "$1" = 124 ] || [ "$1" = 137 ]; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
processor_milliseconds() { awk 'END { print int(1000 * ($1 + $2)) }' "$folder/processor.$1"; }  # PLACE, of its last run

# Runs NAME without a fault and keeps what it reaches (cases.cpp), and how long it takes.
measure() {  # NAME PLACE
  local file=$reach/${1//\//+} start
  [ -s "$file.ms" ] && return
  rm -f "$file.log"
  start=$(milliseconds)
  if PITON_FAULT_LOG=$file.log passes "$1" 1800 '*' "$2"; then
    echo $(($(milliseconds) - start)) > "$file.ms"
  else
    echo "mutate: $1 fails without a fault and is left out, see $folder/output.$2" >&2
    rm -f "$file.log"
  fi
}

# What reaches which fault, by all tests that were measured:  FAULT NAME MILLISECONDS FILTER, the quick cases
# of a test apart from the others.
index_of_reach() {
  local file name
  for file in "$reach"/*.ms; do
    name=$(basename "${file%.ms}")
    touch "${file%.ms}.log"
    awk -v name="${name//+//}" -v whole="$(cat "$file")" '
      /^=/ { if (substr($1, 2) + 0 > ms[$2]) ms[$2] = substr($1, 2) + 0; next }
      $2 == "-" { everywhere[$1] = 1; next }
      !($0 in has) { has[$0] = 1; of[$1, ++size[$1]] = $2; reached[$1] = 1 }
      END {
        for (fault in everywhere) print fault, name, whole, "*"
        for (fault in reached) {
          if (fault in everywhere) continue
          sum[0] = sum[1] = 100; filter[0] = filter[1] = ""
          for (i = 1; i <= size[fault]; i++) {
            slow = ms[of[fault, i]] > 300
            sum[slow] += ms[of[fault, i]]
            filter[slow] = filter[slow] ":" of[fault, i]
          }
          for (slow = 0; slow < 2; slow++) {
            if (filter[slow] == "") continue
            print fault, name, sum[slow], (length(filter[slow]) < 90000 ? substr(filter[slow], 2) : "*")
          }
        }
      }' "${file%.ms}.log"
  done
}

# The case that failed in the output of PLACE, or the one that was running; else all of FILTER.
failed_case() {  # PLACE FILTER
  local name
  name=$(sed -n -E 's/^(.*\])?\[  FAILED  \] ([A-Za-z0-9_/]+\.[A-Za-z0-9_/]+).*/\2/p' "$folder/output.$1" | head -n 1)
  [ -n "$name" ] || name=$(sed -n -E 's/^(.*\])?\[ RUN      \] ([A-Za-z0-9_/]+\.[A-Za-z0-9_/]+)$/\2/p' "$folder/output.$1" |
    tail -n 1)
  echo "${name:-$2}"
}

# Runs cases again that took too long with fault NUMBER, after a run without it each time. Sets `code` as passes()
# gives it: too long if they take three times the processor time, or if three runs, which may wait, are too long.
# Sets `limit`, in seconds.
time_again() {  # NUMBER NAME FILTER PLACE
  local start processor attempt
  for attempt in 1 2 3; do
    start=$(milliseconds)
    if ! passes "$2" 1800 "$3" "$4"; then
      echo "mutate: $2 fails without a fault now" >&2
      code=0
      return
    fi
    processor=$(processor_milliseconds "$4")
    limit=$((3 * ($(milliseconds) - start) / 1000 + 15))
    PITON_FAULT=$1 passes "$2" "$limit" "$3" "$4"
    code=$?
    took_too_long $code || return
    [ "$(processor_milliseconds "$4")" -gt $((3 * processor + 5000)) ] && return
  done
}

# Whether a test of those of FILE (lines of the index) sees fault NUMBER: prints "seen by ..." or nothing.
look() {  # NUMBER PLACE FILE
  local name cost filter limit code found
  while read -r _ name cost filter; do
    limit=$((3 * cost / 1000 + 30))
    PITON_FAULT=$1 passes "$name" "$limit" "$filter" "$2"
    code=$?
    [ $code = 0 ] && continue
    if took_too_long $code; then
      time_again "$1" "$name" "$filter" "$2"
      [ $code = 0 ] && continue
    fi
    if took_too_long $code; then
      echo "seen by $name, that does not end"
      return
    fi
    found=$(failed_case "$2" "$filter")
    if passes "$name" $((2 * limit)) "$found" "$2" && ! PITON_FAULT=$1 passes "$name" $((2 * limit)) "$found" "$2"; then
      case $found in *[:*]*) found= ;; esac
      echo "seen by $name${found:+ $found}"
      return
    fi
    echo "mutate: $name fails now and then, whether with the fault or not: $found" >&2
  done < "$3"
}

# Goes through faults without a verdict, with the tests of KIND that take FROM to TO milliseconds; PLACE of
# PLACES.
go_through() {  # KIND FROM TO PLACE PLACES
  local number rest file line kind changes own name verdict start position=0
  while IFS= read -r line; do
    position=$((position + 1))
    [ $((position % $5)) = "$4" ] || continue
    read -r number file rest <<< "$line"
    grep -q "^$number " "$results" && continue
    start=$SECONDS
    own=${file#src/}
    own=unit/unit_${own%%/*}
    grep -E "^$number $1" "$reach.index" |
      awk -v own="$own" -v from="$2" -v to="$3" '$3 >= from && $3 < to { print ($2 == own ? 0 : 1), $0 }' |
      sort -k1,1n -k4,4n | cut -d ' ' -f 2- > "$folder/tests.$4"
    verdict=$(look "$number" "$4" "$folder/tests.$4")
    if [ -z "$verdict" ] && [ "$is_last" = yes ]; then
      # What was computed once, in the first case that asked for it, serves the others too.
      grep -E "^$number (unit|ops)/" "$reach.index" | cut -d ' ' -f 2 | sort -u | while read -r name; do
        echo "$number $name $(cat "$reach/${name//\//+}.ms") *"
      done > "$folder/tests.$4"
      verdict=$(look "$number" "$4" "$folder/tests.$4")
      [ -n "$verdict" ] || verdict=survived
      grep -q "^$number " "$reach.index" || verdict="survived, not reached"
    fi
    [ -z "$verdict" ] && continue
    IFS=$'\t' read -r rest changes <<< "$line"
    read -r _ _ _ line kind <<< "$rest"
    echo "$number $verdict: $file:$line: $kind: ${changes/$'\t'/ -> } ($((SECONDS - start)) s)" | tee -a "$results"
  done < "$drawn"
}

# Every KIND is measured before its tests run.
phase() {  # KIND FROM TO PLACES
  local place name i
  for ((place = 0; place < $4; ++place)); do
    i=0
    for name in $(echo "$names" | grep -E "^$1"); do
      [ $((i++ % $4)) = "$place" ] && measure "$name" "$place"
    done &
  done
  wait
  index_of_reach > "$reach.index"
  for ((place = 0; place < $4; ++place)); do
    go_through "$1" "$2" "$3" "$place" "$4" &
  done
  wait
}
mkdir -p "$reach"
endless=1000000000 is_last=no
phase '(unit|ops)/' 0 5000 "$jobs"
phase '(ranks|commands)' 0 8000 "$jobs"
phase '(unit|ops)/' 5000 $endless "$jobs"
is_last=yes
phase '(ranks|commands)' 8000 $endless "$jobs"

seen=$(grep -c '^[0-9]* seen' "$results")
all=$(wc -l < "$results")
echo "mutate: seed $seed: $seen of $all faults are seen; the others:"
grep '^[0-9]* survived' "$results"
[ "$all" = 0 ] || [ $((10 * seen)) -ge $((9 * all)) ]
