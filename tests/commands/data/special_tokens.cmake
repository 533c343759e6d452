# The tokens that a tokenizer puts around a text: one rule for all commands, which each prints and an option changes.
# A run follows its corpus, another model its tokenizer's setting.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
file(WRITE ${WORK}/short.txt "To be")
expect(RUN train-tokenizer --input ${WORK}/text.txt --algorithm bpe --vocab-size 300 --save ${WORK}/tokenizer CODE 0)
set(tokenizer --tokenizer-name-or-path ${WORK}/tokenizer)
set(model pretrain --model llama-tiny --num-layers 1 ${tokenizer} --split 100,0,0 --seq-length 32 --train-iters 1)

# `words` must print this number of tokens, and the rule on standard error.
function(expect_ids words count)
  execute_process(COMMAND ${PITON} ${words} OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${words}: exit ${code}: ${err}")
  endif()
  string(JSON ids GET "${out}" prompt_ids)
  string(JSON got LENGTH "${ids}")
  string(JSON first GET "${ids}" 0)
  string(REPLACE ";" "," err "${err}")
  string(REGEX MATCHALL "special tokens: [^\n]*" lines "${err}")
  list(LENGTH lines printed)
  if(NOT got EQUAL count OR NOT lines MATCHES "${ARGN}" OR NOT printed EQUAL 1)
    message(FATAL_ERROR "${words}: ${got} ids from ${first} on instead of ${count}, \"${lines}\" instead of \"${ARGN}\"\n${err}")
  endif()
endfunction()

# The ids of the text alone and with <s>.
execute_process(COMMAND ${PITON} tokenize ${tokenizer} --count ${WORK}/short.txt OUTPUT_VARIABLE plain)
string(STRIP "${plain}" plain)
math(EXPR framed "${plain} + 1")
expect(RUN tokenize ${tokenizer} --add-special-tokens --count ${WORK}/short.txt CODE 0 OUT "^${framed}\n")
expect(RUN tokenize ${tokenizer} --no-add-special-tokens --count ${WORK}/short.txt CODE 0 OUT "^${plain}\n")

# preprocess prints what it does; token files are those of the text alone, as Megatron's.
expect(RUN preprocess --input ${WORK}/text.txt ${tokenizer} --sample-by line --append-eod --output-prefix ${WORK}/plain CODE 0
  ERR "special tokens: none .the default of preprocess, as of Megatron; --add-special-tokens adds <s> before a text.")
expect(RUN preprocess --input ${WORK}/text.txt ${tokenizer} --sample-by line --append-eod --add-special-tokens --output-prefix ${WORK}/framed CODE 0
  ERR "special tokens: <s> before a text .--add-special-tokens.")
expect(RUN preprocess --input ${WORK}/text.txt ${tokenizer} --sample-by line --append-eod --no-add-special-tokens --output-prefix ${WORK}/asked CODE 0
  ERR "special tokens: none .--no-add-special-tokens.")

# A run follows its corpus: by its card, or without one by how its documents begin.
expect(RUN ${model} --data-path ${WORK}/plain_text_document --save ${WORK}/run_plain CODE 0
  ERR "special tokens: the corpora have none; generate and score of this run will add none .the tokenizer's own setting: <s> before a text.")
expect(RUN ${model} --data-path ${WORK}/framed_text_document --save ${WORK}/run_framed CODE 0)
foreach(kind plain framed)
  foreach(part bin idx)
    file(COPY_FILE ${WORK}/${kind}_text_document.${part} ${WORK}/foreign_${kind}.${part})
  endforeach()
  expect(RUN ${model} --data-path ${WORK}/foreign_${kind} --save ${WORK}/run_foreign_${kind} CODE 0)
endforeach()
foreach(run run_plain run_foreign_plain)
  set(generate generate --load ${WORK}/${run} --max-new-tokens 1 --json --prompt)
  expect_ids("${generate};To be" ${plain} "special tokens: none .as the corpus of the run, the tokenizer's own setting: <s> before a text.")
  expect_ids("${generate};To be;--add-special-tokens" ${framed} "special tokens: <s> before a text .--add-special-tokens.")
  math(EXPR scored "${plain} - 1")
  expect(RUN score --load ${WORK}/${run} ${WORK}/short.txt CODE 0 OUT ", ${scored} tokens" ERR "special tokens: none .as the corpus of the run")
  expect(RUN score --load ${WORK}/${run} ${WORK}/short.txt --add-special-tokens CODE 0 OUT ", ${plain} tokens")
endforeach()
foreach(run run_framed run_foreign_framed)
  set(generate generate --load ${WORK}/${run} --max-new-tokens 1 --json --prompt)
  expect_ids("${generate};To be" ${framed} "special tokens: <s> before a text .as the corpus of the run.")
  expect_ids("${generate};To be;--no-add-special-tokens" ${plain} "special tokens: none .--no-add-special-tokens.")
  expect(RUN score --load ${WORK}/${run} ${WORK}/short.txt CODE 0 OUT ", ${plain} tokens" ERR "special tokens: <s> before a text .as the corpus of the run.")
endforeach()

# Corpora that differ: the run reports it, and follows the tokenizer's setting.
expect(RUN ${model} --data-path 0.5 ${WORK}/plain_text_document 0.5 ${WORK}/framed_text_document --save ${WORK}/run_mixed CODE 0
  ERR "plain_text_document has no special tokens around its texts, and .*framed_text_document has")

# Another program's model: the tokenizer's setting, of tokenizer_config.json where it says one. A run that starts from
# it follows its corpus, and a resume keeps what the run follows.
expect(RUN convert --load ${WORK}/run_framed --to hf --save ${WORK}/hf CODE 0)
set(generate generate --load ${WORK}/hf --max-new-tokens 1 --json --prompt)
expect_ids("${generate};To be" ${framed} "special tokens: <s> before a text .the tokenizer's own setting.")
expect(RUN score --load ${WORK}/hf ${WORK}/short.txt CODE 0 OUT ", ${plain} tokens" ERR "special tokens: <s> before a text .the tokenizer's own setting.")
expect(RUN convert --load ${WORK}/hf --to gguf --save ${WORK}/model.gguf CODE 0
  ERR "texts that begin with a space get one more from a GGUF file.s tokenizer: \" The quick")
set(generate generate --load ${WORK}/model.gguf --max-new-tokens 1 --json --prompt)
expect_ids("${generate};To be" ${framed} "special tokens: <s> before a text .the tokenizer's own setting.")
expect(RUN pretrain --load ${WORK}/hf --data-path ${WORK}/plain_text_document --split 100,0,0 --seq-length 32 --train-iters 1
  --save ${WORK}/run_hf CODE 0)
set(generate generate --load ${WORK}/run_hf --max-new-tokens 1 --json --prompt)
expect_ids("${generate};To be" ${plain} "special tokens: none .as the corpus of the run")

# Ids are taken as they are.
expect(RUN generate --load ${WORK}/hf --prompt-ids 5,6 --add-special-tokens CODE 2 ERR "--add-special-tokens: is for text, and --prompt-ids gives ids")
file(WRITE ${WORK}/ids.json "[[5, 6, 7]]")
expect(RUN score --load ${WORK}/hf --ids-file ${WORK}/ids.json --no-add-special-tokens CODE 2
  ERR "--no-add-special-tokens: is for text, and --ids-file gives ids")

# Prompt and text together are the text: what follows a word keeps the space before it, streamed or not. --echo prints both.
set(generate generate --load ${WORK}/run_framed --greedy --max-new-tokens 8)
execute_process(COMMAND ${PITON} ${generate} --prompt "To be," --json OUTPUT_VARIABLE out)
string(JSON ids GET "${out}" ids)
string(JSON prompt GET "${out}" prompt_ids)
string(JSON text GET "${out}" text)
string(REGEX REPLACE "[^0-9 ]+" " " all "${prompt} ${ids}")
file(WRITE ${WORK}/all.txt "${all}")
execute_process(COMMAND ${PITON} tokenize ${tokenizer} --decode ${WORK}/all.txt OUTPUT_VARIABLE whole)
string(REGEX REPLACE "^<s> ?|\n$" "" whole "${whole}")
if(NOT "To be,${text}" STREQUAL whole)
  message(FATAL_ERROR "prompt and text are \"To be,${text}\" instead of \"${whole}\"")
endif()
foreach(way "" "--stream" "--num-beams;2")
  execute_process(COMMAND ${PITON} ${generate} --prompt "To be," --echo ${way} OUTPUT_VARIABLE echoed)
  execute_process(COMMAND ${PITON} ${generate} --prompt "To be," ${way} OUTPUT_VARIABLE alone)
  if(NOT echoed STREQUAL "To be,${alone}" OR (NOT way MATCHES beams AND NOT echoed STREQUAL "${whole}\n"))
    message(FATAL_ERROR "--echo ${way}: \"${echoed}\", and \"${alone}\" without; wanted \"${whole}\"")
  endif()
endforeach()
execute_process(COMMAND ${PITON} ${generate} --prompt "To be," --echo --json OUTPUT_VARIABLE out)
string(JSON text GET "${out}" text)
if(NOT text STREQUAL whole)
  message(FATAL_ERROR "--echo --json: \"${text}\" instead of \"${whole}\"")
endif()
