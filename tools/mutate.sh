#!/usr/bin/env bash
# mutate.sh [--seed N] [--first N] [--count N] [--paths "src/nn src/ops"] [--folder DIR] [--anew yes]
#
# How much the tests see. Makes COUNT small faults in the sources, one after the other: another relation,
# operator or constant, a condition negated, a call left out (tools/mutate/faults.h). They are drawn by SEED
# from all that can be made below PATHS. After each, what depends on it is built, and the tests that could see
# it run until one does: the folder's own, those of the folders above, of several ranks, of the binary from
# outside. A test that takes three times as long as without the fault has seen it. A fault that does not
# compile, or changes no program, is not counted.
#
# All happens in a copy of the tree under DIR (build-mutants), made when there is none, or with --anew.
# DIR/seed-N.txt has a line for each fault; those that it has are not tried again, so a run that was ended
# goes on, and more can be asked for. Ends with 1 if less than nine tenths are seen.
set -u
seed=1 first=0 count=100 jobs=${JOBS:-$(nproc)} anew=no
paths="src/train src/parallel src/optim src/model src/nn src/ops src/generate src/checkpoint src/data src/comm"
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/build-mutants
usage() { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --seed) seed=$2 ;;
    --first) first=$2 ;;
    --count) count=$2 ;;
    --paths) paths=$2 ;;
    --folder) folder=$2 ;;
    --anew) anew=$2 ;;
    *) usage ;;
  esac
  shift 2
done
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
source=$folder/source build=$folder/source/build log=$folder/log.txt
results=$folder/seed-$seed.txt baseline=$folder/baseline.txt faulty=$folder/faulty
export PITON_GRACE_SECONDS=1

# Objects without a fault come from the compiler's cache; those with one do not fill it.
build_of() { CCACHE_READONLY=1 nice ninja -C "$build" -j "$jobs" "$@" >> "$log" 2>&1; }
sum_of() { sha256sum < "$1" 2>/dev/null | cut -c 1-16; }
target_of() {  # of a test of ctest: the target that it runs
  case $1 in
    ranks*/*) echo "ranks_${1#*/}" ;;
    commands) echo piton ;;
    *) echo "${1#*/}" ;;
  esac
}
program_of() {
  if [ "$1" = piton ]; then echo "$build/piton"; else echo "$build/tests/$1"; fi
}
limits_of() { awk -v name="$1" '$1 == name { print int(3 * $2) + 20 }' "$baseline"; }

# Runs a test; fails where it does, or takes longer than SECONDS.
passes() {  # NAME SECONDS
  local choice=(-R "^$1\$")
  if [ "$1" = commands ]; then
    choice=(-L '^commands$' -LE nightly -j "$jobs" --stop-on-failure)
    [ -s "$folder/commands-without" ] && choice+=(-E "$(cat "$folder/commands-without")")
  fi
  nice timeout -k 10 "$2" ctest --test-dir "$build" "${choice[@]}" --output-on-failure \
    >> "$log" 2>&1 < /dev/null
}

# --- The copy, and what passes there without a fault ---------------------------------------------------

