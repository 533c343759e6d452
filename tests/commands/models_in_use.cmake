# generate, score and tokenize with different input: pipes, no input, too long input, JSON lines.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
           --split 100,0,0 --seq-length 32 --train-iters 2 --save ${WORK}/run CODE 0)
set(generate generate --load ${WORK}/run --max-new-tokens 4)

# Temperature 0 is greedy; an empty prompt starts where documents do.
execute_process(COMMAND ${PITON} ${generate} --prompt "To be" --greedy OUTPUT_VARIABLE greedy)
execute_process(COMMAND ${PITON} ${generate} --prompt "To be" --temperature 0 OUTPUT_VARIABLE cold)
if(NOT greedy STREQUAL cold)
  message(FATAL_ERROR "temperature 0 is not greedy: ${cold} ${greedy}")
endif()
expect(RUN ${generate} --prompt= --json CODE 0 OUT "\"prompt_ids\":\\[256\\]")

# Standard input: a pipe, and "-".
file(WRITE ${WORK}/prompt.txt "To be")
foreach(name IN ITEMS none - file)
  set(words ${generate} --greedy)
  if(name STREQUAL "-")
    list(APPEND words --prompt -)
  elseif(name STREQUAL "file")
    list(APPEND words --prompt-file -)
  endif()
  execute_process(COMMAND ${PITON} ${words} INPUT_FILE ${WORK}/prompt.txt OUTPUT_VARIABLE piped RESULT_VARIABLE code)
  if(NOT piped STREQUAL greedy OR NOT code EQUAL 0)
    message(FATAL_ERROR "from standard input (${name}): exit ${code}: ${piped} instead of ${greedy}")
  endif()
endforeach()

# The model's longest sequence ends a text, and that is reported.
# The prompt's length and the limit need not have a sum.
expect(RUN generate --load ${WORK}/run --prompt "To be" --max-new-tokens 9223372036854775807 --top-k 1 CODE 0)
expect(RUN generate --load ${WORK}/run --prompt "To be" --max-new-tokens 500 --top-k 1 CODE 0
       ERR "stopped after 123 tokens: with the 5 of the prompt they fill the 128 that the model")

# JSON lines are scored by their texts.
file(WRITE ${WORK}/a.jsonl "{\"text\": \"To be, or not\", \"n\": 1}\n\n{\"text\": \"To be\", \"n\": 2}\n")
expect(RUN score --load ${WORK}/run ${WORK}/a.jsonl CODE 0 OUT ", 16 tokens" ERR "scoring the text under \"text\"")
expect(RUN score --load ${WORK}/run ${WORK}/a.jsonl --json-keys body CODE 3 ERR "line 1: wanted a JSON object with a text under \"body\"")
execute_process(COMMAND ${PITON} score --load ${WORK}/run - INPUT_FILE ${WORK}/prompt.txt OUTPUT_VARIABLE out RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT out MATCHES ", 4 tokens")
  message(FATAL_ERROR "score of standard input: exit ${code}: ${out}")
endif()

# Ids that the tokenizer does not have are no empty text.
file(WRITE ${WORK}/ids.txt "84 111 999")
expect(RUN tokenize --tokenizer-type ByteTokenizer --decode ${WORK}/ids.txt CODE 3 ERR "byte 7: got id 999, wanted 0 to 256")

# What people who come from elsewhere type.
expect(RUN train CODE 2 ERR "training is piton pretrain")
expect(RUN version CODE 2 ERR "that is piton --version")

