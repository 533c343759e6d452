#!/usr/bin/env bash
# make demo: prepares a bundled text, trains a small model on it for three minutes at most, and writes
# with it.
set -eu
cd "$(dirname "$0")/.."
piton=build/piton
run=runs/demo
rm -rf "$run"
mkdir -p "$run"
for part in train held_out; do
  "$piton" preprocess --quiet --input "recipes/demo/shakespeare_$part.txt.gz" --sample-by document \
    --tokenizer-type ByteTokenizer --output-prefix "$run/$part"
done
"$piton" pretrain recipes/demo.toml --train-data-path "$run/train_text_document" \
  --valid-data-path "$run/held_out_text_document" --save "$run/model" --exit-duration-in-mins "${DEMO_MINUTES:-3}"
echo
"$piton" inspect "$run/model" --loss
echo
"$piton" generate --quiet --load "$run/model" --prompt "ROMEO:" --max-new-tokens 240 --temperature 0.8 --top-k 40 --stream
echo
echo "Trained model: $run/model. Continue with"
echo "  $piton generate --load $run/model --prompt \"JULIET:\" --stream"
echo "  $piton score --load $run/model README.md"
echo "  $piton inspect $run/model"
