#!/usr/bin/env bash
# launch_hosts.sh HOSTS RANKS PROGRAM [ARG ...]: starts RANKS ranks on each of HOSTS hosts, which are network
# namespaces of this machine: each has its own network stack and address, and nothing but a switch joins them.
#
# PITON_LINK: what tc makes of the link of each host, as "rate 1gbit burst 256kb latency 50ms" (default: as fast as it is).
# Needs root, iproute2 and Open MPI; exits with 77 where namespaces cannot be made. Prints at the end, on standard
# error, how many bytes each host has sent.
set -u
if [ $# -lt 3 ] || ! [ "$1" -ge 1 ] 2>/dev/null || ! [ "$2" -ge 1 ] 2>/dev/null; then
  echo "usage: tools/launch_hosts.sh HOSTS RANKS piton pretrain ..." >&2
  exit 2
fi
hosts=$1 ranks=$2
shift 2
name=piton$$
work=$(mktemp -d)
unavailable() {
  echo "launch_hosts.sh: no network namespaces here: $1" >&2
  exit 77
}
clean() {
  for host in $(seq 0 "$hosts"); do ip netns del "$name-$host" 2>/dev/null; done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP
command -v ip >/dev/null && command -v mpirun >/dev/null || unavailable "ip or mpirun is missing"

# Host 0 is the switch.
for host in $(seq 0 "$hosts"); do
  ip netns add "$name-$host" 2>"$work/why" || unavailable "$(tail -n 1 "$work/why")"
  ip -n "$name-$host" link set lo up
done
ip -n "$name-0" link add switch type bridge 2>"$work/why" || unavailable "$(tail -n 1 "$work/why")"
ip -n "$name-0" link set switch up
list=""
for host in $(seq 1 "$hosts"); do
  ip link add "port$host" netns "$name-0" type veth peer name net0 netns "$name-$host" 2>"$work/why" ||
    unavailable "$(tail -n 1 "$work/why")"
  ip -n "$name-0" link set "port$host" master switch up
  ip -n "$name-$host" addr add "10.77.0.$host/24" dev net0
  ip -n "$name-$host" link set net0 up
  if [ -n "${PITON_LINK:-}" ]; then
    # shellcheck disable=SC2086
    ip netns exec "$name-$host" tc qdisc add dev net0 root tbf $PITON_LINK || exit 1
  fi
  list+="${list:+,}10.77.0.$host:$ranks"
done

# Open MPI calls it in place of ssh, with an address and a command.
cat >"$work/agent" <<AGENT
#!/bin/sh
host=\${1##*.}
shift
exec ip netns exec $name-\$host unshare --uts sh -c "hostname host\$host; \$*"
AGENT
cat >"$work/first" <<'FIRST'
#!/bin/sh
hostname host1
exec "$@"
FIRST
chmod +x "$work/agent" "$work/first"
as_root=()
[ "$(id -u)" = 0 ] && as_root=(--allow-run-as-root)
exported=()
for variable in $(env | sed -n 's/^\(PITON_[A-Z_]*\)=.*/\1/p'); do exported+=(-x "$variable"); done
network=10.77.0.0/24
ip netns exec "$name-1" unshare --uts "$work/first" mpirun "${as_root[@]}" --oversubscribe --bind-to none \
  --host "$list" -np $((hosts * ranks)) -mca plm_rsh_agent "$work/agent" -mca btl_tcp_if_include $network \
  -mca oob_tcp_if_include $network "${exported[@]}" "$@"
code=$?
for host in $(seq 1 "$hosts"); do
  echo "host $host has sent $(ip netns exec "$name-$host" cat /sys/class/net/net0/statistics/tx_bytes) bytes" >&2
done
exit $code
