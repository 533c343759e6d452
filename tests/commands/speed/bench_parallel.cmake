# bench parallel: what it measures of each layout of two ranks, and what it refuses. Times are not compared.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

set(tiny --model llama-tiny --seq-length 32 --micro-batch-size 4 --rounds 1 --steps 1 --threads 1)
set(two bench parallel ${tiny} --world-size 2)

# number(OUT key ...): of ${out}
function(number result)
  string(JSON value GET "${out}" ${ARGN})
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

execute_process(COMMAND ${PITON} ${two} --json --quiet OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "bench parallel: exit ${code}\n${out}${err}")
endif()
number(refused refused)
set(names one dp zero1 zero2 zero3 tp tp-sp cp pp)
string(JSON count LENGTH "${out}" layouts)
list(LENGTH names wanted)
if(NOT count EQUAL wanted OR NOT refused STREQUAL "[]")
  message(FATAL_ERROR "${count} layouts, refused ${refused}\n${out}")
endif()
foreach(name IN LISTS names)
  list(FIND names ${name} i)
  number(layout layouts ${i} layout)
  number(sent layouts ${i} sent_bytes)
  number(formula layouts ${i} planned_sent_bytes)
  number(held layouts ${i} peak_memory_bytes)
  number(planned layouts ${i} planned_memory_bytes)
  number(tokens layouts ${i} tokens_per_step)
  set(sent_${layout} ${sent})
  set(held_${layout} ${held})
  set(tokens_${layout} ${tokens})
  string(JSON ranks LENGTH "${out}" layouts ${i} ranks)
  # The plan of a rank lacks the numbers of the gradient's norm for parameters that only other ranks hold: 8 bytes for
  # 16384 elements of each.
  math(EXPR more_sent "${sent} - ${formula}")
  math(EXPR more_held "${held} - ${planned}")
  if(NOT layout STREQUAL name OR more_sent LESS 0 OR more_sent GREATER 256 OR more_held LESS 0 OR more_held GREATER 256
     OR (i GREATER 0 AND NOT ranks EQUAL 2))
    message(FATAL_ERROR "${name}: ${layout} of ${ranks} ranks sent ${sent} bytes, by the formula ${formula}, "
                        "and held ${held}, planned ${planned}")
  endif()
  foreach(key tokens_per_second step_seconds planned_step_seconds share_of_one peak_resident_bytes planned_reserved_bytes)
    number(value layouts ${i} ${key})
    if(NOT value GREATER 0)
      message(FATAL_ERROR "${name}: ${key} is ${value}")
    endif()
  endforeach()
endforeach()
# Four samples of 32 tokens on each data rank, and of the others together; four micro-batches of one sample in pp.
foreach(name one tp tp-sp cp pp)
  if(NOT tokens_${name} EQUAL 128)
    message(FATAL_ERROR "${name}: steps of ${tokens_${name}} tokens, wanted 128")
  endif()
endforeach()
if(NOT tokens_dp EQUAL 256 OR NOT tokens_zero3 EQUAL 256)
  message(FATAL_ERROR "dp, zero3: steps of ${tokens_dp} and ${tokens_zero3} tokens, wanted 256")
endif()
# (p - 1) / M; unequal layers do not change the formula, which is of passes of equal length.
number(formula layouts 8 formula_bubble)
if(NOT formula EQUAL 0.25)
  message(FATAL_ERROR "the formula of the bubble gives ${formula}, wanted 1/4")
endif()
number(bubble layouts 8 bubble)
if(NOT bubble GREATER 0)
  message(FATAL_ERROR "a bubble of ${bubble}")
endif()

# Bytes, from the sizes of the model: two ranks sum P gradients of fp32, so each sends 4 P bytes; the norm and the loss
# are small. Under ZeRO-3 each sends half of 4 P bytes of gradients, and half of the weights (fp32) before forward and
# before backward, but the table and the head (384 x 64 each), which have one use. One process sends nothing.
execute_process(COMMAND ${PITON} plan --model llama-tiny --quiet --json OUTPUT_VARIABLE plan)
string(JSON parameters GET "${plan}" ranks 0 parameters)
foreach(case "dp 4 0" "zero1 4 0" "zero2 4 0" "zero3 6 4")
  string(REPLACE " " ";" case ${case})
  list(GET case 0 name)
  list(GET case 1 bytes)
  list(GET case 2 tables)
  math(EXPR least "${parameters} * ${bytes} - ${tables} * 384 * 64")
  math(EXPR most "${least} + 1024")
  if(sent_${name} LESS least OR sent_${name} GREATER most)
    message(FATAL_ERROR "${name}: a rank sent ${sent_${name}} bytes, wanted ${least} to ${most}")
  endif()
