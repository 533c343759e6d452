# The rules of layout and model: for each one a command line that keeps it and one that breaks it.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../support/rule.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
make_rules_corpus()

# ---- Layout ----
set(t --tensor-model-parallel-size)
set(p --pipeline-model-parallel-size)
rule(ranks RANKS 2 ACCEPTS ${t} 2 REJECTS ${t} 3 SAYS "mesh: 2 processes cannot form tensor 3 x pipeline 1")
rule(tensor PLAN ACCEPTS ${t} 1 REJECTS ${t} 0 SAYS "--tensor-model-parallel-size is 0, wanted at least 1")
rule(pipeline PLAN ACCEPTS ${p} 2 REJECTS ${p} -1 SAYS "--pipeline-model-parallel-size is -1, wanted at least 1")
rule(heads RANKS 2 ACCEPTS ${t} 2 --num-attention-heads 2
     REJECTS ${t} 2 --num-attention-heads 1 SAYS "layout: 1 attention heads cannot be split over 2 tensor ranks; change --num-attention-heads")
rule(groups RANKS 2 ACCEPTS ${t} 2 --num-query-groups 2
     REJECTS ${t} 2 --num-query-groups 1 SAYS "layout: 1 query groups cannot be split over 2 tensor ranks; change --num-query-groups")
rule(ffn RANKS 2 ACCEPTS ${t} 2 --ffn-hidden-size 34
     REJECTS ${t} 2 --ffn-hidden-size 33 SAYS "layout: 33 columns of the MLP cannot be split over 2 tensor ranks; change --ffn-hidden-size")
rule(layers RANKS 2 ACCEPTS ${p} 2 --num-layers 3
     REJECTS ${p} 2 --num-layers 1 SAYS "layout: 1 layers cannot fill 2 pipeline stages; change --num-layers")
rule(heads-of-a-plan PLAN ACCEPTS ${t} 4 REJECTS ${t} 3 SAYS "layout: 4 attention heads cannot be split over 3")
rule(vocabulary PLAN ACCEPTS ${t} 2 --pad-vocab-size-to 66
     REJECTS ${t} 2 --pad-vocab-size-to 67 SAYS "--padded-vocab-size .--pad-vocab-size-to. cannot be split: got 67, wanted a multiple of the 2")
rule(vocabulary-too-small PLAN ACCEPTS --pad-vocab-size-to 64 REJECTS --pad-vocab-size-to 60 SAYS "--pad-vocab-size-to")
rule(sequence-parallel RANKS 2 ACCEPTS ${t} 2 --sequence-parallel
     REJECTS ${t} 2 --sequence-parallel --seq-length 15 SAYS "--sequence-parallel: 15 tokens of a micro-batch cannot be split over 2")
rule(sequence-parallel-alone PLAN ACCEPTS --sequence-parallel)
rule(distributed-inputs PLAN ACCEPTS ${t} 2 --recompute-granularity full --distribute-saved-activations
     REJECTS --recompute-granularity full --distribute-saved-activations SAYS "--distribute-saved-activations: needs --tensor")
rule(distributed-inputs-of-none PLAN REJECTS ${t} 2 --distribute-saved-activations SAYS "needs --recompute-granularity full")
rule(zero PLAN ACCEPTS --zero-stage 3 --world-size 2 REJECTS --zero-stage 4 SAYS "--zero-stage is 4, wanted 0, 1, 2 or 3")
rule(slices PLAN ACCEPTS --num-slices 2 REJECTS --num-slices 3 SAYS "--num-slices: got 3, wanted 1, 2, 4 or 8")
rule(slices-of-a-shape PLAN ACCEPTS --customized-coc "{\"[16384, 5120, 1920]\": 8}"
  REJECTS --customized-coc "{\"[16384, 5120]\": 8}" SAYS "--customized-coc: a shape: got \"\\[16384, 5120\\]\", wanted")
rule(coc-mode PLAN ACCEPTS --coc-mode 2 REJECTS --coc-mode 3 SAYS "--coc-mode: got 3, wanted -1, 0, 1 or 2")
rule(fused-column-backward PLAN ACCEPTS --fused-linears --enable-coc-in-column-backward
  REJECTS --enable-coc-in-column-backward SAYS "--enable-coc-in-column-backward: needs --fused-linears")
rule(list-of-stages PLAN ACCEPTS ${p} 2 --recompute-granularity full --recompute-method custom --recomputation-layer-num 1 0
     REJECTS ${p} 2 --recompute-granularity full --recompute-method custom --recomputation-layer-num 1
     SAYS "--recomputation-layer-num: got 1 numbers, wanted 2")