# At a terminal both name what can be done next; to a program they do not.
find_program(SCRIPT script)
if(SCRIPT)
  foreach(pair "generate --prompt a --max-new-tokens 2>next: piton score --load" "score ${WORK}/text.txt>next: piton generate --load")
    string(REGEX MATCH "^([^>]*)>(.*)$" both "${pair}")
    set(words ${CMAKE_MATCH_1})
    set(wanted ${CMAKE_MATCH_2})
    execute_process(COMMAND ${SCRIPT} -qec "${PITON} ${words} --load ${WORK}/run" /dev/null
                    INPUT_FILE /dev/null RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
    if(NOT code EQUAL 0 OR NOT out MATCHES "${wanted} ${WORK}/run")
      message(FATAL_ERROR "at a terminal: exit ${code}, wanted ${wanted}\n${out}")
    endif()
  endforeach()
else()
  message(STATUS "skipped: there is no program script to make a terminal")
endif()
execute_process(COMMAND ${PITON} ${generate} --prompt a OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(out MATCHES "next:")
  message(FATAL_ERROR "a program gets advice on what to do next: ${out}")
endif()

# Layers that predict later tokens: trained, in the log, continued to the bit; generate and formats that do not have them
# get the model without them.
set(later pretrain --model llama-tiny --mtp-num-layers 2 --mtp-loss-scaling-factor 0.3 --data-path ${WORK}/corpus_text_document
          --tokenizer-type ByteTokenizer --split 90,10,0 --seq-length 32 --lr-decay-iters 4 --eval-interval 2 --eval-iters 1
          --log-interval 1)
expect(RUN ${later} --train-iters 4 --save ${WORK}/later CODE 0 ERR "mtp 1 loss: [0-9.E+]+ \\| mtp 2 loss: ")
file(READ ${WORK}/later/metrics.jsonl metrics)
if(NOT metrics MATCHES "\"mtp_2_loss\":[0-9.]+")
  message(FATAL_ERROR "no mtp_2_loss in\n${metrics}")
endif()
expect(RUN ${later} --train-iters 2 --save ${WORK}/later_parts CODE 0)
expect(RUN ${later} --train-iters 4 --save ${WORK}/later_parts --load ${WORK}/later_parts CODE 0)
expect_same_state(later later_parts)
expect(RUN convert --load ${WORK}/later --save ${WORK}/later_hf CODE 0
       ERR "the layers that predict later tokens stay behind")
execute_process(COMMAND ${PITON} generate --load ${WORK}/later --prompt "To be" --greedy OUTPUT_VARIABLE with
                RESULT_VARIABLE code)
execute_process(COMMAND ${PITON} generate --load ${WORK}/later_hf --tokenizer-type ByteTokenizer
                --prompt "To be" --greedy OUTPUT_VARIABLE without)
if(NOT code EQUAL 0 OR NOT with STREQUAL without)
  message(FATAL_ERROR "exit ${code}: ${with}\nwithout layers that predict later tokens: ${without}")
endif()
expect(RUN pretrain --load ${WORK}/later_hf --mtp-num-layers 1 --data-path ${WORK}/corpus_text_document --seq-length 32
           --tokenizer-type ByteTokenizer --train-iters 1 --finetune CODE 2 ERR "--mtp-num-layers: got 1, but the model of [^ ]* has 0; leave the flag out")

# The first of them guesses the next tokens, which changes nothing but the time; also on two ranks, one after another and
# each with a part of the heads.
foreach(way "--greedy" "--temperature;0.8;--seed;5;--num-samples;2")
  set(written generate --load ${WORK}/later --prompt "To be, or" --max-new-tokens 24 --json ${way})
  execute_process(COMMAND ${PITON} ${written} --quiet OUTPUT_VARIABLE plain)
  string(JSON wanted GET "${plain}" ids)
  foreach(layout "" "--tensor-model-parallel-size;2" "--pipeline-model-parallel-size;2")
    set(launch "")
    if(layout)
      set(launch ${LAUNCH} 2)
    endif()
    execute_process(COMMAND ${launch} ${PITON} ${written} --draft-mtp 3 ${layout} OUTPUT_VARIABLE guessed ERROR_VARIABLE err
                    RESULT_VARIABLE code)
    string(JSON got GET "${guessed}" ids)
    if(NOT code EQUAL 0 OR NOT got STREQUAL wanted OR NOT err MATCHES "guesses: [0-9]+ of [1-9][0-9]* tokens were right")
      message(FATAL_ERROR "--draft-mtp 3 ${way} ${layout}: exit ${code}\n${err}\n${guessed}\ninstead of\n${plain}")
    endif()
  endforeach()
endforeach()
set(refused generate --load ${WORK}/later --prompt a)
expect(RUN ${refused} --draft-mtp 65 CODE 2 ERR "--draft-mtp: got 65, wanted 0 to 64")
expect(RUN ${refused} --draft-mtp 2 --num-beams 2 CODE 2 ERR "--num-beams: cannot be combined with --draft-mtp")
expect(RUN ${refused} --draft-mtp 2 --prompt-lookup 2 CODE 2 ERR "--prompt-lookup, --draft-mtp: both guess the next tokens")
expect(RUN ${refused} --draft-mtp 2 --draft-model ${WORK}/later CODE 2 ERR "--draft-mtp, --draft-model: both guess")
expect(RUN generate --load ${WORK}/later_hf --tokenizer-type ByteTokenizer --prompt a --draft-mtp 2 CODE 2
       ERR "--draft-mtp: the model has no layer that predicts later tokens; leave it out, or use --prompt-lookup")
