# Instruction data: formats that are recognized, files, counts, packing, resume, joining.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

set(alpaca "")
foreach(number RANGE 1 9)
  string(APPEND alpaca "{\"instruction\": \"Name number ${number}\", \"input\": \"\", \"output\": \"It is ${number}\"}\n")
endforeach()
file(WRITE ${WORK}/alpaca.jsonl "${alpaca}")
set(bytes --tokenizer-type ByteTokenizer)

# The format is recognized, and the first sample is shown with what is learned.
expect(RUN preprocess --input ${WORK}/alpaca.jsonl ${bytes} --prompt-type default --output-prefix ${WORK}/a --json CODE 0
       OUT "\"documents\":9,.*\"handler\":\"AlpacaStyleInstructionHandler\",\"prompt\":\"default\",\"samples\":9,\"taught_tokens\":72,\"too_long\":0,\"teaches_nothing\":0"
       ERR "records: AlpacaStyleInstructionHandler .from the keys of the first one" "Human: Name number 1.nAssistant:.learned: It is 1")
foreach(part input_ids attention_mask labels)
  if(NOT EXISTS ${WORK}/a_packed_${part}_document.bin OR NOT EXISTS ${WORK}/a_packed_${part}_document.idx)
    message(SEND_ERROR "no ${part}")
  endif()
endforeach()
expect(RUN inspect ${WORK}/a_packed_labels_document CODE 0 OUT "made by piton [0-9.]+ with the tokenizer byte")

