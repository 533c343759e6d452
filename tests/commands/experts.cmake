# Experts divided over ranks by mpirun: the losses of one process with dropout, a balance and a capacity, evaluated, also on a task and
# by answers to prompts, saved and continued on one process and the reverse, with adapters; planned; and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
file(WRITE ${WORK}/prompts.txt "To be\nWhether\n")
set(model --model llama-tiny --num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-router-score-function sigmoid
          --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-2 --moe-expert-capacity-factor 1.25)
set(bare pretrain ${model} --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --split 90,10,0 --hidden-dropout 0.1
         --attention-dropout 0.1 --eval-interval 3 --eval-iters 2
         --eval-tasks LAMBADA --eval-tasks-interval 3 --eval-tasks-data-path ${SOURCE}/tests/golden/evaluation/data
         --eval-tasks-samples 2 --sample-prompts ${WORK}/prompts.txt --sample-prompts-tokens 4)

set(two --expert-model-parallel-size 2)
run_on(1 one --train-iters 6)
set(one "${LOSSES}")
run_on(2 divided --train-iters 6 ${two} --moe-token-dispatcher-type allgather)
set(gathered "${LOSSES}")
expect_losses("two ranks" "${one}" "${gathered}")
# A token goes to the ranks of its experts alone: the same bits.
run_on(2 rows --train-iters 6 ${two} --moe-token-dispatcher-type alltoall)
if(NOT LOSSES STREQUAL gathered)
  message(FATAL_ERROR "single rows: ${LOSSES}, wanted ${gathered}")
endif()
run_on(2 sharded --train-iters 6 ${two} --zero-stage 3)
expect_losses("two ranks, ZeRO-3" "${one}" "${LOSSES}")

# Three steps on two ranks and three more on one are six, and the reverse.
run_on(2 parts --train-iters 3 --lr-decay-iters 6 ${two})
run_on(1 parts --train-iters 6 --load ${WORK}/parts)
expect_losses("two ranks, then one" "${one}" "${LOSSES}")
run_on(1 other --train-iters 3 --lr-decay-iters 6)
run_on(2 other --train-iters 6 ${two} --load ${WORK}/other)
expect_losses("one rank, then two" "${one}" "${LOSSES}")

file(READ ${WORK}/one/samples.txt wanted)
file(READ ${WORK}/sharded/samples.txt got)
if(NOT got STREQUAL wanted OR wanted STREQUAL "")
  message(FATAL_ERROR "two ranks answer\n${got}\nwanted\n${wanted}")
endif()

# A model without experts becomes a mixture: the same function at first, on any layout; the same command continues.
set(mixture ${bare})
set(bare pretrain --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer --seq-length 32
         --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --split 90,10,0)
run_on(1 dense --model llama-tiny --train-iters 2)
list(APPEND bare --load ${WORK}/dense)
run_on(1 copies --train-iters 1 --finetune)
string(SUBSTRING "${LOSSES}" 0 18 first)
list(APPEND bare --moe-use-upcycling --num-experts 4 --moe-router-topk 2)
run_on(1 upcycled --train-iters 6)
set(one "${LOSSES}")
string(FIND "${LOSSES}" "${first}" found)  # "lm_loss":4.682052: weights are rounded to fp32
if(NOT found EQUAL 0)
  message(FATAL_ERROR "experts that are copies: ${LOSSES}, wanted ${first} first")
endif()
run_on(2 upcycled-divided --train-iters 6 ${two})
expect_losses("upcycled on two ranks" "${one}" "${LOSSES}")
run_on(2 slices-divided --train-iters 6 --moe-upcycling-granularity 2 ${two})
set(two_slices "${LOSSES}")
run_on(1 slices --train-iters 6 --moe-upcycling-granularity 2)
expect_losses("slices on two ranks" "${LOSSES}" "${two_slices}")
expect(RUN ${bare} --save ${WORK}/upcycled --train-iters 6 CODE 0 OUT "holds iteration 6 of the run that started from")
list(REMOVE_ITEM bare --moe-use-upcycling)
expect(RUN ${bare} --finetune --train-iters 1 CODE 2
       ERR "--num-experts: got 4, but the model of .* has no experts. --moe-use-upcycling")
set(bare ${mixture})

list(APPEND bare --load ${WORK}/one --finetune --lora-target-modules query_key_value dense)
run_on(1 adapters --train-iters 6)
set(one "${LOSSES}")
run_on(2 divided-adapters --train-iters 6 ${two})
expect_losses("adapters" "${one}" "${LOSSES}")

set(plan plan ${model})
expect(RUN ${plan} ${two} --tensor-model-parallel-size 2 --world-size 8 CODE 0
       OUT "8 ranks: tensor 2 x pipeline 1 x expert 2 x data 2")
