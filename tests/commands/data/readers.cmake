# Every kind of input, plain and packed, through preprocess and two steps of pretrain. Packed files give the
# same bytes as the plain one. Uses real texts if they are available, otherwise small ones made here.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(data ${SOURCE}/../shared/data)

# corpus(name file words...): file through preprocess; the words are more options.
function(corpus name file)
  expect(RUN preprocess --input ${file} --tokenizer-type ByteTokenizer --append-eod ${ARGN}
             --output-prefix ${WORK}/${name} CODE 0)
endfunction()

function(trains name key)
  expect(RUN pretrain --model gpt2-tiny --vocab-size 257 --data-path ${WORK}/${name}_${key}_document --split 1,0,0
             --tokenizer-type ByteTokenizer --seq-length 64 --micro-batch-size 2 --train-iters 2
             CODE 0 ERR "iteration        2/")
endfunction()

# packed(name file key words...): the four packings of a plain file are read as it is.
function(packed name file key)
  corpus(${name} ${file} ${ARGN})
  trains(${name} ${key})
  get_filename_component(base ${file} NAME)
  foreach(tool gzip:gz zstd:zst bzip2:bz2 xz:xz)
    string(REGEX REPLACE ":.*" "" program ${tool})
    string(REGEX REPLACE ".*:" "" suffix ${tool})
    find_program(${program}_path ${program})
    if(NOT ${program}_path)
      message(STATUS "skipped: no ${program} here")
      continue()
    endif()
    execute_process(COMMAND ${${program}_path} -c ${file} OUTPUT_FILE ${WORK}/${base}.${suffix} COMMAND_ERROR_IS_FATAL ANY)
    corpus(${name}_${suffix} ${WORK}/${base}.${suffix} ${ARGN})
    foreach(part bin idx)
      file(SHA256 ${WORK}/${name}_${key}_document.${part} plain)
      file(SHA256 ${WORK}/${name}_${suffix}_${key}_document.${part} unpacked)
      if(NOT plain STREQUAL unpacked)
        message(FATAL_ERROR "${base}.${suffix}: another .${part} than ${base}")
      endif()
    endforeach()
  endforeach()
endfunction()