# Records that cannot be used, samples that are too long, and those that teach nothing are counted and named.
file(WRITE ${WORK}/mixed.jsonl "{\"instruction\": \"a\", \"output\": \"b\"}
{\"instruction\": \"a\", \"response\": \"b\"}
{\"instruction\": \"a\", \"output\": \"a long answer, of more bytes than the others have\"}
{\"instruction\": \"a\", \"output\": \"\"}
")
set(mixed preprocess --input ${WORK}/mixed.jsonl ${bytes} --handler-name AlpacaStyleInstructionHandler --prompt-type empty --seq-length 40 --overwrite)
expect(RUN ${mixed} --output-prefix ${WORK}/b CODE 3 ERR "mixed.jsonl: line 2 .byte 36.: no key \"output\". it has instruction, response. fix it")
expect(RUN ${mixed} --output-prefix ${WORK}/b --on-error skip CODE 0
       ERR "line 2 .byte 36.: no key \"output\"" "1 bad record was left out"
           "line 3 .byte [0-9]+.: the sample has 50 tokens, not below --seq-length 40" "1 sample that is too long was left out"
           "line 4 .byte [0-9]+.: the sample has no token to learn" "1 sample that teaches nothing was left out" "1 samples, 1 tokens to learn of 2")
expect(RUN ${mixed} --output-prefix ${WORK}/b --on-error skip --cutoff-len 30 CODE 0 ERR "2 samples, 30 tokens to learn of 32")

# Packed: every sequence has the same length.
expect(RUN preprocess --input ${WORK}/alpaca.jsonl ${bytes} --prompt-type default --seq-length 100 --neat-pack --output-prefix ${WORK}/p --json CODE 0
       OUT "\"tokens\":500.*\"samples\":5,\"taught_tokens\":72")
file(GLOB left ${WORK}/p.unpacked*)
if(left)
  message(SEND_ERROR "left behind: ${left}")
endif()

# Parts that were made apart are joined, each of the three files.
file(MAKE_DIRECTORY ${WORK}/parts)
foreach(part 1 2)
  expect(RUN preprocess --input ${WORK}/alpaca.jsonl ${bytes} --prompt-type default --output-prefix ${WORK}/parts/${part} CODE 0)
endforeach()
set(keys packed_input_ids_document packed_attention_mask_document packed_labels_document)
expect(RUN preprocess --input ${WORK}/parts --merge-group-keys ${keys} --output-prefix ${WORK}/joined CODE 0
       OUT "joined_packed_input_ids_document.bin: 18 documents" "joined_packed_labels_document.bin: 18 documents")
file(REMOVE ${WORK}/parts/2_packed_labels_document.bin ${WORK}/parts/2_packed_labels_document.idx)
expect(RUN preprocess --input ${WORK}/parts --merge-group-keys ${keys} --output-prefix ${WORK}/again CODE 2 ERR "the groups must be equally large")

# One set after another, or in turns; by shares.
file(WRITE ${WORK}/other.jsonl "{\"instruction\": \"x\", \"output\": \"y\"}\n{\"instruction\": \"x\", \"output\": \"z\"}\n")
set(two preprocess --input ${WORK}/alpaca.jsonl ${WORK}/other.jsonl ${bytes} --prompt-type empty --overwrite --output-prefix ${WORK}/m)
expect(RUN ${two} CODE 0 OUT "m_packed_labels_document.bin: 11 documents")
expect(RUN ${two} --max-samples 3 CODE 0 OUT "m_packed_labels_document.bin: 5 documents")
expect(RUN ${two} --mix-strategy interleave_under CODE 0 OUT "m_packed_labels_document.bin: 4 documents")
expect(RUN ${two} --mix-strategy interleave_over CODE 0 OUT "m_packed_labels_document.bin: 18 documents")
expect(RUN ${two} --mix-strategy interleave_over --interleave-probs 0.5,0.5 --seed 5 CODE 0)
expect(RUN ${two} --mix-strategy interleave_over --interleave-probs 1,0 CODE 2 ERR "got 0 for data set 2, which interleave_over would draw for ever")
expect(RUN ${two} --mix-strategy interleave_over --interleave-probs 0.5,0.4 CODE 2 ERR "with the sum 0.9, wanted one for each of 2 data sets")

# Tables with lists and structs, written by pyarrow: the bytes of the same records in JSON Lines.
set(golden ${SOURCE}/tests/golden/instruct)
foreach(name alpaca messages sharegpt pairs_alpaca pairs_sharegpt prompts)
  set(table preprocess --input ${golden}/parquet/${name}.parquet ${bytes} --prompt-type default --handler-name auto
            --output-prefix ${WORK}/parquet_${name} --workers 2)
  execute_process(COMMAND ${PITON} ${table} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(code EQUAL 2 AND err MATCHES "this build cannot read Parquet: .*run make again")
    break()
  endif()
  expect(RUN preprocess --input ${golden}/${name}.jsonl ${bytes} --prompt-type default --handler-name auto
             --output-prefix ${WORK}/lines_${name} CODE 0)
  file(GLOB lines RELATIVE ${WORK} ${WORK}/lines_${name}_packed_*.bin ${WORK}/lines_${name}_packed_*.idx)
  list(LENGTH lines count)
  if(NOT code EQUAL 0 OR count LESS 6)
    message(FATAL_ERROR "${name}: exit ${code}, ${count} files\n${out}${err}")
  endif()
  foreach(one IN LISTS lines)
    string(REPLACE lines_ parquet_ other ${one})
    file(SHA256 ${WORK}/${one} wanted)
    file(SHA256 ${WORK}/${other} got)
    if(NOT got STREQUAL wanted)
      message(FATAL_ERROR "${other} differs from ${one}")
    endif()
  endforeach()
endforeach()
if(code EQUAL 0)
  # A column of another type is not a text, there as in JSON.
  expect(RUN preprocess --input ${golden}/parquet/prompts.parquet ${bytes} --prompt-type default --handler-name OpenAIInstructionHandler
             --map-keys "{\"messages\": \"label\"}" --output-prefix ${WORK}/z CODE 3 ERR "row 0: key \"label\" holds a boolean, wanted a list")
  expect(RUN preprocess --input ${golden}/parquet/prompts.parquet ${bytes} --json-keys prompt --output-prefix ${WORK}/z CODE 3
    ERR "column \"prompt\" holds list<.*, wanted text")
endif()

# What does not fit.
expect(RUN ${two} --dataset-additional-keys labels CODE 2 ERR "--dataset-additional-keys: keeps columns for rewards in token files")
expect(RUN ${two} --overwrite-cache --cache-dir ${WORK}/cache --output-prefix ${WORK}/cached CODE 0
  ERR "--overwrite-cache: no meaning here: nothing is cached" "--cache-dir: no meaning here")
expect(RUN ${two} --handler-name GeneralInstructionHandlers CODE 2 ERR "--handler-name: got \"GeneralInstructionHandlers\" .did you mean GeneralInstructionHandler")
expect(RUN ${two} --handler-name GeneralInstructionHandler CODE 2 ERR "--prompt-type: GeneralInstructionHandler has its own prompt")
expect(RUN ${two} --pack --seq-length 4000000000000 CODE 2 ERR "--seq-length: got 4000000000000, wanted 2147483647 or less")
expect(RUN ${two} --pack CODE 2 ERR "--pack: no --seq-length")
expect(RUN ${two} --json-keys output CODE 2 ERR "leave out --json-keys")
expect(RUN ${two} --add-special-tokens CODE 2 ERR "the prompt decides which special tokens samples have")
expect(RUN ${two} --handler-name GeneralPretrainHandler CODE 2 ERR "GeneralPretrainHandler writes texts, which have no answers")
file(WRITE ${WORK}/strange.jsonl "{\"question\": \"x\", \"answer\": \"y\"}\n")
expect(RUN preprocess --input ${WORK}/strange.jsonl ${bytes} --prompt-type empty --output-prefix ${WORK}/s CODE 3
       ERR "strange.jsonl: the format is not recognized: the record has question, answer")
expect(RUN preprocess --input ${WORK}/strange.jsonl ${bytes} --prompt-type empty --handler-name AlpacaStyleInstructionHandler
           --map-keys "{\"prompt\": \"question\", \"response\": \"answer\"}" --output-prefix ${WORK}/s CODE 0 OUT "s_packed_labels_document.bin: 1 documents, 2 tokens")

# Values of --enable-thinking, and the flag alone.
file(WRITE ${WORK}/thoughts.jsonl "{\"instruction\": \"a\", \"output\": \"<think>b</think>c\"}\n{\"instruction\": \"a\", \"output\": \"c\"}\n")
foreach(value "" ;--enable-thinking,none ;--enable-thinking,true ;--enable-thinking ;--enable-thinking,false)
  string(REPLACE "," ";" words "${value}")
  expect(RUN preprocess --input ${WORK}/thoughts.jsonl ${bytes} --prompt-type empty ${words} --output-prefix ${WORK}/thoughts --overwrite CODE 0
         OUT "thoughts_packed_labels_document.bin: 2 documents")
endforeach()
expect(RUN preprocess --input ${WORK}/thoughts.jsonl ${bytes} --prompt-type empty --enable-thinking yes --output-prefix ${WORK}/thoughts
       CODE 2 ERR "got \"yes\", wanted no argument here")

# MindSpeed-LLM's line for pairs: "" is a field that no record has.
file(WRITE ${WORK}/pairs.jsonl "{\"system\": \"s\", \"question\": \"x\", \"chosen\": \"y\", \"rejected\": \"z\"}\n")
expect(RUN preprocess --input ${WORK}/pairs.jsonl ${bytes} --prompt-type empty --handler-name AlpacaStylePairwiseHandler
           --map-keys "{\"prompt\":\"question\", \"query\":\"\", \"system\":\"system\"}" --output-prefix ${WORK}/pairs CODE 0
       OUT "pairs_packed_chosen_labels_document.bin: 1 documents")
expect(RUN preprocess --input ${WORK}/pairs.jsonl ${bytes} --prompt-type empty --handler-name AlpacaStylePairwiseHandler
           --map-keys "{\"prompt\":\"\"}" --output-prefix ${WORK}/none CODE 2
       ERR "--map-keys: \"prompt\" is \"\", wanted the name of a key, since every record has this field")

# Texts of several keys.
expect(RUN preprocess --input ${WORK}/alpaca.jsonl ${bytes} --handler-name AlpacaPretrainHandler --output-prefix ${WORK}/t CODE 0
       OUT "t_text_document.bin: 9 documents")
