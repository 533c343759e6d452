# Commands of scripts for Megatron-LM's and AscendSpeed's preprocess_data.py, unchanged except for
# the program, the names of files and --workers; they make the same corpora.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/wikipedia/20220301.en)
set(tokenizers ${SOURCE}/../shared/data/tokenizers)
if(NOT EXISTS ${tokenizers})
  message(STATUS "skipped: ${tokenizers} is not here")
  return()
endif()

file(WRITE ${WORK}/articles.jsonl "{\"id\": \"1\", \"url\": \"u\", \"title\": \"Anvil\", \"text\": \"An anvil is a block of hard metal. It is struck with a hammer.\"}
{\"id\": \"2\", \"url\": \"u\", \"title\": \"Bellows\", \"text\": \"Bellows blow air into the fire. The fire needs air.\"}
")

# The port of Megatron-LM: English Wikipedia for T5.
expect(RUN preprocess --input ${WORK}/articles.jsonl --output-prefix ${WORK}/my-t5
           --vocab-file ${tokenizers}/bert/bert-large-uncased-vocab.txt --dataset-impl mmap
           --tokenizer-type BertWordPieceLowerCase --split-sentences
       CODE 0 OUT "my-t5_text_sentence.bin: 2 documents, ")
expect(RUN inspect ${WORK}/my-t5_text_sentence CODE 0 OUT "2 documents.*4 sequences, 30 tokens as uint16")

# Megatron-LM's own README: GPT-2.
expect(RUN preprocess --input ${WORK}/articles.jsonl --output-prefix ${WORK}/my-gpt2
           --vocab-file ${tokenizers}/gpt2/encoder.json --dataset-impl mmap --tokenizer-type GPT2BPETokenizer
           --merge-file ${tokenizers}/gpt2/vocab.bpe --append-eod --log-interval 100
       CODE 0 OUT "my-gpt2_text_document.bin: 2 documents, ")

# AscendSpeed: a data set of Hugging Face, here a folder with one configuration.
file(COPY ${WORK}/articles.jsonl DESTINATION ${WORK}/wikipedia/20220301.en)
file(WRITE ${WORK}/hf_config_json.json "{
\"path\": \"${WORK}/wikipedia\",
\"name\": \"20220301.en\",
\"streaming\": true,
\"split\": \"train\"
}
")
expect(RUN preprocess --input ${WORK}/wikipedia --hf-datasets-params ${WORK}/hf_config_json.json
           --output-prefix ${WORK}/wikipedia_preprocessed/wikipedia --dataset-impl mmap
           --tokenizer-type PretrainedFromHF --tokenizer-name-or-path ${tokenizers}/llama2 --tokenizer-not-use-fast
           --streaming --workers 2
       CODE 0 OUT "wikipedia_preprocessed/wikipedia_text_document.bin: 2 documents, ")
# The file as the document prints it: a quote is missing, and True is Python's.
file(WRITE ${WORK}/printed.json "{
\"path\": \"${WORK}/wikipedia\",
\"streaming: True,
\"split\": \"train\"
}
")
expect(RUN preprocess --hf-datasets-params ${WORK}/printed.json --output-prefix ${WORK}/no
           --tokenizer-type PretrainedFromHF --tokenizer-name-or-path ${tokenizers}/llama2
       CODE 2 ERR "printed.json:3:[0-9]+: not JSON \\(true and false are lower-case")

# MindSpeed-LLM: one Parquet file of a data set.
file(GLOB parquet ${SOURCE}/../shared/data/parquet/*.parquet)
if(parquet)
  list(GET parquet 0 parquet)
  execute_process(COMMAND ${PITON} preprocess --input ${parquet} --tokenizer-type PretrainedFromHF
                          --tokenizer-name-or-path ${tokenizers}/qwen2.5 --output-prefix ${WORK}/enwiki/part
                          --json-keys prompt --workers 4 --log-interval 1000
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(code EQUAL 0)
    if(NOT out MATCHES "part_prompt_document.bin: [0-9]+ documents")
      message(FATAL_ERROR "${out}${err}")
    endif()
  elseif(NOT err MATCHES "Arrow")
    message(FATAL_ERROR "${err}")
  endif()
endif()
