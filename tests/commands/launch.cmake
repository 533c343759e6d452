# piton launch: ranks without MPI. The losses and weights of one process and of mpirun, and what happens to ranks that
# cannot meet.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(train pretrain --model llama-tiny --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document
    --seq-length 32 --micro-batch-size 2 --global-batch-size 8 --train-iters 4 --split 100,0,0 --log-interval 1
    --lr-decay-style constant --lr 1e-3 --kernels cpu)

# The hash of the weights that a run has saved, and its losses rounded to 4 digits.
function(run_of result)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 120)
  string(REGEX MATCHALL "lm loss: [0-9.]+E[+-][0-9]+" losses "${out}")
  list(LENGTH losses count)
  if(NOT code EQUAL 0 OR NOT count EQUAL 4)
    message(FATAL_ERROR "${ARGN}: exit ${code}, ${count} losses\n${out}")
  endif()
  list(TRANSFORM losses REPLACE "([0-9]\\.[0-9][0-9][0-9][0-9])[0-9]*E" "\\1E")
  set(${result} "${losses}" PARENT_SCOPE)
endfunction()
function(hash_of result run)
  execute_process(COMMAND ${PITON} inspect ${run} --hash RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REGEX MATCH "weights +([0-9a-f]+)" found "${out}")
  if(NOT code EQUAL 0 OR found STREQUAL "")
    message(FATAL_ERROR "inspect --hash ${run}: exit ${code}\n${out}")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

run_of(alone ${PITON} ${train} --save ${WORK}/alone)
find_program(MPIRUN mpirun)
foreach(layout "2 dp" "2 tp --tensor-model-parallel-size 2" "2 pp --pipeline-model-parallel-size 2"
    "4 all --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2")
  separate_arguments(layout)
  list(POP_FRONT layout ranks name)
  run_of(losses ${PITON} launch ${ranks} ${train} ${layout} --save ${WORK}/${name})
  if(NOT losses STREQUAL alone)
    message(FATAL_ERROR "${name}: losses\n${losses}, of one process\n${alone}")
  endif()
  if(MPIRUN)
    run_of(losses ${LAUNCH} ${ranks} ${PITON} ${train} ${layout} --save ${WORK}/${name}-mpi)
    hash_of(by_sockets ${WORK}/${name})
    hash_of(by_mpi ${WORK}/${name}-mpi)
    if(NOT by_sockets STREQUAL by_mpi)
      message(FATAL_ERROR "${name}: weights ${by_sockets}, under mpirun ${by_mpi}")
    endif()
  endif()
endforeach()

# As torchrun spells it; and ranks that are too many say so once.
run_of(losses ${PITON} launch --nproc_per_node 2 ${train} --save ${WORK}/torchrun)
if(NOT losses STREQUAL alone)
  message(FATAL_ERROR "--nproc_per_node: losses\n${losses}, of one process\n${alone}")
endif()
execute_process(COMMAND ${PITON} launch 2 generate --load ${WORK}/alone --prompt a RESULT_VARIABLE code ERROR_VARIABLE error)
string(REGEX MATCHALL "mesh: 2 processes" lines "${error}")
list(LENGTH lines count)
if(NOT code EQUAL 2 OR NOT count EQUAL 1)
  message(FATAL_ERROR "launch 2 generate: exit ${code}, ${count} times\n${error}")
endif()
# --deepspeed_config with stage 3 is --zero-stage 3.
file(WRITE ${WORK}/ds.json "{\"zero_optimization\": {\"stage\": 3}}")
execute_process(COMMAND ${PITON} launch 2 generate --load ${WORK}/alone --prompt a --greedy --max-new-tokens 4 --deepspeed --deepspeed_config ${WORK}/ds.json
  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE error)
execute_process(COMMAND ${PITON} generate --load ${WORK}/alone --prompt a --greedy --max-new-tokens 4 OUTPUT_VARIABLE one)
if(NOT code EQUAL 0 OR NOT out STREQUAL one)
  message(FATAL_ERROR "launch 2 generate --deepspeed_config: exit ${code}\n${out}${one}${error}")
