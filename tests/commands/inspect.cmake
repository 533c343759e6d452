# piton inspect: corpora, tokenizers, samples, layouts, and the messages for other paths.
include(${SOURCE}/tests/support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/empty)

# Documents of 3, 0 and 5 bytes: 4, 0 and 6 ids, since nothing ends an empty document.
file(WRITE ${WORK}/three.jsonl "{\"text\": \"abc\"}\n{\"text\": \"\"}\n{\"text\": \"hello\"}\n")
expect(RUN preprocess --input ${WORK}/three.jsonl --output-prefix ${WORK}/three --tokenizer-type ByteTokenizer
  --append-eod CODE 0)
set(corpus ${WORK}/three_text_document)
set(bytes --tokenizer-type ByteTokenizer)

# A corpus.
foreach(name ${corpus} ${corpus}.idx ${corpus}.bin)
  expect(RUN inspect ${name} CODE 0 OUT "three_text_document: 3 documents .1 empty., 2 sequences, 10 tokens as uint16"
    "tokens a sequence: 4 to 6, mean 5.0" "\nsequence 0: 97 98 99 256\n")
endforeach()
expect(RUN inspect ${corpus} ${bytes} --count 1 CODE 0 OUT "\nsequence 0: abc")
expect(RUN inspect ${corpus} --json --scan-ids CODE 0 OUT "\"documents\":3,\"empty_documents\":1,\"sequences\":2,\"tokens\":10"
  "\"histogram\":.0,0,0,2." "\"largest_id\":256")

# Samples. 10 tokens make two samples of 4 and a next token.
set(samples inspect samples --data-path ${corpus} --split 1,0,0 --seq-length 4)
execute_process(COMMAND ${PITON} ${samples} ${bytes} --count 2 --json --eod-mask-loss OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "inspect samples: ${code} ${err}")
endif()
string(REGEX REPLACE "\n$" "" out "${out}")
string(REPLACE "\n" ";" lines "${out}")
list(LENGTH lines number)
if(NOT number EQUAL 2)
  message(FATAL_ERROR "wanted two lines, got: ${out}")
endif()
foreach(line IN LISTS lines)
  # Labels are the ids one place on, and only the end of a document is outside the loss.
  foreach(i RANGE 3)
    string(JSON id GET "${line}" ids ${i})
    string(JSON counted GET "${line}" loss_mask ${i})
    if((id EQUAL 256) EQUAL (counted EQUAL 1))
      message(FATAL_ERROR "place ${i}: the loss mask is ${counted} for id ${id}: ${line}")
    endif()
    if(i LESS 3)
      math(EXPR next "${i} + 1")
      string(JSON label GET "${line}" labels ${i})
      string(JSON following GET "${line}" ids ${next})
      if(NOT label EQUAL following)
        message(FATAL_ERROR "place ${i}: label ${label}, the next id is ${following}: ${line}")
      endif()
    endif()
  endforeach()
endforeach()
expect(RUN ${samples} ${bytes} --count 2 --eod-mask-loss CODE 0 OUT "--- sample 0: 4 tokens, [0-4] in the loss\n"
  "--- sample 1: " "\\[-.-\\]" ERR "--train-iters is not given")
expect(RUN ${samples} --count 2 CODE 0 OUT "--- sample 0: 4 tokens, 4 in the loss\n\\[-[0-9]+-\\] [0-9]+ [0-9]+ [0-9]+ [0-9]+\n")
# The order is the run's own: the second sample is the second also when it is asked for alone.
execute_process(COMMAND ${PITON} ${samples} --train-iters 2 --count 2 --json OUTPUT_VARIABLE both)
execute_process(COMMAND ${PITON} ${samples} --train-iters 2 --json --first 1 --count 1 OUTPUT_VARIABLE second)
string(FIND "${both}" "{\"index\":1," at)
if(at GREATER 0)
  string(SUBSTRING "${both}" ${at} -1 of_both)
endif()
if(NOT at GREATER 0 OR NOT of_both STREQUAL second)
  message(FATAL_ERROR "the second sample differs: ${both}, alone ${second}")
