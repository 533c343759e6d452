# Models with layers of Mamba-2, and with short convolutions: trained by Megatron's flags on one and two ranks, continued, written for Hugging Face and
# read back, used; tuned with adapters; and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(sizes --model-family llama --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 --num-query-groups 2
  --position-embedding-type none --max-position-embeddings 128 --mamba-head-dim 8 --mamba-state-dim 16)
set(flags --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document --seq-length 32 --split 90,10,0
  --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --eval-interval 3 --eval-iters 2)

# Megatron counts letters; M-M*-M- are four layers, the first and the last but one of them on the first of two stages.
set(bare pretrain ${sizes} --num-layers 7 --hybrid-override-pattern M-M*-M- --mamba-num-groups 1 ${flags})
run_on(1 one --train-iters 6)
set(one "${LOSSES}")
run_on(2 tensor --train-iters 6 --tensor-model-parallel-size 2 --sequence-parallel)
expect_losses("tensor ranks" "${one}" "${LOSSES}")
run_on(2 stages --train-iters 6 --pipeline-model-parallel-size 2)
expect_losses("stages" "${one}" "${LOSSES}")
run_on(2 context --train-iters 6 --context-parallel-size 2)
expect_losses("context ranks" "${one}" "${LOSSES}")
run_on(2 parts --train-iters 3 --lr-decay-iters 6 --tensor-model-parallel-size 2)
run_on(1 parts --train-iters 6 --load ${WORK}/parts)
expect_losses("two ranks, then one" "${one}" "${LOSSES}")

# Shares of letters; with 8 of them MM-*M*-- in Megatron's order.
expect(RUN pretrain ${sizes} --is-hybrid-model --hybrid-attention-ratio 0.25 --hybrid-mlp-ratio 0.5 --num-layers 8
  --mamba-num-groups 2 ${flags} --train-iters 3 --save ${WORK}/shares CODE 0 OUT "model: [0-9]+ parameters, 5 layers")
expect(RUN inspect ${WORK}/shares CODE 0 OUT "layers.0.mamba.query.weight" "layers.4.mlp.up.weight")
expect(RUN convert --load ${WORK}/shares --save ${WORK}/shares-hf --to hf CODE 3 ERR "cannot be")

# Short convolutions, with experts after the first layer.
set(bare pretrain --model-family lfm2_moe --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 --num-query-groups 2
  --max-position-embeddings 128 --hybrid-override-pattern C-*ECE --num-experts 4 --moe-ffn-hidden-size 24
  --short-conv-kernel-dim 4 --short-conv-bias ${flags})
run_on(1 short --train-iters 6)
set(short "${LOSSES}")
run_on(2 short-tensor --train-iters 6 --tensor-model-parallel-size 2 --sequence-parallel)
expect_losses("short convolutions on tensor ranks" "${short}" "${LOSSES}")
run_on(2 short-context --train-iters 6 --context-parallel-size 2)
expect_losses("short convolutions on context ranks" "${short}" "${LOSSES}")
expect(RUN inspect ${WORK}/short CODE 0 OUT "layers.0.short_conv.filter_bias" "layers.2.mlp.experts.3.up.weight")
expect(RUN convert --load ${WORK}/short --save ${WORK}/short-hf --to hf CODE 0 OUT "verified: [^\n]* equal to the bit")
expect(RUN inspect ${WORK}/short-hf CODE 0 OUT "model.layers.0.conv.in_proj.bias" "model.layers.1.feed_forward.expert_bias")
expect(RUN generate --load ${WORK}/short-hf --prompt "The " --greedy --max-new-tokens 8 CODE 0)
expect(RUN convert --load ${WORK}/short --save ${WORK}/none --to mg --use-mcore-models CODE 3 ERR "short convolutions cannot be expressed in the format mg")

# Folders of Hugging Face, and texts that continue.
expect(RUN pretrain ${sizes} --hybrid-override-pattern M-*-M- --mamba-num-groups 1 ${flags} --train-iters 3
  --save ${WORK}/granite CODE 0)
expect(RUN convert --load ${WORK}/granite --save ${WORK}/granite-hf --to hf CODE 0 OUT "granite-hf: hf from piton" "verified: [^\n]* equal to the bit")
expect(RUN inspect ${WORK}/granite-hf CODE 0 OUT "model.layers.0.mamba.conv1d.bias" "model.layers.1.self_attn.q_proj.weight")
expect(RUN convert --load ${WORK}/granite-hf --save ${WORK}/granite-back CODE 0)
state_of(${WORK}/granite wanted)
state_of(${WORK}/granite-back got)
string(REGEX MATCH "\"weights\": ?\"[0-9a-f]+\"" wanted "${wanted}")
string(REGEX MATCH "\"weights\": ?\"[0-9a-f]+\"" got "${got}")
if(NOT wanted STREQUAL got OR wanted STREQUAL "")
  message(FATAL_ERROR "granite-back: ${got}, wanted ${wanted}")
