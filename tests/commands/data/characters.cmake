# generate prints whole characters of UTF-8, although each is several tokens: streamed and not, where a text ends inside of one,
# and at stop words.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(characters é 😀 日 本)
set(lengths 2 4 3 3)
string(JOIN "" once ${characters})
string(REPEAT "${once}" 200 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 48 --micro-batch-size 4 --train-iters 80 --lr 5e-3 --save ${WORK}/run CODE 0)

function(prints wanted)
  foreach(way "" --stream)
    execute_process(COMMAND ${PITON} generate --load ${WORK}/run --prompt "${once}${once}" --greedy ${ARGN} ${way}
      OUTPUT_VARIABLE out RESULT_VARIABLE code)
    if(NOT code EQUAL 0 OR NOT out STREQUAL "${wanted}\n")
      message(FATAL_ERROR "${ARGN} ${way}: exit ${code}: \"${out}\" instead of \"${wanted}\"")
    endif()
  endforeach()
endfunction()

# After n bytes: the characters that are complete, then U+FFFD for the one that is not.
foreach(count RANGE 1 15)
  set(wanted "")
  set(left ${count})
  set(next 0)
  while(left GREATER 0)
    math(EXPR index "${next} % 4")
    list(GET characters ${index} character)
    list(GET lengths ${index} length)
    if(left LESS length)
      string(APPEND wanted "�")
    else()
      string(APPEND wanted "${character}")
    endif()
    math(EXPR left "${left} - ${length}")
    math(EXPR next "${next} + 1")
  endwhile()
  prints("${wanted}" --max-new-tokens ${count})
endforeach()

# The stop word's first two bytes begin another character too; it ends a text wherever it is complete, and not before.
prints("é😀日" --max-new-tokens 24 --stop 本)
prints("é😀" --max-new-tokens 24 --stop 日本)
prints("é😀日�" --max-new-tokens 11 --stop 本)
prints("é😀日" --max-new-tokens 9 --stop 日本)
prints("é" --max-new-tokens 24 --stop 本 😀)
# JSON has the same text.
expect(RUN generate --load ${WORK}/run --prompt "${once}${once}" --greedy --max-new-tokens 8 --json CODE 0 OUT "^{\"text\":\"é😀�\"")
