# Training on instruction data: three files of a prefix, padded, packed or in rows of variable length; resumes in the middle of
# an epoch to the bit.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(data ${SOURCE}/tests/golden/instruction)
set(options --is-instruction-dataset --data-path ${data}/plain --split 70,30,0 --tokenizer-type NullTokenizer --vocab-size 4000
            --seq-length 32)
set(run pretrain --model llama-tiny ${options} --micro-batch-size 2 --global-batch-size 4 --lr 1e-3)

# 16 samples are four updates: the run ends in its third epoch.
expect(RUN ${run} --train-iters 10 --eval-iters 1 CODE 0 ERR "plain: train set: 16 samples padded to 32 tokens, padding wasted"
  "iteration +10/ +10 " "validation loss")
foreach(form padded packed variable)
  set(flags)
  if(form STREQUAL "packed")
    set(flags --pack)
  elseif(form STREQUAL "variable")
    set(flags --variable-seq-lengths --pad-to-multiple-of 4)
  endif()
  expect(RUN ${run} ${flags} --train-iters 10 --save ${WORK}/${form} CODE 0 ERR "iteration +10/ +10 ")
  state_of(${WORK}/${form} wanted)
  foreach(stop 3 4 9)
    set(again ${run} ${flags} --train-iters 10 --save ${WORK}/${form}_${stop} --load ${WORK}/${form}_${stop})
    expect(RUN ${again} --exit-interval ${stop} CODE 0)
    expect(RUN ${again} CODE 0 ERR "resumed [^\n]*iteration ${stop}," "iteration +10/ +10 ")
    state_of(${WORK}/${form}_${stop} hash)
    if(NOT hash STREQUAL wanted)
      message(FATAL_ERROR "${form}: a resume after ${stop} updates has other weights: ${hash} ${wanted}")
    endif()
  endforeach()
endforeach()
# The form of the rows is part of the experiment.
expect(RUN ${run} --train-iters 10 --save ${WORK}/packed --load ${WORK}/packed CODE 2 ERR "--pack: [^\n]* has true, this run has false")

# Two ranks, each with half of the global batch: the loss is that of one.
function(first_loss result)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT out MATCHES "lm loss: ([0-9.]+)[0-9]E")
    message(FATAL_ERROR "${ARGN}: exit ${code}\n${out}")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()
foreach(flag --variable-seq-lengths --pack)
  first_loss(one ${PITON} ${run} ${flag} --train-iters 1 --log-interval 1)
  first_loss(two ${LAUNCH} 2 ${PITON} ${run} ${flag} --train-iters 1 --log-interval 1)
  first_loss(stages ${LAUNCH} 2 ${PITON} ${run} ${flag} --train-iters 1 --log-interval 1 --pipeline-model-parallel-size 2)
  if(NOT one STREQUAL two OR NOT one STREQUAL stages)
    message(FATAL_ERROR "${flag}: the loss is ${one}, on two ranks ${two}, on two stages ${stages}")
  endif()
endforeach()

# In words: what is learned, and where packed texts begin.
expect(RUN inspect samples ${options} --pack --seq-length 64 --count 1 CODE 0
  OUT "--- sample 0: 64 tokens, [0-9]+ in the loss, [2-9] texts" "--- tokens 0 to [0-9]+\n\\[-[0-9]")
expect(RUN inspect samples ${options} --no-shuffle --count 1 --json CODE 0 OUT "\"loss_mask\":" "\"segments\":")
expect(RUN inspect samples --is-instruction-dataset --data-path ${data}/neat --neat-pack --no-shuffle --split 1,0,0 --seq-length 23 --count 2
  CODE 0 OUT "of padding")

# Mistakes.
expect(RUN ${run} --train-iters 1 --data-path ${data}/absent CODE 3
  ERR "absent_packed_input_ids_document.idx: does not exist; --is-instruction-dataset reads")
expect(RUN ${run} --train-iters 1 --data-path ${data}/neat CODE 3 ERR "set --neat-pack")
expect(RUN ${run} --train-iters 1 --vocab-size 100 CODE 3 ERR "the vocabulary has 101")
expect(RUN pretrain --model llama-tiny --mock-data --pack --seq-length 32 --train-iters 1 CODE 2
  ERR "--pack: is for --is-instruction-dataset")
