# finetune --stage grpo: rewards of each kind, the same answers on any ranks, resumes to the bit, and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

write_model_of_sums(32)
set(questions "")
foreach(a RANGE 1 6)
  string(APPEND questions "{\"prompt\": \"1+${a}=\", \"answer\": \"2\", \"level\": ${a}}\n")
endforeach()
file(WRITE ${WORK}/questions.jsonl "${questions}{\"prompt\": \"1234567890123456789=\", \"answer\": 1}\n")
file(WRITE ${WORK}/length.sh "while read -r line\ndo echo \${#line}\ndone\n")
set(run finetune --stage grpo --load ${WORK}/base --data-path ${WORK}/questions.jsonl --reward answer command
  --reward-weights 1 0.05 --reward-command "sh ${WORK}/length.sh" --num-generations 4
  --max-completion-length 6 --seq-length 24 --micro-batch-size 2 --global-batch-size 16 --train-iters 6 --lr 1e-3
  --log-completions 3)

# The losses and figures of a run but its times, and its answers.
function(figures_of folder out)
  file(STRINGS ${folder}/metrics.jsonl lines)
  set(found "")
  foreach(line ${lines})
    foreach(name lm_loss reward reward_std reward_answer reward_command completion_length completions_truncated kl)
      string(REGEX MATCH "\"${name}\":[-+.e0-9]+" figure "${line}")
      string(APPEND found "${figure} ")
    endforeach()
    string(APPEND found "\n")
  endforeach()
  file(READ ${folder}/completions.jsonl answers)
  set(${out} "${found}${answers}" PARENT_SCOPE)
endfunction()

function(hash_of folder out)
  execute_process(COMMAND ${PITON} inspect ${folder} --hash OUTPUT_VARIABLE text)
  string(REGEX MATCH "weights +[0-9a-f]+" hash "${text}")
  if(hash STREQUAL "")
    message(FATAL_ERROR "no hash of ${folder}: ${text}")
  endif()
  set(${out} "${hash}" PARENT_SCOPE)
endfunction()

expect(RUN ${run} --save ${WORK}/one CODE 0
  ERR "questions.jsonl: line 7 [(]byte [0-9]+[)]: the question has 20 tokens, wanted 1 to 18")
figures_of(${WORK}/one wanted)
hash_of(${WORK}/one hash)
string(REGEX MATCHALL "\"iteration\":[0-9]+,\"prompt\":\"1[+][0-9]=\",\"completion\":" answers "${wanted}")
list(LENGTH answers count)
if(NOT count EQUAL 18 OR NOT wanted MATCHES "\"reward_command\":[1-9]")
  message(FATAL_ERROR "${count} answers, wanted 18:\n${wanted}")
endif()
expect(RUN report ${WORK}/one --output ${WORK}/page.html CODE 0)
file(READ ${WORK}/page.html page)
if(NOT page MATCHES "completion.length")
  message(FATAL_ERROR "the report has no figures of answers")
endif()

expect(RUN ${run} --save ${WORK}/resumed --exit-interval 3 --save-interval 2 CODE 0)
expect(RUN resume ${WORK}/resumed CODE 0)
figures_of(${WORK}/resumed got)
hash_of(${WORK}/resumed resumed)
if(NOT got STREQUAL wanted OR NOT hash STREQUAL resumed)
  message(FATAL_ERROR "resumed ${resumed}:\n${got}\nuninterrupted ${hash}:\n${wanted}")
endif()

# Two ranks write the same answers; figures differ by rounding.
function(answers_of folder out)
  file(STRINGS ${folder}/completions.jsonl lines)
  set(found "")
  foreach(line ${lines})
    string(REGEX MATCH "\"iteration\".*\"truncated\":[a-z]+" answer "${line}")
    string(APPEND found "${answer}\n")
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
answers_of(${WORK}/one wanted_answers)
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;0" "zero-stage;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --save ${WORK}/${flag}${value} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  answers_of(${WORK}/${flag}${value} got)
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted_answers)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}\n${got}\n${wanted_answers}")
  endif()
endforeach()

# Adapters, whose base is the reference, a pattern, and another loss.
expect(RUN finetune --stage grpo --load ${WORK}/base --data-path ${WORK}/questions.jsonl --reward pattern
  --reward-pattern "[0-9]" --num-generations 4 --max-completion-length 6 --seq-length 24 --global-batch-size 8
  --train-iters 3 --lr 1e-2 --lora-target-modules all-linear --lora-r 4 --beta 0.1 --grpo-loss-type dr_grpo
  --scale-rewards none --mask-truncated-completions --save ${WORK}/adapters CODE 0 OUT "kl: ")
