# A run continues with what its checkpoint knows: `piton resume RUN`, `--load RUN` without the model's sizes, and the
# command that started it from another program's folder.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/here ${WORK}/there)
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 60 text)
file(WRITE ${WORK}/here/text.txt "${text}")

# in(FOLDER CODE pattern words...): runs piton in ${WORK}/FOLDER; its output must match `pattern`.
function(in folder wanted pattern)
  execute_process(COMMAND ${PITON} ${ARGN} WORKING_DIRECTORY ${WORK}/${folder}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL wanted OR NOT out MATCHES "${pattern}")
    message(FATAL_ERROR "in ${folder}: piton ${ARGN}\nexit ${code}, wanted ${wanted} and ${pattern}\n${out}")
  endif()
endfunction()

# A Hugging Face folder with a tokenizer, in a family that is not the default.
in(here 0 "" train-tokenizer --input text.txt --vocab-size 300 --save words)
in(here 0 "" preprocess --input text.txt --tokenizer-name-or-path words --append-eod --output-prefix corpus)
set(data --data-path corpus_text_document --split 100,0,0 --seq-length 16 --micro-batch-size 2 --lr 1e-3)
in(here 0 "saved " pretrain --model llama-tiny --tokenizer-name-or-path words ${data} --train-iters 1 --save first)
in(here 0 "" convert --load first --save hf)

# The whole run, and the same in parts: the command that started it continues it, and reports that.
set(run ${data} --train-iters 6 --load hf --hidden-dropout 0.1)
in(here 0 "a new run from the weights of" pretrain ${run} --save whole)
# What scripts of MindSpeed-LLM say of the folder that they start from is not said of the run.
set(script ${run} --no-load-optim --no-load-rng)
in(here 0 "a new run from the weights of" pretrain ${script} --save again --exit-interval 2)
in(here 0 "--save: again holds iteration 2 of the run that started from hf: continuing from that and from its optimizer\n.*resumed [^\n]*again/iter_0000002"
   pretrain ${script} --save again --exit-interval 4)
# The run alone: sizes, family and tokenizer are the checkpoint's.
in(here 0 "model and tokenizer: those of again/iter_0000004.*resumed [^\n]*again/iter_0000004: iteration 4,"
   pretrain ${data} --train-iters 6 --hidden-dropout 0.1 --load again --save again --exit-interval 5)
in(here 2 "--num-layers: [^\n]*has 4, this run has 3" pretrain ${data} --train-iters 6 --load again --num-layers 3)
file(RENAME ${WORK}/here/hf ${WORK}/here/gone)
in(here 2 "there is no hf[^\n]*piton resume again" pretrain ${run} --save again)
in(here 0 "resumed [^\n]*again/iter_0000005: iteration 5," resume again --exit-interval 1)
expect_same_state(here/whole here/again)
file(RENAME ${WORK}/here/gone ${WORK}/here/hf)
# Another folder is another run.
file(COPY ${WORK}/here/hf/ DESTINATION ${WORK}/here/other)
in(here 2 "--save: again already holds a run; give --load again" pretrain ${data} --train-iters 6 --load other --save again)
in(here 2 "already holds a run; give --load again without --finetune" pretrain ${run} --finetune --save again)
# New weights, the run's own model.
in(here 0 "a new run from the weights of again/iter_0000006" pretrain ${data} --train-iters 1 --finetune --load again --save tuned)

# No other option; from any folder; what a resume may change, and what it may not.
in(here 0 "" pretrain --model llama-tiny --tokenizer-name-or-path words ${data} --train-iters 4 --save plain)
in(here 0 "" pretrain --model llama-tiny --tokenizer-name-or-path words ${data} --train-iters 4 --save parts --exit-interval 1)
file(RENAME ${WORK}/here/words ${WORK}/here/gone_words)
in(there 0 "resumed ../here/parts/iter_0000001: iteration 1," resume ../here/parts --exit-interval 2)
in(there 2 "--lr: [^\n]*has 0.001, this run has 0.1" resume ../here/parts --lr 0.1)
in(there 2 "--seed: [^\n]*has 1234, this run has 7" resume ../here/parts --seed 7)
in(here 0 "next: piton generate --load parts" resume parts --exit-interval 4 --log-interval 2)
expect_same_state(here/plain here/parts)
in(here 0 "nothing left to do" resume parts)
in(here 0 "resumed [^\n]*parts/iter_0000004.*iteration +5/ +5 " resume parts/iter_0000004 --train-iters 5
   --override-opt_param-scheduler --save further)
