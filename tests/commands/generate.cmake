# What generate can do in addition to continuing one prompt: beams, stop words, log-probabilities, files of prompts.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be: größer, that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 64 --train-iters 60 --lr 3e-3 --save ${WORK}/run CODE 0)
set(generate generate --load ${WORK}/run --max-new-tokens 24)

# A stop word ends the text and is not in it, streamed or not.
execute_process(COMMAND ${PITON} ${generate} --prompt "To be, or" --greedy OUTPUT_VARIABLE greedy)
string(SUBSTRING "${greedy}" 0 3 before)
string(SUBSTRING "${greedy}" 3 3 word)
string(FIND "${greedy}" "${word}" first)
string(SUBSTRING "${greedy}" 0 ${first} wanted)
foreach(way "" "--stream")
  execute_process(COMMAND ${PITON} ${generate} --prompt "To be, or" --greedy ${way} --stop "no such word" "${word}"
    OUTPUT_VARIABLE stopped RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT stopped STREQUAL "${wanted}\n")
    message(FATAL_ERROR "stop word \"${word}\" ${way}: exit ${code}: \"${stopped}\" instead of \"${wanted}\"")
  endif()
endforeach()
execute_process(COMMAND ${PITON} ${generate} --prompt "To be, or" --greedy --stream OUTPUT_VARIABLE streamed)
if(NOT streamed STREQUAL greedy)
  message(FATAL_ERROR "streamed: ${streamed} instead of ${greedy}")
endif()

# Log-probabilities: a line a token; also of the likeliest, which a greedy text takes.
expect(RUN ${generate} --prompt "To be, or" --greedy --max-new-tokens 3 --logprobs 0 CODE 0
  OUT "\n-?[0-9.]+ \"[^\n]*\"\n-?[0-9.]+ \"[^\n]*\"\n-?[0-9.]+ \"[^\n]*\"\n$")
expect(RUN ${generate} --prompt "To be, or" --greedy --max-new-tokens 1 --logprobs 2 CODE 0
  OUT "\n(-?[0-9.]+ \"[^\n]*\")  of  -?[0-9.]+ \"[^\n]*\", -[0-9.]+ \"[^\n]*\"\n$")
expect(RUN ${generate} --prompt "To be, or" --greedy --max-new-tokens 1 --logprobs 2 --json CODE 0
  OUT "\"likeliest\":\\[\\[{\"id\":[0-9]+,\"piece\":\"[^\"]*\",\"log_probability\":")

# Beams: the best, and all of them in JSON, the best first.
expect(RUN ${generate} --prompt "To be, or" --num-beams 3 CODE 0 OUT ".")
expect(RUN ${generate} --prompt "To be, or" --num-beams 3 --length-penalty 0.5 --stop question --json CODE 0
  OUT "\"score\":-[0-9.e-]+,\"beams\":\\[{\"text\":")

# A stop word ends a beam: the best one has fewer ids than --max-new-tokens, and the word is not in it.
execute_process(COMMAND ${PITON} ${generate} --quiet --prompt "To be, or" --num-beams 3 --stop t --json OUTPUT_VARIABLE best)
string(JSON text GET "${best}" text)
string(JSON ids LENGTH "${best}" ids)
if(text MATCHES "t" OR NOT ids LESS 24)
  message(FATAL_ERROR "the best beam of --stop t: \"${text}\" of ${ids} ids")
endif()

# Several samples of a prompt: the first is that of one sample, and they differ.
execute_process(COMMAND ${PITON} ${generate} --quiet --prompt "To be, or" --temperature 2 --json OUTPUT_VARIABLE one)
execute_process(COMMAND ${PITON} ${generate} --quiet --prompt "To be, or" --temperature 2 --num-samples 3 --json
  OUTPUT_VARIABLE three)
string(JSON one GET "${one}" ids)
string(JSON count LENGTH "${three}" samples)
string(JSON first GET "${three}" samples 0 ids)
string(JSON second GET "${three}" samples 1 ids)
if(NOT count EQUAL 3 OR NOT first STREQUAL one OR second STREQUAL one)
  message(FATAL_ERROR "three samples:\n${three}\ninstead of, as the first one\n${one}")