# A wiki dump of two pages and a redirect.
file(WRITE ${WORK}/dump.xml "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.10/\" xml:lang=\"en\">
  <siteinfo><sitename>Test</sitename></siteinfo>
  <page><title>Anvil</title><ns>0</ns><id>1</id><revision><id>11</id>
    <text xml:space=\"preserve\">An '''anvil''' is a block of [[metal|hard metal]] &amp; a [[tool]].

== Use ==
It is struck with a hammer, again and again, for as long as the smith has strength and the iron is hot.</text></revision></page>
  <page><title>Amboss</title><ns>0</ns><id>2</id><redirect title=\"Anvil\" /><revision><id>12</id>
    <text xml:space=\"preserve\">#REDIRECT [[Anvil]]</text></revision></page>
  <page><title>Bellows</title><ns>0</ns><id>3</id><revision><id>13</id>
    <text xml:space=\"preserve\">'''Bellows''' blow air into the fire. The fire needs air, and the smith needs the fire.</text></revision></page>
</mediawiki>
")
packed(dump ${WORK}/dump.xml text)

if(EXISTS ${data}/text)
  packed(wiki ${data}/text/wikiextractor_wiki_00.txt text)
  packed(rows ${data}/text/c4_demo.jsonl text)
  packed(novel ${data}/text/zh_hongloumeng.txt text)
else()
  message(STATUS "skipped: ${data}/text is not here")
endif()

# Parquet, where this build reads it; elsewhere the one line that says what to install.
file(GLOB parquet ${data}/parquet/*.parquet)
if(parquet)
  list(GET parquet 0 parquet)
  execute_process(COMMAND ${PITON} preprocess --input ${parquet} --tokenizer-type ByteTokenizer --json-keys prompt
                          --output-prefix ${WORK}/table RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(code EQUAL 0)
    trains(table prompt)
    corpus(table_two ${parquet} --json-keys prompt --workers 2)
    corpus(table_one ${parquet} --json-keys prompt)
    file(SHA256 ${WORK}/table_one_prompt_document.bin one)
    file(SHA256 ${WORK}/table_two_prompt_document.bin two)
    if(NOT one STREQUAL two)
      message(FATAL_ERROR "${parquet}: two workers give other bytes than one")
    endif()
    expect(RUN preprocess --input ${parquet} --tokenizer-type ByteTokenizer --json-keys key --output-prefix ${WORK}/x
               CODE 3 ERR "column \"key\" holds int64, wanted text")
    expect(RUN preprocess --input ${parquet} --tokenizer-type ByteTokenizer --json-keys text --output-prefix ${WORK}/x
               CODE 3 ERR "no column \"text\"; it has key, prompt")
    expect(RUN preprocess --input ${parquet} --tokenizer-type ByteTokenizer --json-keys prompt --max-record-bytes 100
               --on-error fail --output-prefix ${WORK}/x CODE 3 ERR "bytes of text, --max-record-bytes allows 100")
    # Cut in the middle.
    execute_process(COMMAND head -c 100000 ${parquet} OUTPUT_FILE ${WORK}/cut.parquet)
    expect(RUN preprocess --input ${WORK}/cut.parquet --tokenizer-type ByteTokenizer --json-keys prompt
               --output-prefix ${WORK}/x CODE 3 ERR "cut.parquet: .*cannot be read as Parquet")
  elseif(NOT code EQUAL 2 OR NOT err MATCHES "this build cannot read Parquet: .*run make again")
    message(FATAL_ERROR "parquet: exit ${code}\n${out}\n${err}")
  endif()
else()
  message(STATUS "skipped: ${data}/parquet is not here")
endif()

# A downloaded data set: its README.md names configurations and splits; without it the names of the files do.
set(set ${WORK}/set)
file(MAKE_DIRECTORY ${set}/data)
foreach(part train-00000-of-00002 train-00001-of-00002 test-00000-of-00001)
  file(WRITE ${set}/data/${part}.jsonl "{\"text\": \"${part}\"}\n")
endforeach()
file(WRITE ${set}/more.jsonl "{\"text\": \"1\"}\n{\"text\": \"2\"}\n{\"text\": \"3\"}\n")
# documents(count words...): of the corpus that the words make of the folder; sets `said`.
function(documents count)
  execute_process(COMMAND ${PITON} preprocess --input ${set} --tokenizer-type ByteTokenizer --overwrite
                  --output-prefix ${WORK}/set_corpus ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0 OR NOT out MATCHES "set_corpus_text_document.bin: ${count} documents")
    message(FATAL_ERROR "a data set's folder with ${ARGN}: exit ${code}, wanted ${count} documents\n${out}")
  endif()
  set(said "${out}" PARENT_SCOPE)
endfunction()
documents(2)
if(NOT said MATCHES "set: split train, 2 files; --dataset-split has also test\n")
  message(FATAL_ERROR "what was chosen is not printed\n${said}")
endif()
documents(1 --dataset-split test)
file(WRITE ${set}/README.md "---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*\n"
  "  - split: test\n    path: data/test-*\n- config_name: more\n  data_files: more.jsonl\n---\n# A set\n")
documents(2)
if(NOT said MATCHES "set: default, split train, 2 files; --dataset-split has also test; --dataset-config has also more\n")
  message(FATAL_ERROR "what was chosen is not printed\n${said}")
endif()
documents(1 --dataset-split test)
documents(3 --dataset-config more)
expect(RUN preprocess --input ${set} --tokenizer-type ByteTokenizer --output-prefix ${WORK}/x --dataset-split dev CODE 2
       ERR "^piton preprocess: --dataset-split: [^\n]*/set has train, test; got \"dev\"\n$")
expect(RUN preprocess --input ${set}/more.jsonl --tokenizer-type ByteTokenizer --output-prefix ${WORK}/x --dataset-split dev
       CODE 2 ERR "^piton preprocess: --dataset-split: chooses among the files of a data set's folder; --input names no folder\n$")
file(REMOVE ${set}/data/test-00000-of-00001.jsonl)
expect(RUN preprocess --input ${set} --tokenizer-type ByteTokenizer --output-prefix ${WORK}/x --dataset-split test CODE 2
       ERR "README.md names \"data/test-.\", and there is no such data file; was the data set downloaded whole")
