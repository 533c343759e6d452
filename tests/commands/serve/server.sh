# Starts servers and asks them; for the scripts that source it with `piton`, `launch` and `work` set.
server=0
trap '[ "$server" = 0 ] || kill -9 "$server" 2>/dev/null' EXIT

fail() {
  echo "${0##*/}: $*" >&2
  [ ! -f "$work/log" ] || tail -20 "$work/log" >&2
  exit 1
}

# start COMMAND...: runs it, and sets `url` of the server that it is.
start() {
  rm -f "$work/out"
  "$@" >"$work/out" 2>"$work/log" &
  server=$!
  for _ in $(seq 600); do
    url=$([ ! -f "$work/out" ] || sed -n 's|^piton serve: .* at \(https*://.*\)/$|\1|p' "$work/out")
    [ -z "$url" ] || return 0
    kill -0 "$server" 2>/dev/null || fail "$*: ended"
    sleep 0.1
  done
  fail "$*: does not listen"
}

# stop SIGNAL CODE: ends the server with the exit code.
stop() {
  kill -"$1" "$server"
  wait "$server"
  code=$?
  server=0
  [ "$code" = "$2" ] || fail "exit code $code after $1, wanted $2"
}

# ask WANTED REGEX CURL-ARGUMENTS...: the status and the answer.
ask() {
  local wanted=$1 regex=$2
  shift 2
  status=$(curl -sS --max-time 120 -o "$work/answer" -w '%{http_code}' "$@") || fail "curl $*"
  [ "$status" = "$wanted" ] || fail "$*: status $status, wanted $wanted: $(cat "$work/answer")"
  grep -Eq -- "$regex" "$work/answer" || fail "$*: wanted $regex: $(cat "$work/answer")"
}
