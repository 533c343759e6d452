#!/usr/bin/env bash
# Trains a small model on recipes/chat for about two minutes (at most CHAT_MINUTES, 3), asks it questions in words that it has
# not seen, and counts the answers that are right, letter by letter. CHAT_STEPS: steps in place of those of the recipe.
#
#   tools/chat.sh [RUN]     run: folder of the run (runs/chat); PITON: the program (build/piton)
set -eu
piton=$(realpath "${PITON:-$(dirname "$0")/../build/piton}")
run=$(realpath -m "${1:-$(dirname "$0")/../runs/chat}")
cd "$(dirname "$0")/.."
rm -rf "$run"
mkdir -p "$run"
for part in train held_out; do
  "$piton" preprocess --quiet --input recipes/chat/$part.json* --handler-name AlpacaStyleInstructionHandler \
    --prompt-type default --tokenizer-type ByteTokenizer --output-prefix "$run/$part"
done
"$piton" pretrain recipes/chat.toml --train-data-path "$run/train" --valid-data-path "$run/held_out" \
  --save "$run/model" --exit-duration-in-mins "${CHAT_MINUTES:-3}" ${CHAT_STEPS:+--train-iters "$CHAT_STEPS" --lr-warmup-iters 0}
sed -E 's/.*"instruction": "([^"]*)".*/"Human: \1\\nAssistant:"/' recipes/chat/held_out.jsonl > "$run/questions.jsonl"
sed -E 's/.*"output": "([^"]*)".*/\1/' recipes/chat/held_out.jsonl > "$run/wanted.txt"
"$piton" generate --quiet --load "$run/model" --prompts "$run/questions.jsonl" --prompts-at-once 16 --greedy \
  --max-new-tokens 64 > "$run/answers.jsonl"
sed -E 's/.*"text": ?"([^"]*)".*/\1/' "$run/answers.jsonl" > "$run/answers.txt"
paste -d '\t' "$run/wanted.txt" "$run/answers.txt" |
  awk -F '\t' '{ sub(/^ +/, "", $2); right += $1 == $2 } END { printf "right: %d of %d\n", right, NR }'
echo "Talk with it: $piton chat --load $run/model --chat-template recipes/chat/template.jinja"
