# Command lines of the four documents: conversion, preprocessing, training, generation. `python SCRIPT.py` is `piton COMMAND`; paths
# and sizes are changed, and nothing else. `--type 7B` is of models of that size: it stays where the point is that it is checked.

set(tokenizer --tokenizer-type PretrainedFromHF --tokenizer-name-or-path llama-7b-hf --tokenizer-not-use-fast)

# ---- AscendSpeed's README ----

# "Prepare dataset", and again under "Dataset Processing" and "Preprocessing instruction dataset".
seed_line(asp-instructions
  RUN preprocess --input alpaca_data.json --output-prefix dataset/alpaca ${tokenizer} --handler-name GeneralInstructionHandler
  THEN RUNS SAYS "GeneralInstructionHandler .AscendSpeed's prompt.: 20 samples"
       MAKES dataset/alpaca_packed_input_ids_document.bin dataset/alpaca_packed_attention_mask_document.idx
             dataset/alpaca_packed_labels_document.bin)

# "Prepare pretrained weights".
seed_line(asp-weights-type
  RUN convert --input-model-dir llama-7b-hf --output-model-dir ckpt7 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --type 7B
  THEN REFUSED SAYS "--type: got 7B, but llama-7b-hf has 4 layers of width 64 with 4 heads; leave the flag out")
seed_line(asp-weights
  RUN convert --input-model-dir llama-7b-hf --output-model-dir ckpt --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1
  THEN RUNS SAYS "ckpt: mg from hf" "verified:" MAKES ckpt/release/mp_rank_00/model_optim_rng.pt ckpt/latest_checkpointed_iteration.txt)

# "Quick Start" of inference, and "Configuration of models and datasets".
seed_line(asp-weights-2-2
  RUN convert --input-model-dir llama-7b-hf --output-model-dir llama-7b-tp2-pp2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
  THEN RUNS MAKES llama-7b-tp2-pp2/release/mp_rank_01_001/model_optim_rng.pt)
seed_line(asp-weights-2-4
  RUN convert --input-model-dir llama-7b-hf --output-model-dir llama-7b-tp2-pp4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4
  THEN RUNS MAKES llama-7b-tp2-pp4/release/mp_rank_01_003/model_optim_rng.pt)

# tools/ckpt_convert/llama/convert_weights_when_tp_pp_change.py, with its own names of flags.
seed_line(asp-reshard
  RUN convert --input-model-dir llama-7b-tp2-pp4 --output-model-dir llama-7b-tp4 --orig-vocab-size 257 --make-vocab-size-divisible-by 128
      --src-tensor-model-parallel-size 2 --src-pipeline-model-parallel-size 4 --tgt-tensor-model-parallel-size 4
      --tgt-pipeline-model-parallel-size 1 --added-token-num 0
  THEN RUNS SAYS "llama-7b-tp4: mg from mg" MAKES llama-7b-tp4/release/mp_rank_03/model_optim_rng.pt)
seed_line(asp-reshard-of-another
  RUN convert --input-model-dir llama-7b-tp2-pp4 --output-model-dir x --src-tensor-model-parallel-size 8 --tgt-tensor-model-parallel-size 1
  THEN REFUSED SAYS "--src-tensor-model-parallel-size: got 8, but llama-7b-tp2-pp4 is of 2")
# The same converter's later flags, some with underscores.
seed_line(asp-weights-by-sizes
  RUN convert --input-model-dir llama-7b-hf --output-model-dir by-sizes --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2
      --num_layers 4 --num_heads 4 --num_kv_heads 4 --hidden_size 64 --merge-mlp
  THEN RUNS MAKES by-sizes/release/mp_rank_00_001/model_optim_rng.pt)
seed_line(asp-weights-by-other-sizes
  RUN convert --input-model-dir llama-7b-hf --output-model-dir x --tensor-model-parallel-size 1 --num_layers 32 --num_heads 4 --hidden_size 64
  THEN REFUSED SAYS "--num-layers: got 32, but the model of llama-7b-hf has 4")
