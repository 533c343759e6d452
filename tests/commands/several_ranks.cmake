# Messages and decisions of several ranks.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
# Four ranks on a machine with fewer cores: the one that has the message may come late.
set(ENV{PITON_GRACE_SECONDS} 3)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(common --model llama-tiny --tokenizer-type ByteTokenizer --seq-length 16 --split 100,0,0)
set(data --data-path ${WORK}/corpus_text_document)

# An error before the first step: one line, of the lowest rank that has it.
# said_once(NAME code pattern words...)
function(said_once name wanted pattern)
  execute_process(COMMAND ${LAUNCH} 4 ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REGEX MATCHALL "piton pretrain: [^\n]*" lines "${out}")
  list(LENGTH lines count)
  if(NOT code EQUAL wanted OR NOT count EQUAL 1 OR NOT lines MATCHES "${pattern}")
    message(FATAL_ERROR "${name}: exit ${code} and ${count} lines, wanted ${wanted} and one with ${pattern}\n${out}")
  endif()
endfunction()
said_once(all 3 "\\[rank 0\\] [^\n]*nowhere" ${PITON} pretrain ${common} --data-path ${WORK}/nowhere --train-iters 3)
file(WRITE ${WORK}/one.sh "if [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then d=${WORK}/nowhere; else d=${WORK}/corpus_text_document; fi
exec ${PITON} pretrain \"$@\" --data-path $d\n")
said_once(one 3 "\\[rank 2\\] [^\n]*nowhere" sh ${WORK}/one.sh ${common} --train-iters 3)
said_once(options 2 "--seq-length" ${PITON} pretrain ${common} ${data} --train-iters 3 --seq-length 99999)
said_once(checkpoint 3 "nothing_here" ${PITON} pretrain ${common} ${data} --train-iters 3 --load ${WORK}/nothing_here)

# Ranks that compute with other instructions report it (x86-64-v2 is on every machine, and alone on few).
file(WRITE ${WORK}/sets.sh "unset PITON_ISA; if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then export PITON_ISA=v2; fi
exec ${PITON} pretrain \"$@\"\n")
execute_process(COMMAND ${LAUNCH} 2 sh ${WORK}/sets.sh ${common} ${data} --train-iters 1
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 60)
if(NOT code EQUAL 0 OR NOT out MATCHES "kernels differ: rank 1 has cpu: x86-64-v2, rank 0 has cpu: ")
  message(FATAL_ERROR "other instruction sets: exit ${code}\n${out}")
endif()

# A limit of time: all ranks stop after one step, save, and the run can continue.
set(long pretrain ${common} ${data} --train-iters 1000000 --log-interval 1000000 --lr-decay-style constant)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${long} --save ${WORK}/timed --exit-duration-in-mins 0.03
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 60)
if(NOT code EQUAL 0 OR NOT out MATCHES "saved [^\n]*iter_0*([0-9]+)[^\n]*\n[^\n]*stopped by --exit-duration-in-mins at iteration ([0-9]+)"
   OR NOT CMAKE_MATCH_1 EQUAL CMAKE_MATCH_2)
  message(FATAL_ERROR "a limit of time: exit ${code}\n${out}")
endif()
expect(RUN ${long} --save ${WORK}/timed --load ${WORK}/timed --global-batch-size 2 --exit-duration-in-mins 0.0001
       CODE 0 ERR "resumed .*iteration ${CMAKE_MATCH_1}," "stopped by --exit-duration-in-mins at iteration")

set(ENV{PITON_GRACE_SECONDS} 1)
# What all ranks do or meet is reported once: progress, and adapters of another model.
function(reported_once what code regex)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${ARGN} RESULT_VARIABLE got OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 60)
  string(REGEX MATCHALL "${regex}" lines "${out}")
  list(LENGTH lines count)
  if(NOT got EQUAL code OR NOT count EQUAL 1)
    message(FATAL_ERROR "${what}: exit ${got}, ${count} lines, wanted one\n${out}")
  endif()
endfunction()
set(short pretrain ${common} ${data} --train-iters 1)
expect(RUN ${short} --save ${WORK}/base --seed 1 CODE 0)
expect(RUN ${short} --save ${WORK}/other --seed 2 CODE 0)
expect(RUN ${short} --load ${WORK}/base --finetune --save ${WORK}/adapters --lora-target-modules all-linear CODE 0)
reported_once(progress 0 "100%" score --load ${WORK}/base ${WORK}/text.txt --tensor-model-parallel-size 2)
set(two generate --prompt a --tensor-model-parallel-size 2 --load)
reported_once("no model" 3 "piton generate: " ${two} ${WORK}/nowhere)
reported_once("no such option" 2 "piton generate: " ${two} ${WORK}/base --promt b)
reported_once("no file" 3 "piton generate: " generate --prompts ${WORK}/nowhere --tensor-model-parallel-size 2 --load ${WORK}/base)
reported_once(help 0 "usage: piton generate" ${two} ${WORK}/base --help)
# Launchers give standard input to the first rank alone; all of them read it.
file(WRITE ${WORK}/input.txt "To be, or not")
foreach(words "generate --max-new-tokens 4" "score -")
  separate_arguments(words)
  execute_process(COMMAND ${PITON} ${words} --load ${WORK}/base INPUT_FILE ${WORK}/input.txt OUTPUT_VARIABLE alone)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${words} --load ${WORK}/base --tensor-model-parallel-size 2
                  INPUT_FILE ${WORK}/input.txt RESULT_VARIABLE code OUTPUT_VARIABLE two_of_them ERROR_VARIABLE error)
  if(NOT code EQUAL 0 OR NOT two_of_them STREQUAL alone OR alone STREQUAL "")
    message(FATAL_ERROR "${words} from standard input: exit ${code}\n${two_of_them}${error}alone: ${alone}")
  endif()
endforeach()
reported_once("another base" 3 "was trained on a model whose weights" generate --load ${WORK}/other
              --lora-load ${WORK}/adapters --prompt a --tensor-model-parallel-size 2)