expect(RUN finetune --stage grpo --load ${WORK}/base --ref-model ${WORK}/base --data-path ${WORK}/questions.jsonl
  --reward answer --num-generations 4 --max-completion-length 6 --seq-length 24 --global-batch-size 8
  --train-iters 1 --lr 1e-2 --grpo-beta 0.1 CODE 0 OUT "kl: 0[.]000000E[+]00")

# Answers at another temperature, from the likelier tokens; further questions in the place of those without spread; a
# penalty of long answers. A resume has the bits of an uninterrupted run, and two ranks write the same answers.
set(warm finetune --stage grpo --load ${WORK}/base --data-path ${WORK}/questions.jsonl --reward answer overlong
  --reward-overlong-buffer 2 --num-generations 4 --max-completion-length 6 --seq-length 24 --micro-batch-size 2 --global-batch-size 8
  --train-iters 4 --lr 1e-3 --rollout-temperature 1.5 --rollout-top-k 20 --rollout-top-p 0.95 --rollout-min-p 0.01
  --dynamic-sampling 2 --grpo-loss-type cispo --grpo-epsilon-high 5 --log-completions 8)
expect(RUN ${warm} --save ${WORK}/warm CODE 0 OUT "sampling rounds: ")
figures_of(${WORK}/warm wanted)
file(STRINGS ${WORK}/warm/metrics.jsonl rounds REGEX "\"sampling_rounds\":[23]")
if(rounds STREQUAL "")
  message(FATAL_ERROR "no further questions were asked: ${wanted}")
endif()
expect(RUN ${warm} --save ${WORK}/warm-resumed --exit-interval 2 CODE 0)
expect(RUN resume ${WORK}/warm-resumed CODE 0)
figures_of(${WORK}/warm-resumed got)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "resumed:\n${got}\nuninterrupted:\n${wanted}")
endif()
answers_of(${WORK}/warm wanted_answers)
foreach(layout "tensor-model-parallel-size;2" "zero-stage;0")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${warm} --save ${WORK}/warm-${flag} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  answers_of(${WORK}/warm-${flag} got)
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted_answers)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}\n${got}\n${wanted_answers}")
  endif()
endforeach()

# RLOO of TRL: the others of a group as the baseline, losses of answers, and divergences in the rewards.
set(rloo finetune --stage grpo --load ${WORK}/base --ref-model ${WORK}/base --data-path ${WORK}/questions.jsonl
  --reward answer --num-generations 4 --max-completion-length 6 --seq-length 24 --micro-batch-size 2 --global-batch-size 8
  --train-iters 3 --lr 1e-2 --advantage-estimator rloo --scale-rewards none --grpo-loss-type rloo --kl-in-reward
  --grpo-beta 0.5 --num-iterations 2 --log-completions 8)
expect(RUN ${rloo} --save ${WORK}/rloo CODE 0 OUT "kl: ")
file(STRINGS ${WORK}/rloo/metrics.jsonl kls REGEX "\"kl\":-?[1-9]")
if(kls STREQUAL "")
  message(FATAL_ERROR "no divergence from the reference")
endif()
answers_of(${WORK}/rloo wanted_answers)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${rloo} --save ${WORK}/rloo2 RESULT_VARIABLE code ERROR_VARIABLE text)
answers_of(${WORK}/rloo2 got)
if(NOT code EQUAL 0 OR NOT got STREQUAL wanted_answers)
  message(FATAL_ERROR "rloo on two ranks: exit ${code}\n${text}\n${got}\n${wanted_answers}")
endif()

# What is refused, each by one line.
set(grpo finetune --stage grpo --load ${WORK}/base --num-generations 4 --max-completion-length 6 --seq-length 24
  --global-batch-size 8 --train-iters 1 --lr 1e-3)
