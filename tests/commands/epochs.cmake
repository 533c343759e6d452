# A run that reads its corpus two and a half times resumes in the middle of an epoch, at its end and beyond it as if it
# had never been interrupted, in other pieces, and with other numbers of samples in a micro-batch.
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