endif()

# What cannot be joined says why in one line, and soon.
# refused(NAME code regex ENV variables... RUN words...)
function(refused name wanted regex)
  cmake_parse_arguments(arg "" "" "ENV;RUN" ${ARGN})
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${arg_ENV} ${PITON} ${arg_RUN} RESULT_VARIABLE code
                  OUTPUT_VARIABLE out ERROR_VARIABLE error TIMEOUT 60)
  string(REGEX MATCHALL "\n" lines "${error}")
  list(LENGTH lines count)
  if(NOT code EQUAL wanted OR NOT error MATCHES "${regex}" OR NOT count EQUAL 1)
    message(FATAL_ERROR "${name}: exit ${code}, ${count} lines, wanted ${wanted} and one with ${regex}\n${out}${error}")
  endif()
endfunction()
set(short ${train} --distributed-timeout-minutes 0.03)
refused("no rank 0" 6 "rendezvous: rank 0 does not answer at 127.0.0.1 port 1: "
        ENV RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 RUN ${short})
refused("a rank is missing" 6 "not all of 2 ranks have come within 1.8 s: missing 1"
        ENV RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=28913 RUN ${short})
refused("no address" 2 "torchrun started 2 processes .WORLD_SIZE is set. that are not joined: [^\n]*export MASTER_ADDR"
        ENV RANK=0 WORLD_SIZE=2 RUN ${short})
refused("no rank" 2 "environment: RANK: got \"two\", wanted a number from 0 to 1"
        ENV RANK=two WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 RUN ${short})
refused("a command that is for one process" 2 "convert: started as one of several ranks"
        ENV RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 RUN convert --load ${WORK}/alone --save ${WORK}/hf)
foreach(words "" "2" "0 pretrain" "two pretrain" "2 no-command" "--threads 2 2 pretrain" "2 launch" "--nnodes 2 2 pretrain")
  separate_arguments(words)
  refused("launch ${words}" 2 "^piton launch: " RUN launch ${words})
endforeach()

# Two ranks of one number: the second one is refused, and the launcher ends the first.
file(WRITE ${WORK}/twice.sh "RANK=0\nexport RANK\nexec ${PITON} \"$@\"\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E env PITON_GRACE_SECONDS=1 ${PITON} launch 2 /bin/sh ${WORK}/twice.sh ${train}
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 60)
if(NOT code EQUAL 2 OR NOT out MATCHES "port [0-9]+ of this host: Address already in use; choose another one with MASTER_PORT")
  message(FATAL_ERROR "two ranks 0: exit ${code}\n${out}")
endif()

# Exit codes, variables, input, and the end of the others.
function(launched code regex)
  execute_process(COMMAND sh -c "echo words | PITON_GRACE_SECONDS=1 ${PITON} launch \"$@\"" sh ${ARGN}
                  RESULT_VARIABLE got OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 60)
  if(NOT got EQUAL code OR NOT out MATCHES "${regex}")
    message(FATAL_ERROR "${ARGN}: exit ${got}, wanted ${code} and ${regex}\n${out}")
  endif()
endfunction()
launched(0 "^words\n$" 3 /bin/cat)
launched(0 "3 of 4 and 1 of 2" --nnodes 2 --node-rank 1 --master-addr h 2 -- /bin/sh -c
         "echo \$RANK of \$WORLD_SIZE and \$LOCAL_RANK of \$LOCAL_WORLD_SIZE")
launched(4 "^$" 2 /bin/sh -c "[ \$RANK = 0 ] || exit 4; sleep 100")
launched(137 "piton launch: rank 1 .process [0-9]+. was ended by signal 9" 2 /bin/sh -c
         "[ \$RANK = 0 ] || kill -9 \$\$; sleep 100")
launched(2 "piton launch: pretrian: unknown command, did you mean pretrain." 2 pretrian --train-iters 1)
launched(75 "" 2 /bin/sh -c "exit 75")