expect(RUN ${run} --variable-seq-lengths --pad-to-multiple-of 0 --train-iters 1 CODE 2 ERR "--pad-to-multiple-of: got 0")

# Prompts whose tokens see one another: two names of one mask, which teaches something else than a causal one; other
# formats do not have it.
foreach(mode 5 6)
  expect(RUN ${run} --sparse-mode ${mode} --train-iters 3 --eval-iters 1 --save ${WORK}/prefix_${mode} CODE 0 ERR "iteration +3/ +3 " "validation loss")
  state_of(${WORK}/prefix_${mode} prefix_${mode})
endforeach()
expect(RUN ${run} --train-iters 3 --save ${WORK}/prefix_0 CODE 0)
state_of(${WORK}/prefix_0 prefix_0)
if(NOT prefix_5 STREQUAL prefix_6 OR prefix_5 STREQUAL prefix_0)
  message(FATAL_ERROR "sparse modes 5, 6 and 0: ${prefix_5} ${prefix_6} ${prefix_0}")
endif()
set(prefix ${run} --sparse-mode 5 --train-iters 3 --save ${WORK}/prefix_stopped --load ${WORK}/prefix_stopped)
expect(RUN ${prefix} --exit-interval 2 CODE 0)
expect(RUN ${prefix} CODE 0 ERR "resumed [^\n]*iteration 2,")
state_of(${WORK}/prefix_stopped stopped)
if(NOT stopped STREQUAL prefix_5)
  message(FATAL_ERROR "a resume with a prefix has other weights: ${stopped} ${prefix_5}")
endif()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --sparse-mode 5 --train-iters 3 --tensor-model-parallel-size 2 --sequence-parallel
  RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0 OR NOT error MATCHES "iteration +3/ +3 ")
  message(FATAL_ERROR "a prefix on two tensor ranks: exit ${code}\n${error}")
endif()
# Decoding has the mask: on one rank, on two, with several beams, with other limits of a pass.
set(asks generate --load ${WORK}/prefix_5 --prompt-ids 5,6,7,8,9,10,11,12 --greedy --max-new-tokens 6)
execute_process(COMMAND ${PITON} ${asks} RESULT_VARIABLE code OUTPUT_VARIABLE wanted ERROR_VARIABLE error)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${asks} --tensor-model-parallel-size 2 RESULT_VARIABLE other OUTPUT_VARIABLE got
  ERROR_VARIABLE errors)
if(NOT code EQUAL 0 OR NOT other EQUAL 0 OR NOT wanted STREQUAL got OR wanted STREQUAL "")
  message(FATAL_ERROR "generate with a prompt that sees itself: ${code} ${other}: ${wanted} ${got} ${error} ${errors}")
endif()
expect(RUN generate --load ${WORK}/prefix_5 --prompt-ids 5,6,7 --num-beams 2 --max-new-tokens 3 CODE 0)
file(WRITE ${WORK}/prefix_ids.json "[[5, 6, 7, 8]]")
expect(RUN score --load ${WORK}/prefix_5 --ids-file ${WORK}/prefix_ids.json CODE 0 OUT "^loss [0-9.]+ nats a token")
expect(RUN convert --load ${WORK}/prefix_5 --save ${WORK}/prefix_hf --to hf CODE 3 ERR "prompts whose tokens see one another")
expect(RUN ${run} --sparse-mode 5 --use-flash-attn --train-iters 1 CODE 2 ERR "--sparse-mode: got 5, wanted 0 or 2 with --use-flash-attn")
expect(RUN ${run} --sparse-mode 5 --stage dpo --is-pairwise-dataset --ref-model ${WORK}/prefix_0 --train-iters 1 CODE 2 ERR "--sparse-mode: mode 5 is for --stage sft")
expect(RUN plan ${options} --model llama-tiny --sparse-mode 5 --micro-batch-size 2 --context-parallel-size 2 --world-size 2 CODE 2
  ERR "layout: --context-parallel-size divides rows of causal masks")
