# From raw text to a tokenizer, a corpus and a model, with no other program.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "{\"text\": \"All work and no play makes a dull text, all play and no work another.\"}\n" 40 lines)
file(WRITE ${WORK}/text.jsonl "${lines}")
set(input --input ${WORK}/text.jsonl)

foreach(algorithm byte-level-bpe bpe unigram wordpiece)
  set(folder ${WORK}/${algorithm})
  expect(RUN train-tokenizer ${input} --algorithm ${algorithm} --vocab-size 330 --save ${folder} CODE 0
    OUT "${algorithm}/tokenizer.json: [0-9]+ pieces from [0-9]+ different words\n$" ERR "next: piton preprocess")
  expect(RUN preprocess ${input} --tokenizer-name-or-path ${folder} --append-eod --output-prefix ${folder}/c CODE 0)
  expect(RUN inspect ${folder} CODE 0)
endforeach()
expect(RUN pretrain --model llama-tiny --tokenizer-name-or-path ${WORK}/byte-level-bpe --train-iters 2
  --data-path ${WORK}/byte-level-bpe/c_text_document --seq-length 16 --save ${WORK}/run CODE 0)

expect(RUN train-tokenizer ${input} --vocab-size 280 --save ${WORK}/json --json --threads 2 CODE 0
  OUT "^{\"file\":\".*/json/tokenizer.json\",\"pieces\":280,\"merges\":23,\"words\":[0-9]+,\"documents\":40,")
# The order of records and how many threads there are do not matter; what is there is not replaced.
expect(RUN train-tokenizer ${input} --vocab-size 280 --save ${WORK}/json --threads 1 CODE 2
  ERR "tokenizer.json is there already; give --overwrite, or another --save")
expect(RUN train-tokenizer ${input} --vocab-size 280 --save ${WORK}/again --threads 1 CODE 0)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${WORK}/json/tokenizer.json ${WORK}/again/tokenizer.json
  RESULT_VARIABLE differ)
if(differ)
  message(FATAL_ERROR "one thread and two learn different tokenizers")
endif()

expect(RUN train-tokenizer --save ${WORK}/x CODE 2 ERR "train-tokenizer: no --input; give files")
expect(RUN train-tokenizer ${input} CODE 2 ERR "no --save; give the folder for tokenizer.json")
expect(RUN train-tokenizer ${input} --json-keys body --save ${WORK}/x CODE 3 ERR "line 1 .byte 0.: no key .body.")
expect(RUN train-tokenizer ${input} --vocab-size 200 --save ${WORK}/x CODE 2 ERR "got 200, wanted at least 257")
expect(RUN train-tokenizer ${input} --special-tokens a a --save ${WORK}/x CODE 2 ERR "got .a. twice")
expect(RUN train-tokenizer ${input} --algorithm sentencepiece --save ${WORK}/x CODE 2 ERR "wanted one of byte-level-bpe")
file(WRITE ${WORK}/empty.txt "")
expect(RUN train-tokenizer --input ${WORK}/empty.txt --save ${WORK}/x CODE 3 ERR "no word in the input; is it empty")
if(EXISTS ${WORK}/x)
  message(FATAL_ERROR "a run that failed left its folder")
endif()