set(asks --data-path ${WORK}/questions.jsonl --reward answer)
expect(RUN ${grpo} --data-path ${WORK}/questions.jsonl CODE 2 ERR "--stage grpo: no reward")
expect(RUN ${grpo} --data-path ${WORK}/text_text_document --reward answer CODE 2 ERR "is the prefix of a corpus")
expect(RUN ${grpo} --reward answer CODE 2 ERR "--data-path: no questions are named")
expect(RUN ${grpo} ${asks} --skip-train CODE 2 ERR "--skip-train: --stage grpo has no loss to evaluate")
expect(RUN ${grpo} ${asks} --log-completions 1 CODE 2 ERR "--log-completions: needs --save DIR")
expect(RUN ${grpo} ${asks} --num-generations 3 CODE 2 ERR "got 8 answers, wanted a multiple of --num-generations")
expect(RUN ${grpo} ${asks} --max-completion-length 24 CODE 2 ERR "--max-completion-length: got 24, wanted less than")
expect(RUN ${grpo} ${asks} --rollout-temperature 0 CODE 2 ERR "--rollout-temperature: got 0, wanted a number above 0")
expect(RUN ${grpo} ${asks} --rollout-top-p 0 CODE 2 ERR "--rollout-top-p: got 0, wanted more than 0, at most 1")
expect(RUN ${grpo} ${asks} --rollout-top-k -1 CODE 2 ERR "--rollout-top-k: got -1, wanted 0 or more")
expect(RUN ${grpo} ${asks} --rollout-min-p 2 CODE 2 ERR "--rollout-min-p: got 2, wanted 0 to 1")
expect(RUN ${grpo} ${asks} --dynamic-sampling -1 CODE 2 ERR "--dynamic-sampling: got -1, wanted 0 to 1024")
expect(RUN ${grpo} ${asks} --reward-overlong-buffer 2 CODE 2 ERR "--reward-overlong-buffer: is for --reward overlong")
expect(RUN ${grpo} ${asks} overlong CODE 2 ERR "--reward-overlong-buffer: got 0, wanted 1 to 5")
expect(RUN ${grpo} ${asks} --grpo-loss-type cispo CODE 2 ERR "cispo: needs --grpo-epsilon-high, the bound of weights")
expect(RUN ${grpo} ${asks} --sapo-temperature-pos 2 CODE 2 ERR "--sapo-temperature-pos: is for --grpo-loss-type sapo")
expect(RUN ${grpo} ${asks} --advantage-estimator rloo CODE 2 ERR "rloo: divides by nothing .--scale-rewards none. or")
expect(RUN ${grpo} ${asks} --kl-in-reward CODE 2 ERR "--kl-in-reward: needs --grpo-beta, the weight of the divergence")
expect(RUN ${grpo} ${asks} --grpo-loss-type rloo --grpo-beta 0.1 CODE 2 ERR "--grpo-beta: with --grpo-loss-type rloo the")
expect(RUN ${grpo} ${asks} --beta 0.1 CODE 2 ERR "--stage grpo: no reference; give --ref-model DIR")
expect(RUN ${grpo} ${asks} --ref-model ${WORK}/base CODE 2 ERR "--ref-model: is for --stage dpo, ipo and kto, grpo with")
expect(RUN ${grpo} ${asks} --dpo-beta 0.2 CODE 2 ERR "--dpo-beta: is for --stage dpo and ipo, got --stage grpo")
expect(RUN ${grpo} ${asks} --prompt-type qwen CODE 2 ERR "--prompt-type: is of corpora and conversations")
expect(RUN finetune --load ${WORK}/base --data-path x --reward answer --train-iters 1 CODE 2
  ERR "--reward: is for --stage grpo and ppo, got --stage sft")
expect(RUN ${grpo} --data-path ${WORK}/questions.jsonl --reward command --reward-command "exit 3" CODE 3
  ERR "--reward-command: exit 3 ended with exit code 3")
# What can be seen of a reward without a model is checked before one is loaded: here there is none.
set(early finetune --stage grpo --load ${WORK}/nowhere --data-path ${WORK}/questions.jsonl --train-iters 1)
expect(RUN ${early} --reward pattern --reward-pattern "(a" CODE 2 ERR "--reward-pattern: ")
expect(RUN ${early} --reward command --reward-command ${WORK}/length.sh CODE 2 ERR "length.sh is not executable; chmod .x it")
expect(RUN ${early} --reward command --reward-command nosuchjudge CODE 2 ERR "there is no program nosuchjudge on the PATH")

# 7 questions with 4 answers, twice: 56 answers. One question is too long and is left out.
expect(RUN ${run} --num-train-epochs 2 --save ${WORK}/epochs --dry-run CODE 2 ERR "--num-train-epochs 2 and --train-iters 6: give one of them")
string(REPLACE "--train-iters;6;" "" run "${run}")
expect(RUN ${run} --num-train-epochs 2 --save ${WORK}/epochs --dry-run CODE 0 ERR "--num-train-epochs 2: 48 samples, 3 updates of 16\n")