expect(RUN ${plan} ${two} CODE 0 OUT "2 ranks: tensor 1 x pipeline 1 x expert 2 x data 1" "a step is 2 samples")
expect(RUN ${plan} ${two} --world-size 4 --layouts 1x1 2x1 CODE 0 OUT "1x1" "2x1")
# Rows of 2 of 4 experts, two of them here: 5 of 6 tokens go to the other rank, in the place of all of them.
expect(RUN ${plan} ${two} --zero-stage 0 --json CODE 0 OUT "\"all_to_all\":0,")
expect(RUN ${plan} ${two} --zero-stage 0 --moe-token-dispatcher-type flex --json CODE 0 OUT "\"all_to_all\":[1-9]")
expect(RUN ${plan} ${two} --moe-token-dispatcher-type rows CODE 2
       ERR "--moe-token-dispatcher-type: [^\n]*rows[^\n]*allgather[^\n]*alltoall[^\n]*flex")
expect(RUN inspect layout ${two} --world-size 4 CODE 0 OUT "3 +0 +0 +1 +1 +0")
# Also without expert ranks: it ended with an internal error.
expect(RUN ${plan} --step-time CODE 0 OUT "tokens/s")

# The input of a token's one expert is weighted, and a random router sends all experts as many tokens: on any ranks.
set(bare pretrain --model llama-tiny --num-experts 4 --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer --seq-length 32
         --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --split 90,10,0 --moe-aux-loss-coeff 1e-2 --hidden-dropout 0.1)
set(random --moe-router-force-load-balancing)
set(inputs --moe-router-topk 1 --moe-router-pre-softmax)
run_on(1 outputs ${inputs} --train-iters 6)
set(outputs "${LOSSES}")
foreach(flags "${inputs};--moe-apply-probs-on-input" "${random}")
  run_on(1 flags_one ${flags} --train-iters 6)
  set(one "${LOSSES}")
  if(one STREQUAL outputs)
    message(FATAL_ERROR "${flags}: ${one}\n${LOG}")
  endif()
  run_on(2 flags_experts ${flags} --train-iters 6 ${two})
  expect_losses("${flags}, expert ranks" "${one}" "${LOSSES}")
  run_on(2 flags_tensor ${flags} --train-iters 6 --tensor-model-parallel-size 2 --sequence-parallel)
  expect_losses("${flags}, tensor ranks" "${one}" "${LOSSES}")
  file(REMOVE_RECURSE ${WORK}/flags_one ${WORK}/flags_experts ${WORK}/flags_tensor)
endforeach()
if(NOT LOG MATCHES "tokens go to random experts, for benchmarks; what this run learns is of no use")
  message(FATAL_ERROR "no warning of a random router:\n${LOG}")
endif()
expect(RUN bench train --model llama-tiny --num-experts 4 ${random} --seq-length 32 --micro-batch-size 1 --rounds 1 CODE 0
       ERR "tokens go to random experts, for benchmarks")
expect(RUN finetune --load ${WORK}/one ${random} --data-path ${WORK}/prompts.txt --tokenizer-type ByteTokenizer
       --seq-length 32 --train-iters 1 --lr 1e-2 CODE 2 ERR "--moe-router-force-load-balancing: is for piton pretrain and piton bench train")
expect(RUN ${plan} --moe-apply-probs-on-input CODE 2 ERR "--moe-apply-probs-on-input: needs --moe-router-topk 1, got 2")

# The bias of the choice is a part of the model.
expect(RUN inspect ${WORK}/one/iter_0000006 CODE 0 OUT "layers.0.mlp.router.bias")

# Refused, in one line.
expect(RUN ${plan} --moe-router-num-groups 3 --moe-router-group-topk 2 CODE 2
       ERR "--moe-router-num-groups: got 3, wanted a divisor of --num-experts, which is 4")
expect(RUN plan --model llama-tiny --num-experts 4 --moe-pad-expert-input-to-capacity CODE 2
       ERR "--moe-pad-expert-input-to-capacity: there is no capacity; give --moe-expert-capacity-factor too")
expect(RUN ${plan} --moe-expert-capacity-factor 0 CODE 2 ERR "--moe-expert-capacity-factor: got 0, wanted a positive number")
expect(RUN ${plan} ${two} --step-time CODE 2 ERR "the time of a step with --expert-model-parallel-size depends on how many")
expect(RUN ${plan} ${two} --world-size 3 CODE 2
       ERR "--expert-model-parallel-size: got 2, wanted a number that divides the 3 data-parallel ranks")
expect(RUN ${plan} --expert-model-parallel-size 3 CODE 2 ERR "layout: 4 experts cannot be divided over 3 ranks")
expect(RUN plan --model llama-tiny ${two} CODE 2
       ERR "--expert-model-parallel-size divides the experts of a mixture, and the model has none")
expect(RUN generate --load ${WORK}/one --prompt-ids 1,2 --max-new-tokens 1 ${two} CODE 0
       ERR "--expert-model-parallel-size: no meaning here: each rank has all experts of its layers")
