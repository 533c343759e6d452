# piton eval: tasks of both protocols, results, a killed evaluation that continues, and wrong inputs.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(data ${SOURCE}/tests/golden/evaluation/data)
string(REPEAT "Question: To be, or not to be? Answer: yes\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 256 --max-position-embeddings 256 --train-iters 20 --micro-batch-size 1 --lr 3e-3
  --save ${WORK}/run CODE 0)
set(eval eval --load ${WORK}/run)

# Several tasks: a table, results.json, a line of JSON a question; no journal stays.
expect(RUN ${eval} --task boolq piqa mmlu --task-data-path ${data} --save-results ${WORK}/first CODE 0
  OUT "\\|boolq\\|lm-eval\\|none\\|0\\|acc\\|↑\\|" "\\|piqa\\|lm-eval\\|none\\|0\\|acc_norm\\|" "\\| - mmlu_stem\\|"
  ERR "mmlu: 20 prompts are longer than the model reads; they were cut on the left")
expect(RUN ${eval} --task mmlu boolq piqa --task-data-path ${data} --save-results ${WORK}/second --batch-size 1 CODE 0)
foreach(name boolq.jsonl piqa.jsonl mmlu.jsonl)
  file(STRINGS ${WORK}/first/${name} first)
  file(STRINGS ${WORK}/second/${name} second)
  list(LENGTH first count)
  list(GET first 0 one)
  list(GET second 0 two)
  string(JSON answer GET "${one}" answer)
  string(JSON other GET "${two}" answer)
  if(count LESS 2 OR NOT answer STREQUAL other)
    message(FATAL_ERROR "${name}: ${count} lines, answers ${answer} and ${other}")
  endif()
  if(EXISTS ${WORK}/first/${name}.journal)
    message(FATAL_ERROR "a journal stayed")
  endif()
endforeach()
file(READ ${WORK}/first/results.json results)
string(JSON samples GET "${results}" n-samples mmlu)
string(JSON protocol GET "${results}" configs mmlu protocol)
if(NOT samples EQUAL 5 OR NOT protocol STREQUAL "lm-eval")
  message(FATAL_ERROR "results.json: ${results}")
endif()
# The model, the tokenizer, the program and the options are named.
execute_process(COMMAND ${PITON} inspect ${WORK}/run --hash --json OUTPUT_VARIABLE hashes)
string(JSON wanted GET "${hashes}" weights)
string(JSON hash GET "${results}" model_hash)
string(JSON version GET "${results}" piton_version)
file(READ ${WORK}/first/config.toml config)
if(NOT hash STREQUAL wanted OR NOT version MATCHES "^[0-9]+[.][0-9]+[.][0-9]+ .[0-9a-z]" OR
   NOT config MATCHES "task = .\"boolq\", \"piqa\", \"mmlu\".")
  message(FATAL_ERROR "results.json: ${hash} instead of ${wanted}, ${version}\n${config}")
endif()
# Flags of evaluation.py: every prompt in a text, a chat template, words that end an answer.
foreach(protocol lm-eval mindspeed)
  expect(RUN ${eval} --task boolq --task-data-path ${data} --max-eval-samples 1 --protocol ${protocol} --allow-code-execution
    --instruction-template "Say: {instruction}!" --save-results ${WORK}/put-${protocol} CODE 0
    ERR "--allow-code-execution: no meaning here: no --task runs programs")
  file(READ ${WORK}/put-${protocol}/boolq.jsonl put)
  if(NOT put MATCHES "Say: .*Answer:!\"")
    message(FATAL_ERROR "--instruction-template: ${put}")
  endif()
  file(WRITE ${WORK}/asked.jinja "{% for m in messages %}[{{ m.content }}]{% endfor %}")
  expect(RUN ${eval} --task boolq --task-data-path ${data} --max-eval-samples 1 --protocol ${protocol} --hf-chat-template
    --chat-template ${WORK}/asked.jinja --save-results ${WORK}/chat-${protocol} CODE 0)
  file(READ ${WORK}/chat-${protocol}/boolq.jsonl put)
  if(NOT put MATCHES "\"\\[[^\n]*Answer:\\]\"")
    message(FATAL_ERROR "--hf-chat-template: ${put}")
  endif()
