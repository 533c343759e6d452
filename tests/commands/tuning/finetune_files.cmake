# piton finetune with files of conversations as --data-path: the bits of preprocess + finetune; short names of options; and the
# adapters of each checkpoint as PEFT reads them.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/tmp)
set(ENV{TMPDIR} ${WORK}/tmp)
set(base ${WORK}/base)
write_base_model()

foreach(name talks questions pairs judged)
  set(${name} "")
endforeach()
foreach(i RANGE 1 24)
  math(EXPR odd "${i} % 2")
  string(REPLACE "0" "false" label ${odd})
  string(REPLACE "1" "true" label ${label})
  string(APPEND talks "{\"messages\": [{\"role\": \"system\", \"content\": \"Count.\"}, {\"role\": \"user\", \"content\": \"What is ${i} and 1?\"}, "
                      "{\"role\": \"assistant\", \"content\": \"It is ${i}1.\"}]}\n")
  string(APPEND questions "{\"prompt\": \"What is ${i} and 1?\", \"completion\": \"It is ${i}1.\"}\n")
  # As TRL has them: texts, lists of messages after the prompt, and lists with the prompt.
  if(odd)
    string(APPEND pairs "{\"prompt\": \"What is ${i} and 1?\", \"chosen\": \"It is ${i}1.\", \"rejected\": \"No.\"}\n")
  else()
    set(asked "{\"role\": \"user\", \"content\": \"What is ${i} and 1?\"}")
    string(APPEND pairs "{\"prompt\": \"${i}\", \"chosen\": [${asked}, {\"role\": \"assistant\", \"content\": \"It is ${i}1.\"}], "
                        "\"rejected\": [${asked}, {\"role\": \"assistant\", \"content\": \"No.\"}]}\n")
  endif()
  string(APPEND judged "{\"prompt\": [{\"role\": \"user\", \"content\": \"What is ${i} and 1?\"}], \"completion\": "
                       "[{\"role\": \"assistant\", \"content\": \"It is ${i}${odd}.\"}], \"label\": ${label}}\n")
endforeach()
foreach(name talks questions pairs judged)
  file(WRITE ${WORK}/${name}.jsonl "${${name}}")
  expect(RUN preprocess --tokenizer-type ByteTokenizer --prompt-type default --handler-name auto --input ${WORK}/${name}.jsonl
             --output-prefix ${WORK}/${name} CODE 0)
endforeach()

set(tune finetune --load ${base} --split 80,20,0 --seq-length 128 --micro-batch-size 1 --global-batch-size 2 --lr 1e-2
         --tokenizer-type ByteTokenizer --train-iters 4)
set(lora --lora-target-modules all-linear --lora-r 4 --lora-alpha 8)
set(file --prompt-type default)

# expect_same(NAME FILE_FLAGS PREFIX_FLAGS COMMON...): both runs have the same weights and state of the optimizer.
function(expect_same name of_file of_prefix)
  separate_arguments(of_file)
  separate_arguments(of_prefix)
  expect(RUN ${tune} ${ARGN} ${of_prefix} --save ${WORK}/${name}-prefix CODE 0 ERR "saved ")
  expect(RUN ${tune} ${ARGN} ${file} ${of_file} --save ${WORK}/${name}-file CODE 0
    ERR "jsonl: [A-Za-z]+ .default prompt.: 24 samples, [0-9]+ tokens to learn of [0-9]+" "saved ")
  hash_of(${WORK}/${name}-prefix wanted)
  hash_of(${WORK}/${name}-file got)
  if(NOT got STREQUAL wanted)
    message(FATAL_ERROR "${name}: ${got} of the file, ${wanted} of the corpora")
  endif()
endfunction()

expect_same(talks "--data-path ${WORK}/talks.jsonl" "--data-path ${WORK}/talks")
expect_same(questions "--data-path ${WORK}/questions.jsonl" "--data-path ${WORK}/questions" ${lora})
expect_same(blend "--data-path 0.25 ${WORK}/talks.jsonl 0.75 ${WORK}/questions.jsonl"
                  "--data-path 0.25 ${WORK}/talks 0.75 ${WORK}/questions")
expect_same(dpo "--data-path ${WORK}/pairs.jsonl --preference dpo --beta 0.2" "--data-path ${WORK}/pairs --stage dpo --dpo-beta 0.2" ${lora})
expect_same(reference "--data-path ${WORK}/pairs.jsonl --preference ipo --reference-load ${base}"
                      "--data-path ${WORK}/pairs --stage ipo --ref-model ${base}")
