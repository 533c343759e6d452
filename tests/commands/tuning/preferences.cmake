# piton finetune --stage: pairs of answers and judged answers, from JSON Lines to metrics and back to the same bits.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(base ${WORK}/base)

write_base_model()

set(pairs "")
set(judged "")
foreach(i RANGE 1 24)
  string(APPEND pairs "{\"instruction\": \"What is ${i} and 1?\", \"chosen\": \"It is ${i}1.\", \"rejected\": \"No.\"}\n")
  math(EXPR odd "${i} % 2")
  string(APPEND judged "{\"instruction\": \"What is ${i} and 1?\", \"output\": \"It is ${i}${odd}.\", \"kto_tag\": ${odd}}\n")
endforeach()
file(WRITE ${WORK}/pairs.jsonl "${pairs}")
file(WRITE ${WORK}/judged.jsonl "${judged}")
set(encode preprocess --tokenizer-type ByteTokenizer --prompt-type default)
expect(RUN ${encode} --input ${WORK}/pairs.jsonl --handler-name AlpacaStylePairwiseHandler --output-prefix ${WORK}/pairs CODE 0)
expect(RUN ${encode} --input ${WORK}/judged.jsonl --handler-name auto --output-prefix ${WORK}/judged CODE 0
  ERR "AlpacaStyleUnpairedHandler")

set(tune finetune --load ${base} --split 80,20,0 --seq-length 128 --micro-batch-size 1 --global-batch-size 2 --lr 1e-2
         --tokenizer-type ByteTokenizer --train-iters 4)
set(dpo ${tune} --data-path ${WORK}/pairs --stage dpo)
set(lora --lora-target-modules all-linear --lora-r 4 --lora-alpha 8 --lora-dropout 0.1)

# Adapters, whose base is the reference. The figures are in the log, in metrics.jsonl and of the validation too.
expect(RUN ${dpo} ${lora} --save ${WORK}/run --save-interval 2 --eval-iters 1 --eval-interval 4 CODE 0
  ERR "rewards chosen: " "rewards rejected: " "rewards margin: " "rewards accuracy: " "validation loss at iteration 4 .* rewards margin: ")
file(STRINGS ${WORK}/run/metrics.jsonl lines)
list(GET lines 0 first)
list(GET lines 3 last)
# Before the first update the policy is the reference: the loss is log 2, and no reward is above another.
foreach(wanted "\"lm_loss\":0.69314718055994" "\"rewards_chosen\":0.0" "\"rewards_accuracy\":0.0")
  if(NOT first MATCHES "${wanted}")
    message(FATAL_ERROR "the first step has not ${wanted}: ${first}")
  endif()
endforeach()
foreach(wanted rewards_margin validation_loss validation_rewards_accuracy)
  if(NOT last MATCHES "\"${wanted}\":")
    message(FATAL_ERROR "the last step has no ${wanted}: ${last}")
  endif()
endforeach()
expect(RUN generate --load ${WORK}/run --prompt-ids 5,6,7 --greedy --max-new-tokens 3 --json CODE 0 OUT "\"ids\":")

# Interrupted and resumed: the same bits. A whole model compares with --ref-model.
foreach(kind adapters whole)
  if(kind STREQUAL adapters)
    set(how ${lora})
  else()
    set(how --ref-model ${base})
  endif()
  expect(RUN ${dpo} ${how} --save ${WORK}/${kind} CODE 0)
  expect(RUN ${dpo} ${how} --save ${WORK}/${kind}-resumed --exit-interval 2 --save-interval 2 CODE 0)
  expect(RUN resume ${WORK}/${kind}-resumed CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
  hash_of(${WORK}/${kind} uninterrupted)
  hash_of(${WORK}/${kind}-resumed resumed)
  if(NOT resumed STREQUAL uninterrupted)
    message(FATAL_ERROR "${kind}: ${resumed}, uninterrupted ${uninterrupted}")
  endif()
endforeach()

expect(RUN ${dpo} --ref-model ${WORK}/run --save ${WORK}/whole --train-iters 6 --override-opt_param-scheduler CODE 3 ERR "weights of --ref-model has changed since the checkpoint")

# The reference computes as its own files say: the same weights with other angles are another model.
file(COPY ${base}/ DESTINATION ${WORK}/turned)
file(READ ${base}/config.json config)
string(REGEX REPLACE "\"rope_theta\": *[0-9.]+" "\"rope_theta\": 20" turned "${config}")
if(turned STREQUAL config)
  message(FATAL_ERROR "no rope_theta: ${config}")
endif()
file(WRITE ${WORK}/turned/config.json "${turned}")
foreach(reference base turned)
  expect(RUN ${dpo} --ref-model ${WORK}/${reference} --train-iters 1 --save ${WORK}/of-${reference} CODE 0)
  file(STRINGS ${WORK}/of-${reference}/metrics.jsonl ${reference} LIMIT_COUNT 1)
endforeach()
if(NOT base MATCHES "\"lm_loss\":0.69314718055994" OR turned MATCHES "\"lm_loss\":0.69314718055994")
  message(FATAL_ERROR "the loss against the model itself and against another one: ${base}\n${turned}")
endif()
set(base ${WORK}/base)

# The other losses; a run's adapters as the reference; rows that are not packed.
foreach(stage ipo orpo simpo cpo)
  set(how "")
  if(stage STREQUAL ipo)
    set(how --ref-model ${WORK}/run)
  endif()
  expect(RUN ${tune} --data-path ${WORK}/pairs --stage ${stage} ${how} --save ${WORK}/${stage} CODE 0 ERR "rewards accuracy: " "saved ")
endforeach()
expect(RUN ${dpo} ${lora} --no-pack --variable-seq-lengths --dpo-loss-type hinge --pref-ftx 0.5 --save ${WORK}/hinge CODE 0 ERR "saved ")
expect(RUN ${dpo} ${lora} --dpo-loss-type robust --dpo-label-smoothing 0.1 --f-divergence-type js_divergence --ld-alpha 0.5
  --neftune-noise-alpha 5 --save ${WORK}/robust CODE 0 ERR "saved ")
expect(RUN ${tune} --data-path ${WORK}/judged --stage kto ${lora} --save ${WORK}/kto CODE 0 ERR " kl: " "saved ")

# Without --ref-model the model of --load is the reference; the same command continues with it.
foreach(end 2 4)
  expect(RUN ${dpo} --save ${WORK}/reference-of-load --exit-interval 2 CODE 0
    ERR "--ref-model: not given, so the reference is that of --load, [^ \n]*base\n" "iteration +${end}/")
endforeach()
file(READ ${WORK}/reference-of-load/config.toml config)
if(NOT config MATCHES "ref-model = \"[^\"]*base\"")
  message(FATAL_ERROR "the run does not keep its reference\n${config}")
endif()

# Two ranks.
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${dpo} --ref-model ${base} --save ${WORK}/${flag} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}")
  endif()
