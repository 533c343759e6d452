# Adapters of latent attention and of experts: trained on one and two ranks, resumed, used, written for PEFT and llama.cpp,
# merged; what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(common --hidden-size 32 --num-attention-heads 4 --vocab-size 257 --max-position-embeddings 128 --norm-epsilon 1e-6)
set(deepseek --model-family deepseek_v2 --num-layers 2 ${common} --ffn-hidden-size 64 --multi-latent-attention --q-lora-rank 16
  --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 8 --v-head-dim 8 --qk-layernorm --num-experts 4 --moe-router-topk 2
  --moe-ffn-hidden-size 16 --moe-shared-expert-intermediate-size 16 --moe-layer-freq "[0,1]" --no-norm-topk-prob)
set(mixtral --model-family mixtral --num-layers 2 ${common} --num-query-groups 2 --ffn-hidden-size 48 --num-experts 4
  --moe-router-topk 2)
foreach(family deepseek mixtral)
  expect(RUN pretrain ${${family}} --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document --seq-length 32
    --split 100,0,0 --micro-batch-size 2 --train-iters 2 --lr 1e-3 --save ${WORK}/start-${family} CODE 0)
  expect(RUN convert --load ${WORK}/start-${family} --save ${WORK}/${family} CODE 0)
endforeach()
set(rows "")
foreach(i RANGE 1 24)
  string(APPEND rows "{\"instruction\": \"What is ${i} and 1?\", \"input\": \"\", \"output\": \"It is ${i}1.\"}\n")
endforeach()
file(WRITE ${WORK}/sums.jsonl "${rows}")
set(tune --data-path ${WORK}/sums.jsonl --prompt-type empty --tokenizer-type ByteTokenizer --split 100,0,0 --seq-length 64
  --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style constant)
file(WRITE ${WORK}/ids.json "[[87, 104, 97, 116, 32, 105, 115, 32, 51, 63]]")

# A run in two parts, the folder of PEFT that it keeps, the one that convert writes, and the merged model give the same loss,
# up to one in the fifth digit.
function(loss_of out)
  execute_process(COMMAND ${PITON} score ${ARGN} --ids-file ${WORK}/ids.json --json --quiet RESULT_VARIABLE code
                  OUTPUT_VARIABLE json ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "score ${ARGN}: exit ${code}\n${error}")
  endif()
  string(JSON loss GET "${json}" loss)
  string(REPLACE "." "" loss "${loss}0000000")
  string(SUBSTRING "${loss}" 0 5 loss)
  set(${out} ${loss} PARENT_SCOPE)
endfunction()
foreach(family deepseek mixtral)
  set(run ${WORK}/${family}-lora)
  set(lora --lora-target-modules all-linear --lora-r 4)
  expect(RUN finetune --load ${WORK}/${family} ${tune} ${lora} --train-iters 3 --save ${run} CODE 0
    ERR "adapters: [0-9]+ parameters are trained")
  expect(RUN finetune --load ${WORK}/${family} ${tune} ${lora} --train-iters 6 --save ${run} CODE 0)
  expect(RUN convert --load ${run} --save ${run}-peft --to peft CODE 0 OUT "verified: [^\n]* equal to the bit")
  expect(RUN convert --load ${run} --save ${run}-merged --to hf CODE 0 OUT "verified: ")
  loss_of(base --load ${WORK}/${family})
  loss_of(wanted --load ${run})
  math(EXPR moved "${base} - ${wanted}")
  if(moved LESS 10 AND moved GREATER -10)
    message(FATAL_ERROR "${run} changed nothing: ${base}")
  endif()
  foreach(same "${run}-merged" "${WORK}/${family};--lora-load;${run}-peft"
               "${WORK}/${family};--lora-load;${run}/iter_0000006/adapter")
    loss_of(got --load ${same})
    math(EXPR difference "${got} - ${wanted}")
    if(difference GREATER 1 OR difference LESS -1)
      message(FATAL_ERROR "--load ${same}: ${got}, not ${wanted} as ${run}")
    endif()
  endforeach()
  # A new run from the folder of PEFT, whose experts have one A for gate and up.
  expect(RUN inspect ${run}-peft CODE 0 OUT "targets +[^\n]*experts.down_proj experts.gate_up_proj" "experts.base_layer.lora_A"
    "experts.lora_B")