seed_line(asp-weights-deepspeed
  RUN convert --input-model-dir llama-7b-hf --output-model-dir ds --tensor-model-parallel-size 1 --deepspeed
  THEN RUNS SAYS "ds: mg from hf" "verified:" MAKES ds/latest ds/release/mp_rank_00_model_states.pt)
seed_line(asp-weights-deepspeed-stages
  RUN convert --input-model-dir llama-7b-hf --output-model-dir x --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --deepspeed
  THEN REFUSED SAYS "--deepspeed: got 2 pipeline ranks, but only Bloom is divided into stages there")
# Bloom's converter: stages of different lengths.
seed_line(asp-partition-layers
  RUN convert --input-model-dir llama-7b-hf --output-model-dir uneven --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2
      --partition-layers 3,1
  THEN RUNS MAKES uneven/release/mp_rank_00_001/model_optim_rng.pt)

# "wikipedia dataset". There --input is ignored next to --hf-datasets-params; here one of them names the data.
seed_line(asp-wikipedia-twice
  RUN preprocess --input wikipedia --hf-datasets-params hf_config_json.json --output-prefix wikipedia_preprocessed/twice
      --dataset-impl mmap ${tokenizer} --streaming --workers 8
  THEN REFUSED SAYS "--input and --hf-datasets-params name different data" "use one of")
seed_line(asp-wikipedia
  RUN preprocess --hf-datasets-params hf_config_json.json --output-prefix wikipedia_preprocessed/wikipedia
      --dataset-impl mmap ${tokenizer} --streaming --workers 8
  THEN RUNS MAKES wikipedia_preprocessed/wikipedia_text_document.bin wikipedia_preprocessed/wikipedia_text_document.idx)
seed_line(asp-wikipedia-as-printed
  RUN preprocess --input wikipedia --hf-datasets-params hf_config_as_printed.json --output-prefix wikipedia_preprocessed/printed
      --dataset-impl mmap ${tokenizer} --streaming --workers 8
  THEN REFUSED SAYS "hf_config_as_printed.json")
# "alpaca dataset" for pretraining.
seed_line(asp-alpaca-text
  RUN preprocess --input alpaca_data.jsonl --output-prefix alpaca_preprocessed/alpaca ${tokenizer} --json-key text
  THEN RUNS MAKES alpaca_preprocessed/alpaca_text_document.bin)

# Training: the flags that the text names, on one script of LLaMA.
set(train pretrain --num-layers 4 --hidden-size 64 --ffn-hidden-size 176 --num-attention-heads 4
  --normalization RMSNorm --position-embedding-type rope --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
  --micro-batch-size 1 --global-batch-size 4 --seq-length 32 --max-position-embeddings 128 --train-iters 2 --lr 1.0e-6 --lr-decay-style cosine
  --attention-dropout 0.0 --hidden-dropout 0.0 --data-path wikipedia_preprocessed/wikipedia_text_document --split 100,0,0 ${tokenizer}
  --distributed-backend nccl --initial-loss-scale 65536.0 --clip-grad 1.0 --weight-decay 1e-1)
seed_line(asp-train
  RUN ${train} --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --optimizer adam --mlp-layer-fusion --triangle-attn
      --checkpoint-activations --use-distributed-optimizer --fp16 --save asp-train
  THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-fused-adam RUN ${train} --optimizer fused_adam THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-sequence-parallel
  LAUNCH 2 ${train} --tensor-model-parallel-size 2 --sequence-parallel THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-stages
  LAUNCH 2 ${train} --pipeline-model-parallel-size 2 THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-virtual-stages
  LAUNCH 2 ${train} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1
  THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-optimized-pipeline
  LAUNCH 2 ${train} --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8
      --optimized-pipeline --manual-mbs 1 2 3 2
  THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-optimized-pipeline-preset
  LAUNCH 2 ${train} --pipeline-model-parallel-size 2 --optimized-pipeline --manual-mbs example-config-1
  THEN REFUSED SAYS "--manual-mbs")
