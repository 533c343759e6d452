# Weight decay that increases, a batch that grows, half precision, Muon and recomputation: each run that stops and
# continues ends where one without a stop does, on one and on two ranks; what the log says; and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(bare pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --micro-batch-size 2 --global-batch-size 8 --lr 1e-2 --split 100,0,0 --hidden-dropout 0.1)
set(steps --train-iters 20)
set(stop_every 10)
set(parts 1 2)
if(DEFINED ENV{PITON_NIGHTLY})
  set(stop_every 7)
  set(parts 1 2 3)
endif()

# Trains with the flags that follow: through, and with a stop after ten iterations (at night after every seventh). The
# log of the first is LOG afterwards.
function(expect_resume name ranks)
  set(start ${PITON})
  if(ranks GREATER 1)
    set(start ${LAUNCH} ${ranks} ${PITON})
  endif()
  execute_process(COMMAND ${start} ${bare} ${ARGN} --save ${WORK}/${name}_whole RESULT_VARIABLE code
                  OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${name}: exit ${code}\n${log}")
  endif()
  foreach(part IN LISTS parts)
    execute_process(COMMAND ${start} ${bare} ${ARGN} --exit-interval ${stop_every} --save ${WORK}/${name}_parts
                            --load ${WORK}/${name}_parts
                    RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "${name}, part ${part}: exit ${code}\n${error}")
    endif()
  endforeach()
  state_of(${WORK}/${name}_whole whole)
  state_of(${WORK}/${name}_parts parts)
  if(NOT whole STREQUAL parts)
    message(FATAL_ERROR "${name}: a run that continued ends elsewhere: ${whole} ${parts}\n${log}\n${error}")
  endif()
  set(LOG "${log}" PARENT_SCOPE)
endfunction()

function(expect_log)
  foreach(wanted ${ARGN})
    if(NOT LOG MATCHES "${wanted}")
      message(FATAL_ERROR "no \"${wanted}\" in\n${LOG}")
    endif()
  endforeach()
endfunction()

# Weight decay.
set(decay ${steps} --start-weight-decay 0 --end-weight-decay 0.5 --weight-decay-incr-style cosine)
expect_resume(decay 1 ${decay})
expect_resume(decay_two 2 ${decay} --zero-stage 2)
expect(RUN ${bare} ${steps} --weight-decay 0.5 --save ${WORK}/constant CODE 0)
state_of(${WORK}/constant constant)
state_of(${WORK}/decay_whole cosine)
if(constant STREQUAL cosine)
  message(FATAL_ERROR "the decay does not increase")
endif()
set(ramp --start-weight-decay 0 --end-weight-decay 0.5 --weight-decay-incr-style linear --lr-decay-style constant)
expect(RUN ${bare} --train-iters 4 ${ramp} --save ${WORK}/ramp CODE 0)
expect(RUN ${bare} --train-iters 6 ${ramp} --save ${WORK}/ramp --load ${WORK}/ramp CODE 2
       ERR "--train-iters: [^\n]* increases the weight decay over 4 steps, this run over 6" "--override-opt_param-scheduler")
expect(RUN ${bare} --train-iters 6 ${ramp} --override-opt_param-scheduler --save ${WORK}/ramp --load ${WORK}/ramp CODE 0)
expect(RUN ${bare} ${steps} --end-weight-decay 0.5 CODE 2 ERR "--end-weight-decay: needs --weight-decay-incr-style")
expect(RUN ${bare} ${steps} --weight-decay-incr-style linear CODE 2 ERR "--weight-decay-incr-style: needs --start-weight-decay")

# A batch that grows: 4 x 2, 2 x 4, 2 x 6 samples, then 12 x 8.
set(grows --train-samples 124 --rampup-batch-size 2 2 24 --lr-warmup-samples 16)
expect_resume(grows 1 ${grows})
expect_log("iteration +1/ +20 . consumed samples: +2 [^\n]*global batch size: +2 "
           "iteration +5/ +20 . consumed samples: +12 [^\n]*learning rate: 5[.]000E-03[^\n]*global batch size: +4 "
           "iteration +9/ +20 . consumed samples: +36 [^\n]*global batch size: +8 "
           "iteration +20/ +20 . consumed samples: +124 ")
expect(RUN inspect ${WORK}/grows_whole CODE 0 OUT "124 samples")
expect(RUN report ${WORK}/grows_whole --output ${WORK}/grows.html CODE 0)
file(READ ${WORK}/grows.html page)
if(NOT page MATCHES "20 of 20")
  message(FATAL_ERROR "the report does not know the length of the run")
endif()
set(grows_two --train-samples 124 --rampup-batch-size 4 4 24 --micro-batch-size 1 --pipeline-model-parallel-size 2)
expect_resume(grows_two 2 ${grows_two})
expect(RUN ${bare} ${steps} --rampup-batch-size 2 2 24 CODE 2 ERR "--rampup-batch-size: needs --train-samples")
expect(RUN ${bare} --train-samples 124 --rampup-batch-size 3 1 24 CODE 2 ERR "wanted multiples of 2")
expect(RUN ${bare} --train-samples 124 --rampup-batch-size 2 4 24 CODE 2 ERR "past --global-batch-size 8")
expect(RUN ${bare} ${grows} --rampup-batch-size 4 4 24 --save ${WORK}/grows_parts --load ${WORK}/grows_parts CODE 2
       ERR "another experiment: --rampup-batch-size")

# Half precision.
set(half ${steps} --fp16 --initial-loss-scale 1073741824 --loss-scale-window 3)
expect_resume(half 1 ${half})
expect_log("iteration 1: gradients overflow at a loss scale of 1073741824; the update is skipped"
           "loss scale: 1073741824.0 [^\n]*number of skipped iterations: 1 ")
expect_resume(half_two 2 ${half} --tensor-model-parallel-size 2 --sequence-parallel)
expect(RUN ${bare} --train-iters 4 --log-interval 4 --fp16 --loss-scale 512 CODE 0
       ERR "loss scale: 512.0 [^\n]*number of skipped iterations: 0 ")
expect(RUN generate --load ${WORK}/half_whole --prompt "To be" --max-new-tokens 2 CODE 0)
expect(RUN convert --load ${WORK}/half_whole --to hf --save ${WORK}/half_hf CODE 0)
file(READ ${WORK}/half_hf/config.json config)
if(NOT config MATCHES "float16")
  message(FATAL_ERROR "config.json has no float16: ${config}")
endif()
expect(RUN ${bare} ${steps} --fp16 --bf16 CODE 2 ERR "--fp16: contradicts --bf16")
expect(RUN ${bare} ${steps} --fp16 --loss-scale -1 CODE 2 ERR "--loss-scale: got -1")
expect(RUN ${bare} ${steps} --fp16 --min-loss-scale 8 --initial-loss-scale 4 CODE 2 ERR "--min-loss-scale: got 8, wanted at most")
# A scale that no gradient fits: the run stops, and says where backward broke first.
expect(RUN ${bare} ${steps} --fp16 --loss-scale 1e30 --max-consecutive-skips 3 CODE 5
       ERR "iteration 3: 3 updates in a row had no finite gradients [(]backward met the first in (head|final_norm)")

# Muon.
set(muon ${steps} --optimizer muon --muon-extra-scale-factor 0.2)
expect_resume(muon 1 ${muon} --bf16 --muon-use-nesterov)
if(DEFINED ENV{PITON_NIGHTLY})
  expect_resume(muon_two 2 ${muon} --zero-stage 1)
  expect_resume(half_static 1 ${steps} --fp16 --loss-scale 512)
  expect_log("loss scale: 512.0 [^\n]*number of skipped iterations: 0 ")
endif()
expect(RUN inspect ${WORK}/muon_whole CODE 0 OUT "with optimizer state")
# ZeRO 2 gives each matrix to one rank, ZeRO 3 cuts it: both end at the same weights and moments.
expect_resume(muon_given 2 ${muon} --zero-stage 2)
expect_resume(muon_cut 2 ${muon} --zero-stage 3)
state_of(${WORK}/muon_given_whole given)
state_of(${WORK}/muon_cut_whole cut)
if(NOT given STREQUAL cut)
  message(FATAL_ERROR "muon: ZeRO 3 ends elsewhere than ZeRO 2: ${cut} ${given}")
endif()
expect(RUN ${bare} ${steps} --optimizer muon --muon-momentum 1 CODE 2 ERR "--muon-momentum: got 1")
expect(RUN ${bare} ${steps} --optimizer muon --muon-num-ns-steps 0 CODE 2 ERR "--muon-num-ns-steps: got 0")
expect(RUN ${bare} ${steps} --save ${WORK}/muon_whole --load ${WORK}/muon_whole CODE 2 ERR "another experiment" "--optimizer")

# A moving average of the weights.
set(average ${steps} --ema-decay 0.9)
expect_resume(average 1 ${average} --bf16)
expect_resume(average_two 2 ${average} --optimizer sgd --sgd-momentum 0 --zero-stage 3)
expect(RUN convert --load ${WORK}/average_whole --average --to hf --save ${WORK}/average_hf CODE 0)
expect(RUN convert --load ${WORK}/average_whole --to hf --save ${WORK}/last_hf CODE 0)
expect(RUN score --load ${WORK}/average_hf ${WORK}/text.txt --tokenizer-type ByteTokenizer CODE 0 OUT "^loss ")
file(SHA256 ${WORK}/average_hf/model.safetensors of_average)
file(SHA256 ${WORK}/last_hf/model.safetensors of_last)
if(of_average STREQUAL of_last)
  message(FATAL_ERROR "the average is the last weights")
endif()
expect(RUN convert --load ${WORK}/muon_whole --average --save ${WORK}/none CODE 2 ERR "--average: .* has no moving average")
expect(RUN ${bare} ${steps} --ema-decay 1 CODE 2 ERR "--ema-decay: got 1, wanted a number between 0 and 1")

# Spikes: a rule so narrow that many steps are some.
set(spikes ${steps} --skip-spikes 0.5 --spike-window 4)
expect_resume(spikes 1 ${spikes})
expect_log("iteration [0-9]+: a spike [(]loss [0-9.]+, gradient norm [0-9.]+[)]; the update is skipped")
# A spike is one under a dynamic loss scale too.
execute_process(COMMAND ${PITON} ${bare} ${spikes} --fp16 --initial-loss-scale 1024 RESULT_VARIABLE code OUTPUT_VARIABLE out
                ERROR_VARIABLE out)
if(NOT code EQUAL 0 OR NOT out MATCHES "a spike [(]loss [0-9.]+, gradient norm" OR out MATCHES "gradients overflow")
  message(FATAL_ERROR "a spike in fp16: exit ${code}\n${out}")
endif()
expect_resume(spikes_two 2 ${spikes} --zero-stage 2)
expect(RUN ${bare} ${steps} --skip-spikes 0 CODE 2 ERR "--skip-spikes: got 0")
expect(RUN ${bare} ${steps} --skip-spikes 6 --spike-window 1 CODE 2 ERR "--spike-window: got 1, wanted 2 to 10000")

# What is computed again changes nothing.
expect(RUN ${bare} --train-iters 4 --save ${WORK}/kept CODE 0)
state_of(${WORK}/kept kept)
set(number 0)
foreach(flags "--recompute-granularity;full" "--recompute-granularity;full;--recompute-method;uniform;--recompute-num-layers;2"
              "--recompute-granularity;full;--recompute-method;block;--recompute-num-layers;1" "--recompute-activations"
              "--checkpoint-activations;--checkpoint-num-layers;2" "--checkpoint-activations;--checkpoint_policy;full"
              "--checkpoint-activations;--checkpoint-policy;block;--checkpoint_block_layer;1"
              "--recompute-granularity;full;--recompute-method;custom;--recomputation-layer-num;3"
              "--checkpoint-activations;--checkpoint_policy;custom;--recomputation-layer-num;0"
              "--recompute-granularity;selective;--recompute-modules;layernorm;activation"
              "--recompute-granularity;selective;--recompute-modules;core_attn;layernorm;mlp"
              "--recompute-granularity;full;--recompute-method;block;--recompute-modules;core_attn;layernorm;activation"
              "--recompute-norm;--recompute-activation-function" "--recompute-granularity;selective;--recompute-norm"
              "--recompute-activation-function;--recompute-activation-function-num-layers;2;--enable-recompute-layers-per-pp-rank"
              "--recompute-granularity;full;--recompute-method;block;--recompute-num-layers;1;--recompute-norm;--recompute-norm-num-layers;1"
              "--auto-recompute-device-size;4000;--auto-recompute-profiling-step;10")
  math(EXPR number "${number} + 1")
  math(EXPR turn "${number} % 3")
  if(NOT turn EQUAL 2 AND NOT DEFINED ENV{PITON_NIGHTLY})  # by day every third
    continue()
  endif()
  expect(RUN ${bare} --train-iters 4 ${flags} --save ${WORK}/again${number} CODE 0)
  state_of(${WORK}/again${number} again)
  if(NOT again STREQUAL kept)
    message(FATAL_ERROR "${flags}: other weights: ${again} ${kept}")
  endif()
endforeach()
expect(RUN ${bare} ${steps} --recompute-method uniform CODE 2 ERR "--recompute-method: needs --recompute-granularity full")
expect(RUN ${bare} ${steps} --recompute-granularity selective --recompute-num-layers 1 CODE 2
       ERR "--recompute-num-layers: needs --recompute-granularity full")
expect(RUN ${bare} ${steps} --recompute-granularity full --recompute-num-layers 5 CODE 2
       ERR "--recompute-num-layers [(]of a stage[)]: got 5, wanted 1 to 4")
set(custom --recompute-granularity full --recompute-method custom)
expect(RUN ${bare} ${steps} --checkpoint-activations --checkpoint_policy custom CODE 2
       ERR "--recomputation-layer-num: got 0 numbers, wanted 1, one for each stage")
expect(RUN ${bare} ${steps} ${custom} --recomputation-layer-num 1 1 CODE 2 ERR "--recomputation-layer-num: got 2 numbers, wanted 1")
expect(RUN ${bare} ${steps} ${custom} --recomputation-layer-num 5 CODE 2
       ERR "--recomputation-layer-num of stage 0: got 5, wanted 0 to 4")
expect(RUN ${bare} ${steps} ${custom} --recomputation-layer-num 1 --recompute-num-layers 1 CODE 2
       ERR "--recompute-num-layers: needs --recompute-method uniform or block")
expect(RUN ${bare} ${steps} --recompute-granularity full --recomputation-layer-num 1 CODE 2
       ERR "--recomputation-layer-num: needs --recompute-granularity full --recompute-method custom")
expect(RUN ${bare} ${steps} --recompute-modules mlp CODE 2 ERR "--recompute-modules: needs --recompute-granularity selective")
expect(RUN ${bare} ${steps} --recompute-granularity selective --recompute-modules moe CODE 2
       ERR "--recompute-modules: got \"moe\", wanted core_attn, layernorm, activation or mlp")
expect(RUN ${bare} ${steps} --recompute-granularity selective --recompute-modules mlp activation CODE 2
       ERR "mlp has activation in it")
expect(RUN ${bare} ${steps} --model gpt2-tiny --recompute-granularity selective --recompute-modules activation CODE 2
       ERR "--recompute-modules activation: this model's MLP has no gate")
expect(RUN ${bare} ${steps} --model gpt2-tiny --recompute-activation-function CODE 2
       ERR "--recompute-activation-function: this model's MLP has no gate[^\n]*; use --recompute-granularity selective --recompute-modules mlp")
expect(RUN ${bare} ${steps} --recompute-granularity full --recompute-norm CODE 2 ERR "--recompute-norm: needs layers that are not")
expect(RUN ${bare} ${steps} --recompute-norm-num-layers 1 CODE 2 ERR "--recompute-norm-num-layers: needs --recompute-norm")
expect(RUN ${bare} ${steps} --recompute-norm --recompute-norm-num-layers 5 CODE 2
       ERR "--recompute-norm-num-layers [(]of a stage[)]: got 5, wanted 0 to 4")
expect(RUN ${bare} ${steps} --auto-recompute-device-size 0 CODE 2 ERR "--auto-recompute-device-size [(]MiB, or -1[)]: got 0")
expect(RUN ${bare} ${steps} --auto-recompute-device-size 100 --recompute-granularity full CODE 2
       ERR "--auto-recompute-device-size: means --recompute-granularity auto --memory-limit 100MiB")
expect(RUN ${bare} ${steps} --recompute-granularity full --distribute-saved-activations CODE 2
       ERR "--distribute-saved-activations: needs --tensor-model-parallel-size of 2 or more")
# Inputs of layers that tensor ranks divide: the same bits, and half of what is planned for them.
set(tensor --tensor-model-parallel-size 2 --recompute-granularity full)
foreach(flags "" "--distribute-saved-activations" "--distribute-checkpointed-activations;--offload-activations;${WORK}/away")
  math(EXPR number "${number} + 1")
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${bare} --train-iters 4 ${tensor} ${flags} --save ${WORK}/divided${number}
                  RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${flags}: exit ${code}\n${log}")
  endif()
  state_of(${WORK}/divided${number} again)
  if(flags STREQUAL "")
    set(whole ${again})
  elseif(NOT again STREQUAL whole)
    message(FATAL_ERROR "${flags}: other weights: ${again} ${whole}")
  endif()
endforeach()
set(planned "")
foreach(flags "" "--distribute-saved-activations")
  execute_process(COMMAND ${PITON} plan --model gpt2-124m --bf16 --seq-length 1024 --micro-batch-size 4 ${tensor} ${flags}
                          --json OUTPUT_VARIABLE plan RESULT_VARIABLE code)
  string(REGEX MATCH "\"activations\":([0-9]+)" found "${plan}")
  list(APPEND planned ${CMAKE_MATCH_1})
endforeach()
# 12 inputs of 4096 x 768 x 2 bytes: halves of 11, 3145728 bytes each, are not there at the peak.
list(GET planned 0 inputs)
list(GET planned 1 halves)
math(EXPR less "(${inputs} - ${halves}) / 3145728")
if(less LESS 10 OR less GREATER 12)
  message(FATAL_ERROR "planned activations: ${planned}")
endif()
# Stages of their own lists, and parts of a model without gates.
set(stages ${LAUNCH} 2 ${PITON} ${bare} --train-iters 4 --pipeline-model-parallel-size 2 --model gpt2-tiny --bf16)
foreach(flags "none" "full;--recompute-method;custom;--recomputation-layer-num;2;0"
              "selective;--recompute-modules;layernorm;mlp" "full;--recompute-method;custom;--recomputation-layer-num;0;1"
              "selective;--recompute-modules;core_attn;layernorm")
  math(EXPR number "${number} + 1")
  if(flags MATCHES ";0;1$|core_attn" AND NOT DEFINED ENV{PITON_NIGHTLY})
    continue()
  endif()
  execute_process(COMMAND ${stages} --recompute-granularity ${flags} --save ${WORK}/stages${number} RESULT_VARIABLE code
                  OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${flags}: exit ${code}\n${log}")
  endif()
  state_of(${WORK}/stages${number} again)
  if(flags STREQUAL "none")
    set(kept ${again})
  elseif(NOT again STREQUAL kept)
    message(FATAL_ERROR "${flags}: other weights: ${again} ${kept}")
  endif()
endforeach()

# What is planned follows.
set(last 1000000000000)
foreach(kind "none" "selective" "selective;--recompute-modules;core_attn;layernorm"
             "selective;--recompute-modules;core_attn;layernorm;mlp"
             "full;--recompute-method;custom;--recomputation-layer-num;10;--recompute-modules;core_attn;layernorm;mlp" "full")
  execute_process(COMMAND ${PITON} plan --model gpt2-124m --bf16 --seq-length 256 --micro-batch-size 4
                          --recompute-granularity ${kind} --json OUTPUT_VARIABLE plan RESULT_VARIABLE code)
  string(REGEX MATCH "\"activations\":([0-9]+)" found "${plan}")
  if(NOT found OR NOT CMAKE_MATCH_1 LESS last)
    message(FATAL_ERROR "${kind}: ${CMAKE_MATCH_1} bytes of activations, before ${last}: ${plan}")
  endif()
  set(last ${CMAKE_MATCH_1})
endforeach()

# The least that fits a limit: the same bits, what is chosen and why, and the figure below which nothing fits. A run of
# that size fits.
set(auto --train-iters 4 --seq-length 128 --micro-batch-size 4 --recompute-granularity auto)
expect(RUN ${bare} --train-iters 4 --seq-length 128 --micro-batch-size 4 --save ${WORK}/unlimited CODE 0)
state_of(${WORK}/unlimited kept)
expect(RUN ${bare} ${auto} --memory-limit 4GB --save ${WORK}/wide CODE 0
       ERR "recompute auto: --recompute-granularity none: a rank needs [0-9.]+ MiB of 3814.7")
expect(RUN ${bare} ${auto} --memory-limit 4GB --trace ${WORK}/auto_trace.json CODE 0 ERR "recompute auto: ")
expect(RUN ${bare} ${auto} --memory-limit 1MiB CODE 4 ERR "--memory-limit: got 1.0 MiB, wanted at least [0-9.]+, which --recompute-")
execute_process(COMMAND ${PITON} ${bare} ${auto} --memory-limit 1MiB OUTPUT_VARIABLE log ERROR_VARIABLE log)
string(REGEX MATCH "wanted at least ([0-9.]+)" found "${log}")
string(REGEX REPLACE "[.].*" "" whole ${CMAKE_MATCH_1})
math(EXPR least "${whole} + 1")
execute_process(COMMAND ${PITON} ${bare} ${auto} --memory-limit 4GB --log-interval 9 OUTPUT_VARIABLE log ERROR_VARIABLE log)
string(REGEX MATCH "a rank needs ([0-9]+)" found "${log}")
set(most ${CMAKE_MATCH_1})
math(EXPR half "(${least} + ${most}) / 2")
foreach(limit ${least} ${half})
  expect(RUN ${bare} ${auto} --memory-limit ${limit}MiB --save ${WORK}/limit${limit} CODE 0
         ERR "recompute auto: --recompute-granularity (full|selective) [^\n]*: a rank needs [0-9.]+ MiB of ${limit}.0 [(]without ${most}[.]")
  state_of(${WORK}/limit${limit} again)
  if(NOT again STREQUAL kept)
    message(FATAL_ERROR "${limit} MiB: other weights: ${again} ${kept}")
  endif()
  # What was planned is what the run took.
  file(STRINGS ${WORK}/limit${limit}/metrics.jsonl lines)
  list(GET lines 3 line)
  string(REGEX MATCH "\"total\":([0-9]+)" found "${line}")
  math(EXPR taken "${CMAKE_MATCH_1} / 1048576")
  if(taken GREATER_EQUAL limit)
    message(FATAL_ERROR "${limit} MiB were the limit, ${taken} were taken")
  endif()
endforeach()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${bare} ${auto} --memory-limit ${half}MiB --pipeline-model-parallel-size 2
                        --save ${WORK}/limit_two RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${bare} --train-iters 4 --seq-length 128 --micro-batch-size 4
                        --pipeline-model-parallel-size 2 --save ${WORK}/unlimited_two OUTPUT_QUIET ERROR_QUIET)
state_of(${WORK}/limit_two again)
state_of(${WORK}/unlimited_two kept)
if(NOT code EQUAL 0 OR NOT again STREQUAL kept OR NOT log MATCHES "recompute auto: --recompute-granularity")
  message(FATAL_ERROR "two ranks: exit ${code}: ${again} ${kept}\n${log}")
endif()
expect(RUN plan --model gpt2-124m --bf16 --seq-length 1024 --micro-batch-size 4 --recompute-granularity auto --memory-limit 3GiB
       CODE 0 OUT "recompute auto: --recompute-granularity (full|selective) ")
expect(RUN ${bare} ${auto} CODE 2 ERR "--recompute-granularity auto: needs --memory-limit SIZE")
expect(RUN ${bare} ${steps} --memory-limit 1GB CODE 2 ERR "--memory-limit: needs --recompute-granularity auto")
expect(RUN ${bare} ${auto} --memory-limit much CODE 2 ERR "--memory-limit: got \"much\", wanted a size, as in 80GB")
expect(RUN ${bare} ${auto} --memory-limit 1GB --recompute-method block CODE 2
       ERR "--recompute-method: needs --recompute-granularity full")
expect(RUN bench train --model llama-tiny --recompute-granularity auto --memory-limit 1GB CODE 2 ERR "bench measures what it is given")