endforeach()
if(NOT sent_one EQUAL 0)
  message(FATAL_ERROR "one process sent ${sent_one} bytes")
endif()
# Shards make ranks smaller.
if(NOT held_zero1 LESS held_dp OR NOT held_zero3 LESS held_zero1 OR NOT held_tp LESS held_one)
  message(FATAL_ERROR "held: dp ${held_dp}, zero1 ${held_zero1}, zero3 ${held_zero3}, tp ${held_tp}, one ${held_one}")
endif()

# For people, with what this model cannot do: 4 heads on 3 ranks. Options of a recipe count too.
file(WRITE ${WORK}/three.toml "model = \"llama-tiny\"\nseq-length = 32\n[bench]\nworld-size = 3\nlayouts = [\"tp\", \"dp\"]\n")
expect(RUN bench parallel ${WORK}/three.toml --rounds 2 --steps 1 --threads 1 CODE 0
       OUT "^3 ranks of 1 thread, and one process of 3: 2 rounds of 1 step, in turns"
           "\nlayout +tokens/s +of one +step, s +planned +held, MiB +planned +sent, MiB +formula +bubble +formula\n"
           "\none +[0-9.e+]+ +100.0 % +[0-9.e-]+ +[0-9.e-]+ .*%. +[0-9.]+ +[0-9.]+ .*%. +0.0 +0 \\(100.00 %\\)\n"
           "\ndp +[0-9.e+]+ +[0-9.]+ % " "\ntp is not possible: [^\n]*heads[^\n]*\n$"
       ERR "round 2 of 2: dp: [0-9.e+]+ tokens/s\n")
expect(RUN bench parallel --help CODE 0 OUT "--pipeline-micro-batches")

# Bad input.
expect(RUN bench parallel ${tiny} --world-size 1 CODE 2 ERR "^piton bench: --world-size: got 1, wanted 2 to 1024\n$")
expect(RUN ${two} --layouts dq CODE 2 ERR "--layouts: got \"dq\", wanted dp, zero1, zero2, zero3, tp, tp-sp, cp, pp\n$")
expect(RUN ${two} --steps 0 CODE 2 ERR "--steps: got 0")
expect(RUN ${two} --pipeline-micro-batches 0 CODE 2 ERR "--pipeline-micro-batches: got 0")
expect(RUN ${two} --zero-stage 1 CODE 2 ERR "--zero-stage: bench parallel sets it for each layout; leave it out")
expect(RUN ${two} --seq-length 99999 CODE 2 ERR "--seq-length: got 99999, wanted at most")
expect(RUN bench parallel --model llama-tiny --world-size 2 --global-batch-size 3 --layouts dp CODE 2
       ERR "--world-size: none of the layouts is possible with 2 ranks; dp: --global-batch-size: got 3, wanted a multiple of 2")

# fails(NAME code pattern): with the environment ${environment} before the command.
function(fails name wanted pattern)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${environment} ${PITON} ${two} --layouts dp --quiet
                  OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL wanted OR NOT out STREQUAL "" OR NOT err MATCHES "${pattern}")
    message(FATAL_ERROR "${name}: exit ${code}, wanted ${wanted} and ${pattern}\n${out}\n${err}")
  endif()
endfunction()
set(environment OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0)
fails("under mpirun" 2 "^piton bench parallel: starts its ranks itself; run it without a launcher\n$")
# A process that fails: its reason.
set(environment PITON_ISA=v9)
fails("a process that fails" 6 "^piton bench parallel: layout one: 1 rank of piton bench train ended with 2: [^\n]*\"v9\"[^\n]*\n$")
# Ranks need no other program.
set(environment PATH=${WORK}/nowhere)
execute_process(COMMAND ${CMAKE_COMMAND} -E env ${environment} ${PITON} ${two} --layouts dp --quiet
                OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT out MATCHES "\ndp ")
  message(FATAL_ERROR "bench parallel without PATH: exit ${code}\n${out}\n${err}")
endif()

# A signal leaves nothing behind.
file(MAKE_DIRECTORY ${WORK}/tmp)
execute_process(COMMAND sh -c "TMPDIR='${WORK}/tmp' '${PITON}' bench parallel --model llama-tiny --seq-length 32 --steps 1000000 --layouts dp &
    bench=$!
    until ls '${WORK}'/tmp/piton-bench-*/errors > /dev/null 2>&1; do [ -d /proc/$bench ] || break; sleep 0.05; done
    kill -TERM $bench; wait $bench"
  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 120)
file(GLOB left ${WORK}/tmp/*)
if(NOT code EQUAL 143 OR left)
  message(FATAL_ERROR "bench parallel and SIGTERM: exit ${code}, left ${left}\n${out}")
endif()