endif()
expect(RUN ${generate} --prompt "To be, or" --max-new-tokens 2 --num-samples 2 --repetition-penalty 1.2 --min-p 0.1 CODE 0 OUT ".")
expect(RUN ${generate} --prompt a --num-samples 2 --greedy CODE 2 ERR "--num-samples: all texts would be the most likely one")
expect(RUN ${generate} --prompt a --num-samples 0 CODE 2 ERR "--num-samples: got 0, wanted 1 to")
expect(RUN ${generate} --prompt a --min-p 1.5 CODE 2 ERR "--min-p: got 1.5, wanted 0 <= p <= 1")
expect(RUN ${generate} --prompt a --repetition-penalty 0 CODE 2 ERR "--repetition-penalty: got 0, wanted 0.01 to 100 .1: none.")
# Numbers that would make logits infinite, or are none, are refused before the model is read.
foreach(option "temperature;inf" "temperature;nan" "top-p;nan" "min-p;inf" "repetition-penalty;1e-30" "repetition-penalty;inf"
    "presence-penalty;-2000" "frequency-penalty;nan")
  list(GET option 0 flag)
  list(GET option 1 value)
  foreach(command generate chat)
    expect(RUN ${command} --load ${WORK}/absent --${flag} ${value} CODE 2 ERR "^piton ${command}: --${flag}: got \"?${value}\"?, wanted ")
  endforeach()
endforeach()
expect(RUN ${generate} --prompt a --num-beams 2 --length-penalty inf CODE 2 ERR "--length-penalty: got inf, wanted a number")

# A file of prompts: an object a line, with the tokens that each prompt gets alone.
file(WRITE ${WORK}/prompts.txt "To be, or\n\nthat is\n")
file(WRITE ${WORK}/prompts.jsonl "\"To be, or\"\n{\"prompt\": \"that is\"}\n")
execute_process(COMMAND ${PITON} ${generate} --prompt "To be, or" --greedy --json OUTPUT_VARIABLE one)
execute_process(COMMAND ${PITON} ${generate} --prompt "that is" --greedy --json OUTPUT_VARIABLE two)
string(JSON one GET "${one}" ids)
string(JSON two GET "${two}" ids)
foreach(words "prompts.txt;--prompts-at-once;1" "prompts.txt" "prompts.jsonl")
  execute_process(COMMAND ${PITON} ${generate} --greedy --prompts ${WORK}/${words} OUTPUT_VARIABLE both RESULT_VARIABLE code)
  string(REGEX MATCHALL "[^\n]+" lines "${both}")
  list(LENGTH lines count)
  list(GET lines 0 first)
  list(GET lines 1 second)
  string(JSON first GET "${first}" ids)
  string(JSON second GET "${second}" ids)
  if(NOT code EQUAL 0 OR NOT count EQUAL 2 OR NOT first STREQUAL one OR NOT second STREQUAL two)
    message(FATAL_ERROR "${words}: exit ${code}\n${both}\ninstead of\n${one}${two}")
  endif()
endforeach()

# Lists of ids, the same way; and the other name of --num-samples.
file(WRITE ${WORK}/ids.json "[[84, 111, 32, 98, 101], [116, 104]]")
execute_process(COMMAND ${PITON} ${generate} --prompt-ids 84,111,32,98,101 --greedy --json OUTPUT_VARIABLE one)
execute_process(COMMAND ${PITON} ${generate} --prompt-ids 116,104 --greedy --json OUTPUT_VARIABLE two)
execute_process(COMMAND ${PITON} ${generate} --ids-file ${WORK}/ids.json --greedy OUTPUT_VARIABLE both RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT both STREQUAL "${one}${two}")
  message(FATAL_ERROR "--ids-file: exit ${code}\n${both}\ninstead of\n${one}${two}")
endif()
execute_process(COMMAND ${PITON} ${generate} --quiet --prompt "To be, or" --temperature 2 --num-return-sequences 3 --json
  OUTPUT_VARIABLE again)
if(NOT again STREQUAL three)
  message(FATAL_ERROR "--num-return-sequences 3:\n${again}\ninstead of\n${three}")
