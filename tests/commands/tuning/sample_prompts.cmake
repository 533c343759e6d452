# --sample-prompts: answers at each evaluation in metrics.jsonl and the report, the same on any ranks and after a resume.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

string(REPEAT "What is one and one?\nTwo.\n" 200 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/text CODE 0)
file(WRITE ${WORK}/prompts.txt "What is one\n\nTwo.\r\n")
set(run pretrain --model llama-tiny --tokenizer-type ByteTokenizer --data-path ${WORK}/text_text_document --seq-length 64
  --micro-batch-size 2 --global-batch-size 4 --train-iters 6 --eval-interval 2 --eval-iters 1 --lr 1e-2)
set(ask --sample-prompts ${WORK}/prompts.txt --sample-prompts-tokens 12)

# The prompts and answers of a run, one evaluation a line.
function(answers_of folder out)
  file(STRINGS ${folder}/metrics.jsonl lines)
  set(found "")
  foreach(line ${lines})
    string(REGEX MATCH "\"answers\":.*\\]" answers "${line}")
    string(APPEND found "${answers}\n")
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

expect(RUN ${run} ${ask} --save ${WORK}/one CODE 0)
answers_of(${WORK}/one wanted)
string(REGEX MATCHALL "\"prompt\":\"What is one\"" evaluations "${wanted}")
list(LENGTH evaluations count)
if(NOT count EQUAL 3 OR NOT wanted MATCHES "\"prompt\":\"Two.\"")
  message(FATAL_ERROR "answers at ${count} evaluations, wanted 3:\n${wanted}")
endif()
expect(RUN report ${WORK}/one --output ${WORK}/page.html CODE 0)
file(READ ${WORK}/page.html page)
if(NOT page MATCHES "<h2>Answers</h2>" OR NOT page MATCHES "one: What is one")
  message(FATAL_ERROR "the report has no answers")
endif()
# Asking changes no bit of the run.
expect(RUN ${run} --save ${WORK}/silent CODE 0)
foreach(name one silent)
  execute_process(COMMAND ${PITON} inspect ${WORK}/${name} --hash OUTPUT_VARIABLE text)
  string(REGEX MATCH "weights +[0-9a-f]+" ${name} "${text}")
endforeach()
if(NOT one STREQUAL silent OR one STREQUAL "")
  message(FATAL_ERROR "with prompts ${one}, without ${silent}")
endif()
expect(RUN ${run} ${ask} --save ${WORK}/resumed --exit-interval 3 --save-interval 3 CODE 0)
expect(RUN resume ${WORK}/resumed CODE 0)
answers_of(${WORK}/resumed got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "resumed:\n${got}\nuninterrupted:\n${wanted}")
endif()
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} ${ask} --save ${WORK}/${flag} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  answers_of(${WORK}/${flag} got)
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}\n${got}\n${wanted}")
  endif()
endforeach()

# Conversations, by a template.
file(WRITE ${WORK}/chats.jsonl "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n")
file(WRITE ${WORK}/data.jsonl "{\"instruction\": \"Hi\", \"output\": \"Ho\"}\n{\"instruction\": \"He\", \"output\": \"Ha\"}\n")
expect(RUN preprocess --tokenizer-type ByteTokenizer --prompt-type default --input ${WORK}/data.jsonl
  --handler-name AlpacaStyleInstructionHandler --output-prefix ${WORK}/data CODE 0)
expect(RUN finetune --load ${WORK}/silent --finetune --data-path ${WORK}/data --seq-length 64 --micro-batch-size 1 --train-iters 1
  --split 1,0,0 --eval-iters 0 --lr 1e-3 --sample-prompts ${WORK}/chats.jsonl --sample-prompts-tokens 4 --save ${WORK}/tuned CODE 0)
answers_of(${WORK}/tuned got)
if(NOT got MATCHES "\"prompt\":\"Hi\"")
  message(FATAL_ERROR "no answer to a conversation: ${got}")
endif()

# An answer ends at the token that the template writes after it, as in a chat, also if texts end at another one.
file(COPY ${SOURCE}/tests/golden/chat/bpe/tokenizer.json DESTINATION ${WORK}/words)
file(WRITE ${WORK}/words/tokenizer_config.json "{\"eos_token\": \"<|endoftext|>\"}")
file(WRITE ${WORK}/words/chat_template.jinja "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>zzz{% endfor %}"
                                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
set(talk "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Ho\"}]}\n")
file(WRITE ${WORK}/talks.jsonl "${talk}${talk}")
set(learn --is-instruction-dataset --data-path ${WORK}/talks.jsonl --seq-length 64 --split 1,0,0 --eval-iters 0 --lr 1e-2
          --micro-batch-size 1 --sample-prompts ${WORK}/chats.jsonl --sample-prompts-tokens 12)
expect(RUN pretrain --model llama-tiny --tokenizer-name-or-path ${WORK}/words ${learn} --train-iters 40 --eval-interval 40
  --save ${WORK}/ended CODE 0)
answers_of(${WORK}/ended got)
if(NOT got MATCHES "\"answer\":\"Ho\"")
  message(FATAL_ERROR "an answer does not end where its turn does: ${got}")
endif()

# So does an answer to a task, if the files of the model name that token.
file(WRITE ${WORK}/hello.toml "prompt = \"Q {question}\\nA\\n\"\nkind = \"generation\"\nanswer = \"{right}\"\n"
  "max-new-tokens = 12\nmetrics = [\"exact_match\"]\n")
file(WRITE ${WORK}/words/chat_template.jinja "{% for m in messages %}{% if m.role == 'user' %}Q {{ m.content }}\nA\n"
  "{% else %}{{ m.content }}<|im_end|>zzz{% endif %}{% endfor %}")
file(WRITE ${WORK}/hello/test.csv "question,right\nHi,Ho\n")
file(READ ${WORK}/words/tokenizer.json ids)
string(REGEX MATCH "\"id\": *([0-9]+),[^}]*\"content\": *\"<.im_end.>\"" found "${ids}")
file(WRITE ${WORK}/words/generation_config.json "{\"eos_token_id\": ${CMAKE_MATCH_1}}")
expect(RUN pretrain --model llama-tiny --tokenizer-name-or-path ${WORK}/words ${learn} --train-iters 40 --eval-interval 40
  --eval-tasks ${WORK}/hello.toml --eval-tasks-data-path ${WORK}/hello --save ${WORK}/asked CODE 0
  ERR "tasks at iteration 40 . hello,exact_match: 1")

# What is refused.
file(WRITE ${WORK}/empty.txt "\n")
expect(RUN ${run} --sample-prompts ${WORK}/empty.txt --save ${WORK}/none CODE 3 ERR "--sample-prompts: [^ ]*empty.txt: no prompt is in it")
expect(RUN ${run} --sample-prompts ${WORK}/missing.txt --save ${WORK}/none CODE 3 ERR "missing.txt")
expect(RUN ${run} --sample-prompts ${WORK}/prompts.txt --sample-prompts-tokens 60 --save ${WORK}/none CODE 2
  ERR "prompt 1 has 11 tokens, wanted 1 to 4, so that an answer of 60 ")
expect(RUN ${run} --sample-prompts ${WORK}/prompts.txt --sample-prompts-tokens 0 --save ${WORK}/none CODE 2 ERR "--sample-prompts-tokens: got 0")
if(EXISTS ${WORK}/none)
  message(FATAL_ERROR "a command that was refused left a folder behind")
endif()
