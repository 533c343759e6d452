#!/usr/bin/env bash
# launch.sh N PROGRAM [ARG ...]: starts N ranks on this machine, more than it has cores if need be.
#
# SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 reach the ranks as SIGUSR1: they end their step, save and end with 75,
# however long that takes. A request that comes while ranks start is kept until all are there. A second SIGINT or
# SIGTERM ends all ranks at once. The exit code is that of the first rank that failed.
#
# mpirun must not see these signals, as a terminal, timeout(1) and batch systems send them to every process of a job:
# it would kill the ranks a few seconds later. (A longer odls_base_sigkill_timeout would give them time, but mpirun
# then waits that long, twice, after any rank has failed, and drops what the survivors still say.) A mask survives
# exec, mpirun keeps it and clears it for the ranks. With SIGPIPE masked, a reader of the log that ends does not end
# the job.
set -u
if [ $# -lt 2 ] || ! [ "$1" -ge 1 ] 2>/dev/null; then
  echo "usage: tools/launch.sh N piton pretrain ..." >&2
  echo "starts N ranks on this machine, as tensor x pipeline x data parallelism wants them" >&2
  exit 2
fi
ranks=$1
shift
as_root=()
[ "$(id -u)" = 0 ] && as_root=(--allow-run-as-root)
shield=(env --block-signal=INT,TERM,HUP,PIPE)
"${shield[@]}" true 2>/dev/null || shield=(setsid)  # coreutils before 8.31

job=""
first=""    # the first request
delivers="" # it is being passed on
ends=""     # the first SIGINT or SIGTERM
ended_at="" # when it had been passed on, in microseconds
started() { grep -ls "^PPid:[[:space:]]*$job\$" /proc/[0-9]*/status | cut -d/ -f3; }  # by mpirun
# How many ranks run; the others are still copies of mpirun, or have ended.
running() {
  local process
  for process in $(started); do
    [ "$(readlink "/proc/$process/exe")" = "$(readlink "/proc/$job/exe")" ] || echo "$process"
  done | wc -l
}
deliver() {  # once all ranks run, or two seconds after some of them
  local tries=0 count
  while kill -0 "$job" 2>/dev/null; do
    count=$(running)
    [ "$count" -gt 0 ] && tries=$((tries + 1))
    if [ "$count" -ge "$ranks" ] || [ "$tries" -gt 20 ]; then
      kill -USR1 "$job"
      return
    fi
    sleep 0.1
  done
}
ask() {
  [ -n "$first" ] || first=$1
  [ -n "$job" ] && pass_on
}
pass_on() {
  [ -n "$delivers" ] && return
  delivers=yes
  trap '' INT TERM HUP USR1  # for deliver, which would die of a signal to the whole group
  deliver &
  listen
}
ask_to_end() {
  if [ -z "$ends" ]; then
    ends=$1
    ask "$1"
    # Not before: on a busy machine that takes longer than the time below, and the second of two signals that came
    # together waits for it.
    ended_at=${EPOCHREALTIME/[.,]/}
  elif [ -n "$ended_at" ] && [ $((${EPOCHREALTIME/[.,]/} - ended_at)) -gt 500000 ]; then
    # Not the second of two that timeout(1) sends at once.
    stop_at_once
  fi
}
stop_at_once() {
  local process try
  for process in $(started); do kill -KILL -- "-$process" "$process" 2>/dev/null; done
  for try in {1..10}; do kill -0 "$job" 2>/dev/null && sleep 0.1; done  # it removes its files
  kill -KILL "$job" 2>/dev/null
  exit $((128 + $(kill -l "$ends")))
}
listen() {
  trap 'ask_to_end INT' INT
  trap 'ask_to_end TERM' TERM
  trap 'ask HUP' HUP
  trap 'ask USR1' USR1
}

# mpirun makes this folder and removes it when it is empty. Of two that begin and end at once one may find it gone in
# between, and fails (Open MPI 4). With a TMPDIR of its own a job has no neighbors.
if [ -z "${TMPDIR:-}" ]; then
  mkdir -p "/tmp/ompi.${HOSTNAME%%.*}.$UID/kept" && chmod 700 "/tmp/ompi.${HOSTNAME%%.*}.$UID"
fi 2>/dev/null
listen
"${shield[@]}" mpirun "${as_root[@]}" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
  --mca btl self,vader --mca btl_vader_single_copy_mechanism none \
  --mca odls_base_sigkill_timeout "${PITON_GRACE_SECONDS:-3}" -n "$ranks" "$@" <&0 &
job=$!
[ -n "$first" ] && pass_on
while wait "$job"; code=$?; kill -0 "$job" 2>/dev/null; do :; done  # a signal ends wait early
[ "$code" -gt 128 ] && { wait "$job"; code=$?; }
# A rank that had nothing to save ended by what this script sent.
[ -n "$first" ] && [ "$code" = 138 ] && code=$((128 + $(kill -l "$first")))
exit "$code"
