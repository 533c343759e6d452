# Samples divided over context ranks by mpirun: the losses of one process with dropout and packed documents, evaluated, also
# on a task, saved and continued on one process; planned; and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(bare pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --split 90,10,0 --hidden-dropout 0.1
         --attention-dropout 0.1 --reset-attention-mask --reset-position-ids --eval-interval 3 --eval-iters 2
         --eval-tasks LAMBADA --eval-tasks-interval 3 --eval-tasks-data-path ${SOURCE}/tests/golden/evaluation/data
         --eval-tasks-samples 2)

set(two --context-parallel-size 2)
run_on(1 one --train-iters 6)
set(one "${LOSSES}")
run_on(2 ring --train-iters 6 ${two})
expect_losses("ring" "${one}" "${LOSSES}")
run_on(2 heads --train-iters 6 ${two} --cp-comm-type a2a)
expect_losses("all-to-all" "${one}" "${LOSSES}")
run_on(2 gathered --train-iters 6 ${two} --cp-comm-type allgather)
expect_losses("gathered" "${one}" "${LOSSES}")
# MindSpeed's flags; resumed with a type for each of the four layers.
run_on(4 both --train-iters 3 --lr-decay-iters 6 --context-parallel-size 4 --context-parallel-algo hybrid_cp_algo
       --ulysses-degree-in-cp 2)
run_on(2 both --train-iters 6 --load ${WORK}/both ${two} --cp-comm-type p2p a2a all_gather p2p)
expect_losses("heads and rings, then each" "${one}" "${LOSSES}")

# Layers that read rows in order, of training and of the texts of a task.
set(states --linear-attention-freq 2 --linear-num-key-heads 2 --linear-num-value-heads 4 --linear-key-head-dim 8
           --linear-value-head-dim 8)
run_on(1 states-one --train-iters 6 ${states})
set(one_states "${LOSSES}")
run_on(2 states --train-iters 6 ${two} ${states})
expect_losses("the gated delta rule" "${one_states}" "${LOSSES}")

# Three steps on two ranks and three more on one are six.
run_on(2 parts --train-iters 3 --lr-decay-iters 6 ${two})
run_on(1 parts --train-iters 6 --load ${WORK}/parts)
expect_losses("two ranks, then one" "${one}" "${LOSSES}")

expect(RUN plan --model llama-tiny ${two} --tensor-model-parallel-size 2 --world-size 8 CODE 0
       OUT "8 ranks: tensor 2 x context 2 x pipeline 1 x data 2")
expect(RUN plan --model llama-tiny ${two} --json CODE 0 OUT "\"all_to_all\":0,\"point_to_point\":[1-9]")
expect(RUN plan --model llama-tiny ${two} --cp-comm-type a2a --json CODE 0 OUT "\"all_to_all\":[1-9][0-9]*,\"point_to_point\":0")
set(both --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes)
expect(RUN plan --model llama-tiny --context-parallel-size 4 ${both} 2 2 --json CODE 0
       OUT "\"all_to_all\":[1-9][0-9]*,\"point_to_point\":[1-9]")
expect(RUN plan --model llama-tiny ${two} --cp-comm-type allgather --zero-stage 0 --json CODE 0
       OUT "\"all_gather\":[1-9][0-9]*,\"reduce_scatter\":[1-9][0-9]*,\"all_to_all\":0,\"point_to_point\":0")
expect(RUN plan --model llama-tiny --context-parallel-size 4 ${both} 2 2 --step-time CODE 0)

# Refused, in one line.
set(plan plan --model llama-tiny)
expect(RUN ${bare} --train-iters 1 ${two} CODE 2 ERR "mesh: 1 process cannot form tensor 1 x context 2 x pipeline 1; start a multiple of 2")
expect(RUN ${plan} ${two} --seq-length 30 CODE 2 ERR "--seq-length: got 30, wanted a multiple of 4")
expect(RUN ${plan} ${two} --seq-length 36 --attention-dropout 0.1 CODE 2 ERR "--seq-length: got 36, wanted a multiple of 16")
expect(RUN ${plan} ${two} --seq-length 36 --attention-dropout 0.1 --cp-comm-type a2a CODE 0)
expect(RUN ${plan} --context-parallel-size 4 --cp-comm-type a2a CODE 2
       ERR "--cp-comm-type a2a: 2 query groups cannot be split over tensor 1 x context 4 ranks")
expect(RUN ${plan} ${two} --cp-comm-type rings CODE 2 ERR "--cp-comm-type: [^\n]*rings[^\n]*p2p[^\n]*a2a[^\n]*allgather")
expect(RUN ${plan} ${two} --cp-comm-type p2p a2a CODE 2 ERR "--cp-comm-type: got 2 types, wanted 1, or 4, one for each layer")
expect(RUN ${plan} --context-parallel-size 8 ${both} 2 2 CODE 2
       ERR "--hierarchical-context-parallel-sizes: got 2 2, wanted two numbers whose product is --context-parallel-size, which is 8")
expect(RUN ${plan} --context-parallel-size 0 CODE 2 ERR "--context-parallel-size is 0, wanted at least 1")
expect(RUN plan --model bert-tiny ${two} CODE 2 ERR "--context-parallel-size divides the rows of decoders")
expect(RUN ${plan} ${two} --stage dpo CODE 2 ERR "--context-parallel-size: divides samples, and --stage")
expect(RUN generate --load ${WORK}/one --prompt-ids 1,2 --max-new-tokens 1 ${two} CODE 0
       ERR "--context-parallel-size: no meaning here: each rank has all tokens of a text")
