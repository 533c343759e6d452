# finetune --stage grpo with a reward model, held-out questions, and several updates of a batch of answers.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

write_model_of_sums(64)
file(WRITE ${WORK}/base/tokenizer/chat_template.jinja
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
set(pairs "")
foreach(i RANGE 1 8)
  string(APPEND pairs "{\"instruction\": \"1+${i}=\", \"chosen\": \"2\", \"rejected\": \"\\n\\n\"}\n")
endforeach()
file(WRITE ${WORK}/pairs.jsonl "${pairs}")
expect(RUN preprocess --tokenizer-type ByteTokenizer --prompt-type default --input ${WORK}/pairs.jsonl
  --handler-name AlpacaStylePairwiseHandler --output-prefix ${WORK}/pairs CODE 0)
expect(RUN finetune --stage rm --load ${WORK}/base --split 100,0,0 --data-path ${WORK}/pairs --seq-length 64
  --global-batch-size 4 --train-iters 6 --lr 1e-2 --save ${WORK}/judge CODE 0)

set(texts "")
set(chats "")
foreach(a RANGE 1 6)
  string(APPEND texts "{\"prompt\": \"1+${a}=\", \"answer\": \"2\"}\n")
  string(APPEND chats "{\"messages\": [{\"role\": \"user\", \"content\": \"1+${a}=\"}]}\n")
endforeach()
file(WRITE ${WORK}/texts.jsonl "${texts}")
file(WRITE ${WORK}/chats.jsonl "${chats}")
set(grpo finetune --stage grpo --load ${WORK}/base --num-generations 4 --max-completion-length 6 --seq-length 48
  --micro-batch-size 2 --global-batch-size 16 --lr 1e-3)

# Each reward is that of piton score --reward for the same conversation: of a whole model, and of a run of adapters,
# which is its base with the head that was trained with them.
expect(RUN finetune --stage rm --load ${WORK}/base --split 100,0,0 --data-path ${WORK}/pairs --seq-length 64
  --global-batch-size 4 --train-iters 6 --lr 1e-2 --lora-target-modules all-linear --lora-r 4
  --save ${WORK}/judge-adapters CODE 0)
foreach(judge judge judge-adapters)
  set(run ${WORK}/chats-${judge})
  expect(RUN ${grpo} --log-completions 16 --data-path ${WORK}/chats.jsonl --reward model --reward-model ${WORK}/${judge}
    --train-iters 1 --save ${run} CODE 0 ERR "answers are judged by ${WORK}/${judge}" "reward model: ")
  file(STRINGS ${run}/completions.jsonl lines)
  set(conversations "")
  set(rewards "")
  foreach(line ${lines})
    string(JSON answer GET "${line}" completion)
    string(REPLACE "\n" "\\n" answer "${answer}")
    string(JSON question GET "${line}" prompt 0 content)
    string(APPEND conversations "{\"messages\": [{\"role\": \"user\", \"content\": \"${question}\"}, {\"role\": \"assistant\", \"content\": \"${answer}\"}]}\n")
    string(JSON reward GET "${line}" reward_model)
    list(APPEND rewards ${reward})
  endforeach()
  file(WRITE ${WORK}/conversations.jsonl "${conversations}")
  execute_process(COMMAND ${PITON} score --load ${WORK}/${judge} --reward ${WORK}/conversations.jsonl
                  OUTPUT_VARIABLE wanted RESULT_VARIABLE code)
  string(REGEX MATCHALL "[-.0-9]+" wanted "${wanted}")
  list(LENGTH wanted count)
  if(NOT code EQUAL 0 OR NOT count EQUAL 16)
    message(FATAL_ERROR "score --reward: exit ${code}, ${count} rewards:\n${conversations}")
  endif()
  expect_losses("score of ${judge}" "${wanted}" "${rewards}")
endforeach()

# A nearly uniform distribution writes bytes that are no characters: rewards read them as U+FFFD.
expect(RUN ${grpo} --rollout-temperature 100 --log-completions 16 --data-path ${WORK}/chats.jsonl --reward model pattern
  --reward-model ${WORK}/judge --reward-pattern "(?s).*" --train-iters 1 --save ${WORK}/bytes CODE 0)
file(READ ${WORK}/bytes/completions.jsonl answers)
if(NOT answers MATCHES "�" OR answers MATCHES "�[^\n]*\"reward_pattern\":0")
  message(FATAL_ERROR "answers with bytes that are no characters, which match (?s).*:\n${answers}")
endif()

# The losses, rewards and answers of a run.
function(figures_of folder out)
  file(STRINGS ${folder}/metrics.jsonl lines)
  set(found "")
  foreach(line ${lines})
    foreach(name lm_loss reward reward_model reward_answer clip_ratio validation_reward validation_reward_model
            validation_completion_length)
      string(REGEX MATCH "\"${name}\":[-+.e0-9]+" figure "${line}")
      string(APPEND found "${figure} ")
    endforeach()
    string(APPEND found "\n")
  endforeach()
  file(READ ${folder}/completions.jsonl answers)
  set(${out} "${found}${answers}" PARENT_SCOPE)
endfunction()

# Four updates of each batch; texts; held-out questions; the bits of a resumed run.
set(run ${grpo} --log-completions 16 --data-path ${WORK}/texts.jsonl --reward model answer --reward-model ${WORK}/judge --reward-weights 1 0.5
  --num-iterations 2
  --num-mini-batches 2 --grpo-epsilon 0.01 --grpo-epsilon-high 0.02 --valid-data-path ${WORK}/texts.jsonl --eval-iters 1
  --eval-interval 2 --train-iters 4)
expect(RUN ${run} --save ${WORK}/one CODE 0 ERR "evaluations ask 6 of them" "validation at iteration 2 . reward: ")
figures_of(${WORK}/one wanted)
if(NOT wanted MATCHES "\"clip_ratio\":0[.]0*[1-9]" OR NOT wanted MATCHES "\"validation_reward_model\":")
  message(FATAL_ERROR "figures of several updates:\n${wanted}")
endif()
expect(RUN ${run} --save ${WORK}/resumed --exit-interval 3 --save-interval 3 CODE 0)
expect(RUN resume ${WORK}/resumed CODE 0)
figures_of(${WORK}/resumed got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "resumed:\n${got}\nuninterrupted:\n${wanted}")
endif()

# Two ranks write the same answers and have the same rewards but for rounding: of the first two batches.
function(answers_of folder answers rewards)
  file(STRINGS ${folder}/completions.jsonl lines)
  set(texts "")
  set(values "")
  list(SUBLIST lines 0 32 lines)
  foreach(line ${lines})
    string(REGEX MATCH "\"iteration\".*\"truncated\":[a-z]+" answer "${line}")
    string(APPEND texts "${answer}\n")
    string(JSON value GET "${line}" reward_model)
    list(APPEND values ${value})
  endforeach()
  set(${answers} "${texts}" PARENT_SCOPE)
  set(${rewards} "${values}" PARENT_SCOPE)
endfunction()
answers_of(${WORK}/one wanted rewards)
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --exit-interval 2 --save ${WORK}/${flag}${value} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  answers_of(${WORK}/${flag}${value} got of_layout)
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}\n${got}\n${wanted}")
  endif()
  expect_losses("--${flag} ${value}" "${rewards}" "${of_layout}")
