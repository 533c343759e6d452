#!/usr/bin/env bash
# launch.sh N PROGRAM [ARG ...]: starts N ranks on this machine, more than it has cores if need be.
#
# SIGTERM and SIGUSR1 reach the ranks as SIGUSR1: they save and end with 75. (mpirun itself answers a
# SIGTERM by killing its ranks. A longer odls_base_sigkill_timeout would give them time, but mpirun then
# waits that long, twice, after any rank has failed, and drops what the survivors still say.)
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
mpirun "${as_root[@]}" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
  --mca btl self,vader --mca btl_vader_single_copy_mechanism none \
  --mca odls_base_sigkill_timeout "${PITON_GRACE_SECONDS:-3}" -n "$ranks" "$@" <&0 &
job=$!
trap 'kill -USR1 "$job" 2>/dev/null' TERM USR1
trap : INT  # a terminal's goes to mpirun by itself
while wait "$job"; code=$?; kill -0 "$job" 2>/dev/null; do :; done  # a signal ends wait early
[ "$code" -gt 128 ] && { wait "$job"; code=$?; }
exit "$code"
