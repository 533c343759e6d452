# A run that reads its corpus two and a half times resumes in the middle of an epoch, at its end and beyond it as if it
# had never been interrupted, in other pieces, and with other numbers of samples in a micro-batch.
# --num-train-epochs finds the length of a run in its data, and --full-validation takes the mean of all validation samples.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
foreach(line RANGE 1 29)
  file(APPEND ${WORK}/text.txt "Line ${line} of a text that is read again and again.\n")
endforeach()
file(SIZE ${WORK}/text.txt bytes)
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod --output-prefix ${WORK}/corpus CODE 0)
set(run pretrain --model gpt2-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer --split 100,0,0
        --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 27 --lr 1e-3 --hidden-dropout 0.1)
# 27 x 4 samples of 32 tokens are between 2.4 and 2.6 times the corpus.
math(EXPR tenths "10 * 27 * 4 * 32 / ${bytes}")
if(tenths LESS 24 OR tenths GREATER 25)
  message(FATAL_ERROR "the corpus of ${bytes} bytes is read ${tenths} tenths")
endif()

expect(RUN ${run} --save ${WORK}/whole CODE 0 OUT "iteration +27/ +27 ")
state_of(${WORK}/whole wanted)
# After 5, 20 and 26 updates in the middle of an epoch; the corpus ends for the first time before the 12th, for the second
# before the 23rd.
foreach(stops "5" "11" "12" "5 20" "22 23" "10 11 12 13 26")
  string(REPLACE " " "_" name "parts_${stops}")
  separate_arguments(stops)
  foreach(stop IN LISTS stops)
    expect(RUN ${run} --save ${WORK}/${name} --load ${WORK}/${name} --exit-interval ${stop} CODE 0 OUT "iteration +${stop}/ +27 ")
  endforeach()
  list(GET stops -1 stop)
  expect(RUN ${run} --save ${WORK}/${name} --load ${WORK}/${name} CODE 0 OUT "resumed [^\n]*iteration ${stop}," "iteration +27/ +27 ")
  state_of(${WORK}/${name} hash)
  if(NOT hash STREQUAL wanted)
    message(FATAL_ERROR "stopped after ${stops}: ${hash} instead of ${wanted}")
  endif()
endforeach()

# 80 % of the corpus are 1107 tokens: 2.5 times those are floor((3 x 1107 - 1) / 32) x 2.5 / 3 = 85.8 samples. The decay ends
# with the run, and a warm-up may be a share of it.
set(length --split 80,20,0 --data-path ${WORK}/corpus_text_document --model gpt2-tiny --tokenizer-type ByteTokenizer
           --seq-length 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-3 --hidden-dropout 0.1)
set(found "--num-train-epochs 2.5: 86 samples, 22 updates of 4; 2 of the next epoch complete the last batch\n")
expect(RUN pretrain ${length} --num-train-epochs 2.5 --dry-run CODE 0 OUT "${found}" "it would do 22 updates, to iteration 22,")
set(share --lr-warmup-fraction 0.5 --full-validation --eval-interval 11)
expect(RUN pretrain ${length} ${share} --num-train-epochs 2.5 --save ${WORK}/found CODE 0
  OUT "${found}" "iteration +12/ +22 [^\n]*learning rate: 1.000E-03" "iteration +22/ +22 [^\n]*learning rate: 9.091E-05")
expect(RUN pretrain ${length} ${share} --train-iters 22 --save ${WORK}/said CODE 0)
expect_same_state(found said)
expect(RUN pretrain ${length} ${share} --num-train-epochs 2.5 --save ${WORK}/found-parts --exit-interval 9 CODE 0)
expect(RUN pretrain ${length} ${share} --num-train-epochs 2.5 --save ${WORK}/found-parts --load ${WORK}/found-parts CODE 0
  OUT "resumed [^\n]*iteration 9," "iteration +22/ +22 ")
expect_same_state(found found-parts)
expect(RUN resume ${WORK}/found-parts --num-train-epochs 3 --override-opt_param-scheduler CODE 0
  OUT "--num-train-epochs 3: 103 samples, 26 updates of 4; 1 of" "iteration +26/ +26 ")
