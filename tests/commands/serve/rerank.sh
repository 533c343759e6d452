#!/usr/bin/env bash
# usage: rerank.sh PITON LAUNCH WORK   the scores of /v1/rerank by the reward model WORK/whole, on one rank and on two: those of score --reward
set -u
piton=$1 launch=$2 work=$3
. "${0%/*}/server.sh"

documents=("No." "It is 31." "It is a long answer.")
query="What is 3 and 1?"
: >"$work/asked.jsonl"
for one in "${documents[@]}"; do
  echo "{\"messages\":[{\"role\":\"user\",\"content\":\"$query\"},{\"role\":\"assistant\",\"content\":\"$one\"}]}" >>"$work/asked.jsonl"
done
# Index and reward of each, the best first.
"$piton" score --reward --load "$work/whole" "$work/asked.jsonl" --quiet | awk '{print NR - 1, $1}' | sort -k2,2gr >"$work/wanted"
[ "$(sort -u -k2,2 "$work/wanted" | wc -l)" = 3 ] || fail "rewards of score: $(cat "$work/wanted")"
body="{\"query\":\"$query\",\"documents\":[\"${documents[0]}\",{\"text\":\"${documents[1]}\"},\"${documents[2]}\"],\"return_documents\":true}"
serve=("$piton" serve --load "$work/whole" --port 0 --threads 1)
for ranks in 1 2; do
  if [ "$ranks" = 1 ]; then
    start "${serve[@]}"
  else
    start "$launch" 2 "${serve[@]}" --tensor-model-parallel-size 2
  fi
  ask 200 '"document":\{"text":"' "$url/v1/rerank" -d "$body"
  grep -o '"index":[0-9]*,"relevance_score":[-+.e0-9]*' "$work/answer" | sed 's/"index":\(.*\),"relevance_score":\(.*\)/\1 \2/' >"$work/got"
  paste -d ' ' "$work/wanted" "$work/got" | awk '{d = $2 - $4; if ($1 != $3 || d > 1e-4 || d < -1e-4) exit 1; n++} END {if (n != 3) exit 1}' ||
    fail "$ranks ranks: $(cat "$work/got"), wanted $(cat "$work/wanted")"
  ask 400 'it answers /v1/rerank' "$url/v1/completions" -d '{"prompt":"x"}'
  if [ "$ranks" = 1 ]; then
    stop TERM 0
  else
    kill -TERM "$server"
    wait "$server" || fail "two ranks: exit code $? after SIGTERM"
    server=0
  fi
done