endforeach()
expect(RUN finetune --load ${WORK}/mixtral ${tune} --lora-load ${WORK}/mixtral-lora-peft
  --lora-target-modules q_proj k_proj v_proj o_proj gate_up_proj w2 --lora-r 4 --lora-rank-pattern gate_up_proj=8 --lora-alpha 32
  --lora-alpha-pattern gate_up_proj=64 --train-iters 2 --save ${WORK}/continued CODE 0)
expect(RUN inspect ${WORK}/deepseek-lora-peft CODE 0 OUT "self_attn.q_a_proj.lora_A" "self_attn.kv_a_proj_with_mqa.lora_B"
  "shared_experts.gate_proj.lora_A" "layers.0.mlp.up_proj.lora_B")

# llama.cpp.
expect(RUN convert --load ${WORK}/mixtral-lora --save ${WORK}/mixtral.gguf --to gguf-lora CODE 0 OUT "verified: ")
expect(RUN inspect ${WORK}/mixtral.gguf CODE 0 OUT "ffn_gate_exps.weight.lora_a" "ffn_down_exps")
expect(RUN generate --load ${WORK}/mixtral --lora-load ${WORK}/mixtral.gguf --tokenizer-type ByteTokenizer --prompt "What is"
  --greedy --max-new-tokens 4 CODE 0)
expect(RUN convert --load ${WORK}/deepseek-lora --save ${WORK}/deepseek.gguf --to gguf-lora CODE 2
  ERR "is of latent attention, where llama.cpp uses adapters of the output alone; write the merged model with --to gguf")

# Two ranks have the losses of one, also of a base in 4 bits.
set(bare finetune --load ${WORK}/deepseek ${tune} --train-iters 6 --lora-target-modules all-linear --lora-r 4 --lora-dropout 0.1)
run_on(1 one)
set(alone "${LOSSES}")
run_on(2 two --tensor-model-parallel-size 2 --sequence-parallel)
expect_losses("tensor ranks" "${alone}" "${LOSSES}")
run_on(2 experts --expert-model-parallel-size 2)
expect_losses("expert ranks" "${alone}" "${LOSSES}")
expect(RUN finetune --load ${WORK}/mixtral ${tune} --train-iters 2 --lora-target-modules all-linear --lora-r 4 --qlora
  --save ${WORK}/codes CODE 0)
expect(RUN finetune --load ${WORK}/deepseek ${tune} --train-iters 2 --lora-target-modules all-linear --lora-r 4 --qlora
  --save ${WORK}/latent-codes CODE 0)
expect(RUN generate --load ${WORK}/codes --quantize nf4 --prompt "What is" --greedy --max-new-tokens 4 CODE 0)

# What is refused.
expect(RUN finetune --load ${WORK}/mixtral ${tune} --train-iters 2 --lora-target-modules all-linear --use-dora
  --save ${WORK}/none CODE 2
  ERR "--use-dora: not for adapters of experts, which --lora-target-modules all-linear gives; leave it out, or name modules")
expect(RUN finetune --load ${WORK}/mixtral ${tune} --train-iters 2 --lora-target-modules shared_experts.w1 --save ${WORK}/none CODE 2
  ERR "--lora-target-modules: this model has no shared_experts.w1; wanted some of [^\n]*; experts.NAME, shared_experts.NAME or mlp.NAME")
file(WRITE ${WORK}/prompts.jsonl "{\"prompt\": \"What\", \"model\": \"a\"}\n")
expect(RUN generate --load ${WORK}/mixtral --tokenizer-type ByteTokenizer --prompts ${WORK}/prompts.jsonl
  --lora-modules a=${WORK}/mixtral-lora-peft CODE 2
  ERR "has an adapter of layers.0.mlp.experts.0.down, and adapters of experts are not chosen by request; load it alone, with --lora-load")
