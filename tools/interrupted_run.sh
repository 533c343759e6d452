#!/usr/bin/env bash
# tools/interrupted_run.sh WORK TOKENIZER ITERATIONS TEXT...   [PITON=build/piton OPTIONS="..."]
# Trains GPT-2 124M on TEXT twice: whole, and interrupted five times (SIGTERM, SIGKILL, SIGINT) and resumed.
# Fails unless both end with the same weights and optimizer state; WORK/report.html shows both runs.
set -eu
work=$1 tokenizer=$2 iterations=$3
shift 3
piton=${PITON:-build/piton}
read -r -a more <<<"${OPTIONS:-}"
mkdir -p "$work"
[ -e "$work/text_text_document.bin" ] ||
  "$piton" preprocess --quiet --input "$@" --tokenizer-name-or-path "$tokenizer" --append-eod --output-prefix "$work/text"

train() {  # folder
  "$piton" pretrain --model gpt2-124m --bf16 --tokenizer-name-or-path "$tokenizer" --data-path "$work/text_text_document" \
    --split 98,2,0 --seq-length 256 --micro-batch-size 4 --global-batch-size 4 --train-iters "$iterations" \
    --lr 6e-4 --min-lr 6e-5 --lr-decay-style cosine --lr-warmup-iters $((iterations / 20)) --log-interval 10 \
    --eval-interval $((iterations / 8)) --eval-iters 8 --save-interval $((iterations / 10)) --keep 2 \
    "${more[@]}" --save "$work/$1" --load "$work/$1" >>"$work/$1.log" 2>&1
}

iteration() {  # the last one that folder $1 has recorded
  tail -n 1 "$work/$1/metrics.jsonl" 2>/dev/null | sed -n 's/.*"iteration": *\([0-9]*\).*/\1/p' | grep . || echo 0
}

rm -rf "$work/whole" "$work/interrupted" "$work"/*.log
train whole
part=0
for signal in TERM KILL INT KILL TERM; do
  part=$((part + 1))
  at=$((iterations * part / 6 + RANDOM % (iterations / 12 + 1)))
  train interrupted &
  run=$!
  while [ "$(iteration interrupted)" -lt "$at" ] && kill -0 $run 2>/dev/null; do sleep 0.2; done
  # The function runs in a separate shell, whose only child is the program.
  pkill -$signal -P $run || true
  code=0
  wait $run || code=$?
  echo "iteration $(iteration interrupted): SIG$signal, exit code $code"
done
train interrupted
"$piton" report "$work/whole" "$work/interrupted" --output "$work/report.html"
"$piton" inspect --hash "$work/whole" >"$work/whole.hash"
"$piton" inspect --hash "$work/interrupted" >"$work/interrupted.hash"
diff "$work/whole.hash" "$work/interrupted.hash"
echo "the same weights and optimizer state:"
cat "$work/whole.hash"
