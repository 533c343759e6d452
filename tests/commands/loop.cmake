# The rules of the loop: the iterations at which a run logs, evaluates, saves and stops, and the learning rate.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(run pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
        --seq-length 16 --micro-batch-size 2 --split 80,20,0)

# events(NAME words... CODE n LOGGED list VALIDATED list SAVED list)
function(events name)
  cmake_parse_arguments(arg "" "CODE" "RUN;LOGGED;VALIDATED;SAVED" ${ARGN})
  file(REMOVE_RECURSE ${WORK}/${name})
  execute_process(COMMAND ${PITON} ${run} ${arg_RUN} --save ${WORK}/${name} RESULT_VARIABLE code
                  OUTPUT_VARIABLE out ERROR_VARIABLE out)
  foreach(pair "LOGGED iteration +[0-9]+/" "VALIDATED validation loss at iteration [0-9]+" "SAVED saved [^\n]*iter_0*[0-9]+")
    string(FIND "${pair}" " " space)
    string(SUBSTRING "${pair}" 0 ${space} what)
    math(EXPR space "${space} + 1")
    string(SUBSTRING "${pair}" ${space} -1 pattern)
    string(REGEX MATCHALL "${pattern}" found "${out}")
    list(TRANSFORM found REPLACE ".*[^0-9]0*([0-9]+)/?$" "\\1")
    if(NOT "${found}" STREQUAL "${arg_${what}}" OR NOT code EQUAL arg_CODE)
      message(FATAL_ERROR "${name}: exit ${code}, ${what} \"${found}\", wanted ${arg_CODE}, \"${arg_${what}}\"\n${out}")
    endif()
  endforeach()
endfunction()

#      name       options                                                                       what happens at which iterations
events(every      RUN --train-iters 3 --eval-iters 0                                            CODE 0 LOGGED 1 2 3 SAVED 3)
events(intervals  RUN --train-iters 7 --log-interval 3 --eval-interval 2 --eval-iters 1 --save-interval 3
                  CODE 0 LOGGED 3 6 7 VALIDATED 2 4 6 7 SAVED 3 6 7)
events(ends       RUN --train-iters 6 --log-interval 3 --eval-interval 3 --eval-iters 1 --save-interval 3
                  CODE 0 LOGGED 3 6 VALIDATED 3 6 SAVED 3 6)
events(long       RUN --train-iters 2 --log-interval 9 --eval-interval 9 --eval-iters 1 --save-interval 9
                  CODE 0 LOGGED 2 VALIDATED 2 SAVED 2)
events(exit       RUN --train-iters 9 --exit-interval 4 --log-interval 2 --eval-iters 0        CODE 0 LOGGED 2 4 SAVED 4)
# A rate at which weights overflow: two updates in a row without finite gradients end the run.
events(diverged   RUN --train-iters 9 --lr 1e30 --lr-decay-style constant --max-consecutive-skips 2 --eval-iters 0
                  CODE 5 LOGGED 1 2)
# So does an end before that, after which the run is saved all the same and nothing is suggested.
events(nan        RUN --train-iters 3 --lr 1e15 --lr-decay-style constant --eval-iters 0       CODE 5 LOGGED 1 2 3 SAVED 3)
events(no_finite  RUN --train-iters 3 --lr 1e30 --lr-decay-style constant --eval-iters 0       CODE 5 LOGGED 1 2 3 SAVED 3)
events(nan_exit   RUN --train-iters 9 --exit-interval 3 --lr 1e15 --lr-decay-style constant --eval-iters 0
                  CODE 5 LOGGED 1 2 3 SAVED 3)
events(nan_valid  RUN --train-iters 1 --lr 1e15 --lr-decay-style constant --eval-iters 1       CODE 5 LOGGED 1 VALIDATED 1 SAVED 1)
set(grows ${run} --train-iters 3 --lr-decay-style constant --eval-iters 0)
expect(RUN ${grows} --lr 1e15 CODE 5 ERR "the run ends at iteration 3 with a loss that is not finite; lower --lr")
expect(RUN ${grows} --lr 1e30 CODE 5 ERR "the run ends at iteration 3 after 2 updates in a row without finite gradients")
file(READ ${WORK}/nan/failure.json failure)
if(NOT failure MATCHES "\"fault\": \"diverged\"")
  message(FATAL_ERROR "failure.json: ${failure}")
endif()

# learning_rates(NAME list): of each iteration, from metrics.jsonl
function(learning_rates name)
  file(STRINGS ${WORK}/${name}/metrics.jsonl lines)
  set(rates "")
  foreach(line IN LISTS lines)
    string(JSON rate GET "${line}" learning_rate)
    string(JSON consumed GET "${line}" consumed_samples)
    list(APPEND rates "${consumed}:${rate}")
  endforeach()
  if(NOT "${rates}" STREQUAL "${ARGN}")
    message(FATAL_ERROR "${name}: learning rates ${rates}, wanted ${ARGN}")
  endif()
endfunction()
# Rate n is that after n updates: up to --lr in two, then down to --min-lr in four more.
events(rates RUN --train-iters 8 --lr 0.5 --min-lr 0.25 --lr-warmup-iters 2 --lr-decay-iters 6 --clip-grad 0.001
                 --lr-decay-style linear --eval-iters 0 --log-interval 8 CODE 0 LOGGED 8 SAVED 8)
learning_rates(rates 2:0.0 4:0.25 6:0.5 8:0.4375 10:0.375 12:0.3125 14:0.25 16:0.25)
# A skipped update does not move the schedule.
file(STRINGS ${WORK}/diverged/metrics.jsonl lines)
list(LENGTH lines count)
list(GET lines -1 last)
string(JSON skipped GET "${last}" skipped)
if(NOT skipped EQUAL 1 OR NOT count EQUAL 2)
  message(FATAL_ERROR "diverged: ${count} lines, ${skipped} skipped at the last")
endif()

# A run that stops before its end says why, and how to go on: the line can be pasted into a shell.
expect(RUN ${run} --train-iters 9 --exit-interval 4 --eval-iters 0 --save "${WORK}/it's stopped" CODE 0
       ERR "stopped by --exit-interval at iteration 4\n[^\n]*next: piton resume '[^\n' ]*/it'.''s stopped' continues")
expect(RUN resume "${WORK}/it's stopped" --exit-interval 9 CODE 0
       ERR "iteration +9/ +9 [^\n]*\n[^\n]*saved [^\n]*iter_0000009[^\n]*\n[^\n]*next: piton generate")
