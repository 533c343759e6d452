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
expect(RUN ${bare} --optimizer lion --save ${WORK}/x CODE 2 ERR "--optimizer")
expect(RUN ${bare} --optimizer sgd --sgd-momentum 1 --save ${WORK}/x CODE 2 ERR "--sgd-momentum: got 1")
