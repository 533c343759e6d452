# A model with another tokenizer than its own: accepted if the ids fit, with the first difference. What is made of it
# keeps the model's ids of special tokens unless the tokenizer's are asked for. And the type that a folder's run trains in.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
string(REPEAT "Wherefore art thou Romeo? Deny thy father,\n" 60 text)
file(WRITE ${WORK}/more.txt "${text}")
set(learn train-tokenizer --algorithm bpe --vocab-size 300)
expect(RUN ${learn} --input ${WORK}/text.txt --save ${WORK}/own CODE 0)
expect(RUN ${learn} --input ${WORK}/more.txt --special-tokens "<unk>" "</s>" "<s>" --save ${WORK}/other CODE 0)
foreach(name own other)
  expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${WORK}/${name} --append-eod --output-prefix ${WORK}/${name}_corpus CODE 0)
endforeach()
set(train --split 100,0,0 --seq-length 32 --train-iters 1)
expect(RUN pretrain --model llama-tiny --num-layers 1 --tokenizer-name-or-path ${WORK}/own --data-path ${WORK}/own_corpus_text_document
  ${train} --save ${WORK}/first CODE 0)
expect(RUN convert --load ${WORK}/first --to hf --save ${WORK}/hf CODE 0 OUT "verified: the tokenizers give the same ids for [1-9][0-9][0-9] texts")
expect(RUN convert --load ${WORK}/hf --to gguf --save ${WORK}/model.gguf CODE 0 OUT "verified: the tokenizers give the same ids for [1-9][0-9][0-9] texts")

# --tokenizer-name-or-path may be a model that has the tokenizer: a run, its checkpoint, a GGUF file.
expect(RUN pretrain --model llama-tiny --num-layers 1 --tokenizer-type ByteTokenizer --mock-data ${train} --save ${WORK}/bytes CODE 0)
file(SHA256 ${WORK}/own_corpus_text_document.bin wanted)
foreach(model first first/iter_0000001 model.gguf bytes)
  expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${WORK}/${model} --append-eod --output-prefix ${WORK}/by_model --overwrite CODE 0)
  file(SHA256 ${WORK}/by_model_text_document.bin got)
  if((model STREQUAL bytes AND got STREQUAL wanted) OR (NOT model STREQUAL bytes AND NOT got STREQUAL wanted))
    message(FATAL_ERROR "${model}: preprocess with the model's tokenizer: ${got}, with its files ${wanted}")
  endif()
endforeach()
expect(RUN pretrain --model llama-tiny --num-layers 1 --tokenizer-name-or-path ${WORK}/first --data-path ${WORK}/own_corpus_text_document
  ${train} --save ${WORK}/by_run CODE 0)
expect(RUN generate --load ${WORK}/by_run --prompt be --max-new-tokens 1 CODE 0)
expect(RUN pretrain --model llama-tiny --num-layers 1 --vocab-size 300 --tokenizer-type NullTokenizer --mock-data ${train} --save ${WORK}/null CODE 0)
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${WORK}/null --output-prefix ${WORK}/by_null CODE 3
  ERR "null: the model has no tokenizer; give the folder or file of one")

# Fails if standard error has the words, or if the command fails.
function(expect_no_line words regex)
  execute_process(COMMAND ${PITON} ${words} OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR "${out}${err}" MATCHES "${regex}")
    message(FATAL_ERROR "${words}: exit ${code}, and not wanted: ${regex}\n${out}${err}")
  endif()
endfunction()

set(other --tokenizer-name-or-path ${WORK}/other)
set(difference "the model has another tokenizer than the one that was named .--tokenizer-....: id 1: \"<s>\" in the model's tokenizer, \"</s>\" in the one that was named")
file(COPY ${WORK}/own/ DESTINATION ${WORK}/copy)
foreach(model first hf model.gguf)
  expect(RUN score --load ${WORK}/${model} ${other} ${WORK}/text.txt CODE 0 ERR "${difference}")
  expect(RUN generate --load ${WORK}/${model} ${other} --prompt be --max-new-tokens 1 CODE 0 ERR "${difference}")
  if(NOT model STREQUAL model.gguf)  # that one differs where a text begins with a space
    expect_no_line("score;--load;${WORK}/${model};--tokenizer-name-or-path;${WORK}/copy;${WORK}/text.txt" "another tokenizer")
  endif()
  expect_no_line("score;--load;${WORK}/${model};${WORK}/text.txt" "another tokenizer")
endforeach()

# A run: the warning, and an export with the model's ids.
function(expect_eos folder wanted)
  foreach(file config.json generation_config.json)
    file(READ ${folder}/${file} text)
    string(JSON got GET "${text}" eos_token_id)
    if(NOT got STREQUAL wanted)
      message(FATAL_ERROR "${folder}/${file}: eos_token_id ${got} instead of ${wanted}")
    endif()
  endforeach()
endfunction()
expect(RUN pretrain --load ${WORK}/hf ${other} --data-path ${WORK}/other_corpus_text_document ${train} --save ${WORK}/second CODE 0 ERR "${difference}")
expect(RUN convert --load ${WORK}/second --to hf --save ${WORK}/kept CODE 0
  ERR "config.json keeps eos_token_id 2 of the model that the weights come from, and the tokenizer of the run ends a text by 1")
expect_eos(${WORK}/kept 2)
expect(RUN convert --load ${WORK}/second --to hf --tokenizer-special-ids --save ${WORK}/asked CODE 0)
expect_eos(${WORK}/asked 1)
expect(RUN convert --load ${WORK}/second --to mg --tokenizer-special-ids --save ${WORK}/x CODE 2 ERR "--tokenizer-special-ids: is for --to hf, and this writes mg")
expect(RUN pretrain --load ${WORK}/first --finetune ${other} --model llama-tiny --num-layers 1 --data-path ${WORK}/other_corpus_text_document ${train}
  --save ${WORK}/third CODE 0 ERR "${difference}")
expect_no_line("pretrain;--load;${WORK}/hf;--data-path;${WORK}/own_corpus_text_document;${train};--save;${WORK}/fourth" "another tokenizer")

# A folder of bf16 weights: fp32 unless --bf16 is given, and that is printed.
expect(RUN convert --load ${WORK}/first --to hf --params-dtype bf16 --save ${WORK}/bf16 CODE 0)
set(from pretrain --load ${WORK}/bf16 --data-path ${WORK}/own_corpus_text_document ${train})
expect(RUN ${from} --save ${WORK}/in_fp32 CODE 0 ERR "bf16: its weights are bf16, and this run trains in fp32; --bf16 trains in bf16")
expect_no_line("${from};--bf16;--save;${WORK}/in_bf16" "its weights are bf16")
expect(RUN inspect ${WORK}/in_bf16 CODE 0)
