# Books, splits, and the .json file of a corpus.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")

# A text file is one document, with its line ends.
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0 OUT "corpus_text_document.bin: 1 documents, 8501 tokens"
           ERR "next: piton pretrain --data-path [^ ]*corpus_text_document ")
expect(RUN inspect ${WORK}/corpus_text_document --json CODE 0 OUT "\"tokenizer\":{\"name\":\"byte\"" "\"sample-by\":\"document\"")
expect(RUN inspect ${WORK}/corpus_text_document CODE 0 OUT "made by piton [0-9.]+ with the tokenizer byte")

# Documents that were left out are counted, if there are any.
file(WRITE ${WORK}/rows.jsonl "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"a\"}\n")
set(rows preprocess --input ${WORK}/rows.jsonl --tokenizer-type ByteTokenizer --output-prefix ${WORK}/rows --overwrite)
expect(RUN ${rows} CODE 0 OUT "rows_text_document.bin: 3 documents" ERR "MB of text in [0-9.]+ s\n")
expect(RUN ${rows} --remove-duplicates CODE 0 OUT "rows_text_document.bin: 2 documents" ERR "MB of text in [0-9.]+ s, 1 duplicates left out\n")

# One document, three splits: each gets a stretch of it, and the run reports it.
set(run pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --seq-length 32 --train-iters 2
        --micro-batch-size 2 --eval-iters 1)
expect(RUN ${run} --tokenizer-type ByteTokenizer CODE 0
       ERR "one document to divide by --split 969, 30, 1: each set gets a stretch" "validation loss at iteration 2 [|]"
           "validation loss at iteration 2 on test set [|] lm loss value: ")
expect(RUN ${run} --tokenizer-type ByteTokenizer --split 50,50,0 CODE 0 ERR "the first 4250 to train")

# By its file; under another tokenizer; with the card of another corpus; without one.
set(by_file ${run})
list(TRANSFORM by_file APPEND ".bin" REGEX "corpus_text_document$")
expect(RUN ${by_file} --tokenizer-type ByteTokenizer CODE 0)
set(tokenizer ${SOURCE}/../shared/data/tokenizers/llama2)
if(EXISTS ${tokenizer})
  expect(RUN ${run} --tokenizer-name-or-path ${tokenizer} CODE 3
         ERR "its ids are of the tokenizer byte .*, and the run has .*preprocess again")
endif()
file(READ ${WORK}/corpus_text_document.json card)
string(REPLACE "\"tokens\": 8501" "\"tokens\": 8500" other "${card}")
file(WRITE ${WORK}/corpus_text_document.json "${other}")
expect(RUN ${run} --tokenizer-type ByteTokenizer CODE 3 ERR "says 8500 tokens, and .* has 8501; it belongs to another corpus")
file(REMOVE ${WORK}/corpus_text_document.json)
expect(RUN ${run} --tokenizer-type ByteTokenizer CODE 0 ERR "nothing says which tokenizer made it")

# Corpora of different tokenizers are not joined.
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/a CODE 0)
expect(RUN preprocess --merge ${WORK}/a_text_document ${WORK}/a_text_document --output-prefix ${WORK}/twice CODE 0)
expect(RUN inspect ${WORK}/twice CODE 0 OUT "made by piton")
if(EXISTS ${tokenizer})
  expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${tokenizer} --output-prefix ${WORK}/b CODE 0)
  expect(RUN preprocess --merge ${WORK}/a_text_document ${WORK}/b_text_document --output-prefix ${WORK}/both CODE 3
         ERR "one corpus has one")
endif()

# A resume reads the corpora of the run, in the same shares; they may have moved.
string(REPEAT "Doubt thou the stars are fire, doubt that the sun doth move, doubt truth\n" 100 other)
file(WRITE ${WORK}/other.txt "${other}")
foreach(name text other)
  expect(RUN preprocess --input ${WORK}/${name}.txt --tokenizer-type ByteTokenizer --append-eod --output-prefix ${WORK}/${name} CODE 0)
endforeach()
set(a ${WORK}/text_text_document)
set(b ${WORK}/other_text_document)
set(blend pretrain --model llama-tiny --tokenizer-type ByteTokenizer --seq-length 32 --train-iters 4 --lr-decay-style constant
          --split 100,0,0 --save ${WORK}/blend)
expect(RUN ${blend} --data-path 0.9 ${a} 0.1 ${b} --exit-interval 2 CODE 0)
list(APPEND blend --load ${WORK}/blend)
expect(RUN ${blend} --data-path 0.1 ${a} 0.9 ${b} CODE 2
       ERR "--data-path: [^\n]* has 2 corpora, weights 0.9, 0.1, this run has 2 corpora, weights 0.1, 0.9; use its values")
expect(RUN ${blend} --data-path ${a} CODE 2 ERR "--data-path: [^\n]* has 2 corpora, weights 0.9, 0.1, this run has 1 corpus;")
expect(RUN ${blend} --data-path ${b} CODE 2 ERR "this run has 1 corpus;")
expect(RUN ${blend} --data-path ${a} ${b} CODE 2 ERR "this run has 2 corpora;")
set(weighted --train-weighted-split-paths "T: 0.9 0:0.9 ${a}, 0.1 0:1 ${b}")
expect(RUN ${blend} ${weighted} CODE 2 ERR "--split: divides --data-path, and --train-weighted-split-paths [^\n]* leave one of them out")
expect(RUN ${blend} ${weighted} --split 969,30,1 CODE 2
       ERR "this run has 2 corpora, weights 0.9, 0.1, of each 0:0.9, 0:1;")
