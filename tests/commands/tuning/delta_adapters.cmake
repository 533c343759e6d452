# Adapters of models with the gated delta rule: trained on one and two ranks, used, written for PEFT, merged, chosen by
# requests; wrong names, and adapters of another family.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(sizes --num-layers 4 --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 --num-query-groups 2 --kv-channels 16
  --linear-num-key-heads 2 --linear-num-value-heads 4 --linear-key-head-dim 8 --linear-value-head-dim 8
  --vocab-size 257 --max-position-embeddings 128)
set(qwen3_next --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 16 --moe-shared-expert-intermediate-size 16)
foreach(family qwen3_5 qwen3_next)
  expect(RUN pretrain --model-family ${family} ${sizes} ${${family}} --tokenizer-type ByteTokenizer
    --data-path ${WORK}/corpus_text_document --seq-length 32 --split 100,0,0 --micro-batch-size 2 --train-iters 2 --lr 1e-3
    --save ${WORK}/start-${family} CODE 0)
  expect(RUN convert --load ${WORK}/start-${family} --save ${WORK}/${family} CODE 0)
endforeach()
set(rows "")
foreach(i RANGE 1 24)
  string(APPEND rows "{\"instruction\": \"What is ${i} and 1?\", \"input\": \"\", \"output\": \"It is ${i}1.\"}\n")
endforeach()
file(WRITE ${WORK}/sums.jsonl "${rows}")
set(tune --data-path ${WORK}/sums.jsonl --prompt-type empty --tokenizer-type ByteTokenizer --split 100,0,0 --seq-length 64
  --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --train-iters 6)
file(WRITE ${WORK}/ids.json "[[87, 104, 97, 116, 32, 105, 115, 32, 51, 63]]")

# A run, the folder of PEFT that it keeps, the one that convert writes, and the merged model give the same loss, up to one in
# the fifth digit.
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
foreach(family qwen3_5 qwen3_next)
  foreach(kind lora dora)
    set(run ${WORK}/${family}-${kind})
    set(lora --lora-target-modules all-linear --lora-r 4)
    if(kind STREQUAL "dora")  # not of experts
      set(lora --lora-target-modules q_proj k_proj v_proj o_proj in_proj_qkvz in_proj_ba out_proj --lora-r 4
        --use-dora --lora-dropout 0.1)
      if(family MATCHES "next")
        list(INSERT lora 1 shared_expert.all-linear)
      endif()
    endif()
    expect(RUN finetune --load ${WORK}/${family} ${tune} ${lora} --save ${run} CODE 0 ERR "adapters: [0-9]+ parameters are trained")
    expect(RUN convert --load ${run} --save ${run}-peft --to peft CODE 0 OUT "verified: [^\n]* equal to the bit")
    expect(RUN convert --load ${run} --save ${run}-merged --to hf CODE 0 OUT "verified: ")
    loss_of(base --load ${WORK}/${family})
    loss_of(wanted --load ${run})
    math(EXPR learned "${base} - ${wanted}")
    if(learned LESS 10)
      message(FATAL_ERROR "${run} learned nothing: ${base}")
    endif()
    foreach(same "${run}-merged" "${WORK}/${family};--lora-load;${run}-peft"
                 "${WORK}/${family};--lora-load;${run}/iter_0000006/adapter")
      loss_of(got --load ${same})
      math(EXPR difference "${got} - ${wanted}")
      if(difference GREATER 1 OR difference LESS -1)
        message(FATAL_ERROR "--load ${same}: ${got}, not ${wanted} as ${run}")
      endif()
    endforeach()
  endforeach()
endforeach()
# The modules are those of the family in Hugging Face's form.
expect(RUN inspect ${WORK}/qwen3_5-lora-peft CODE 0 OUT "linear_attn.in_proj_qkv.lora_A" "linear_attn.in_proj_z.lora_B" "in_proj_a.lora_A")
expect(RUN inspect ${WORK}/qwen3_next-lora-peft CODE 0 OUT "linear_attn.in_proj_qkvz.lora_A" "linear_attn.in_proj_ba.lora_B")