expect(RUN pretrain ${length} --num-train-epochs 2 --train-iters 3 CODE 2 ERR "--num-train-epochs 2 and --train-iters 3: give one of them\n")
expect(RUN pretrain ${length} --num-train-epochs 0 CODE 2 ERR "--num-train-epochs: got 0, wanted a number above 0")
expect(RUN pretrain --num-train-epochs 2 ${length} --data-path 1 ${WORK}/corpus_text_document CODE 2
  ERR "--num-train-epochs: a blend by weights reads parts of its corpora, and has no epochs; give --train-iters")

# All 8 validation samples once, in batches of any size and on two ranks: one of 3 or 6 is completed by padding.
set(losses "")
foreach(rule "6 --full-validation ranks" "1 --full-validation" "3 --full-validation" "8 --full-validation" "8 --eval-iters 1")
  separate_arguments(rule)
  set(start ${PITON})
  if(rule MATCHES "ranks")
    list(REMOVE_ITEM rule ranks)
    set(start ${LAUNCH} 2 ${PITON})
  endif()
  execute_process(COMMAND ${start} pretrain ${length} --load ${WORK}/found --finetune --skip-train --train-iters 1 --micro-batch-size 1
    --global-batch-size ${rule} OUTPUT_VARIABLE log ERROR_VARIABLE log)
  string(REGEX MATCH "lm loss value: [0-9]\\.[0-9][0-9][0-9][0-9]" loss "${log}")
  list(APPEND losses "${loss}")
endforeach()
list(REMOVE_DUPLICATES losses)
if(NOT losses MATCHES "^lm loss value: [0-9.]+$")
  message(FATAL_ERROR "mean of all validation samples: ${losses}")
endif()

# At a rate that changes nothing, every validation loss is that of iteration 2: two evaluations later the run stops, also if it
# was stopped in between, and does not go on. The checkpoint of the lowest loss stays.
set(still pretrain ${length} --hidden-dropout 0 --attention-dropout 0 --lr 1e-30 --weight-decay 0 --train-iters 20 --full-validation
          --eval-interval 2 --early-stopping-patience 2)
expect(RUN ${still} --keep-best --save ${WORK}/early CODE 0 OUT "stopped by --early-stopping-patience 2 at iteration 6\n"
  "--keep-best: the lowest validation loss, 5[.0-9]+, is that of iteration 2: --ckpt-step 2\n")
file(GLOB kept RELATIVE ${WORK}/early ${WORK}/early/iter_*)
file(READ ${WORK}/early/best_checkpointed_iteration.txt best)
if(NOT kept STREQUAL "iter_0000002;iter_0000006" OR NOT best STREQUAL "2\n")
  message(FATAL_ERROR "kept: ${kept}, best: ${best}")
endif()
expect(RUN ${still} --keep-best --save ${WORK}/early --load ${WORK}/early CODE 0 OUT "stopped by --early-stopping-patience 2 at iteration 6\n")
expect(RUN ${still} --keep-best --save ${WORK}/early-parts --exit-interval 5 CODE 0 OUT "stopped by --exit-interval at iteration 5\n")
expect(RUN ${still} --keep-best --save ${WORK}/early-parts --load ${WORK}/early-parts CODE 0
  OUT "stopped by --early-stopping-patience 2 at iteration 6\n" "is that of iteration 2: ")
expect_same_state(early early-parts)
expect(RUN pretrain ${length} --train-iters 2 --keep-best --save ${WORK}/none CODE 2 ERR "--keep-best: needs validation losses; give --eval-iters")
expect(RUN ${still} --keep-best CODE 2 ERR "--keep-best: needs --save DIR to save to")
expect(RUN pretrain ${length} --train-iters 2 --early-stopping-threshold 0.1 CODE 2 ERR "--early-stopping-threshold: needs --early-stopping-patience")

# Iterations that are skipped pass over their samples and are no step of the schedule.
expect(RUN pretrain ${length} --train-iters 6 --iterations-to-skip 0 2 5 CODE 0
  OUT "iteration 1: --iterations-to-skip 0: its 4 samples are passed over\n"
  "iteration +2/ +6 . consumed samples: +8 [^\n]*learning rate: 1.000E-03"
  "iteration +4/ +6 . consumed samples: +16 [^\n]*learning rate: 8.333E-04" "iteration 6: --iterations-to-skip 5")