endforeach()

# What is refused, each by one line.
set(asks ${grpo} --data-path ${WORK}/texts.jsonl --train-iters 1)
expect(RUN ${asks} --reward model CODE 2 ERR "--reward model: needs --reward-model DIR")
expect(RUN ${asks} --reward answer --reward-model ${WORK}/judge CODE 2 ERR "--reward-model: is for --reward model")
expect(RUN ${asks} --reward model --reward-model ${WORK}/base CODE 2 ERR "--reward-model: ${WORK}/base gives no rewards")
expect(RUN ${asks} --reward model --reward-model ${WORK}/none CODE 3 ERR "none")
expect(RUN ${asks} --reward answer --grpo-epsilon 0.1 CODE 2 ERR "--grpo-epsilon: is of a second update of a batch")
expect(RUN ${asks} --reward answer --num-iterations 2 --grpo-epsilon 1 CODE 2 ERR "--grpo-epsilon: got 1, wanted")
expect(RUN ${asks} --reward answer --num-mini-batches 3 CODE 2
  ERR "got 16, wanted a multiple of 6 [(]--micro-batch-size 2 x 1 data-parallel ranks x --num-mini-batches 3[)]")
expect(RUN ${asks} --reward answer --eval-iters 1 CODE 2 ERR "--eval-iters: --stage grpo evaluates --eval-iters batches")
expect(RUN finetune --load ${WORK}/base --data-path x --num-iterations 2 --train-iters 1 CODE 2
  ERR "--num-iterations: is for --stage grpo, got --stage sft")
