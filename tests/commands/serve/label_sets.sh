#!/usr/bin/env bash
# usage: label_sets.sh PITON WORK   /v1/classify by WORK/sets gives the probabilities of piton classify, which are sigmoids: several are above one half
set -u
piton=$1 work=$2
. "${0%/*}/server.sh"

start "$piton" serve --load "$work/sets" --port 0 --threads 1
ask 200 '"num_classes":2' "$url/v1/classify" -d '{"input":["aaa","zz","azz","mmm"]}'
grep -o '"probs":\[[^]]*' "$work/answer" | sed 's/"probs":\[//' | tr ',' ' ' >"$work/got"
"$piton" classify --load "$work/sets" "$work/lines.txt" --quiet |
  sed 's/.*"first":\([-+.e0-9]*\),"last":\([-+.e0-9]*\).*/\1 \2/' >"$work/wanted"
paste -d ' ' "$work/wanted" "$work/got" |
  awk '{for (i = 1; i < 3; i++) {d = $i - $(i + 2); if (d > 1e-5 || d < -1e-5) exit 1} if ($1 > 0.5 && $2 > 0.5) both++; n++}
       END {if (n != 4 || both != 1) exit 1}' ||
  fail "$(cat "$work/got"), wanted $(cat "$work/wanted")"
stop TERM 0