endforeach()
expect(RUN ${eval} --task gsm8k --task-data-path ${data} --num-shots 0 --max-eval-samples 1 --max-new-token 12 --add-eos-token e t " "
  --save-results ${WORK}/ends CODE 0)
file(READ ${WORK}/ends/gsm8k.jsonl ends)
if(ends MATCHES "\"answer\": ?\"[^\"]*[et ]")
  message(FATAL_ERROR "--add-eos-token: ${ends}")
endif()
expect(RUN ${eval} --task boolq --task-data-path ${data} --instruction-template "{question}" CODE 2
  ERR "--instruction-template: got \"{question}\", wanted a text with {instruction}")
# The same command replaces its results; those of another model, task or setting stay.
set(again eval --task boolq --task-data-path ${data} --max-eval-samples 2 --save-results ${WORK}/again)
expect(RUN ${again} --load ${WORK}/run CODE 0)
file(READ ${WORK}/again/results.json results)
expect(RUN ${again} --load ${WORK}/run CODE 0)
expect(RUN ${again} --load ${WORK}/run --task piqa CODE 2 ERR "again/results.json has results of boolq too, which is not evaluated now; give")
expect(RUN ${again} --load ${WORK}/run --num-shots 1 CODE 2 ERR "has results of boolq with num_fewshot: 0, here 1; give another folder")
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 256 --max-position-embeddings 256 --train-iters 1 --micro-batch-size 1 --lr 3e-3
  --save ${WORK}/weaker CODE 0)
expect(RUN ${again} --load ${WORK}/weaker CODE 2 ERR "has results of another model, [^ ]*/run; this one is [^ ]*/weaker; give another")
file(READ ${WORK}/again/results.json kept)
if(NOT kept STREQUAL results)
  message(FATAL_ERROR "the same command gave ${kept}\ninstead of ${results}")
endif()
expect(RUN ${eval} --task boolq --task-data-path ${data}/boolq --json --max-eval-samples 2 --num-shots 1 CODE 0
  OUT "\"n-samples\":{\"boolq\":2}" "\"n-shot\":{\"boolq\":1}")

# Generated answers, whole texts, last words; MindSpeed-LLM's decisions.
expect(RUN ${eval} --task gsm8k --task-data-path ${data} --num-shots 0 --max-new-tokens 8 CODE 0
  OUT "\\|gsm8k\\|lm-eval\\|strict-match\\|0\\|exact_match\\|" "\\|flexible-extract\\|")
expect(RUN ${eval} --task ifeval --task-data-path ${data} --max-new-tokens 8 CODE 0
  OUT "\\|ifeval\\|lm-eval\\|none\\|0\\|prompt_level_strict_acc\\|" "\\|inst_level_loose_acc\\|" "\\|inst_checked\\|↑\\|0.7500\\|")
expect(RUN ${eval} --task wikitext lambada --task-data-path ${data} CODE 0
  OUT "\\|word_perplexity\\|↓\\|" "\\|bits_per_byte\\|" "\\|lambada\\|lm-eval\\|none\\|0\\|perplexity\\|")
expect(RUN ${eval} --task wikitext --task-data-path ${data} --overlapping-eval 32 --quiet CODE 0)
expect(RUN ${eval} --task boolq lambada --task-data-path ${data} --protocol mindspeed CODE 0
  OUT "\\|boolq\\|mindspeed\\|none\\|0\\|acc\\|")
expect(RUN ${eval} --task lambada --task-data-path ${data} --protocol mindspeed --strict-lambada CODE 0)
file(WRITE ${WORK}/examples/gsm8k_3shot_template.json "{\"few_shot\": \"Q: 1 + 1?\\n\\nA: The answer is 2.\"}")
expect(RUN ${eval} --task gsm8k --task-data-path ${data} --protocol mindspeed --few-shot-path ${WORK}/examples
  --max-new-tokens 4 CODE 0 OUT "\\|gsm8k\\|mindspeed\\|none\\|3\\|exact_match\\|")

# A task of the user's.
file(WRITE ${WORK}/colors.toml "prompt = \"{question}?\"\nchoices = [\"{a}\", \"{b}\"]\nanswer = \"{right}\"\n"
  "answer-labels = [\"a\", \"b\"]\n")
