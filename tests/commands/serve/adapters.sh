#!/usr/bin/env bash
# usage: adapters.sh PITON LAUNCH WORK   texts of WORK/base with two adapters, from generate --prompts and from serve, on one rank and on two: those of each alone
set -u
piton=$1 launch=$2 work=$3
. "${0%/*}/server.sh"

prompts=("What is 3 and 1?" "It is" "What is 20 and 1? It is 201. What is 21 and 1? It is 211. What is 22 and 1?")
options=(--greedy --max-new-tokens 12 --json --quiet --tokenizer-type ByteTokenizer)
texts_of() { # FOLDER-OF-ADAPTER...: the texts that generate writes
  for prompt in "${prompts[@]}"; do
    "$piton" generate --load "$work/base" "$@" --prompt "$prompt" "${options[@]}" | sed 's/.*"text":\("[^"]*"\).*/\1/'
  done
}
texts_of >"$work/wanted.base"
texts_of --lora-load "$work/first" >"$work/wanted.first"
texts_of --lora-load "$work/second" >"$work/wanted.second"
[ "$(cat "$work"/wanted.* | sort -u | wc -l)" -ge 7 ] || fail "adapters change little: $(cat "$work"/wanted.*)"

# generate with a line for each adapter: base, first, second, base, ...
generated() { # OPTION...: from `launch`
  for prompt in "${prompts[@]}"; do
    echo "{\"prompt\":\"$prompt\"}" && echo "{\"prompt\":\"$prompt\",\"model\":\"first\"}"
    echo "{\"model\":\"second\",\"prompt\":\"$prompt\"}"
  done >"$work/mixed.jsonl"
  "$@" generate --load "$work/base" --prompts "$work/mixed.jsonl" --prompts-at-once 9 "${options[@]}" \
    --lora-modules first="$work/first" second="$work/second" "${layout[@]}" |
    sed 's/.*"text":\("[^"]*"\).*/\1/' >"$work/mixed"
  paste -d '\n' "$work/wanted.base" "$work/wanted.first" "$work/wanted.second" | cmp -s - "$work/mixed" ||
    fail "generate: $(cat "$work/mixed"), wanted $(cat "$work"/wanted.*)"
}
layout=() && generated "$piton"
layout=(--tensor-model-parallel-size 2) && generated "$launch" 2 "$piton"
layout=(--pipeline-model-parallel-size 2) && generated "$launch" 2 "$piton"

# All at the same time: the server computes them in common passes.
ask_all() {
  local jobs=()
  for name in base first second; do
    for i in "${!prompts[@]}"; do
      curl -sS --max-time 120 "$url/v1/completions" -o "$work/got.$name.$i" \
        -d "{\"model\":\"$name\",\"prompt\":\"${prompts[i]}\",\"temperature\":0,\"max_tokens\":12}" &
      jobs+=($!)
    done
  done
  wait "${jobs[@]}"
  for name in base first second; do
    for i in "${!prompts[@]}"; do
      sed 's/.*"text":\("[^"]*"\).*/\1/' "$work/got.$name.$i" && echo
    done >"$work/got.$name"
    cmp -s "$work/got.$name" "$work/wanted.$name" ||
      fail "$name: $(cat "$work/got.$name"), wanted $(cat "$work/wanted.$name")"
  done
}

serve=("$piton" serve --load "$work/base" --tokenizer-type ByteTokenizer --port 0 --threads 1
  --lora-modules first="$work/first" second="$work/second" --max-concurrent-requests 9)
start "${serve[@]}"
ask_all
ask_all # from the cache
ask 200 '"id":"base".*"id":"first".*"parent":"base".*"id":"second"' "$url/v1/models"
ask 404 'model: ..third.. is not here; this server has ..base.., ..first.., ..second' "$url/v1/completions" \
  -d '{"model":"third","prompt":"x"}'
ask 200 '"model":"first"' "$url/v1/embeddings" -d '{"model":"first","input":"x"}'
stop TERM 0

start "$launch" 2 "${serve[@]}" --tensor-model-parallel-size 2
ask_all
stop TERM 0
