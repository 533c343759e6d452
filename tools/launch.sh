#!/usr/bin/env bash
# launch.sh N PROGRAM [ARG ...]: starts N ranks on this machine, more than it has cores if need be.
# Ranks get SIGKILL only 60 s after mpirun gets SIGTERM, so that they can save first. mpirun waits as
# long, twice, after a rank has failed, even when all ranks are gone: PITON_GRACE_SECONDS shortens it.
set -u
ranks=$1
shift
as_root=()
[ "$(id -u)" = 0 ] && as_root=(--allow-run-as-root)
exec mpirun "${as_root[@]}" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
  --mca btl self,vader --mca btl_vader_single_copy_mechanism none \
  --mca odls_base_sigkill_timeout "${PITON_GRACE_SECONDS:-60}" -n "$ranks" "$@"