endif()
foreach(word "x" "" "-1" "7x" "2147483648" "99999999999999999999")
  expect(RUN ${generate} --prompt-ids 5,${word},6 CODE 2 ERR "--prompt-ids: got \"${word}\", wanted ids separated by commas")
endforeach()
expect(RUN ${generate} --ids-file ${WORK}/ids.json --stream CODE 2 ERR "--stream: works only with one prompt; --ids-file prints")
expect(RUN ${generate} --ids-file ${WORK}/ids.json --add-special-tokens CODE 2 ERR "is for text, and --ids-file gives ids")
file(WRITE ${WORK}/empty_list.json "[[1], []]")
expect(RUN ${generate} --ids-file ${WORK}/empty_list.json CODE 3 ERR "empty_list.json: list 2 is empty, wanted ids")
file(WRITE ${WORK}/large_id.json "[[1, 100000]]")
expect(RUN ${generate} --ids-file ${WORK}/large_id.json CODE 2 ERR "100000")
file(WRITE ${WORK}/no_lists.json "{\"a\": 1}")
expect(RUN ${generate} --ids-file ${WORK}/no_lists.json CODE 3 ERR "no_lists.json: got object, wanted a JSON list of lists")

expect(RUN ${generate} --prompt a --prompts ${WORK}/prompts.txt CODE 2 ERR "got 2 of them, wanted exactly one")
expect(RUN ${generate} --prompts ${WORK}/prompts.txt --prompts-at-once 0 CODE 2 ERR "--prompts-at-once: got 0, wanted 1 to")
expect(RUN ${generate} --prompts ${WORK}/prompts.txt --stream CODE 2 ERR "--stream: works only with one prompt")
file(WRITE ${WORK}/bad.jsonl "\"a\"\n{\"text\": 1}\n")
expect(RUN ${generate} --prompts ${WORK}/bad.jsonl CODE 3 ERR "bad.jsonl: line 2: wanted a JSON string, or an object")
file(WRITE ${WORK}/empty.txt "\n")
expect(RUN ${generate} --prompts ${WORK}/empty.txt CODE 3 ERR "empty.txt: no prompt in it; write one a line")
expect(RUN ${generate} --prompt a --num-beams 2 --top-k 4 CODE 2 ERR "--num-beams: follows the likeliest tokens and draws none; leave --top-k out")
expect(RUN ${generate} --prompt a --logit-bias 3 CODE 2 ERR "--logit-bias: got \"3\", wanted ID=BIAS, as in 15=-2.5")
expect(RUN ${generate} --prompt a --num-beams 2 --logprobs 1 CODE 2 ERR "cannot be combined with --logprobs above 0")
expect(RUN ${generate} --prompt a --num-beams 0 CODE 2 ERR "--num-beams: got 0, wanted 1 to")
expect(RUN ${generate} --prompt a --logprobs 999 CODE 2 ERR "--logprobs: got 999, wanted 0 to")
expect(RUN ${generate} --prompt a --stop= CODE 2 ERR "--stop: got \"\", wanted a word")

# When beam search is over.
foreach(early true false never)
  expect(RUN ${generate} --prompt "To be, or" --num-beams 3 --stop t --early-stopping ${early} CODE 0 OUT ".")
endforeach()
expect(RUN ${generate} --prompt a --num-beams 2 --early-stopping soon CODE 2 ERR "--early-stopping: got .*soon.*, wanted .*false")
# Flags that would have no effect.
expect(RUN ${generate} --prompt a --early-stopping true CODE 2 ERR "--early-stopping: works only with --num-beams")
expect(RUN ${generate} --prompt a --length-penalty 2 CODE 2 ERR "--length-penalty: works only with --num-beams; leave it out")
expect(RUN ${generate} --prompt a --draft-tokens 3 CODE 2 ERR "--draft-tokens: works only with --draft-model; leave it out")
expect(RUN ${generate} --prompt a --dry-base 2 CODE 2 ERR "--dry-base: works only with --dry-multiplier; leave it out")
expect(RUN ${generate} --prompt a --xtc-threshold 0.2 CODE 2 ERR "--xtc-threshold: works only with --xtc-probability")
expect(RUN ${generate} --prompt a --dynatemp-exp 2 CODE 2 ERR "--dynatemp-exp: works only with --dynatemp-range; leave")
expect(RUN ${generate} --prompt a --mirostat-ent 2 CODE 2 ERR "--mirostat-ent: works only with --mirostat 2; leave it out")
expect(RUN ${generate} --prompt a --mirostat 2 --top-k 3 CODE 2 ERR "--mirostat: chooses in place of --top-k, --top-p")
foreach(flag temperature top-p min-p typical-p)
  expect(RUN ${generate} --prompt a --greedy --${flag} 0.5 CODE 2
    ERR "--greedy: takes the most likely token, and --${flag} has no effect; leave one of them out")