rule(recomputed-layers PLAN ACCEPTS ${p} 2 --recompute-granularity full --recompute-num-layers 1
     REJECTS ${p} 2 --recompute-granularity full --recompute-num-layers 2 SAYS "--recompute-num-layers .of a stage.: got 2, wanted 1 to 1")
rule(virtual-stages PLAN ACCEPTS ${p} 2 --num-layers 4 --global-batch-size 2 --num-layers-per-virtual-pipeline-stage 1
     REJECTS ${p} 2 --num-layers 4 --num-layers-per-virtual-pipeline-stage 3 SAYS "--num-layers-per-virtual-pipeline-stage")

# ---- Model ----
foreach(flag num-layers hidden-size num-attention-heads ffn-hidden-size num-query-groups vocab-size max-position-embeddings kv-channels)
  rule(${flag} PLAN REJECTS --${flag} 0 SAYS "--${flag}: got 0, wanted 1 to")
  rule(${flag}-negative PLAN REJECTS --${flag} -2 SAYS "--${flag}: got -2, wanted 1 to")
endforeach()
rule(head-size PLAN ACCEPTS --num-attention-heads 8
     REJECTS --num-attention-heads 3 SAYS "--num-attention-heads: got 3, wanted a divisor of --hidden-size, which is 32 .or give --kv-channels.")
rule(head-size-given PLAN ACCEPTS --num-attention-heads 3 --kv-channels 8
     REJECTS --num-attention-heads 3 --kv-channels 7 --position-embedding-type rope SAYS "--kv-channels: got 7, wanted an even number")
rule(groups-of-heads PLAN ACCEPTS --num-query-groups 2 REJECTS --num-query-groups 3 SAYS "--num-query-groups: got 3, wanted a divisor of")
rule(positions PLAN ACCEPTS --seq-length 16 REJECTS --seq-length 17 SAYS "--seq-length: got 17, wanted at most --max-position-embeddings")
rule(two-names-of-a-length PLAN ACCEPTS --encoder-seq-length 8
     REJECTS --seq-length 16 --encoder-seq-length 8 SAYS "--seq-length and --encoder-seq-length: two names of one option, got 16 and 8; give one")
rule(decoder-length PLAN REJECTS --decoder-seq-length 8 SAYS "--decoder-seq-length: is for --model-family t5")
rule(sixteen-bits PLAN ACCEPTS --bf16 REJECTS --bf16 --fp16 SAYS "--fp16: contradicts --bf16")
rule(float8 PLAN ACCEPTS --bf16 --fp8-format hybrid --fp8-recipe blockwise --first-last-layers-bf16 --num-layers-at-end-in-bf16 0
     REJECTS --fp16 --fp8-format hybrid SAYS "--fp8-format hybrid: the other numbers are fp16, wanted bf16; give --bf16")
rule(float8-of-fp32 PLAN REJECTS --fp8-format e4m3 SAYS "--fp8-format e4m3: the other numbers are fp32, wanted bf16; give --bf16")
rule(float8-recipe PLAN REJECTS --bf16 --fp8-format e4m3 --fp8-recipe delayed
     SAYS "--fp8-recipe: got .delayed., wanted one of tensorwise, blockwise")
rule(float8-without-format PLAN REJECTS --bf16 --fp8-recipe blockwise SAYS "--fp8-recipe: needs --fp8-format")
rule(float8-of-experts PLAN REJECTS --model mixtral-tiny --bf16 --fp8-format e4m3 SAYS "--fp8-format e4m3: the products of experts are in bf16")
rule(layers-in-bf16 PLAN REJECTS --bf16 --fp8-format e4m3 --num-layers-at-start-in-bf16 1
     SAYS "--num-layers-at-start-in-bf16: needs --first-last-layers-bf16")
rule(too-many-layers-in-bf16 PLAN REJECTS --bf16 --fp8-format e4m3 --first-last-layers-bf16 --num-layers-at-start-in-bf16 3
     SAYS "--num-layers-at-start-in-bf16: got 3, wanted 0 to 2, the layers of the model")
rule(wide-residual PLAN ACCEPTS --bf16 --fp32-residual-connection
     REJECTS --fp32-residual-connection SAYS "--fp32-residual-connection: all is in fp32 without --bf16 or --fp16")
rule(wide-residual-of-encoders PLAN ACCEPTS --model bert-tiny --bf16 --fp32-residual-connection
     REJECTS --model bert-tiny --bf16 --fp32-residual-connection --apply-residual-connection-post-layernorm
     SAYS "--fp32-residual-connection: widens the sum of all branches")