expect_same(simpo "--data-path ${WORK}/pairs.jsonl --preference simpo --beta 2 --simpo-gamma 1"
                  "--data-path ${WORK}/pairs --stage simpo --simpo-beta 2 --gamma-beta-ratio 0.5")
expect_same(orpo "--data-path ${WORK}/pairs.jsonl --preference orpo --beta 0.3" "--data-path ${WORK}/pairs --stage orpo --orpo-beta 0.3")
expect_same(kto "--data-path ${WORK}/judged.jsonl --preference kto --beta 0.3" "--data-path ${WORK}/judged --stage kto --kto-beta 0.3" ${lora})
expect_same(rslora "--data-path ${WORK}/talks.jsonl --use-rslora" "--data-path ${WORK}/talks --lora-use-rslora" ${lora})
file(STRINGS ${WORK}/dpo-file/metrics.jsonl lines REGEX "\"rewards_margin\":.*\"rewards_accuracy\":")
list(LENGTH lines count)
if(NOT count EQUAL 4)
  message(FATAL_ERROR "${count} of 4 steps have rewards_margin and rewards_accuracy")
endif()

# Two ranks read one conversion.
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} ${file} --data-path ${WORK}/talks.jsonl --tensor-model-parallel-size 2
                --save ${WORK}/two-file RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} --data-path ${WORK}/talks --tensor-model-parallel-size 2
                --save ${WORK}/two-prefix RESULT_VARIABLE other OUTPUT_VARIABLE more ERROR_VARIABLE more)
if(NOT code EQUAL 0 OR NOT other EQUAL 0)
  message(FATAL_ERROR "two ranks: exit ${code} and ${other}\n${text}${more}")
endif()
hash_of(${WORK}/two-prefix wanted)
hash_of(${WORK}/two-file got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "two ranks: ${got} of the file, ${wanted} of the corpora")
endif()