endforeach()

# Guesses of the next tokens change nothing but the time; also of two tensor ranks.
set(copied --prompt "To be, or not to be: To be, or" --quiet)
foreach(way "--greedy" "--temperature;0.8;--seed;5" "--temperature;2;--num-samples;3;--repetition-penalty;1.1"
  "--temperature;0.6;--no-repeat-ngram-size;3;--logit-bias;32=-2;101=+1.5"
  "--typical-p;0.9;--top-n-sigma;2;--xtc-probability;0.5;--dry-multiplier;0.8;--dry-sequence-breaker;e:;o be"
  "--dynatemp-range;0.7;--dynatemp-exp;2;--seed;3" "--mirostat;2;--mirostat-ent;3;--mirostat-lr;0.4;--seed;3")
  execute_process(COMMAND ${PITON} ${generate} ${copied} ${way} --json OUTPUT_VARIABLE plain)
  foreach(guesses "--prompt-lookup;5" "--draft-model;${WORK}/run;--draft-tokens;3")
    foreach(ranks 1 2)
      set(launch "")
      if(ranks EQUAL 2)
        set(launch ${LAUNCH} 2)
      endif()
      execute_process(COMMAND ${launch} ${PITON} ${generate} ${copied} ${way} --json ${guesses}
        --tensor-model-parallel-size ${ranks} OUTPUT_VARIABLE guessed ERROR_VARIABLE err RESULT_VARIABLE code)
      string(JSON wanted GET "${plain}" ids)
      string(JSON got GET "${guessed}" ids)
      if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
        message(FATAL_ERROR "${guesses} ${way}, ${ranks} ranks: exit ${code}\n${err}\n${guessed}\ninstead of\n${plain}")
      endif()
    endforeach()
  endforeach()
endforeach()
expect(RUN ${generate} --prompt "To be, or not to be: To be, or" --greedy --draft-model ${WORK}/run --draft-tokens 3 CODE 0
  ERR "guesses: ([0-9]+) of [0-9]+ tokens were right \\([0-9]+ %\\), [0-9.]+ accepted in each of [0-9]+ steps")
expect(RUN ${generate} --prompt a --prompt-lookup 2 --draft-model ${WORK}/run CODE 2 ERR "both guess the next tokens; leave one")
expect(RUN ${generate} --prompt a --prompt-lookup 65 CODE 2 ERR "--prompt-lookup: got 65, wanted 0 to 64")
expect(RUN ${generate} --prompt a --prompt-lookup 2 --num-beams 2 CODE 2 ERR "--num-beams: cannot be combined with --prompt-lookup")
expect(RUN ${generate} --prompt a --draft-model ${SOURCE}/tests/golden/huggingface/gpt2 CODE 2
  ERR "--draft-model: the vocabulary of .*gpt2 has [0-9]+ tokens, and that of the model [0-9]+; name a model with the same")

# A draft model is used as it is stored, whatever --quantize says of the model, unless --draft-quantize names a format.
expect(RUN quantize --load ${WORK}/run --weights int8 --save ${WORK}/draft CODE 0)
set(guessed ${generate} --prompt "To be, or" --greedy)
expect(RUN ${guessed} --quantize int8 --kv-cache-dtype int8 --draft-model ${WORK}/draft CODE 0 ERR "guesses: ")
expect(RUN ${guessed} --draft-model ${WORK}/run --draft-quantize q8_0 CODE 0 ERR "guesses: ")
expect(RUN ${guessed} --draft-model ${WORK}/draft --draft-quantize int8 CODE 2
  ERR "--draft-quantize: draft is quantized, and used as it is stored; leave --draft-quantize out")