if [ "$anew" = yes ] || [ ! -d "$source" ]; then
  rm -rf "$source" "$faulty" "$folder"/seed-*.txt "$baseline"
  mkdir -p "$source"
  (cd "$root" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$source" || exit 1
  [ -e "$folder/shared" ] || ln -s "$root/../shared" "$folder/shared"
fi
# What a run that was killed had changed.
if [ -f "$faulty" ]; then
  cp "$folder/original" "$source/$(cat "$faulty")" && rm "$faulty"
fi
: > "$log"
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >> "$log" 2>&1 || exit 1
names=$(ctest --test-dir "$build" -N -LE nightly | sed -n 's/^ *Test *#[0-9]*: //p' |
  grep -E '^(unit/unit_|ops/|ranks)' | grep -v unit_kernels_cuda)
targets=$(for name in $names commands; do target_of "$name"; done | sort -u)
nice ninja -C "$build" -j "$jobs" mutants $targets >> "$log" 2>&1 ||
  { echo "mutate: the tree does not build, see $log" >&2; exit 1; }

touch "$baseline" "$results"
: >> "$folder/commands-without"
for name in $names commands; do
  program=$(program_of "$(target_of "$name")")
  sum=$(sum_of "$program")
  grep -q "^$name [0-9]* $sum " "$baseline" && continue
  if [ "$name" = commands ]; then  # those that fail without a fault are left out
    nice ctest --test-dir "$build" -L '^commands$' -LE nightly -j "$jobs" >> "$log" 2>&1
    sed 's/^[0-9]*:/^/; s/$/$/' "$build/Testing/Temporary/LastTestsFailed.log" 2>/dev/null |
      paste -sd '|' > "$folder/commands-without"
    rm -f "$build/Testing/Temporary/LastTestsFailed.log"
  fi
  start=$SECONDS
  verdict=passes
  passes "$name" 900 || verdict=fails
  sed -i "\#^$name #d" "$baseline"
  echo "$name $((SECONDS - start)) $sum $verdict" >> "$baseline"
done
sed -n 's/^\([^ ]*\) .* fails$/mutate: \1 fails without a fault and is left out/p' "$baseline" >&2

# --- Faults ---------------------------------------------------------------------------------------------

floors="comm data ops nn model optim parallel checkpoint generate train plan api cli"
tests_for() {  # FOLDER: its own, ops, those above, ranks, the binary
  local above=0 floor
  printf '%s\n' $names | grep "^unit/unit_$1\(_\|\$\)"
  [ "$1" = ops ] && echo ops/ops_all
  for floor in $floors; do
    [ $above = 1 ] && printf '%s\n' $names | grep "^unit/unit_$floor\$"
    [ "$floor" = "$1" ] && above=1
  done
  printf '%s\n' $names | grep '^ranks'
  echo commands
}

# The verdict on what is in the copy now: "seen by TEST", "survived", "does not compile", "changes nothing".
verdict_on() {  # FOLDER
  local name target program built=" " changed=no
  for name in $(tests_for "$1"); do
    grep -q "^$name .* passes$" "$baseline" || continue
    target=$(target_of "$name")
    case $built in
      *" $target "*) ;;
      *) build_of "$target" || { echo "does not compile"; return; }
         built="$built$target " ;;
    esac
    program=$(program_of "$target")
    [ "$(sum_of "$program")" = "$(awk -v name="$name" '$1 == name { print $3 }' "$baseline")" ] && continue
    changed=yes
    passes "$name" "$(limits_of "$name")" || { echo "seen by $name"; return; }
  done
  if [ $changed = yes ]; then echo survived; else echo "changes nothing"; fi
}

counted() { grep -c ' \(seen\|survived\)' "$results"; }
number=$((first - 1))
(cd "$source" && "$build/tests/mutants" list "$seed" $paths) > "$folder/faults.txt"
wanted=$count
while IFS=$'\t' read -r place from to; do
  number=$((number + 1))
  read -r file offset line kind <<< "$place"
  if ! grep -q "^$number " "$results"; then
    top=${file#src/}
    top=${top%%/*}
    start=$SECONDS
    cp "$source/$file" "$folder/original" && echo "$file" > "$faulty"
    echo "=== $number $place $from -> $to" >> "$log"
    (cd "$source" && "$build/tests/mutants" make "$file" "$offset" "$kind") 2>> "$log"
    verdict=$(verdict_on "$top")
    cp "$folder/original" "$source/$file" && rm "$faulty"
    printf '%s %s: %s:%s: %s: %s -> %s (%s s)\n' "$number" "$verdict" "$file" "$line" "$kind" \
      "$from" "$to" "$((SECONDS - start))" | tee -a "$results"
  fi
  grep -q "^$number \(seen\|survived\)" "$results" && wanted=$((wanted - 1))
  [ "$wanted" -gt 0 ] || break
done < <(tail -n "+$((first + 1))" "$folder/faults.txt")

seen=$(grep -c '^[0-9]* seen' "$results")
all=$(counted)
echo "mutate: seed $seed: $seen of $all faults are seen; the others:"
grep '^[0-9]* survived' "$results"
[ "$all" = 0 ] || [ $((10 * seen)) -ge $((9 * all)) ]
