# Saves in the background: the same checkpoints as by --no-async-save, on two ranks and under every ZeRO stage.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(flags --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
          --seq-length 16 --split 100,0,0 --bf16 --global-batch-size 4 --train-iters 5)
set(run pretrain ${flags} --save-interval 1)

# hashes(variable FOLDER iterations...): of these checkpoints
function(hashes variable folder)
  set(all "")
  foreach(iteration IN LISTS ARGN)
    execute_process(COMMAND ${PITON} inspect ${folder}/iter_000000${iteration} --hash --json
                    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "${folder}, iteration ${iteration}: exit ${code}\n${err}")
    endif()
    string(APPEND all "${out}")
  endforeach()
  set(${variable} "${all}" PARENT_SCOPE)
endfunction()

expect(RUN ${run} --save ${WORK}/waited --no-async-save CODE 0 ERR "saved [^\n]*iter_0000003 in [0-9.]+ s\n")
hashes(wanted ${WORK}/waited 1 2 3 4 5)
expect(RUN ${run} --save ${WORK}/one --verify-saves CODE 0
       ERR "saves continue in the background, from a copy of the state \\([0-9.]+ MB on rank 0\\)"
           "saved [^\n]*iter_0000003 in [0-9.]+ s, of which training waited [0-9.]+ s\n"
           "saved [^\n]*iter_0000005 in [0-9.]+ s\n")
hashes(got ${WORK}/one 1 2 3 4 5)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "in the background: ${got}\nwanted ${wanted}")
endif()

foreach(zero 0 1 2 3)
  foreach(how --no-async-save --async-save)
    set(to ${WORK}/two${how}-${zero})
    execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --zero-stage ${zero} --save ${to} --keep 2 ${how}
                    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 120)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "two ranks, ZeRO ${zero}, ${how}: exit ${code}\n${out}")
    endif()
    hashes(got${how} ${to} 4 5)
  endforeach()
  if(NOT got--async-save STREQUAL got--no-async-save OR EXISTS ${to}/iter_0000003)
    message(FATAL_ERROR "two ranks, ZeRO ${zero}: ${got--async-save}\nwanted ${got--no-async-save}")
  endif()
endforeach()

# The copy is counted: 16 bits of weights and three times fp32 of state, over two ranks.
execute_process(COMMAND ${PITON} plan ${flags} --world-size 2 --json OUTPUT_VARIABLE plan ERROR_VARIABLE err)
string(JSON parameters GET "${plan}" parameters)
string(JSON copy GET "${plan}" ranks 0 save_copy_bytes)
math(EXPR bytes "${parameters} * 14 / 2")
if(NOT copy EQUAL bytes)
  message(FATAL_ERROR "plan: a copy of ${copy} bytes, wanted ${bytes}")
endif()
expect(RUN plan ${flags} --world-size 2 CODE 0 OUT "saves in the background: a copy of [0-9.]+ MiB a rank")
execute_process(COMMAND ${PITON} plan ${flags} --no-async-save OUTPUT_VARIABLE plan ERROR_QUIET)
if(NOT plan MATCHES "bubble" OR plan MATCHES "background")
  message(FATAL_ERROR "plan --no-async-save: ${plan}")
endif()