expect(RUN ${guessed} --draft-model ${WORK}/run --draft-quantize int3 CODE 2 ERR "--draft-quantize: got .*int3.*, wanted .*nf4")
expect(RUN ${guessed} --draft-quantize int8 CODE 2 ERR "--draft-quantize: works only with --draft-model; leave it out")

# Ids that end a text: those of generation_config.json, else those of config.json, also of a model whose tokenizer is named.
expect(RUN convert --load ${WORK}/run --save ${WORK}/ends CODE 0)
file(READ ${WORK}/ends/config.json described)
set(ended generate --load ${WORK}/ends --tokenizer-type ByteTokenizer --prompt "To be, or" --greedy --max-new-tokens 9 --json --quiet)
execute_process(COMMAND ${PITON} ${ended} OUTPUT_VARIABLE out)
foreach(place RANGE 8)
  string(JSON id_${place} GET "${out}" ids ${place})
endforeach()
# Fails unless the text ends after the first of these ids.
function(expect_end)
  set(wanted 0)
  foreach(place RANGE 8 0 -1)
    list(FIND ARGN ${id_${place}} found)
    if(found GREATER -1)
      math(EXPR wanted "${place} + 1")
    endif()
  endforeach()
  execute_process(COMMAND ${PITON} ${ended} OUTPUT_VARIABLE out ERROR_VARIABLE err)
  string(JSON got LENGTH "${out}" ids)
  if(NOT got EQUAL wanted)
    message(FATAL_ERROR "the text should end at one of ${ARGN}: ${got} ids, wanted ${wanted}: ${out}${err}")
  endif()
endfunction()
file(REMOVE ${WORK}/ends/generation_config.json)
string(JSON ended_there SET "${described}" eos_token_id ${id_3})
file(WRITE ${WORK}/ends/config.json "${ended_there}")
expect_end(${id_3})
file(WRITE ${WORK}/ends/generation_config.json "{\"eos_token_id\": [${id_5}, 255]}")
expect_end(${id_5})
file(WRITE ${WORK}/ends/generation_config.json "{\"do_sample\": false}")
expect_end(${id_3})
# A run that starts from the folder keeps what its configuration says.
expect(RUN convert --load ${WORK}/ends --to piton --save ${WORK}/ends-run CODE 0)
list(TRANSFORM ended REPLACE "/ends$" "/ends-run")
expect_end(${id_3})

# Constrained texts.
expect(RUN ${generate} --prompt "To be?" --choices yes,no CODE 0 OUT "^(yes|no)\n$")
expect(RUN ${generate} --prompt "To be?" --choices yes no,maybe --num-samples 3 --quiet CODE 0
  OUT "^(yes|no|maybe)\n(yes|no|maybe)\n(yes|no|maybe)\n$")
expect(RUN ${generate} --prompt "To be?" --regex "[0-9]{3}-x" --prompt-lookup 3 CODE 0 OUT "^[0-9][0-9][0-9]-x\n$")
file(WRITE ${WORK}/schema.json
  "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 9}}, \"required\": [\"a\"]}")
expect(RUN ${generate} --prompt "x" --json-schema ${WORK}/schema.json CODE 0 OUT "^{[^a]*\"a\"[^0-9]*[3-9][^0-9]*}\n$")
expect(RUN ${generate} --prompt a --regex "[0-9]{60}" CODE 0 ERR "--regex: 1 of 1 texts are cut: they need more tokens")
expect(RUN ${generate} --prompt a --regex x --choices a,b CODE 2 ERR "--regex, --choices: a text has one of these constraints")
expect(RUN ${generate} --prompt a --regex "(" CODE 2 ERR "generate: ")
expect(RUN ${generate} --prompt a --choices "a,,b" CODE 2 ERR "wanted a list of texts that are not empty")
expect(RUN ${generate} --prompt a --json-schema ${WORK}/none.json CODE 3 ERR "none.json")
expect(RUN ${generate} --prompt a --num-beams 2 --regex x CODE 2 ERR "--num-beams: cannot be combined with --regex")