# Of a model in bf16 with a layer that predicts later tokens, which stays as it is.
expect(RUN pretrain --model-family qwen3_5 ${sizes} --mtp-num-layers 1 --bf16 --tokenizer-type ByteTokenizer
  --data-path ${WORK}/corpus_text_document --seq-length 32 --split 100,0,0 --micro-batch-size 2 --train-iters 2 --lr 1e-3
  --save ${WORK}/start-bf16 CODE 0 OUT "mtp 1 loss")
expect(RUN convert --load ${WORK}/start-bf16 --save ${WORK}/bf16 CODE 0 OUT "verified: ")
expect(RUN inspect ${WORK}/bf16 CODE 0 OUT "mtp.fc.weight +BF16 +.32, 64.")
expect(RUN finetune --load ${WORK}/bf16 ${tune} --bf16 --lora-target-modules all-linear --lora-r 4 --save ${WORK}/bf16-lora
  CODE 0 ERR "its layers that predict later tokens are left out")
expect(RUN convert --load ${WORK}/bf16-lora --save ${WORK}/bf16-peft --to peft CODE 0 OUT "verified: [^\n]* equal to the bit")
expect(RUN convert --load ${WORK}/bf16-lora --save ${WORK}/bf16.gguf --to gguf-lora CODE 0 OUT "verified: ")

# Requests that choose.
file(WRITE ${WORK}/prompts.jsonl
  "{\"prompt\": \"What is 3 and 1?\", \"model\": \"qwen3_5\"}\n{\"prompt\": \"What is 3 and 1?\", \"model\": \"a\"}\n{\"prompt\": \"What is 3 and 1?\", \"model\": \"b\"}\n")
expect(RUN generate --load ${WORK}/qwen3_5 --tokenizer-type ByteTokenizer --prompts ${WORK}/prompts.jsonl --max-new-tokens 8 --greedy
  --lora-modules a=${WORK}/qwen3_5-lora b=${WORK}/qwen3_5-dora-peft CODE 0)

# Two ranks have the losses of one.
set(bare finetune --load ${WORK}/qwen3_next ${tune} --lora-target-modules all-linear --lora-r 4)
run_on(1 one)
set(alone "${LOSSES}")
run_on(2 two --tensor-model-parallel-size 2 --sequence-parallel)
expect_losses("tensor ranks" "${alone}" "${LOSSES}")
run_on(2 stages --pipeline-model-parallel-size 2)
expect_losses("stages" "${alone}" "${LOSSES}")

# A base of 4 bits.
expect(RUN finetune --load ${WORK}/qwen3_5 ${tune} --lora-target-modules all-linear --lora-r 4 --qlora --save ${WORK}/codes CODE 0)
expect(RUN generate --load ${WORK}/codes --quantize nf4 --prompt "What is" --greedy --max-new-tokens 4 CODE 0)

# What is refused.
expect(RUN finetune --load ${WORK}/qwen3_5 ${tune} --lora-target-modules in_proj_qkx --save ${WORK}/none CODE 2
  ERR "--lora-target-modules: this model has no in_proj_qkx; wanted some of [^\n]*in_proj_qkv,")
expect(RUN finetune --load ${WORK}/qwen3_5 ${tune} --lora-target-modules out_proj q_proj --lora-layers-to-transform 0 1 --save ${WORK}/none
  CODE 2 ERR "--lora-target-modules: got q_proj, which none of the layers 0, 1 has; ")
expect(RUN generate --load ${WORK}/qwen3_5 --lora-load ${WORK}/qwen3_next-lora-peft --prompt a --tokenizer-type ByteTokenizer CODE 3
  ERR "qwen3_next-lora-peft: tensors that are no adapter of a linear of this model[^\n]*in_proj_qkvz[^\n]*; is the adapter for another model.\n")
expect(RUN generate --load ${WORK}/qwen3_next --lora-load ${WORK}/qwen3_5-lora-peft --prompt a --tokenizer-type ByteTokenizer CODE 3
  ERR "qwen3_5-lora-peft: tensors that are no adapter of a linear of this model")