# Interrupted and resumed: the same bits. With --data-cache-path the samples are made once.
set(talks ${tune} ${file} ${lora} --data-path ${WORK}/talks.jsonl --data-cache-path ${WORK}/cache)
expect(RUN ${talks} --save ${WORK}/whole CODE 0)
expect(RUN ${talks} --save ${WORK}/part --exit-interval 2 --save-interval 2 CODE 0 ERR "talks.jsonl: its samples are in [^ ]*/cache/talks-")
expect(RUN resume ${WORK}/part CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
hash_of(${WORK}/whole wanted)
hash_of(${WORK}/part got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "resumed: ${got}, uninterrupted ${wanted}")
endif()
# A run that finds another one making them waits for it: here a process that holds the lock until the run says so.
file(REMOVE_RECURSE ${WORK}/cache)
expect(RUN ${talks} --save ${WORK}/marked CODE 0)
file(GLOB mark ${WORK}/cache/talks-*.complete)
file(RENAME ${mark} ${WORK}/mark)
string(REGEX REPLACE "complete$" "lock" lock ${mark})
list(JOIN talks " " words)
execute_process(COMMAND sh -c "touch ${WORK}/waits.log; flock ${lock} sh -c 'touch ${WORK}/held; \
    until grep -q waiting ${WORK}/waits.log || test -e ${WORK}/ended; do sleep 0.1; done; mv ${WORK}/mark ${mark}' & \
    until test -e ${WORK}/held; do sleep 0.1; done; ${PITON} ${words} --save ${WORK}/waits > ${WORK}/waits.log 2>&1; \
    code=$?; touch ${WORK}/ended; wait; exit $code"
  RESULT_VARIABLE code)
file(READ ${WORK}/waits.log said)
if(NOT code EQUAL 0 OR NOT said MATCHES
   "talks.jsonl: waiting for another process, which makes its samples in [^\n]*/cache/talks-[^\n]*\n.*its samples are in")
  message(FATAL_ERROR "exit ${code}\n${said}")
endif()
# A file that has changed is other data, and is named.
expect(RUN ${talks} --save ${WORK}/changed --exit-interval 2 CODE 0)
file(APPEND ${WORK}/talks.jsonl "{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}, {\"role\": \"assistant\", \"content\": \"!\"}]}\n")
expect(RUN resume ${WORK}/changed CODE 3 ERR "talks.jsonl has changed since the checkpoint")

# What is wrong is named by the command that was given.
expect(RUN ${tune} ${file} --data-path ${WORK}/talks.jsonl --map-keys "{" --save ${WORK}/none CODE 2
  ERR "piton finetune: --map-keys names the keys of a handler; give --handler-name too")
expect(RUN ${tune} ${file} --data-path ${WORK}/talks.jsonl --handler-name Alpaca --save ${WORK}/none CODE 2
  ERR "piton finetune: --handler-name: got \"Alpaca\"")
expect(RUN preprocess --tokenizer-type ByteTokenizer --prompt-type default --handler-name Alpaca --input ${WORK}/talks.jsonl
  --output-prefix ${WORK}/none CODE 2 ERR "piton preprocess: --handler-name: got \"Alpaca\"")

# The template of the model, where the files name none: that of the run, whose data had --prompt-type default.
expect(RUN finetune --finetune --load ${WORK}/talks-prefix --data-path ${WORK}/questions.jsonl --split 80,20,0 --seq-length 128
  --global-batch-size 2 --lr 1e-2 --train-iters 2 --save ${WORK}/own CODE 0
  ERR "the model's own prompt.: 24 samples")

# The adapters of each checkpoint, as `convert --to peft` writes them.
foreach(kind lora dora)
  set(how ${lora})
  if(kind STREQUAL dora)
    list(APPEND how --use-dora --lora-dropout 0.1 --lora-modules-to-save norms)
  endif()
  expect(RUN ${tune} ${how} --data-path ${WORK}/questions --save ${WORK}/${kind} --save-interval 2 CODE 0)
  expect(RUN convert --load ${WORK}/${kind} --save ${WORK}/${kind}-peft --to peft CODE 0)
  foreach(name adapter_config.json adapter_model.safetensors)
    file(SHA256 ${WORK}/${kind}-peft/${name} wanted)
    file(SHA256 ${WORK}/${kind}/iter_0000004/adapter/${name} got)
    if(NOT got STREQUAL wanted)
      message(FATAL_ERROR "${kind}: iter_0000004/adapter/${name} is not what convert writes")
    endif()
    if(NOT EXISTS ${WORK}/${kind}/iter_0000002/adapter/${name})
      message(FATAL_ERROR "${kind}: iter_0000002 has no adapter/${name}")
    endif()
  endforeach()
endforeach()
file(WRITE ${WORK}/ids.json "[[5, 6, 7, 8, 9, 10, 11]]")
expect(RUN score --load ${WORK}/dora --ids-file ${WORK}/ids.json --logits ${WORK}/run.safetensors CODE 0)
expect(RUN score --load ${base} --lora-load ${WORK}/dora/iter_0000004/adapter --ids-file ${WORK}/ids.json
  --logits ${WORK}/adapter.safetensors CODE 0)
expect(RUN convert --load ${base} --lora-load ${WORK}/lora/iter_0000004/adapter --save ${WORK}/merged CODE 0 OUT "verified: ")
file(SHA256 ${WORK}/run.safetensors wanted)
file(SHA256 ${WORK}/adapter.safetensors got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "the adapter of a checkpoint gives other logits than the run")
endif()

expect(RUN inspect samples --data-path ${WORK}/questions.jsonl --is-instruction-dataset --tokenizer-type ByteTokenizer --prompt-type default
  --seq-length 64 --count 1 --json CODE 0 OUT "\"ids\":")

# Messages about samples name the file, not the folder of temporary files where they are.
foreach(case "${WORK}/talks.jsonl --seq-length 16" "0.5 ${WORK}/talks.jsonl 0.5 ${WORK}/questions.jsonl"
        "${WORK}/pairs.jsonl --seq-length 16 --stage orpo" "${WORK}/talks.jsonl --split 1,0,0" "${WORK}/talks.jsonl --vocab-size 40")
  separate_arguments(case)
  execute_process(COMMAND ${PITON} ${tune} ${file} --data-path ${case} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(APPEND messages "${text}")
endforeach()
execute_process(COMMAND ${PITON} inspect samples --data-path ${WORK}/pairs.jsonl --is-instruction-dataset --is-pairwise-dataset --stage orpo
  --tokenizer-type ByteTokenizer ${file} --seq-length 16 --count 1 RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
string(APPEND messages "${text}")
foreach(line "/talks.jsonl: [^\n]*16" "/pairs.jsonl: [^\n]*16" "/questions.jsonl: train")
  if(NOT messages MATCHES "${line}")
    message(SEND_ERROR "no message has ${line}:\n${messages}")
  endif()
endforeach()
if(messages MATCHES "[^\n]*piton-data[^\n]*")
  message(FATAL_ERROR "a message names a temporary file: ${CMAKE_MATCH_0}")
endif()
# A name with a line end.
file(COPY_FILE ${WORK}/questions.jsonl "${WORK}/two\nlines.jsonl")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} ${file} --data-path "${WORK}/two\nlines.jsonl" --save ${WORK}/lines-file
  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "a file with a line end in its name: exit ${code}\n${text}")
endif()

# What is refused, in a line that names the file.
set(pairs ${tune} ${file} --data-path ${WORK}/pairs.jsonl)
expect(RUN ${pairs} --save ${WORK}/none CODE 3 ERR "pairs.jsonl: PromptPairwiseHandler has pairs of answers, wanted answers; --stage dpo")
expect(RUN ${tune} ${file} ${lora} --data-path ${WORK}/questions.jsonl --preference dpo --save ${WORK}/none CODE 3
  ERR "questions.jsonl: PromptCompletionHandler has answers, wanted pairs of answers")
expect(RUN ${tune} --data-path ${WORK}/questions.jsonl --save ${WORK}/none CODE 2 ERR "the tokenizer has no chat template; name one with --prompt-type")
expect(RUN ${tune} ${file} --data-path ${WORK}/questions.jsonl --neat-pack --save ${WORK}/none CODE 2 ERR "--neat-pack: is of corpora")
expect(RUN ${tune} --data-path ${WORK}/questions --map-keys "{\"prompt\": \"q\"}" --train-iters 1 --save ${WORK}/noted CODE 0
  ERR "--data-path: names corpora, which have their prompts")
expect(RUN ${tune} ${file} --data-path ${WORK}/nowhere.jsonl --save ${WORK}/none CODE 3
  ERR "--data-path: there is no file [^ ]*/nowhere.jsonl; check the path")
expect(RUN ${tune} ${file} --data-path ${WORK} --save ${WORK}/none CODE 3 ERR "--data-path: [^ ]* is a folder; name the files of conversations in it")
expect(RUN ${tune} --train_file ${WORK}/talks.jsonl --sequence_len 64 --adapter lora CODE 2
  ERR "--train_file: unknown option, did you mean --data-path" "did you mean --seq-length" "did you mean --lora-target-modules")
expect(RUN ${tune} --chat-template qwen CODE 2 ERR "--chat-template: unknown option, did you mean --prompt-type")
expect(RUN serve --load ${WORK}/own --prompt-type none CODE 2 ERR "--prompt-type: got none, wanted a file in Jinja, or one of")
expect(RUN chat --load ${WORK}/own --prompt-type none CODE 2 ERR "--prompt-type: got none, wanted a file in Jinja, or one of")
file(WRITE ${WORK}/bad.jsonl "{\"prompt\": \"Why?\", \"completion\": 3}\n")
expect(RUN ${tune} ${file} --data-path ${WORK}/bad.jsonl --save ${WORK}/none CODE 3
  ERR "bad.jsonl: line 1 .byte 0.: key \"completion\" holds a number, wanted text; fix it, or [^\n]* with piton preprocess --on-error skip")
file(WRITE ${WORK}/bad.jsonl "{\"prompt\": \"Why?\", \"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], "
                             "\"rejected\": [{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}\n")
expect(RUN ${tune} ${file} ${lora} --preference dpo --data-path ${WORK}/bad.jsonl --save ${WORK}/none CODE 3
  ERR "bad.jsonl: line 1 .*\"chosen\" and \"rejected\" differ before their last message")
expect(RUN ${tune} --data-path ${WORK}/questions --beta 0.1 --save ${WORK}/none CODE 2
  ERR "--beta: is for --stage dpo, ipo, orpo, simpo, cpo, kto, grpo and ppo, got --stage sft")
expect(RUN ${pairs} ${lora} --preference dpo --beta 0.2 --dpo-beta 0.3 --save ${WORK}/none CODE 2
  ERR "--beta: got 0.2, and --dpo-beta 0.3; wanted one of them")
expect(RUN ${pairs} ${lora} --preference dpo --beta 1e-320 --save ${WORK}/none CODE 2 ERR "--beta: got [^,]*, wanted a number above 0, 1e-30 to")
expect(RUN ${pairs} ${lora} --preference dpo --beta 0 --save ${WORK}/none CODE 2 ERR "--beta: got 0, wanted a number above 0")
expect(RUN ${pairs} --preference orpo --simpo-gamma 1 --save ${WORK}/none CODE 2 ERR "--simpo-gamma: is for --preference simpo, got --preference orpo")
if(EXISTS ${WORK}/none)
  message(FATAL_ERROR "a command that was refused left a folder behind")
endif()
file(GLOB left ${WORK}/tmp/*)
if(left)
  message(FATAL_ERROR "left in the folder of temporary files: ${left}")
endif()