endif()
# A recipe names the data as it does for pretrain.
file(WRITE ${WORK}/run.toml "data-path = [\"${corpus}\"]\nsplit = \"1,0,0\"\nseq-length = 4\n")
expect(RUN inspect samples ${WORK}/run.toml --count 1 --json CODE 0 OUT "^{\"index\":0,\"ids\":.[0-9]+,")

# Tokenizers: by their options, and by a folder.
expect(RUN inspect ${bytes} CODE 0 OUT "257 ids, 384 rows in a model" "\n  eod +256  <.endoftext.>\n")
expect(RUN inspect ${bytes} --json CODE 0 OUT "\"vocabulary_size\":257,\"padded_vocabulary_size\":384" "\"eod\":256")
file(WRITE ${WORK}/wordpiece/vocab.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n")
expect(RUN inspect ${WORK}/wordpiece CODE 0 OUT "7 ids" "\n  cls +2  .CLS.\n")
set(llama ${SOURCE}/../shared/data/tokenizers/llama2)
if(EXISTS ${llama})
  expect(RUN inspect ${llama} --json CODE 0 OUT "\"vocabulary_size\":32000" "\"bos\":1,\"eos\":2")
  expect(RUN inspect ${llama}/tokenizer.model CODE 0 OUT "32000 ids")
else()
  message(STATUS "skipped: ${llama} is not here")
endif()

expect(RUN inspect layout --tensor-model-parallel-size 2 --world-size 4 --json CODE 0
  OUT "{\"rank\":3,\"tensor\":1,\"context\":0,\"expert\":0,\"data\":1,\"pipeline\":0}")

# The hash of a model is that of the checkpoint that it becomes.
set(llama ${SOURCE}/tests/golden/huggingface/llama3)
expect(RUN convert --load ${llama} --save ${WORK}/converted --to piton CODE 0)
execute_process(COMMAND ${PITON} inspect ${WORK}/converted --hash --json OUTPUT_VARIABLE hash)
expect(RUN inspect ${llama} --hash --json CODE 0 OUT "{\"weights\":\"[0-9a-f]+\",\"optimizer\":\"\"}")
execute_process(COMMAND ${PITON} inspect ${llama} --hash --json OUTPUT_VARIABLE direct)
if(NOT direct STREQUAL hash)
  message(FATAL_ERROR "hash of a folder: ${direct}; of its checkpoint: ${hash}")
endif()

# What cannot be shown.
expect(RUN inspect CODE 2 ERR "^piton inspect: nothing is named; wanted a checkpoint, a corpus prefix")
expect(RUN inspect ${WORK}/absent CODE 3 ERR "absent: there is no such file or folder; wanted a checkpoint")
expect(RUN inspect ${WORK}/empty CODE 3 ERR "empty: cannot be described; wanted a checkpoint .*a corpus prefix")
expect(RUN inspect ${WORK}/three.jsonl CODE 3 ERR "three.jsonl: cannot be described")
expect(RUN inspect ${WORK}/empty --hash CODE 3 ERR "empty: no checkpoint")
expect(RUN inspect ${corpus} ${corpus} CODE 2 ERR "${corpus}")
expect(RUN inspect samples --seq-length 4 CODE 2 ERR "--data-path: no training data is named")
expect(RUN inspect samples --data-path ${corpus} CODE 2 ERR "--seq-length: is not given")
expect(RUN ${samples} --eod-mask-loss CODE 2 ERR "need an end-of-document id")
expect(RUN inspect samples --data-path ${WORK}/absent --seq-length 4 CODE 3 ERR "absent.idx")
expect(RUN inspect ${corpus} --count 0 CODE 2 ERR "--count: got 0, wanted 1 or more")
expect(RUN inspect samples --first -1 CODE 2 ERR "--first: got -1, wanted 0 or more")
file(WRITE ${WORK}/broken.idx "PK and more")
file(WRITE ${WORK}/broken.bin "")
expect(RUN inspect ${WORK}/broken CODE 3 ERR "broken.idx: not a token index: starts with")
file(WRITE ${WORK}/bad/tokenizer.json "{\"model\": 3}")
expect(RUN inspect ${WORK}/bad CODE 3 ERR "tokenizer.json")

# Each part has Megatron-core's order (tests/golden/megatron_samples.txt): the counts of a case follow from the run.
set(cases "a | 1,1,1 | 8 | 1234 | 100 10 5" "a | 8,1,1 | 16 | 7 | 1000 100 50" "0.3 a 0.7 b | 8,1,1 | 8 | 1234 | 500 40 20")
set(runs "5;20" "50;20" "20;25")  # global batch, iterations; one evaluation at half and at the end
file(STRINGS ${SOURCE}/tests/golden/megatron_samples.txt lines)
set(compared 0)
foreach(line IN LISTS lines)
  if(line MATCHES "^case (.*)$")
    list(FIND cases "${CMAKE_MATCH_1}" case)
    if(case LESS 0)
      continue()
    endif()
    string(REGEX MATCH "^(.*) \\| (.*) \\| (.*) \\| (.*) \\| " unused "${CMAKE_MATCH_1}")
    separate_arguments(paths UNIX_COMMAND "${CMAKE_MATCH_1}")
    math(EXPR at "${case} * 2")
    list(GET runs ${at} batch)
    math(EXPR at "${at} + 1")
    list(GET runs ${at} iterations)
    set(asked inspect samples --data-path ${paths} --split ${CMAKE_MATCH_2} --seq-length ${CMAKE_MATCH_3} --seed ${CMAKE_MATCH_4}
        --global-batch-size ${batch} --train-iters ${iterations} --eval-interval ${iterations} --eval-iters 1 --count 1 --json)
  elseif(case LESS 0)
    continue()
  elseif(line MATCHES "^set ([a-z]+) ")
    set(part ${CMAKE_MATCH_1})
  elseif(line MATCHES "^row ([0-9]+) (.*) [0-9]+$")
    string(REPLACE " " "," ids "${CMAKE_MATCH_2}")
    execute_process(COMMAND ${PITON} ${asked} --part ${part} --first ${CMAKE_MATCH_1} RESULT_VARIABLE code
                    OUTPUT_VARIABLE out ERROR_VARIABLE error WORKING_DIRECTORY ${SOURCE}/tests/golden/megatron)
    string(FIND "${out}" "\"ids\":[${ids}]" found)
    if(found LESS 0)
      message(FATAL_ERROR "${part}: ${line}\nexit ${code}: ${out}${error}")
    endif()
    math(EXPR compared "${compared} + 1")
  endif()
endforeach()
if(compared LESS 30)
  message(FATAL_ERROR "only ${compared} samples were compared")
endif()
expect(RUN ${samples} --part valid CODE 2 ERR "--part valid: it has no samples; give it a share .--split.")
expect(RUN ${samples} --part validation CODE 2 ERR "--part: got \"validation\", wanted one of train, valid, test")
expect(RUN inspect samples --data-path ${corpus} --split 0,1,0 --seq-length 4 --part valid --count 1 CODE 0
       OUT "^--- sample 0: 4 tokens" ERR "--train-iters is not given; the order is that of a run of 1 samples")
expect(RUN inspect samples --data-path ${corpus} --split 0,1,0 --seq-length 4 --part train CODE 2 ERR "no training data is named")
# A text in place of the corpus that is made of it.
expect(RUN inspect samples --seq-length 4 --tokenizer-type ByteTokenizer --data-path ${WORK}/three.jsonl CODE 3
       ERR "three.jsonl: is a file, wanted a corpus [^\n]*; make one with piton preprocess --input [^\n]*three.jsonl\n$")

# A checkpoint: every weight with its shape.
expect(RUN pretrain --model llama-tiny --mock-data --vocab-size 100 --seq-length 128 --train-iters 1 --save ${WORK}/run CODE 0)
expect(RUN inspect ${WORK}/run --json CODE 0 OUT "\"dtype\":\"fp32\",\"shape\":.100,64." "\"optimizer\":true"
       "\"parameters\":197696,")  # 2 x 100 x 64 of the tables, 46208 of each of 4 layers, 64 of the last norm