file(WRITE ${WORK}/colors/test.csv "question,a,b,right\nsky,blue,red,a\nsnow,black,white,b\n")
expect(RUN ${eval} --task ${WORK}/colors.toml --task-data-path ${WORK}/colors CODE 0 OUT "\\|colors\\|.*\\|acc_bytes\\|")

# Results of the same model, rounded otherwise: what a request shares with others depends on what was asked before.
function(expect_nearly_equal first other about)
  execute_process(COMMAND awk -v other=${other} -f ${SOURCE}/tests/commands/evaluation/nearly_equal.awk ${first}
    OUTPUT_VARIABLE difference RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${first} and ${other} differ ${about}\n${difference}")
  endif()
endfunction()

# What requests have in common is computed once; a beginning that an earlier task had may not be computed at all.
expect(RUN ${eval} --task hellaswag mmlu piqa wikitext --task-data-path ${data} --save-results ${WORK}/counted CODE 0)
file(READ ${WORK}/counted/results.json results)
foreach(task hellaswag mmlu piqa wikitext)
  string(JSON computed GET "${results}" computation ${task} computed_tokens)
  string(JSON distinct GET "${results}" computation ${task} distinct_tokens)
  math(EXPR percent "100 * ${computed} / ${distinct}")
  if(percent LESS 80 OR percent GREATER 110)
    message(FATAL_ERROR "${task}: ${computed} tokens were computed, and ${distinct} are distinct")
  endif()
endforeach()
expect(RUN ${eval} --task hellaswag mmlu piqa wikitext --task-data-path ${data} --save-results ${WORK}/one --batch-size 1 CODE 0)
expect(RUN ${eval} --task hellaswag mmlu piqa wikitext --task-data-path ${data} --save-results ${WORK}/many32
  --batch-size 32 CODE 0)
foreach(name hellaswag.jsonl mmlu.jsonl piqa.jsonl wikitext.jsonl results.json)
  expect_nearly_equal(${WORK}/one/${name} ${WORK}/many32/${name} "with 1 and 32 texts at once")
endforeach()

# Killed, an evaluation continues with the questions that are left, and ends as one that was not killed.
set(rows "")
foreach(i RANGE 2000)
  string(APPEND rows "{\"goal\": \"To be ${i}\", \"sol1\": \"or not\", \"sol2\": \"yes, ${i} times\", \"label\": 1}\n")
endforeach()
file(WRITE ${WORK}/many/piqa/validation.jsonl "${rows}")
set(many ${eval} --task piqa --task-data-path ${WORK}/many --batch-size 4)
list(JOIN many " " words)
# Runs `start`, which evaluates into `folder`, and kills it by `kill` in the middle: $! is its process. On a busy machine
# it can end before the shell looks at it: the next attempt then.
function(kill_in_the_middle folder start kill)
  foreach(attempt RANGE 1 20)
    file(REMOVE_RECURSE ${folder})
    execute_process(COMMAND sh -c "${start} --save-results ${folder} 2> /dev/null & \
      until test \"$(cat ${folder}/piqa.journal 2> /dev/null | wc -l)\" -gt 20 -o -e ${folder}/results.json; do \
        sleep 0.02; done; ${kill}")
    if(EXISTS ${folder}/piqa.journal AND NOT EXISTS ${folder}/results.json)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${folder}: the evaluation was never killed before its end")
endfunction()
kill_in_the_middle(${WORK}/killed "${PITON} ${words}" "kill -9 $!")
expect(RUN ${many} --save-results ${WORK}/killed CODE 0 ERR "piqa: [0-9]+ answers were there from an earlier run")
expect(RUN ${many} --save-results ${WORK}/whole CODE 0)
foreach(name results.json piqa.jsonl)
  expect_nearly_equal(${WORK}/killed/${name} ${WORK}/whole/${name} "after a kill")
endforeach()
file(WRITE ${WORK}/other/boolq.journal "{\"key\":{},\"probe\":0}\n")
expect(RUN ${eval} --task boolq --task-data-path ${data} --save-results ${WORK}/other CODE 2
  ERR "boolq.journal: holds answers of another evaluation")

# Tensor ranks give the same table.
execute_process(COMMAND ${PITON} ${eval} --task hellaswag boolq --task-data-path ${data} --quiet OUTPUT_VARIABLE one)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${eval} --task hellaswag boolq --task-data-path ${data} --quiet
  --tensor-model-parallel-size 2 --save-results ${WORK}/ranks OUTPUT_VARIABLE two RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT one STREQUAL two)
  message(FATAL_ERROR "two ranks: exit ${code}\n${two}\ninstead of\n${one}")