rule(prefix PLAN REJECTS --sparse-mode 5 SAYS "--sparse-mode: mode 5 is for prompts, which running text does not have")
rule(documents PLAN ACCEPTS --sparse-mode 8 --reset-attention-mask
     REJECTS --sparse-mode 7 SAYS "--sparse-mode: mode 7 is causal within each document, and rows are not divided")
rule(mask-of-none PLAN REJECTS --sparse-mode 9 SAYS "--sparse-mode: got 9, wanted 0 to 8")
rule(bias PLAN ACCEPTS --position-embedding-type alibi --alibi-fusion-attn-type 3
     REJECTS --position-embedding-type alibi --alibi-fusion-attn-type 1 SAYS "--alibi-fusion-attn-type: got 1, wanted 0, 2 or 3")
rule(short-loss PLAN ACCEPTS --fp16 --fp16-lm-cross-entropy)
rule(tied PLAN ACCEPTS --untie-embeddings-and-output-weights
     REJECTS --untie-embeddings-and-output-weights --tie-embeddings-and-output-weights SAYS "contradicts")
rule(epsilon-and-deviation PLAN ACCEPTS --norm-epsilon 1e-6 --init-method-std 0)
foreach(value 0 -1e-5 nan inf 1e-320 1e300)
  rule(epsilon-${value} PLAN REJECTS --norm-epsilon ${value} SAYS "--norm-epsilon: got [^,]*, wanted (a number above 0, 1e-30 to 1e.30|number)")
endforeach()
foreach(value -1 nan inf 1e-320 1e300)
  rule(deviation-${value} PLAN REJECTS --init-method-std ${value} SAYS "--init-method-std: got [^,]*, wanted (0 or more|0, or 1e-30 or more|number)")
endforeach()
foreach(value -0.1 1 nan)
  rule(hidden-dropout-${value} PLAN REJECTS --hidden-dropout ${value} SAYS "--hidden-dropout: got [^,]*, wanted (0 <= p < 1|number)")
  rule(attention-dropout-${value} PLAN REJECTS --attention-dropout ${value} SAYS "--attention-dropout: got [^,]*, wanted (0 <= p < 1|number)")
endforeach()
rule(normalization PLAN ACCEPTS --normalization RMSNorm REJECTS --normalization BatchNorm SAYS "--normalization: got .BatchNorm.")
rule(window PLAN ACCEPTS --pre-tockens 4 --next-tockens 0 REJECTS --pre-tockens -1 SAYS "--pre-tockens: got -1, wanted 0 or more")
rule(window-empty PLAN REJECTS --pre-tockens 2 --next-tockens -3 SAYS "the window ends before it begins")
rule(triangle PLAN ACCEPTS --triangle-attn REJECTS --triangle-attn --use-flash-attn SAYS "--triangle-attn: cannot be combined with --use-flash-attn")
rule(unknown PLAN REJECTS --num-layer 2 SAYS "--num-layer: unknown option, did you mean --num-layers")
rule(not-a-number PLAN REJECTS --num-layers two SAYS "--num-layers: got .two., wanted integer")
rule(older-names PLAN ACCEPTS --batch-size 1 --model-parallel-size 1 --warmup 0.1 --checkpoint-activations
     REJECTS --batch-size 0 SAYS "--batch-size: got 0, wanted 1 to")
rule(layer-allocation PLAN ACCEPTS ${p} 2 --use-manual-layer-allocation --manual-layers 1,1
     REJECTS --use-manual-layer-allocation --manual-layers 1,1 SAYS "--manual-layers: got .1,1., wanted 1 positive numbers")
rule(later-tokens PLAN ACCEPTS --mtp-num-layers 2 --mtp-loss-scaling-factor 0.3
     REJECTS --mtp-num-layers 9 SAYS "--mtp-num-layers: got 9, wanted 0 to 8")
rule(later-tokens-factor PLAN REJECTS --mtp-num-layers 1 --mtp-loss-scaling-factor -1 SAYS "--mtp-loss-scaling-factor: got -1, wanted 0 or more")
rule(later-tokens-norm PLAN REJECTS --mtp-num-layers 1 --embed-layernorm SAYS "--mtp-num-layers: is not for a model with --embed-layernorm")
rule(later-tokens-lora PLAN REJECTS --mtp-num-layers 1 --lora-target-modules query SAYS "--mtp-num-layers: later tokens are predicted in pretraining")