endforeach()

# What is refused.
expect(RUN ${dpo} --ckpt-step 1 --save ${WORK}/none CODE 2 ERR "--stage dpo: no reference; give --ref-model DIR")
expect(RUN ${dpo} ${lora} --lora-modules-to-save norms --save ${WORK}/none CODE 2 ERR "--lora-modules-to-save changes weights of the base")
expect(RUN ${dpo} ${lora} --simpo-beta 1 --save ${WORK}/none CODE 2 ERR "--simpo-beta: is for --stage simpo, got --stage dpo")
expect(RUN ${dpo} ${lora} --cpo-alpha 2 --save ${WORK}/none CODE 2 ERR "--cpo-alpha: is for --stage cpo, got --stage dpo")
expect(RUN ${dpo} ${lora} --dpo-loss-type exo_pair --save ${WORK}/none CODE 2 ERR "exo_pair: needs --dpo-label-smoothing above 0")
expect(RUN ${dpo} ${lora} --dpo-loss-type apo_zero --f-divergence-type forward_kl --save ${WORK}/none CODE 2
  ERR "--f-divergence-type: is for --stage dpo and ipo, with losses of the difference of two scores")
expect(RUN ${dpo} ${lora} --ld-alpha 1.5 --save ${WORK}/none CODE 2 ERR "--ld-alpha: got 1.5, wanted 0 to 1")
expect(RUN ${dpo} ${lora} --dpo-beta 0 --save ${WORK}/none CODE 2 ERR "--dpo-beta: got 0, wanted a number above 0")
expect(RUN ${tune} --data-path ${WORK}/pairs --stage dpo ${lora} --seq-length 3 --save ${WORK}/none CODE 3
  ERR "sample 0: its two texts do not fit into --seq-length 3, wanted at least 4")
expect(RUN ${dpo} ${lora} --seq-length 16 --save ${WORK}/cut CODE 0
  ERR "train set: 19 samples are longer than --seq-length 16 and are cut, the first is sample 0" "saved ")
expect(RUN ${tune} --data-path ${WORK}/pairs --stage kto ${lora} CODE 3 ERR "--stage kto: wanted judged answers, got pairs of answers")
expect(RUN ${tune} --data-path ${WORK}/text --stage dpo ${lora} --save ${WORK}/none CODE 3 ERR "does not exist; preferences are ")
expect(RUN pretrain --stage dpo --load ${base} --data-path ${WORK}/pairs --seq-length 128 --train-iters 1 --save ${WORK}/none CODE 2
  ERR "--stage dpo: learns from preferences, and --is-pairwise-dataset is not set")
foreach(bad "\"chosen\": \"a\", \"rejected\": \"a\"|chosen and rejected are equal" "\"chosen\": \"\", \"rejected\": \"a\"|the chosen answer is empty"
        "\"chosen\": \"a\"|no key \"rejected\"")
  string(REPLACE "|" ";" bad "${bad}")
  list(GET bad 0 keys)
  list(GET bad 1 message)
  file(WRITE ${WORK}/bad.jsonl "{\"instruction\": \"Why?\", ${keys}}\n")
  expect(RUN ${encode} --input ${WORK}/bad.jsonl --handler-name AlpacaStylePairwiseHandler --output-prefix ${WORK}/bad CODE 3
    ERR "bad.jsonl: line 1 .*${message}")
endforeach()
if(EXISTS ${WORK}/none)
  message(FATAL_ERROR "a command that was refused left a folder behind")
endif()