endif()
execute_process(COMMAND ${LAUNCH} 4 ${PITON} ${eval} --task hellaswag boolq --task-data-path ${data} --quiet
  --tensor-model-parallel-size 2 OUTPUT_VARIABLE two RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT one STREQUAL two)
  message(FATAL_ERROR "two times two ranks: exit ${code}\n${two}\ninstead of\n${one}")
endif()

# Ranks with a copy of the model each share the questions: the same files on 1, 2 and 4 ranks, also after a kill.
set(shared ${eval} --task hellaswag mmlu lambada gsm8k wikitext --task-data-path ${data} --max-new-tokens 4 --quiet)
execute_process(COMMAND ${PITON} ${shared} --save-results ${WORK}/ranks1 OUTPUT_VARIABLE one RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "one rank: exit ${code}")
endif()
function(expect_same_results ranks)
  execute_process(COMMAND ${LAUNCH} ${ranks} ${PITON} ${shared} ${ARGN} --save-results ${WORK}/ranks${ranks}
    OUTPUT_VARIABLE several RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT one STREQUAL several)
    message(FATAL_ERROR "${ranks} ranks: exit ${code}\n${several}\ninstead of\n${one}")
  endif()
  foreach(name results.json hellaswag.jsonl mmlu.jsonl lambada.jsonl gsm8k.jsonl wikitext.jsonl)
    expect_nearly_equal(${WORK}/ranks1/${name} ${WORK}/ranks${ranks}/${name} "on ${ranks} ranks")
  endforeach()
endfunction()
expect_same_results(2)
expect_same_results(4)
list(JOIN many " " words)
# The launcher, mpirun and the ranks are killed: they have one session.
kill_in_the_middle(${WORK}/killed2 "setsid ${LAUNCH} 2 ${PITON} ${words}" "\
  of_session() { awk -v session=$! '$6 == session { print $1 }' /proc/[0-9]*/stat 2> /dev/null; }; \
  while of_session | grep -q .; do kill -9 $(of_session) 2> /dev/null; sleep 0.02; done")
expect(RUN ${many} --save-results ${WORK}/killed2 CODE 0 ERR "piqa: [0-9]+ answers were there from an earlier run")
expect_nearly_equal(${WORK}/killed2/piqa.jsonl ${WORK}/whole/piqa.jsonl "after a kill of two ranks")

# Chat templates: the model has none, so that one is given.
file(WRITE ${WORK}/chat.jinja "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}")
set(chat --apply-chat-template --chat-template ${WORK}/chat.jinja)
expect(RUN ${eval} --task mmlu gsm8k --task-data-path ${data} --max-new-tokens 4 ${chat}
  --save-results ${WORK}/chat CODE 0)
file(READ ${WORK}/chat/results.json results)
string(JSON is_chat GET "${results}" configs mmlu chat_template)
file(STRINGS ${WORK}/chat/mmlu.jsonl lines)
list(GET lines 0 line)
string(JSON prompt GET "${line}" prompt)
if(NOT is_chat OR NOT prompt MATCHES "^.system. The following are .*.user. .*.assistant. .*.user. .*.assistant. $")
  message(FATAL_ERROR "not a conversation: ${prompt}")
endif()
expect(RUN ${eval} --task boolq --task-data-path ${data} --apply-chat-template CODE 2 ERR "has no chat template; give --chat-template FILE")
expect(RUN ${eval} --task boolq --task-data-path ${data} ${chat} --chat-template-kwargs "{\"enable_thinking\": false}" CODE 2
  ERR "chat.jinja does not read \"enable_thinking\"")

