# Runs that do not train: --dry-run, --skip-train; and the choice of a checkpoint, --ckpt-step.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(run pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
        --seq-length 32 --micro-batch-size 2 --split 80,20,0 --train-iters 6 --eval-iters 2 --eval-interval 2 --lr 1e-3)

# Every file below WORK with its hash.
function(files_of out)
  file(GLOB_RECURSE files ${WORK}/*)
  set(all "")
  foreach(file IN LISTS files)
    file(SHA256 ${file} hash)
    list(APPEND all "${file} ${hash}")
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# A dry run says what the run would do, refuses what the run would refuse, and writes nothing.
files_of(before)
expect(RUN ${run} --save ${WORK}/run --data-cache-path ${WORK}/cache --dry-run CODE 0
       ERR "model: [0-9]+ parameters" "memory of rank 0 at most: [0-9.e-]+ GB [(]" "options of the command line: model"
           "it would start from random weights" "it would do 6 updates, to iteration 6, and save to [^\n]*run\n"
           "--dry-run: all checks passed; nothing is written")
expect(RUN ${run} --save ${WORK}/run --dry-run --global-batch-size 3 CODE 2 ERR "--global-batch-size: got 3")
expect(RUN ${run} --save ${WORK}/run --dry-run --data-path ${WORK}/none CODE 3 ERR "none")
expect(RUN ${run} --save ${WORK}/run --dry-run --load ${WORK}/none CODE 3 ERR "none")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --save ${WORK}/run --dry-run --tensor-model-parallel-size 2
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(NOT code EQUAL 0 OR NOT out MATCHES "all checks passed")
  message(FATAL_ERROR "two ranks: exit ${code}\n${out}")
endif()
files_of(after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "a dry run wrote files: ${before}\n${after}")
endif()

expect(RUN ${run} --save ${WORK}/run --save-interval 2 CODE 0 ERR "validation loss at iteration 4 [|] lm loss value: ([^ ]+)")
file(STRINGS ${WORK}/run/metrics.jsonl lines)
list(GET lines 3 line)
string(JSON at_four GET "${line}" validation_loss)
files_of(before)
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --train-iters 8 --override-opt_param-scheduler --dry-run CODE 0
       ERR "it would resume [^\n]*iter_0000006: iteration 6, 12 samples" "it would do 2 updates, to iteration 8")
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --adam-beta1 0.5 --dry-run CODE 2 ERR "--adam-beta1: ")
expect(RUN ${run} --save ${WORK}/run --dry-run CODE 2 ERR "already holds a run")
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --ckpt-step 2 --dry-run CODE 0 ERR "it would resume [^\n]*iter_0000002")

# The validation loss of a checkpoint, as it was in training.
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --ckpt-step 4 --skip-train CODE 0
       ERR "resumed [^\n]*iter_0000004: iteration 4," "validation loss at iteration 4 [|] lm loss value: ")
execute_process(COMMAND ${PITON} ${run} --load ${WORK}/run --ckpt-step 4 --skip-train OUTPUT_VARIABLE out)
string(REGEX MATCH "validation loss at iteration 4 [|] lm loss value: ([^ ]+)" found "${out}")
set(evaluated ${CMAKE_MATCH_1})
execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C awk "BEGIN { exit !(sprintf(\"%.6E\", ${at_four}) == \"${evaluated}\") }" RESULT_VARIABLE differs)
if(differs OR out MATCHES "iteration +5/" OR out MATCHES "nothing of this run will be kept")
  message(FATAL_ERROR "evaluated ${evaluated}, in training ${at_four}\n${out}")
endif()
string(REPLACE "+" "[+]" pattern "${evaluated}")
expect(RUN resume ${WORK}/run --ckpt-step 4 --skip-train CODE 0 OUT "resumed [^\n]*iter_0000004: " "lm loss value: ${pattern}")
expect(RUN resume ${WORK}/run --ckpt-step 2 --dry-run CODE 0 OUT "it would resume [^\n]*iter_0000002")
expect(RUN ${run} --load ${WORK}/run --eval-iters 0 --skip-train CODE 2 ERR "evaluate: this run has no validation samples; set --eval-iters")
files_of(after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "a run without training wrote files")
endif()

# A chosen iteration, from which the run resumes.
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --ckpt-step 3 CODE 3 ERR "--ckpt-step: [^\n]*run has no checkpoint of iteration 3; wanted one of 2, 4, 6")
expect(RUN ${run} --ckpt-step 3 CODE 2 ERR "--ckpt-step: needs --load DIR")
expect(RUN ${run} --load ${WORK}/run --ckpt-step 4 --allow-fallback CODE 2 ERR "--allow-fallback: --ckpt-step 4 names one checkpoint")
execute_process(COMMAND ${PITON} inspect ${WORK}/run --hash --json OUTPUT_VARIABLE whole)
expect(RUN ${run} --save ${WORK}/run --load ${WORK}/run --ckpt-step 4 CODE 0 ERR "resumed [^\n]*iter_0000004: iteration 4," "iteration +6/ +6 ")
execute_process(COMMAND ${PITON} inspect ${WORK}/run --hash --json OUTPUT_VARIABLE again)
if(NOT whole MATCHES "weights" OR NOT whole STREQUAL again)
  message(FATAL_ERROR "from iteration 4 the run ends elsewhere: ${whole} ${again}")
endif()
file(READ ${WORK}/run/config.toml config)
if(NOT config MATCHES "# ckpt-step is not set")
  message(FATAL_ERROR "config.toml keeps --ckpt-step: ${config}")
endif()