in(here 2 "wanted the folder of a run, as in piton resume RUN" resume)
in(here 2 "got \"parts\", wanted at most 1 argument" resume again parts)
in(here 2 "--load: a resume loads the run that it names; leave it out" resume parts --load again)
in(here 2 "--finetune: starts a new run: piton pretrain --finetune --load parts" resume parts --finetune)
in(here 3 "nowhere" resume nowhere)
in(here 3 "hf[^\n]*not a run" resume hf)

# From another folder, files of the user are where the start found them.
file(WRITE ${WORK}/here/ask.txt "To be\n")
file(WRITE ${WORK}/here/word.toml "name = \"word\"\nkind = \"perplexity\"\nprompt = \"{text}\"\n")
file(WRITE ${WORK}/here/word.jsonl "{\"text\": \"to be or not\"}\n")
in(here 0 "" pretrain ${run} --save asks --exit-interval 2 --eval-interval 2 --sample-prompts ask.txt
   --sample-prompts-tokens 2 --eval-tasks word.toml --eval-tasks-interval 2 --eval-tasks-data-path word.jsonl)
in(there 0 "tasks at iteration 4" resume ../here/asks)

# The newest checkpoint is gone, its manifest, or the tracker is damaged: an older one is named, and taken if allowed.
in(here 0 "" pretrain ${run} --save kept --save-interval 2)
set(older "an older checkpoint is there, iter_0000004: --allow-fallback takes it")
foreach(damage manifest folder tracker)
  file(REMOVE_RECURSE ${WORK}/here/hurt)
  file(COPY ${WORK}/here/kept/ DESTINATION ${WORK}/here/hurt)
  if(damage STREQUAL "manifest")
    file(REMOVE ${WORK}/here/hurt/iter_0000006/manifest.json)
  else()
    file(REMOVE_RECURSE ${WORK}/here/hurt/iter_0000006)
  endif()
  if(damage STREQUAL "tracker")
    file(WRITE ${WORK}/here/hurt/latest_checkpointed_iteration.txt "six")
  endif()
  in(here 3 "${older}" resume hurt)
  in(here 3 "${older}" pretrain ${run} --save hurt)
  in(here 0 "warning: --allow-fallback: .*resumed hurt/iter_0000004: " resume hurt --allow-fallback)
  expect_same_state(here/whole here/hurt)
endforeach()

# Ended before its first checkpoint: the same start again.
in(here 0 "saved " pretrain ${run} --save early --exit-interval 1)
file(REMOVE_RECURSE ${WORK}/here/early/iter_0000001)
file(REMOVE ${WORK}/here/early/latest_checkpointed_iteration.txt)
in(there 0 "a new run from the weights of [^ ]*/here/hf " resume ../here/early --exit-interval 6)
expect_same_state(here/whole here/early)

# Under the launcher, on another number of ranks.
in(here 0 "" pretrain --model llama-tiny --tokenizer-name-or-path gone_words ${data} --micro-batch-size 4 --train-iters 3
   --save ranks --exit-interval 2)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} resume ranks --micro-batch-size 2 --exit-interval 3 WORKING_DIRECTORY ${WORK}/here
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(NOT code EQUAL 0 OR NOT out MATCHES "resumed [^\n]*ranks/iter_0000002" OR NOT out MATCHES "iteration +3/ +3 ")
  message(FATAL_ERROR "two ranks: exit ${code}\n${out}")
endif()

# One stage, one tensor rank: what only several of them have is left out, without flags that say so.
foreach(layout "pipeline-model-parallel-size;--num-virtual-stages-per-pipeline-rank;2"
        "pipeline-model-parallel-size;--use-manual-layer-allocation;--manual-layers;1,3" "tensor-model-parallel-size;--sequence-parallel")
  list(POP_FRONT layout size)
  list(GET layout 0 name)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} pretrain --model llama-tiny --tokenizer-name-or-path gone_words ${data} --micro-batch-size 2
    --global-batch-size 4 --train-iters 3 --save several${name} --exit-interval 2 --${size} 2 ${layout} WORKING_DIRECTORY ${WORK}/here
    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${layout}: exit ${code}\n${out}")
  endif()
  in(here 0 "iteration +3/ +3 " resume several${name} --${size} 1)
endforeach()
