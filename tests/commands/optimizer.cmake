# SGD with momentum: a stopped and resumed run equals an uninterrupted one, also on two ranks with shards;
# and the error for an AdamW checkpoint.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")

expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(bare pretrain --model llama-tiny --bf16 --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 20 --lr 1e-2 --split 100,0,0)
set(run ${bare} --optimizer sgd --sgd-momentum 0.8 --weight-decay 0.1)

expect(RUN ${run} --save ${WORK}/whole CODE 0)
expect(RUN ${run} --save ${WORK}/parts --exit-interval 10 CODE 0)
expect(RUN ${run} --save ${WORK}/parts --load ${WORK}/parts CODE 0 ERR "resumed .*iteration 10,")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --zero-stage 2 --save ${WORK}/shards --exit-interval 10
                RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --zero-stage 3 --save ${WORK}/shards --load ${WORK}/shards
                RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two ranks, continued: exit ${code}\n${error}")
endif()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --save ${WORK}/two RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two ranks, not stopped: exit ${code}\n${error}")
endif()
foreach(folder whole parts shards two)
  execute_process(COMMAND ${PITON} inspect ${WORK}/${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_whole MATCHES "weights" OR NOT hash_whole STREQUAL hash_parts)
  message(FATAL_ERROR "a resumed run ends elsewhere: ${hash_whole} ${hash_parts}")
endif()
if(NOT hash_two MATCHES "weights" OR NOT hash_two STREQUAL hash_shards)
  message(FATAL_ERROR "ZeRO 2, continued under ZeRO 3, ends elsewhere: ${hash_two} ${hash_shards}")
endif()
expect(RUN inspect ${WORK}/whole CODE 0 OUT "with optimizer state")

# One moment instead of two: 4 bytes a weight less.
expect(RUN plan --model gpt2-124m --optimizer sgd --json CODE 0 OUT "\"optimizer\":497[0-9]+")

expect(RUN ${bare} --save ${WORK}/adam --exit-interval 2 CODE 0)
expect(RUN ${run} --load ${WORK}/adam --save ${WORK}/adam CODE 2 ERR "another experiment" "optimizer")
# A setting that the first part of the run did not have.
expect(RUN ${bare} --load ${WORK}/adam --save ${WORK}/adam --ema-decay 0.9
       CODE 2 ERR "another experiment: --ema-decay: .*adam/iter_0000002/config.toml has none, this run has 0.9")
# CAdam: 16 bits of momentum a weight, and one scale for each row.
set(run ${bare} --optimizer cadam --cadam-beta 0.9 --lr 1e-3)
expect(RUN ${run} --save ${WORK}/cadam_whole CODE 0)
expect(RUN ${run} --save ${WORK}/cadam_parts --exit-interval 10 CODE 0)
expect(RUN ${run} --save ${WORK}/cadam_parts --load ${WORK}/cadam_parts CODE 0 ERR "resumed .*iteration 10,")
foreach(part "shards --zero-stage 2 --exit-interval 10" "shards --zero-stage 3 --load ${WORK}/cadam_shards" "two")
  separate_arguments(part)
  list(POP_FRONT part folder)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} ${part} --save ${WORK}/cadam_${folder}
                  RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "cadam on two ranks, ${part}: exit ${code}\n${error}")
  endif()
endforeach()
foreach(folder whole parts shards two)
  execute_process(COMMAND ${PITON} inspect ${WORK}/cadam_${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_whole MATCHES "weights" OR NOT hash_whole STREQUAL hash_parts)
  message(FATAL_ERROR "a resumed run of cadam ends elsewhere: ${hash_whole} ${hash_parts}")
endif()
if(NOT hash_two MATCHES "weights" OR NOT hash_two STREQUAL hash_shards)
  message(FATAL_ERROR "cadam: ZeRO 2, continued under ZeRO 3, ends elsewhere: ${hash_two} ${hash_shards}")
endif()
expect(RUN inspect ${WORK}/cadam_whole CODE 0 OUT "with optimizer state")
expect(RUN plan --model gpt2-124m --optimizer cadam --json CODE 0 OUT "\"optimizer\":2[45][0-9]+")
expect(RUN ${bare} --optimizer cadam --cadam-beta 1 CODE 2 ERR "--cadam-beta: got 1, wanted at least 0 and below 1")
expect(RUN ${bare} --optimizer cadam --remote-device ${WORK}/state CODE 2 ERR "--optimizer cadam: its state stays with the weights")

# Moments in bf16: 4 bytes a weight less, and a resumed run, also from shards, has the bits of one that was not stopped.
set(run ${bare} --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16)
expect(RUN ${run} --save ${WORK}/half_whole CODE 0)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --zero-stage 2 --save ${WORK}/half_shards
                RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "moments in bf16 on two ranks: exit ${code}\n${error}")
endif()
expect(RUN ${run} --save ${WORK}/half_parts --exit-interval 10 CODE 0)
expect(RUN ${run} --save ${WORK}/half_parts --load ${WORK}/half_parts CODE 0 ERR "resumed .*iteration 10,")
foreach(folder whole parts)
  execute_process(COMMAND ${PITON} inspect ${WORK}/half_${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_whole MATCHES "weights" OR NOT hash_whole STREQUAL hash_parts)
  message(FATAL_ERROR "a resumed run with moments in bf16 ends elsewhere: ${hash_whole} ${hash_parts}")
endif()
expect(RUN plan --model gpt2-124m --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --json CODE 0 OUT "\"optimizer\":497[0-9]+")
expect(RUN ${bare} --save ${WORK}/half_whole --load ${WORK}/half_whole CODE 2 ERR "another experiment: --exp-avg-dtype")
expect(RUN ${bare} --exp-avg-dtype fp8 CODE 2 ERR "--exp-avg-dtype: got \"?fp8\"?, wanted .*fp32.*bf16")
expect(RUN ${bare} --optimizer sgd --exp-avg-sq-dtype bf16
       CODE 2 ERR "--exp-avg-sq-dtype: got bf16, but only --optimizer adam and muon have this moment")

# The rate of the embedding and of the head: that of the rest changes no bit, another one does.
set(run ${bare} --train-iters 3 --lr-decay-style constant)
expect(RUN ${run} --save ${WORK}/rate CODE 0)
expect(RUN ${run} --decoupled-lr 1e-2 --save ${WORK}/rate_same CODE 0)
expect(RUN ${run} --decoupled-lr 2e-3 --save ${WORK}/rate_other CODE 0)
foreach(folder rate rate_same rate_other)
  execute_process(COMMAND ${PITON} inspect ${WORK}/${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_rate MATCHES "weights" OR NOT hash_rate STREQUAL hash_rate_same OR hash_rate STREQUAL hash_rate_other)
  message(FATAL_ERROR "--decoupled-lr: ${hash_rate} ${hash_rate_same} ${hash_rate_other}")
endif()

expect(RUN ${bare} --optimizer lion --save ${WORK}/x CODE 2 ERR "--optimizer")
expect(RUN ${bare} --optimizer sgd --sgd-momentum 1 --save ${WORK}/x CODE 2 ERR "--sgd-momentum: got 1")