endif()
expect(RUN generate --load ${WORK}/granite-hf --prompt "The " --greedy --max-new-tokens 8 CODE 0)
expect(RUN generate --load ${WORK}/granite-hf --prompt "The " --greedy --max-new-tokens 8 --prompt-lookup 2 CODE 2
  ERR "--prompt-lookup: guesses that are wrong are taken back, and layers of the gated delta rule, of Mamba-2 or with short convolutions have")
expect(RUN convert --load ${WORK}/granite --save ${WORK}/none --to mg CODE 3 ERR "has layers of Mamba-2, which Piton writes in the format mg with --use-mcore-models")
expect(RUN convert --load ${WORK}/granite --save ${WORK}/mg --to mg --use-mcore-models --target-pipeline-parallel-size 2 CODE 0 OUT "verified: [^\n]* equal to the bit")

# Adapters of what both kinds of layers have.
file(WRITE ${WORK}/sums.jsonl "{\"instruction\": \"1 and 1?\", \"input\": \"\", \"output\": \"2\"}\n{\"instruction\": \"1 and 2?\", \"input\": \"\", \"output\": \"3\"}\n")
set(tune --data-path ${WORK}/sums.jsonl --prompt-type empty --tokenizer-type ByteTokenizer --split 100,0,0 --seq-length 64
  --micro-batch-size 2 --lr 1e-2 --train-iters 4)
expect(RUN finetune --load ${WORK}/granite ${tune} --lora-target-modules all-linear --lora-r 4 --save ${WORK}/lora
  CODE 0 ERR "adapters: [0-9]+ parameters are trained")
expect(RUN convert --load ${WORK}/lora --save ${WORK}/peft --to peft CODE 0 OUT "verified: [^\n]* equal to the bit")
expect(RUN inspect ${WORK}/peft CODE 0 OUT "model.layers.0.mamba.in_proj.lora_A" "model.layers.0.mamba.out_proj.lora_A" "model.layers.1.self_attn.q_proj.lora_B")
expect(RUN convert --load ${WORK}/lora --save ${WORK}/merged --to hf CODE 0 OUT "verified: ")
expect(RUN finetune --load ${WORK}/granite ${tune} --lora-target-modules in_proj_qkv --lora-r 4 --save ${WORK}/none CODE 2
  ERR "--lora-target-modules: this model has no in_proj_qkv; wanted some of [^\n]*in_proj, ")

set(bare finetune --load ${WORK}/granite ${tune} --train-iters 6 --lora-target-modules all-linear --lora-r 4)
run_on(1 lora-one)
set(alone "${LOSSES}")
run_on(2 lora-two --tensor-model-parallel-size 2 --sequence-parallel)
expect_losses("adapters on tensor ranks" "${alone}" "${LOSSES}")

# What is refused.
expect(RUN pretrain ${sizes} --hybrid-override-pattern M-X- ${flags} --train-iters 1 CODE 2
  ERR "--hybrid-override-pattern: got 'X' as letter 3 of M-X-, wanted M .Mamba-2., C .a short convolution., [*] .attention., - .an MLP. or E .experts.")
expect(RUN pretrain ${sizes} --hybrid-override-pattern M-M- --num-layers 3 ${flags} --train-iters 1 CODE 2
  ERR "--num-layers: got 3, but --hybrid-override-pattern has 2 layers of 4 letters")
expect(RUN pretrain ${sizes} --hybrid-override-pattern M-M- --mamba-num-groups 3 ${flags} --train-iters 1 CODE 2
  ERR "--mamba-num-groups: got 3, wanted a divisor of --mamba-num-heads, which is 8")
expect(RUN pretrain ${sizes} --hybrid-override-pattern M-C- ${flags} --train-iters 1 CODE 2
  ERR "--hybrid-override-pattern: got M-C-, wanted layers of Mamba-2 .M. or short convolutions .C., not both")
expect(RUN pretrain --model llama-tiny --short-conv-bias ${flags} --train-iters 1 CODE 2
  ERR "--short-conv-bias: is for short convolutions; give --hybrid-override-pattern with the letter C too, or leave it out")
expect(RUN plan ${sizes} --vocab-size 257 --hybrid-override-pattern M-M- --mamba-num-groups 2 --context-parallel-size 4 CODE 2
  ERR "layout: 8 heads of Mamba-2 in 2 groups cannot be split over tensor 1 x context 4 ranks")
