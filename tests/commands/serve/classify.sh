#!/usr/bin/env bash
# usage: classify.sh PITON LAUNCH WORK   labels of /v1/classify by WORK/whole on one rank and on two and by the encoder WORK/encoder: those of piton classify
set -u
piton=$1 launch=$2 work=$3
. "${0%/*}/server.sh"

input='["aaaa","zz","aaa"]'
printf 'aaaa\nzz\naaa\n' >"$work/asked.txt"
for model in whole two_ranks encoder; do
  folder=$work/${model/two_ranks/whole}
  serve=("$piton" serve --load "$folder" --port 0 --threads 1)
  if [ "$model" = two_ranks ]; then
    start "$launch" 2 "${serve[@]}" --tensor-model-parallel-size 2
  else
    start "${serve[@]}"
  fi
  "$piton" classify --load "$folder" "$work/asked.txt" --quiet |
    sed 's/.*"label":"\([^"]*\)".*"probabilities":{"[^"]*":\([-+.e0-9]*\).*/\1 \2/' >"$work/wanted"
  ask 200 '"num_classes":2' "$url/v1/classify" -d "{\"input\":$input}"
  grep -o '"label":"[^"]*","probs":\[[-+.e0-9]*' "$work/answer" | sed 's/"label":"\([^"]*\)","probs":\[\(.*\)/\1 \2/' >"$work/got"
  paste -d ' ' "$work/wanted" "$work/got" | awk '{d = $2 - $4; if ($1 != $3 || d > 1e-5 || d < -1e-5) exit 1; n++} END {if (n != 3) exit 1}' ||
    fail "$model: $(cat "$work/got"), wanted $(cat "$work/wanted")"
  ask 400 'it answers /v1/classify' "$url/v1/completions" -d '{"prompt":"x"}'
  ask 400 'wanted a string, or a list' "$url/v1/classify" -d '{"input":[3]}'
  if [ "$model" = two_ranks ]; then
    kill -TERM "$server"
    wait "$server" || fail "two ranks: exit code $? after SIGTERM"
    server=0
  else
    stop TERM 0
  fi
done
