#!/usr/bin/env bash
# nightly.sh [PART ...]: all parts of `make nightly`, or those that are named; --list names them.
#
# A part that has passed with the sources as they are leaves a line in build/nightly/passed, and is not run again, so
# that a night that was ended resumes where it was. A part that fails does not keep the others from running. Ends with
# the time that each took; what each printed is in build/nightly/PART.log.
#
# NIGHT_RECORD=FILE has these lines in another file, which a clone of the same commit on another machine resumes from.
# NIGHT_HOURS (4): tests of the sources run every night. Environments, drills, fuzzers and faults are shared among
# nights: those that failed in their last run, then those that have waited longest, until this time is over. With
# NIGHT_HOURS=24 all run; so do parts that are named.
# Parts that need a compiler or an emulator of another processor are passed over where that is missing.
# FUZZ_SECONDS (300): processor time of each fuzzer, or as many inputs as FUZZ_RUNS. MUTANTS (100): how many faults.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=$PWD/build/nightly
record=${NIGHT_RECORD:-$folder/passed}
export JOBS=${JOBS:-$(nproc)}
unset TESTS  # of tools/environments.sh: a part is all of its tests
make=${MAKE:-make}
mkdir -p "$folder"

# What was tested: the commit, and what differs from it.
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
changes=$({ git diff HEAD; git ls-files --others --exclude-standard -z | xargs -0 -r cat; } 2>/dev/null | sha256sum | cut -c 1-12)
state=$commit
[ "$changes" = "$(sha256sum </dev/null | cut -c 1-12)" ] || state+=-$changes

every_night() { printf '%s\n' unit-sanitized unit-races build unit operations rules ranks layouts commands; }
shared_among_nights() {
  tools/environments.sh build --list 2>/dev/null | sed 's/^/commands-/'
  for drill in tests/drills/*_drill.cpp; do drill=${drill##*/}; echo "drill-${drill%_drill.cpp}"; done
  printf '%s\n' fuzzers-{1..4} mutants cuda-compile arm64
}
# What a part needs and this machine lacks; empty if nothing.
missing() {
  case $1 in
    cuda-compile) command -v "${CUDACXX:-nvcc}" >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || echo nvcc ;;
    arm64)
      for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
        command -v $tool >/dev/null || echo $tool
      done ;;
  esac
}
# Of the names on standard input, that whose log is oldest first.
by_waiting() {
  while read -r part; do echo "$(stat -c %Y "$folder/$part.log" 2>/dev/null || echo 0) $part"; done | sort -s -n -k 1,1 | cut -d ' ' -f 2
}
tests() { PITON_NIGHTLY=1 ctest --preset cpu --output-on-failure -j $((2 * JOBS)) "$@"; }  # as `make test`
run() {
  case $1 in
    unit-sanitized) "$make" test-debug SANITIZE_WHOLE=ON ;;
    unit-races) "$make" test-tsan ;;
    build) "$make" all-tests ;;
    unit) tests -L unit ;;
    operations) tests -L ops ;;
    rules) tests -L repo ;;
    ranks) tests -L ranks -E pairwise_test ;;
    layouts) PITON_LAYOUTS_DONE=$folder/layouts-$state tests -R '^ranks[0-9]+/pairwise_test$' ;;
    commands) tests -L commands ;;
    commands-*) tools/environments.sh build "${1#commands-}" ;;
    drill-*) tests -R "^drills/${1#drill-}(_[0-9]+)?\$" ;;
    fuzzers-[1-4]) FUZZ_SHARE=${1#fuzzers-}/4 "$make" fuzz ;;
    mutants) mutants ;;
    cuda-compile) tools/cuda_compile.sh ;;
    arm64) tools/arm64.sh ;;
    *) echo "nightly: $1: no such part, see tools/nightly.sh --list" >&2; return 2 ;;
  esac
}
# Other faults for each commit; those of a run that was ended continue.
mutants() {
  local seed anew=yes
  seed=$((16#$(sha256sum <<<"$state" | cut -c 1-7)))
  [ "$(cat build-mutants/state 2>/dev/null)" = "$state" ] && anew=no
  mkdir -p build-mutants && echo "$state" >build-mutants/state
  tools/mutate.sh --anew "$anew" --seed "$seed" --count "${MUTANTS:-100}"
}
# Of a part that has passed; empty otherwise.
seconds_before() { awk -v state="$state" -v part="$1" '$1 == state && $2 == part { print $3; exit }' "$record" 2>/dev/null; }
duration() { printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60)); }

if [ "${1:-}" = --list ]; then
  every_night
  shared_among_nights
  exit
fi
[ -x build/piton ] || "$make" build || exit 1
all=("$@") waiting=()
if [ $# = 0 ]; then
  mapfile -t all < <(every_night)
  mapfile -t waiting < <(shared_among_nights | by_waiting)
fi
processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
end=$((${NIGHT_HOURS:-4} * 3600))
table=() total=0 failures=0 left=0
for part in "${all[@]}" "${waiting[@]}"; do
  result=passed
  seconds=$(seconds_before "$part")
  lacks=$(missing "$part" | paste -s -d ' ')
  if [ -n "$lacks" ]; then
    echo "== $part: passed over, this machine has no $lacks"
    result="passed over"
    seconds=0
  elif [ -n "$seconds" ]; then
    result="passed before"
  elif [[ " ${waiting[*]} " = *" $part "* ]] && [ "$SECONDS" -ge "$end" ]; then
    left=$((left + 1))
    continue
  else
    echo "== $part: since $(date +%H:%M:%S)"
    start=$SECONDS
    if run "$part" >"$folder/$part.log" 2>&1 </dev/null; then
      seconds=$((SECONDS - start))
      # Made again each time: the folder may have been built from other sources since.
      [ "$part" = build ] || echo "$state $part $seconds s, $(date -u +%F), $processor" >>"$record"
    else
      result=FAILED
      seconds=$((SECONDS - start))
      failures=$((failures + 1))
      tail -n 40 "$folder/$part.log"
      touch -d @0 "$folder/$part.log"  # first in the next night
    fi
  fi
  total=$((total + seconds))
  table+=("$(printf '| %-24s | %9s | %-13s |' "$part" "$(duration "$seconds")" "$result")")
done
printf '| %-24s | %9s | %-13s |\n' "$state" duration result "$(printf '%0.s-' {1..24})" -------- -------------
printf '%s\n' "${table[@]}"
printf '| %-24s | %9s | %-13s |\n' all "$(duration $total)" "$failures failed"
[ "$left" = 0 ] || echo "$left parts are left for another night"
[ "$failures" = 0 ]