seed_line(asp-train-fold
  LAUNCH 2 ${train} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 --fold-mode aiao
  THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-policy RUN ${train} --checkpoint-policy block THEN RUNS)
seed_line(asp-train-lora
  RUN ${train} --load asp-train --save asp-lora --lora-target-modules query_key_value dense gate_proj up_proj down_proj --lora-r 64 --lora-alpha 128
      --lora-modules-to-save word_embeddings lm_head.lm_head --lora-register-forward-hook word_embeddings input_layernorm
  THEN RUNS SAYS "adapters: [0-9]+ parameters are trained" "iteration +2/ +2 ")
# --load ORIGIN_CHECKPOINT --lora-load LORA_CHECKPOINT.
seed_line(asp-train-lora-load
  RUN ${train} --load asp-train --lora-load asp-lora --save asp-lora --train-iters 3 --override-opt_param-scheduler
      --lora-target-modules query_key_value dense gate_proj up_proj down_proj --lora-r 64 --lora-alpha 128
      --lora-modules-to-save word_embeddings lm_head.lm_head --lora-register-forward-hook word_embeddings input_layernorm
  THEN RUNS SAYS "resumed asp-lora/iter_0000002" "iteration +3/ +3 ")
seed_line(asp-train-instructions
  RUN ${train} --data-path dataset/alpaca --is-instruction-dataset --seq-length 1024 --max-position-embeddings 1024
  THEN RUNS SAYS "iteration +2/ +2 ")

# pretrain_llama_7B_zero_8p.sh: DeepSpeed's flags and its configuration.
file(WRITE ${WORK}/ds_config.json "{\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true}, \"train_batch_size\": 4,
  \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2, \"steps_per_print\": 10}")
