# Files as others publish them, plain and packed, through `piton preprocess` and into `piton pretrain`.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

# preprocess_and_train(NAME KEY n files...): n documents, and two steps on them.
function(preprocess_and_train name key documents)
  expect(RUN preprocess --input ${ARGN} --json-keys ${key} --tokenizer-type ByteTokenizer --append-eod --workers 2
    --output-prefix ${WORK}/${name} --json CODE 0 OUT "\"documents\":${documents}," "\"bad_records\":0")
  expect(RUN pretrain --model gpt2-tiny --data-path ${WORK}/${name}_${key}_document --tokenizer-type ByteTokenizer
    --split 100,0,0 --seq-length 32 --micro-batch-size 2 --global-batch-size 2 --train-iters 2 --lr 1e-3
    CODE 0 ERR "iteration +2")
endfunction()

file(WRITE ${WORK}/dump.xml "<mediawiki><siteinfo/>
<page><title>One</title><ns>0</ns><id>1</id><revision><id>7</id><text xml:space=\"preserve\">'''One''' is a [[number|numeral]].{{cite}}

== History ==
It is &lt;old&gt;.</text></revision></page>
<page><title>Talk:One</title><ns>1</ns><id>2</id><revision><text>not an article</text></revision></page>
<page><title>Uno</title><ns>0</ns><id>3</id><redirect title=\"One\"/><revision><text>#REDIRECT [[One]]</text></revision></page>
<page><title>Two</title><ns>0</ns><id>4</id><revision><text>Two follows one, and three comes behind it.</text></revision></page>
</mediawiki>\n")
preprocess_and_train(dump text 2 ${WORK}/dump.xml)

set(shared ${SOURCE}/../shared/data)
if(NOT EXISTS ${shared}/text)
  message(STATUS "skipped: no shared test data at ${shared}")
  return()
endif()
preprocess_and_train(wiki text "[1-9][0-9]*" ${shared}/text/wikiextractor_wiki_00.txt)
preprocess_and_train(jsonl text "[1-9][0-9]*" ${shared}/text/c4_demo.jsonl)
preprocess_and_train(novel text "[1-9][0-9]*" ${shared}/text/zh_hongloumeng.txt)
file(SHA256 ${WORK}/novel_text_document.bin wanted)
foreach(packer gzip zstd bzip2 xz)
  find_program(${packer}_program ${packer})
  if(NOT ${packer}_program)
    message(STATUS "skipped: ${packer} is not here")
    continue()
  endif()
  execute_process(COMMAND ${${packer}_program} -c ${shared}/text/zh_hongloumeng.txt OUTPUT_FILE ${WORK}/novel.txt.${packer}
    RESULT_VARIABLE code)
  expect(RUN preprocess --input ${WORK}/novel.txt.${packer} --input-format text --tokenizer-type ByteTokenizer --append-eod
    --output-prefix ${WORK}/${packer} CODE 0)
  file(SHA256 ${WORK}/${packer}_text_document.bin got)
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "the novel packed by ${packer} gives other ids")
  endif()
endforeach()

file(GLOB parquet ${shared}/parquet/*.parquet)
execute_process(COMMAND ${PITON} preprocess --input ${parquet} --json-keys prompt --tokenizer-type ByteTokenizer
  --output-prefix ${WORK}/try RESULT_VARIABLE code ERROR_VARIABLE err)
if(err MATCHES "this build cannot read Parquet")
  message(STATUS "skipped: this build cannot read Parquet")
else()
  preprocess_and_train(parquet prompt 1387 ${parquet})
endif()
