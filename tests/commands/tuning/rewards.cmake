# piton finetune --stage rm: from pairs to a reward model, its rewards, folders for other programs, and back to the same bits.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(base ${WORK}/base)

write_base_model()

set(pairs "")
foreach(i RANGE 1 24)
  string(APPEND pairs "{\"instruction\": \"What is ${i} and 1?\", \"chosen\": \"It is ${i}1.\", \"rejected\": \"No.\"}\n")
endforeach()
file(WRITE ${WORK}/pairs.jsonl "${pairs}")
expect(RUN preprocess --tokenizer-type ByteTokenizer --prompt-type default --input ${WORK}/pairs.jsonl
  --handler-name AlpacaStylePairwiseHandler --output-prefix ${WORK}/pairs CODE 0)
file(WRITE ${WORK}/ids.json "[[5, 6, 7], [9, 8, 7, 6, 5, 4], [1]]")

function(rewards_of out)
  execute_process(COMMAND ${PITON} score --reward --ids-file ${WORK}/ids.json ${ARGN} OUTPUT_VARIABLE text
                  ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT text MATCHES "^-?[0-9.]+\n-?[0-9.]+\n-?[0-9.]+\n$")
    message(FATAL_ERROR "score --reward ${ARGN}: exit ${code}\n${text}${errors}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

set(rm finetune --stage rm --split 80,20,0 --seq-length 128 --micro-batch-size 1 --global-batch-size 2 --lr 1e-2
       --tokenizer-type ByteTokenizer --train-iters 4 --data-path ${WORK}/pairs)
set(lora --lora-target-modules all-linear --lora-r 4 --lora-alpha 8)

# A new head is 0: the first loss is log 2. The figures are those of preferences.
expect(RUN ${rm} --load ${base} --save ${WORK}/whole --eval-iters 1 --eval-interval 4 CODE 0
  ERR "rewards chosen: " "rewards margin: " "rewards accuracy: " "next: piton score --reward --load ")
file(STRINGS ${WORK}/whole/metrics.jsonl lines)
list(GET lines 0 first)
list(GET lines 3 last)
if(NOT first MATCHES "\"lm_loss\":0.693147180559" OR NOT last MATCHES "\"validation_rewards_accuracy\":")
  message(FATAL_ERROR "the figures of a reward model: ${first}\n${last}")
endif()

# From a checkpoint of Piton too, and resumed to the same bits.
expect(RUN ${rm} --load ${WORK}/start --save ${WORK}/native --exit-interval 2 --save-interval 2 CODE 0)
expect(RUN resume ${WORK}/native CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
hash_of(${WORK}/whole uninterrupted)
hash_of(${WORK}/native resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "${resumed}, uninterrupted ${uninterrupted}")
endif()

# The same rewards from every form of the model.
expect(RUN convert --load ${WORK}/whole --save ${WORK}/hf --to hf CODE 0)
file(READ ${WORK}/hf/config.json config)
if(NOT config MATCHES "LlamaForSequenceClassification" OR NOT config MATCHES "id2label")
  message(FATAL_ERROR "no reward model: ${config}")
endif()
rewards_of(wanted --load ${WORK}/whole)
rewards_of(got --load ${WORK}/hf)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "rewards of the folder are ${got}, of the run ${wanted}")
endif()
expect(RUN score --reward --load ${WORK}/whole --ids-file ${WORK}/ids.json --json CODE 0 OUT "^{\"rewards\":\\[")
expect(RUN inspect ${WORK}/hf CODE 0 OUT "head of rewards")
# A reward model as the start of another one.
expect(RUN ${rm} --load ${WORK}/hf --save ${WORK}/again --reward-margin 0.5 --center-rewards-coefficient 0.01 CODE 0)

# Adapters: the head is trained with them.
expect(RUN ${rm} --load ${base} ${lora} --save ${WORK}/adapters CODE 0 ERR "saved ")
expect(RUN convert --load ${WORK}/adapters --save ${WORK}/peft --to peft CODE 0)
file(READ ${WORK}/peft/adapter_config.json config)
if(NOT config MATCHES "\"SEQ_CLS\"" OR NOT config MATCHES "\"score\"")
  message(FATAL_ERROR "no adapter of a reward model: ${config}")
endif()
rewards_of(wanted --load ${WORK}/adapters)
rewards_of(got --load ${base} --lora-load ${WORK}/peft)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "rewards with the adapter of PEFT are ${got}, of the run ${wanted}")
endif()
expect(RUN convert --load ${WORK}/adapters --save ${WORK}/merged --to hf CODE 0)
rewards_of(merged --load ${WORK}/merged)
expect(RUN ${rm} --load ${WORK}/start ${lora} --save ${WORK}/native-adapters CODE 0)
rewards_of(got --load ${WORK}/native-adapters)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "rewards over a checkpoint of Piton are ${got}, over the folder ${wanted}")
endif()

# Two ranks.
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${rm} --load ${base} --save ${WORK}/${flag} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}")
  endif()
endforeach()
rewards_of(one --load ${WORK}/whole)
foreach(flag tensor-model-parallel-size pipeline-model-parallel-size)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} score --reward --ids-file ${WORK}/ids.json --load ${WORK}/whole --${flag} 2
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE errors)
  string(REGEX MATCHALL "-?[0-9]+\\.[0-9][0-9][0-9][0-9]" got "${text}")
  string(REGEX MATCHALL "-?[0-9]+\\.[0-9][0-9][0-9][0-9]" wanted "${one}")
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "rewards on two ranks, --${flag}: exit ${code}, ${text}, on one ${one}\n${errors}")
  endif()
endforeach()

# What is refused.
expect(RUN generate --load ${WORK}/whole --prompt-ids 5,6 CODE 2 ERR "--load: the model gives rewards")
expect(RUN score --load ${WORK}/whole --ids-file ${WORK}/ids.json CODE 2 ERR "piton score --reward reads it")
expect(RUN score --reward --load ${WORK}/whole --ids-file ${WORK}/ids.json --logits ${WORK}/l CODE 2 ERR "--logits: cannot be combined with --reward")
expect(RUN score --reward --load ${base} --ids-file ${WORK}/ids.json CODE 2 ERR "--reward: the model predicts tokens")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/no.gguf --to gguf CODE 2 ERR "is a reward model, which only folders")
expect(RUN finetune --load ${WORK}/hf --data-path ${WORK}/pairs --seq-length 128 --train-iters 1 --stage orpo --save ${WORK}/none CODE 2
  ERR "--stage orpo: the head of the model is one of rewards")
expect(RUN ${rm} --load ${base} --dpo-beta 1 --save ${WORK}/none CODE 2 ERR "--dpo-beta: is for --stage dpo and ipo, got --stage rm")
expect(RUN ${rm} --load ${base} --reward-margin -1 --save ${WORK}/none CODE 2 ERR "--reward-margin: got -1, wanted 0 or more")
expect(RUN ${rm} --load ${base} --sample-prompts ${WORK}/text.txt --save ${WORK}/none CODE 2 ERR "--sample-prompts: the model continues no text")
# The accuracy on a data set, without training.
expect(RUN ${rm} --load ${WORK}/whole --finetune --skip-train --eval-iters 1 CODE 0 ERR "rewards accuracy: ")
if(EXISTS ${WORK}/none)
  message(FATAL_ERROR "a command that was refused left a folder behind")
endif()