seed_line(asp-train-zero-deepspeed
  LAUNCH 2 ${train} --deepspeed --deepspeed_config ds_config.json --zero-stage 2 --no-pipeline-parallel --deepspeed-activation-checkpointing
  THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(asp-train-zero
  LAUNCH 2 ${train} --zero-stage 2 --no-pipeline-parallel --deepspeed-activation-checkpointing
  THEN RUNS SAYS "iteration +2/ +2 ")

# model.generate(input_ids="hello", do_sample=True, top_k=50, ...): the call's arguments as flags, on the weights that were converted.
seed_line(asp-generate-from-megatron
  RUN convert --load llama-7b-tp2-pp2 --save generated-from --to piton THEN RUNS SAYS "piton from mg")
seed_line(asp-generate
  RUN generate --load generated-from --prompt hello --top-k 50 --top-p 1.0 --temperature 1.0 --max-new-tokens 8 --seed 42
  THEN RUNS)
seed_line(asp-generate-layout
  LAUNCH 2 generate --load llama-7b-hf --prompt hello --greedy --max-new-tokens 4 --tensor-model-parallel-size 2 THEN RUNS)

# generate_llama_7B_tp2_pp2.sh; sizes and precision are those of the weights.
seed_line(asp-generate-2-2
  LAUNCH 4 generate --load generated-from --prompt hello --max-new-tokens 8 --seed 42 --tensor-model-parallel-size 2
           --pipeline-model-parallel-size 2
  THEN RUNS)
# generate_alpaca_13B_deepspeed.sh and generate_llama_7B_deepspeed_pipeline.sh: ZeRO shards the weights, with and without tensor ranks.
seed_line(asp-generate-deepspeed
  RUN generate --load generated-from --prompt hello --deepspeed --deepspeed_config ds_config.json
  THEN RUNS SAYS "--deepspeed, --deepspeed_config: no meaning here: --zero-stage 3 shards the weights")
seed_line(asp-generate-zero
  LAUNCH 2 generate --load generated-from --prompt hello --greedy --max-new-tokens 4 --zero-stage 3 THEN RUNS)
# "--max-new-token", as the text spells it.
seed_line(asp-generate-max-new-token
  RUN generate --load generated-from --prompt hello --greedy --max-new-token 4 THEN RUNS)

# ---- MindSpeed-LLM's walk-through ----

# The converter's example, which is LLaMA-2's of 32 layers: the list has to fit the model.
set(convert_ckpt convert --model-type GPT --load-model-type hf --save-model-type mg --target-tensor-parallel-size 1
  --target-pipeline-parallel-size 2 --model-type-hf llama2 --load-dir llama-7b-hf --tokenizer-model llama-7b-hf/tokenizer.model)
seed_line(msl-convert
  RUN ${convert_ckpt} --num-layer-list 2,2 --save-dir llama-2-7b-legacy
  THEN RUNS SAYS "--model-type-hf: no meaning here: read from the files" "--tokenizer-model: no meaning here"
  MAKES llama-2-7b-legacy/release/mp_rank_00_001/model_optim_rng.pt)
seed_line(msl-convert-of-another
  RUN ${convert_ckpt} --num-layer-list 16,16 --save-dir x
  THEN REFUSED SAYS "--num-layer-list: got 16,16, wanted 2 numbers .of --target-pipeline-parallel-size. with a sum of 4, the layers")
# examples/mcore/*/ckpt_convert_*_hf2mcore.sh and back.
seed_line(msl-convert-core
  RUN convert --use-mcore-models --model-type GPT --load-model-type hf --save-model-type mg --target-tensor-parallel-size 2
      --target-pipeline-parallel-size 1 --params-dtype bf16 --load-dir llama-7b-hf --save-dir core --tokenizer-model llama-7b-hf/tokenizer.json
      --model-type-hf llama2
  THEN RUNS MAKES core/release/mp_rank_01/model_optim_rng.pt)
seed_line(msl-convert-back
  RUN convert --use-mcore-models --model-type GPT --load-model-type mg --save-model-type hf --model-type-hf llama2
      --target-tensor-parallel-size 1 --target-pipeline-parallel-size 1 --load-dir core --save-dir back-as-there
  THEN RUNS SAYS "back-as-there: hf from mg")
# Those of newer scripts, of models with experts too; to files of ranks the last one would change the result.
set(of_newer --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --hf-cfg-dir ./origin_hf_cfg --expert-tensor-parallel-size 1
  --loader mg_mcore --saver mg_mcore --w-pack true --moe-grouped-gemm)
seed_line(msl-convert-back-newer
  RUN convert --use-mcore-models --model-type GPT --load-model-type mg --save-model-type hf ${of_newer} --load-dir core --save-dir back-newer
  THEN RUNS SAYS "back-newer: hf from mg" "--spec: no meaning here" "--hf-cfg-dir: no meaning here" "--moe-grouped-gemm: no meaning here"
  MAKES back-newer/config.json)
seed_line(msl-convert-grouped
  RUN ${convert_ckpt} --moe-grouped-gemm --save-dir x
  THEN REFUSED SAYS "--moe-grouped-gemm: files of ranks have each expert by itself")
seed_line(msl-convert-expert-ranks
  RUN ${convert_ckpt} --expert-tensor-parallel-size 2 --save-dir x
  THEN REFUSED SAYS "--expert-tensor-parallel-size: got 2, wanted 1")
seed_line(msl-convert-orm
  RUN ${convert_ckpt} --orm --save-dir x THEN REFUSED SAYS "--orm: heads of rewards are in folders of Hugging Face")
seed_line(msl-convert-back-divided
  RUN convert --model-type GPT --load-model-type mg --save-model-type hf --target-tensor-parallel-size 2 --load-dir core --save-dir x
  THEN REFUSED SAYS "--target-tensor-parallel-size: is for --save-model-type mg, and this writes hf, which any layout loads")
seed_line(msl-convert-back-without
  RUN convert --model-type GPT --load-model-type mg --save-model-type hf --load-dir core --save-dir back
  THEN RUNS SAYS "back: hf from mg" MAKES back/config.json)
# data_convert_*_pretrain.sh and *_instruction.sh.
seed_line(msl-data
  RUN preprocess --input alpaca_data.jsonl --tokenizer-name-or-path llama-7b-hf --output-prefix dataset/enwiki --workers 4 --log-interval 1000
      --tokenizer-type PretrainedFromHF --append-eod
  THEN RUNS MAKES dataset/enwiki_text_document.bin)
seed_line(msl-data-instructions
  RUN preprocess --input alpaca_data.json --tokenizer-name-or-path llama-7b-hf --output-prefix dataset/alpaca --workers 4 --log-interval 1000
      --tokenizer-type PretrainedFromHF --handler-name AlpacaStyleInstructionHandler --prompt-type qwen
  THEN REFUSED SAYS "--prompt-type qwen: the tokenizer .* has no token <.im_end.>, which ends a turn")
seed_line(msl-data-instructions-llama2
  RUN preprocess --input alpaca_data.json --tokenizer-name-or-path llama-7b-hf --output-prefix dataset/alpaca_llama2 --workers 4 --log-interval 1000
      --tokenizer-type PretrainedFromHF --handler-name AlpacaStyleInstructionHandler --prompt-type llama2
  THEN RUNS MAKES dataset/alpaca_llama2_packed_labels_document.bin)
# pretrain_qwen15_0point5b_ptd.sh: its settings, on a small Qwen.
seed_line(msl-train
  RUN pretrain --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32
      --micro-batch-size 1 --global-batch-size 4 --train-iters 2 --lr 1.25e-6 --min-lr 1.25e-7 --lr-decay-style cosine --lr-warmup-fraction 0.01
      --init-method-std 0.01 --weight-decay 1e-1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096
      --attention-dropout 0.0 --hidden-dropout 0.0 --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --use-mcore-models
      --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --tokenizer-type PretrainedFromHF --tokenizer-name-or-path llama-7b-hf
      --make-vocab-size-divisible-by 1 --padded-vocab-size 320 --disable-bias-linear --add-qkv-bias --rotary-base 1000000 --normalization RMSNorm
      --norm-epsilon 1e-6 --swiglu --position-embedding-type rope --use-fused-rmsnorm --use-fused-swiglu --use-rotary-position-embeddings
      --use-fused-rotary-pos-emb --use-flash-attn --use-distributed-optimizer --no-load-optim --no-load-rng --no-masked-softmax-fusion
      --untie-embeddings-and-output-weights --bf16 --data-path dataset/enwiki_text_document --split 100,0,0 --log-interval 1 --save-interval 2000
      --eval-interval 2000 --eval-iters 0 --save qwen15 --distributed-backend nccl
  THEN RUNS SAYS "iteration +2/ +2 ")
# tune_*.sh: the same settings on instructions, whole or with LoRA.
set(tune pretrain --load qwen15 --finetune --data-path dataset/alpaca_llama2 --train-iters 2 --seq-length 32 ${tokenizer})
seed_line(msl-tune
  RUN ${tune} --stage sft --is-instruction-dataset --prompt-type llama2 --variable-seq-lengths THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(msl-tune-lora
  RUN ${tune} --is-instruction-dataset --lora-r 16 --lora-alpha 32 --lora-target-modules linear_qkv linear_proj
  THEN RUNS SAYS "adapters: [0-9]+ parameters are trained" "iteration +2/ +2 ")
seed_line(msl-tune-lora-fusion
  RUN ${tune} --is-instruction-dataset --lora-r 16 --lora-alpha 32 --lora-fusion --lora-target-modules linear_qkv linear_proj
  THEN RUNS SAYS "adapters: [0-9]+ parameters are trained" "iteration +2/ +2 ")
# The adapter that convert_ckpt.py merges.
seed_line(msl-tune-for-convert
  RUN pretrain --load llama-7b-hf --data-path dataset/alpaca_llama2 --is-instruction-dataset --train-iters 2 --seq-length 64 ${tokenizer}
      --lora-r 16 --lora-alpha 32 --lora-target-modules query_key_value dense --save lora
  THEN RUNS)
# generate_alpaca_13B_lora_deepspeed.sh.
seed_line(asp-generate-lora
  RUN generate --load generated-from --prompt hello --lora-load lora --lora-r 16 --lora-alpha 32 --lora-target-modules query_key_value
  THEN RUNS SAYS "--lora-r, --lora-alpha, --lora-target-modules: no meaning here: read from the files of --lora-load")
seed_line(msl-convert-lora
  RUN ${convert_ckpt} --save-dir merged --lora-load lora --lora-r 16 --lora-alpha 32 --lora-target-modules query_key_value dense
  THEN RUNS SAYS "verified: ")
seed_line(msl-generate-merged
  RUN generate --load merged ${tokenizer} --prompt hello --max-new-tokens 8 --greedy THEN RUNS)
# The whole model: tuned, saved, resumed, converted, and used.
set(sft --stage sft --is-instruction-dataset --prompt-type llama2)
seed_line(msl-tune-save
  RUN ${tune} ${sft} --save tuned THEN RUNS SAYS "saved tuned/iter_0000002")
seed_line(msl-tune-go-on
  RUN pretrain --load tuned --save tuned --data-path dataset/alpaca_llama2 --train-iters 3 --seq-length 32 ${tokenizer} ${sft}
      --override-opt_param-scheduler
  THEN RUNS SAYS "resumed tuned/iter_0000002" "iteration +3/ +3 ")
# The same with the flags of ckpt_convert_*_mcore2hf.sh.
seed_line(msl-tuned-back-as-there
  RUN convert --use-mcore-models --model-type GPT --save-model-type hf --target-tensor-parallel-size 1 --target-pipeline-parallel-size 1
      --load-dir tuned --save-dir tuned-as-there
  THEN RUNS SAYS "tuned-as-there: hf from piton")
seed_line(msl-tuned-back
  RUN convert --load-dir tuned --save-model-type hf --save-dir tuned-hf THEN RUNS SAYS "tuned-hf: hf from piton" "verified: ")
seed_line(msl-generate-tuned
  RUN generate --load tuned-hf --prompt hello --max-new-tokens 8 --greedy THEN RUNS)
seed_line(msl-generate
  RUN generate --load qwen15 --prompt hello --max-new-tokens 8 --greedy THEN RUNS)
# generate_qwen3_14b_ptd.sh and its like, with the sizes of the model: all flags but those of torchrun.
set(of_qwen --use-mcore-models --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --load qwen15
  --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --kv-channels 128 --qk-layernorm --num-layers 2 --hidden-size 64
  --use-rotary-position-embeddings --untie-embeddings-and-output-weights --num-attention-heads 4 --ffn-hidden-size 128
  --max-position-embeddings 40960 --seq-length 4096 --make-vocab-size-divisible-by 1 --padded-vocab-size 320 --rotary-base 1000000
  --micro-batch-size 1 --disable-bias-linear --swiglu --tokenizer-type PretrainedFromHF --tokenizer-name-or-path llama-7b-hf
  --normalization RMSNorm --position-embedding-type rope --norm-epsilon 1e-6 --hidden-dropout 0 --attention-dropout 0 --max-new-tokens 4
  --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --exit-on-missing-checkpoint --no-masked-softmax-fusion
  --group-query-attention --seed 42 --bf16 --use-kv-cache --use-flash-attn --use-fused-swiglu --use-fused-rmsnorm
  --use-fused-rotary-pos-emb --log-interval 1)
seed_line(msl-generate-script
  RUN generate ${of_qwen} --prompt hello --task greedy --history-turns 3 --moe-grouped-gemm --n-group 1
  THEN RUNS SAYS "--kv-channels, --qk-layernorm[^\n]*: no meaning here: read from the model's files" "--log-interval: no meaning here")
seed_line(msl-generate-other-sizes
  RUN generate ${of_qwen} --prompt hello --num-layers 40
  THEN REFUSED SAYS "--num-layers: got 40, but the model of qwen15 has 2; leave the flag out")
seed_line(msl-generate-chat
  RUN generate ${of_qwen} --task chat --hf-chat-template
  THEN REFUSED SAYS "--task: got .chat., wanted greedy or 1, or do_sample or 2" "--hf-chat-template: piton chat asks by a chat template")
# chat_*_ptd.sh.
seed_line(msl-chat-script
  RUN chat ${of_qwen} --task chat --hf-chat-template --history-turns 3 --top-p 0.9 --temperature 0.6
  THEN REFUSED SAYS "--load: qwen15 has no chat template; give --chat-template FILE")
seed_line(msl-chat-script-type
  RUN chat ${of_qwen} --task chat --inference-prompt-type llama2 --history-turns 3
  THEN RUNS SAYS "--use-kv-cache: no meaning here")
seed_line(msl-chat RUN chat --load qwen15 THEN REFUSED SAYS "--load: qwen15 has no chat template; give --chat-template FILE")

# "Evaluation with Benchmarks", at its start and under "Configuration of evaluation parameters": --seq-length 512.
set(evaluation eval --task-data-path dataset/boolq/test --task boolq --seq-length 512 --max-new-tokens 1 --max-position-embeddings 512
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
set(of_llama --hidden-size 64 --ffn-hidden-size 176 --load llama-7b-tp2-pp2 --num-attention-heads 4 ${tokenizer} --fp16
  --micro-batch-size 1 --seed 42)
seed_line(asp-eval-boolq
  LAUNCH 4 ${evaluation} --num-layers 4 ${of_llama}
  THEN RUNS SAYS "boolq.lm-eval.none.0.acc" "--seed: no meaning here: answers are greedy")
seed_line(asp-eval-boolq-as-there
  LAUNCH 4 ${evaluation} --num-layers 4 ${of_llama} --protocol mindspeed THEN RUNS SAYS "boolq.mindspeed.none.0.acc")
seed_line(asp-eval-other-sizes
  LAUNCH 4 ${evaluation} --num-layers 32 ${of_llama}
  THEN REFUSED SAYS "--num-layers: got 32, but the model of llama-7b-tp2-pp2 has 4")

# ---- Megatron-LM on Ascend ----

# dataset_preprocess_t5.sh.
seed_line(meg-t5
  RUN preprocess --input text/AA/wiki_00 --output-prefix my-t5 --vocab-file bert-large-uncased-vocab.txt --dataset-impl mmap
      --tokenizer-type BertWordPieceLowerCase --split-sentences --workers 4
  THEN RUNS MAKES my-t5_text_sentence.bin my-t5_text_sentence.idx)
# What these files are for: Megatron-LM's pretrain_t5_distributed.sh, _with_mp.sh and with stages; pretrain_bert_distributed.sh.
set(words --data-path my-t5_text_sentence --vocab-file bert-large-uncased-vocab.txt --split 949,50,1 --distributed-backend nccl
  --num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --global-batch-size 2 --max-position-embeddings 64
  --train-iters 2 --lr-decay-iters 2 --lr 0.0001 --min-lr 0.00001 --lr-decay-style linear --lr-warmup-fraction .01
  --weight-decay 1e-2 --clip-grad 1.0 --log-interval 1 --save-interval 10000 --eval-interval 1000 --eval-iters 1 --fp16)
set(t5 pretrain --model-family t5 ${words} --kv-channels 16 --ffn-hidden-size 128 --encoder-seq-length 64 --decoder-seq-length 32
  --vocab-extra-ids 100)
seed_line(meg-t5-train RUN ${t5} --save t5 --load t5 THEN RUNS SAYS "iteration +2/ +2 " "validation loss")
seed_line(meg-t5-train-mp LAUNCH 2 ${t5} --tensor-model-parallel-size 2 --load t5 --finetune --save t5-mp THEN RUNS SAYS "iteration +2/ +2 ")
seed_line(meg-t5-train-stages
  LAUNCH 2 ${t5} --pipeline-model-parallel-size 2 --pipeline-model-parallel-split-rank 1 --load t5 --finetune --save t5-stages
  THEN RUNS SAYS "iteration +2/ +2 ")
set(bert pretrain --model-family bert ${words} --seq-length 64)
seed_line(meg-bert-train RUN ${bert} --save bert --load bert THEN RUNS SAYS "iteration +2/ +2 " "sop loss")
seed_line(meg-bert-train-mp
  LAUNCH 4 ${bert} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --load bert --finetune --save bert-mp
  THEN RUNS SAYS "iteration +2/ +2 ")
# pretrain_gpt_distributed.sh, and with the large kernels: pretrain_gpt_distributed_bf16.sh --pre=2048 --next=0 --shape_order=SBH.
set(gpt pretrain --num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --global-batch-size 2 --seq-length 32
  --max-position-embeddings 32 --train-iters 2 --lr-decay-iters 2 --data-path dataset/enwiki_text_document ${tokenizer} --split 949,50,1
  --distributed-backend nccl --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0
  --lr-warmup-fraction .01 --log-interval 1 --eval-iters 0 --no-gradient-accumulation-fusion)
seed_line(meg-gpt RUN ${gpt} --save checkpoint THEN RUNS SAYS "iteration +2/ +2 ")
# The eight lines with large kernels: pre, next; fp16 and bf16; both orders of dims.
foreach(type fp16 bf16)
  foreach(window 65536 2048)
    set(next 65536)
    if(window EQUAL 2048)
      set(next 0)
    endif()
    foreach(order SBH BSH)
      seed_line(meg-gpt-${type}-${window}-${order}
        ENV CUDA_DEVICE_MAX_CONNECTIONS=1
        RUN ${gpt} --${type} --use-flash-attn --pre-tockens ${window} --next-tockens ${next} --shape-order ${order}
        THEN RUNS SAYS "iteration +2/ +2 " "--shape-order: no meaning here" "environment: ignored here: CUDA_DEVICE_MAX_CONNECTIONS")
    endforeach()
  endforeach()
endforeach()

# ---- MindSpeed's communication over computation: its three ways to switch it ----

set(split ${train} --tensor-model-parallel-size 2 --sequence-parallel)
seed_line(coc-off
  ENV COC_PARALLEL_NUM=1 USE_COC_FUSED_KERNEL=0 LAUNCH 2 ${split} THEN RUNS SAYS "iteration +2/ +2 ")
foreach(slices 2 4 8)
  seed_line(coc-${slices}
    ENV COC_PARALLEL_NUM=${slices} USE_COC_FUSED_KERNEL=0 LAUNCH 2 ${split}
    THEN RUNS SAYS "environment: COC_PARALLEL_NUM=${slices}: --num-slices ${slices}" "options of the environment: num-slices = ${slices}")
endforeach()
seed_line(coc-fused
  ENV USE_COC_FUSED_KERNEL=1 LAUNCH 2 ${split} THEN RUNS SAYS "environment: USE_COC_FUSED_KERNEL=1: --fused-linears" "options of the environment: fused-linears = true")
seed_line(coc-three
  ENV COC_PARALLEL_NUM=3 LAUNCH 2 ${split} THEN REFUSED SAYS "environment: COC_PARALLEL_NUM: got \"3\", wanted 1, 2, 4, 8")