expect(RUN ${blend} --data-path 0.9 ${b} 0.1 ${a} CODE 3 ERR "corpus [^\n]*other_text_document has changed since the checkpoint")
expect(RUN ${blend} --data-path 0.9 ${a} 0.1 ${b} 0.1 ${b} CODE 2 ERR "this run has 3 corpora")
foreach(part bin idx json)
  file(RENAME ${b}.${part} ${WORK}/moved.${part})
endforeach()
expect(RUN ${blend} --data-path 9 ${a}.bin 1 ${WORK}/moved CODE 0 ERR "resumed [^\n]*iteration 2," "iteration +4/ +4 ")

# Several validation sets: each has the loss that it has alone, under every layout, and the whole their mean by tokens.
foreach(name text other)
  file(MAKE_DIRECTORY ${WORK}/${name})
  expect(RUN preprocess --input ${WORK}/${name}.txt --tokenizer-type ByteTokenizer --append-eod
             --output-prefix ${WORK}/${name}/book CODE 0)
endforeach()
set(sets pretrain --model llama-tiny --tokenizer-type ByteTokenizer --seq-length 32 --train-iters 2 --micro-batch-size 2
         --global-batch-size 4 --eval-iters 1 --train-data-path ${WORK}/text/book_text_document)
set(a ${WORK}/text/book_text_document)
set(b ${WORK}/other/book_text_document)
# Sets RESULT to a number of the second line of the metrics of ${WORK}/folder.
function(second_step folder)
  file(STRINGS ${WORK}/${folder}/metrics.jsonl metrics)
  list(GET metrics 1 metrics)
  string(JSON number GET "${metrics}" ${ARGN})
  set(RESULT ${number} PARENT_SCOPE)
endfunction()
expect(RUN ${sets} --valid-data-path ${a} --save ${WORK}/set_a CODE 0)
expect(RUN ${sets} --valid-data-path ${b} --save ${WORK}/set_b CODE 0)
second_step(set_a validation_loss)
set(loss_a ${RESULT})
second_step(set_b validation_loss)
set(loss_b ${RESULT})
if(loss_a STREQUAL loss_b)
  message(FATAL_ERROR "two corpora have one loss, ${loss_a}")
endif()
set(both ${sets} --valid-data-path ${a} ${b} --multiple-validation-sets)
expect(RUN ${both} --save ${WORK}/sets CODE 0
       ERR "validation loss at iteration 2 on text/book_text_document [|] lm loss value: "
           "validation loss at iteration 2 on other/book_text_document [|] lm loss value: "
           "validation loss at iteration 2 [|] lm loss value: ")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${both} --save ${WORK}/sets_of_two RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "several validation sets on two ranks: exit ${code}\n${error}")
endif()
foreach(folder sets sets_of_two)
  second_step(${folder} validation_losses text/book_text_document)
  set(of_a ${RESULT})
  second_step(${folder} validation_losses other/book_text_document)
  set(of_b ${RESULT})
  if(folder STREQUAL sets AND NOT "${of_a} ${of_b}" STREQUAL "${loss_a} ${loss_b}")
    message(FATAL_ERROR "sets have other losses than alone: ${of_a} ${of_b}, ${loss_a} ${loss_b}")
  endif()
  second_step(${folder} validation_loss)
  execute_process(COMMAND awk "function far(x, y) { return x - y > 1e-5 || y - x > 1e-5 }
    BEGIN { exit far(${of_a}, ${loss_a}) || far(${of_b}, ${loss_b}) || far(${RESULT}, (${loss_a} + ${loss_b}) / 2) }"
    RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${folder}: got ${of_a}, ${of_b} and ${RESULT}, wanted ${loss_a}, ${loss_b} and their mean")
  endif()
endforeach()
expect(RUN report ${WORK}/sets --output ${WORK}/sets.html CODE 0)
file(READ ${WORK}/sets.html page)
if(NOT page MATCHES "validation loss, other/book_text_document")
  message(FATAL_ERROR "the report has no curve of each set")
endif()
# Texts of shares are sets by themselves.
set(texts --train-weighted-split-paths "T: 1 0:1 ${a}" --valid-weighted-split-paths "A: 1 0:1 ${a}" "B: 1 0:1 ${b}")
list(REMOVE_ITEM sets --train-data-path ${a})
expect(RUN ${sets} ${texts} CODE 0 ERR "loss at iteration 2 on A [|]" "loss at iteration 2 on B [|]" "loss at iteration 2 [|]")
expect(RUN ${sets} --train-weighted-split-paths "T: 1 0:1 ${a}" --valid-weighted-split-paths "A: 1 0:1 ${a}" "A: 1 0:1 ${b}"
       CODE 2 ERR "--valid-weighted-split-paths: two sets have the name A; rename one of them")
expect(RUN ${sets} --train-data-path ${a} --valid-data-path 1 ${a} 1 ${b} --multiple-validation-sets
       CODE 2 ERR "--valid-data-path: got weights with --multiple-validation-sets")
expect(RUN ${sets} --train-data-path ${a} --valid-data-path ${a} ${a} --multiple-validation-sets
       CODE 2 ERR "is named twice, wanted each corpus once")
expect(RUN ${sets} --data-path ${a} --multiple-validation-sets CODE 2 ERR "--multiple-validation-sets: the sets are the corpora of --valid-data-path")