# Adapters.
expect(RUN pretrain --load ${WORK}/run --finetune --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 256 --train-iters 3 --micro-batch-size 1 --lr 1e-2 --lora-r 4 --lora-alpha 8
  --lora-target-modules query_key_value --save ${WORK}/adapters CODE 0)
expect(RUN ${eval} --task lambada --task-data-path ${data} --lora-load ${WORK}/adapters --save-results ${WORK}/lora CODE 0)
file(READ ${WORK}/lora/lambada.jsonl adapted)
file(READ ${WORK}/ranks1/lambada.jsonl base)
if(adapted STREQUAL base)
  message(FATAL_ERROR "--lora-load had no effect")
endif()
expect(RUN ${eval} --task lambada --task-data-path ${data} --save-results ${WORK}/lora CODE 2
  ERR "lora/results.json has results of [^ ]*/run with adapters; give another folder")

# Programs that the model writes are run, if asked for, where the kernel has user namespaces.
execute_process(COMMAND ${PITON} ${eval} --task humaneval mbpp --task-data-path ${data} --max-new-tokens 8 --allow-code-execution
  --save-results ${WORK}/code OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
if(code EQUAL 0)
  file(STRINGS ${WORK}/code/humaneval.jsonl lines)
  list(LENGTH lines count)
  if(NOT out MATCHES "\\|humaneval\\|lm-eval\\|create_test\\|0\\|pass@1\\|↑\\|0.0000\\|" OR NOT count EQUAL 3 OR
      NOT out MATCHES "\\|mbpp\\|lm-eval\\|none\\|3\\|pass_at_1\\|↑\\|0.0000\\|")
    message(FATAL_ERROR "humaneval: ${out}")
  endif()
  # Answers that are drawn: each run the same ones.
  set(drawn ${eval} --task humaneval --task-data-path ${data} --max-new-tokens 6 --allow-code-execution --num-samples 3
    --temperature 0.8 --pass-at-k 1 2 --seed 5)
  expect(RUN ${drawn} --save-results ${WORK}/drawn CODE 0 OUT "\\|create_test\\|0\\|pass@2\\|↑\\|0.0000\\|")
  expect(RUN ${drawn} --save-results ${WORK}/drawn_again --batch-size 2 CODE 0)
  file(READ ${WORK}/drawn/humaneval.jsonl one)
  file(READ ${WORK}/drawn_again/humaneval.jsonl other)
  if(NOT one STREQUAL other OR NOT one MATCHES "\"texts\":")
    message(FATAL_ERROR "drawn answers: ${one}\n${other}")
  endif()
elseif(NOT err MATCHES "--allow-code-execution: .*leave the task out")
  message(FATAL_ERROR "humaneval: exit ${code}\n${err}")
endif()

# Flags of the evaluations of AscendSpeed and Megatron-LM; sizes are compared with the model.
expect(RUN ${eval} --task LAMBADA --strict-lambada --valid-data ${data}/lambada/test.jsonl --num-layers 4 --micro-batch-size 8 --fp16
  --seq-length 64 CODE 0 OUT "\\|lambada\\|mindspeed\\|" ERR "--fp16: no meaning here")
expect(RUN ${eval} --task boolq --task-data-path ${data} --num-layers 32 CODE 2
  ERR "--num-layers: got 32, but the model of .*run has 4; leave the flag out")
expect(RUN ${eval} --task boolq --task-data-path ${data} --hidden-size x CODE 2 ERR "--hidden-size: got .x., wanted an integer")

# Wrong inputs, each found before the model is loaded.
set(none eval --load ${WORK}/no-such-run)
expect(RUN eval --task boolq CODE 2 ERR "--load: no model is named")
expect(RUN ${none} CODE 2 ERR "--task: not given; wanted one or more of agieval, agieval_cloze, arc_challenge")
expect(RUN ${none} --task bolq --task-data-path ${data} CODE 2 ERR "did you mean boolq.; wanted one of agieval, .*winogrande")
expect(RUN ${none} --task boolq boolq --task-data-path ${data} CODE 2 ERR "--task: boolq is given twice")
expect(RUN ${none} --task boolq CODE 2 ERR "--task-data-path: not given")
expect(RUN ${none} --task boolq --task-data-path ${WORK}/absent CODE 2 ERR "absent does not exist")
expect(RUN ${none} --task boolq --task-data-path ${WORK}/many CODE 2 ERR "many has files of piqa, but none of boolq")
expect(RUN ${none} --task boolq --task-data-path ${data}/lambada/test.jsonl CODE 3 ERR "wanted passage, question, answer")
file(COPY ${data}/mmlu/test DESTINATION ${WORK}/alone/mmlu)
expect(RUN ${none} --task mmlu --task-data-path ${WORK}/alone CODE 2 ERR "wanted dev/anatomy_dev.csv there for 5 examples")
file(WRITE ${WORK}/hf/mmlu/test/anatomy_test.csv "question,subject,choices,answer\nq,anatomy,x,1\n")
expect(RUN ${none} --task mmlu --task-data-path ${WORK}/hf --num-shots 0 CODE 3
  ERR "wanted question, A, B, C, D, answer, or question, choices")
expect(RUN ${none} --task lambada --task-data-path ${data} --strict-lambada --protocol lm-eval CODE 2 ERR "works only with --protocol mindspeed")
expect(RUN ${none} --task boolq --task-data-path ${data} --overlapping-eval 4 CODE 2 ERR "works only with wikitext")
expect(RUN ${none} --task humaneval --task-data-path ${data} CODE 2 ERR "runs programs that the model writes; give --allow-code-execution")
set(programs ${none} --task humaneval --task-data-path ${data} --allow-code-execution)
expect(RUN ${programs} --num-samples 0 CODE 2 ERR "--num-samples: got 0, wanted 1 to 10000")
expect(RUN ${programs} --num-samples 2 --temperature 0 CODE 2 ERR "--temperature: got 0 with --num-samples 2")
expect(RUN ${programs} --num-samples 2 --pass-at-k 3 CODE 2 ERR "--pass-at-k: got 3, wanted 1 to 2")
expect(RUN ${programs} --pass-at-k 1 CODE 2 ERR "--pass-at-k: works only with --num-samples")
expect(RUN ${none} --task boolq --task-data-path ${data} --num-samples 2 CODE 2 ERR "--num-samples: no --task runs programs")
expect(RUN ${none} --task boolq --task-data-path ${data} --think-end-token x CODE 2 ERR "--think-end-token: no --task has generated answers")
expect(RUN ${none} --task gsm8k --task-data-path ${data} --protocol mindspeed --think-end-token x CODE 2 ERR "--think-end-token: works only with --protocol lm-eval")
expect(RUN ${none} --task boolq --task-data-path ${data} --chat-template-kwargs "{}" CODE 2 ERR "--chat-template-kwargs: works only with --apply-chat-template")
expect(RUN ${none} --task boolq --task-data-path ${data} --fewshot-as-multiturn CODE 2 ERR "works only with --apply-chat-template")
expect(RUN ${none} --task boolq --task-data-path ${data} --protocol mindspeed --apply-chat-template --fewshot-as-multiturn CODE 2
  ERR "--fewshot-as-multiturn: works only with --protocol lm-eval")
expect(RUN ${none} --task boolq --task-data-path ${data} --hf-chat-template --instruction-template "{instruction}" CODE 2
  ERR "--hf-chat-template: got --instruction-template too; wanted one of them")
expect(RUN ${none} --task lambada --task-data-path ${data} --protocol mindspeed --hf-chat-template CODE 2
  ERR "--hf-chat-template: lambada is not asked as a question; evaluate it without")
expect(RUN ${none} --task boolq --task-data-path ${data} --seq-length 1 CODE 2 ERR "--seq-length: got 1, wanted 2 to")
expect(RUN ${none} --task boolq --task-data-path ${data} --max-eval-samples 0 CODE 2
  ERR "--max-eval-samples: got 0, wanted 1 to 1099511627776")
expect(RUN ${none} --task boolq --task-data-path ${data} --batch-size 0 CODE 2 ERR "--batch-size: got 0, wanted 1 to")
expect(RUN ${none} --task lambada --task-data-path ${data} --num-shots 2 CODE 2 ERR "lambada has no examples")
