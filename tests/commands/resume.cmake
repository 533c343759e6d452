# The options that a resume may change, and those that it must not change.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(bare pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --split 100,0,0 --lr 1e-3)
set(again --save ${WORK}/run --load ${WORK}/run)

# The global batch follows from the micro-batch and the ranks; the result is what counts.
expect(RUN ${bare} --train-iters 3 --micro-batch-size 4 ${again} CODE 0)
expect(RUN ${bare} --train-iters 3 --micro-batch-size 2 ${again} CODE 2
       ERR "--global-batch-size: [^\n]* has 4, this run has 2")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${bare} --train-iters 3 --micro-batch-size 4 ${again}
                RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 2 OR NOT error MATCHES "--global-batch-size: [^\n]* has 4, this run has 8")
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()
expect(RUN ${bare} --train-iters 3 --micro-batch-size 2 --global-batch-size 4 ${again} CODE 0
       ERR "nothing left to do: the run has done 3 of 3 iterations")

# Weights to start from as long as the run has no checkpoint, as Megatron's script names them.
set(pretrained ${bare} --train-iters 2 --micro-batch-size 4 --pretrained-checkpoint)
expect(RUN ${bare} --train-iters 2 --micro-batch-size 4 --load ${WORK}/run --finetune --save ${WORK}/finetuned CODE 0)
expect(RUN ${pretrained} ${WORK}/run --save ${WORK}/started --load ${WORK}/started CODE 0
       ERR "started: nothing is saved there; starting from --pretrained-checkpoint [^\n]*run\n" "iteration +1/ +2 ")
expect(RUN ${pretrained} ${WORK}/absent --save ${WORK}/started --load ${WORK}/started CODE 0 ERR "has done 2 of 2 iterations")
expect(RUN ${pretrained} ${WORK}/run --save ${WORK}/alone CODE 0)
state_of(${WORK}/finetuned wanted)
foreach(one started alone)
  state_of(${WORK}/${one} got)
  if(NOT got STREQUAL wanted)
    message(FATAL_ERROR "--pretrained-checkpoint, ${one}: ${got}, wanted ${wanted}")
  endif()
endforeach()
expect(RUN ${pretrained} ${WORK}/absent CODE 2 ERR "--pretrained-checkpoint: there is no [^\n]*absent")
expect(RUN ${pretrained} ${WORK}/run --lora-target-modules query_key_value CODE 2
       ERR "--pretrained-checkpoint: is no base of adapters")

# Evaluation, logging and saving may change; a longer run may not bend the schedule unasked.
expect(RUN ${bare} --train-iters 6 --micro-batch-size 4 ${again} CODE 2
       ERR "--lr-decay-iters: [^\n]* has 3, this run has 6" "--override-opt_param-scheduler")
expect(RUN ${bare} --train-iters 6 --micro-batch-size 4 --lr 5e-4 ${again} CODE 2 ERR "--lr: [^\n]* has 0.001")
expect(RUN ${bare} --train-iters 4 --lr-decay-iters 3 --micro-batch-size 4 ${again} CODE 0 ERR "iteration +4/ +4 ")
expect(RUN ${bare} --train-iters 6 --micro-batch-size 4 --lr 5e-4 --override-opt_param-scheduler --log-interval 2
           --save-interval 1 ${again} CODE 0 ERR "by this run's schedule: --lr: " "iteration +6/ +6 ")
# The checkpoint's own schedule, whatever the flags say: the run that was meant.
set(meant ${bare} --micro-batch-size 4 --train-iters 8 --lr-warmup-iters 2)
expect(RUN ${meant} --save ${WORK}/meant CODE 0)
expect(RUN ${meant} --save ${WORK}/said --exit-interval 5 CODE 0)
set(said ${bare} --micro-batch-size 4 --train-iters 8 --lr 5e-4 --weight-decay 0.3 --save ${WORK}/said --load ${WORK}/said)
expect(RUN ${said} CODE 2 ERR "--lr: [^\n]* has 0.001" "--weight-decay: ")
foreach(other "decoupled-lr 2e-3" "lr-warmup-init 1e-5")
  separate_arguments(flag UNIX_COMMAND "--${other}")
  list(GET flag 0 name)
  expect(RUN ${meant} ${flag} --save ${WORK}/said --load ${WORK}/said CODE 2 ERR "${name}: [^\n]*, this run has ")
endforeach()
expect(RUN ${said} --override-opt_param-scheduler --use-checkpoint-opt_param-scheduler CODE 2 ERR "exclude each other")
expect(RUN ${said} --use-checkpoint-opt_param-scheduler CODE 0 ERR "resumed .*iteration 5,")
expect_same_state(meant said "the checkpoint's schedule was not taken")

# The optimizer of the checkpoint, and this run's schedule from its first step on: the third step has the rate of the
# first one after the warm-up's begin. What another schedule says is no contradiction then.
set(anew ${bare} --micro-batch-size 4 --lr-warmup-iters 4 --lr-decay-iters 20 --log-interval 1)
list(REMOVE_ITEM anew --lr 1e-3)
expect(RUN ${anew} --train-iters 2 --lr 4e-3 --save ${WORK}/anew CODE 0)
expect(RUN ${anew} --train-iters 5 --lr 8e-3 --save ${WORK}/anew --load ${WORK}/anew CODE 2 ERR "--lr: [^\n]* has 0.004")
expect(RUN ${anew} --train-iters 5 --lr 8e-3 --no-load-lr-state --save ${WORK}/anew --load ${WORK}/anew CODE 0
       ERR "by this run's schedule: from its first step on .--no-load-lr-state." "iteration +3/ +5 .*learning rate: 0[.]0*E.00"
       "iteration +4/ +5 .*learning rate: 2[.]0*E-03" "iteration +5/ +5 .*learning rate: 4[.]0*E-03")
# Later it goes on where it was.
expect(RUN ${anew} --train-iters 6 --lr 8e-3 --override-opt_param-scheduler --save ${WORK}/anew --load ${WORK}/anew CODE 0
       ERR "iteration +6/ +6 .*learning rate: 6[.]0*E-03")
expect(RUN ${anew} --train-iters 7 --lr 8e-3 --no-load-lr-state --use-checkpoint-opt_param-scheduler CODE 2
       ERR "--no-load-lr-state: begins the schedules of this run")

# A folder that holds nothing: a new run, unless that is not meant.
set(missing ${bare} --micro-batch-size 4 --train-iters 1 --save ${WORK}/missing --load ${WORK}/missing)
expect(RUN ${missing} --exit-on-missing-checkpoint CODE 3 ERR "--load: [^\n]*missing: nothing is saved there; check the path")
expect(RUN ${missing} CODE 0 ERR "nothing is saved yet; starting from random weights")
expect(RUN ${missing} --exit-on-missing-checkpoint --train-iters 2 --override-opt_param-scheduler CODE 0 ERR "iteration +2/ +2 ")

set(flat ${bare} --lr-decay-style constant --micro-batch-size 4 --save ${WORK}/flat --load ${WORK}/flat)
expect(RUN ${flat} --train-iters 2 CODE 0)
expect(RUN ${flat} --train-iters 4 CODE 0 ERR "resumed .*iteration 2," "iteration +4/ +4 ")

# A rate of WSD that has not begun to fall continues as well, and so does a constant one into WSD; one that fell does
# not.
set(stable ${bare} --micro-batch-size 4 --lr-decay-style WSD --lr-wsd-decay-style cosine --save ${WORK}/stable
    --load ${WORK}/stable)
expect(RUN ${stable} --train-iters 6 --lr-wsd-decay-iters 3 --exit-interval 3 CODE 0 ERR "iteration +3/ +6 ")
expect(RUN ${stable} --train-iters 9 --lr-wsd-decay-iters 4 --exit-interval 7 CODE 0
       ERR "resumed .*iteration 3," "iteration +7/ +9 .*learning rate: 8[.]")
expect(RUN ${stable} --train-iters 12 --lr-wsd-decay-iters 4 CODE 2
       ERR "--lr-decay-iters: [^\n]* has 9, this run has 12" "--override-opt_param-scheduler")
# A run by samples: 27 are six updates of four.
expect(RUN ${bare} --train-samples 27 --lr-warmup-samples 8 --lr-decay-samples 24 --micro-batch-size 4
           --save ${WORK}/samples CODE 0 ERR "iteration +2/ +6 .*learning rate: 5[.]0*E-04" "iteration +6/ +6 ")
expect(RUN ${bare} --train-samples 27 --train-iters 6 CODE 2 ERR "--train-iters 6 and --train-samples 27: give one of them")
expect(RUN ${bare} --train-samples 3 --micro-batch-size 4 CODE 2 ERR "--train-samples: got 3, wanted at least 4")

# A run's own config.toml has what was given: what follows from the length of the run is derived again.
set(own ${WORK}/own/config.toml --load ${WORK}/own)
expect(RUN ${bare} --train-iters 4 --micro-batch-size 4 --save ${WORK}/own CODE 0)
expect(RUN pretrain ${own} --train-iters 7 CODE 2 ERR "--lr-decay-iters: [^\n]* has 4, this run has 7" "--override-opt_param-scheduler")
expect(RUN pretrain ${own} --train-iters 7 --save ${WORK}/zero --use-checkpoint-opt_param-scheduler CODE 0
       ERR "warning: the learning rate is 0 in all steps that are left .3.: [^\n]*--lr-decay-iters 4")
expect(RUN pretrain ${own} --train-iters 7 --override-opt_param-scheduler CODE 0
       ERR "--lr-decay-iters: [^\n]* has 4, this run has 7" "iteration +7/ +7 .*learning rate: 1[.]42[0-9]E-04")
# One by samples is by samples there too.
expect(RUN ${bare} --train-samples 27 --lr-warmup-samples 8 --micro-batch-size 4 --save ${WORK}/own_samples CODE 0)
expect(RUN pretrain ${WORK}/own_samples/config.toml --load ${WORK}/own_samples --train-samples 35 --override-opt_param-scheduler
       CODE 0 ERR "--lr-decay-samples: [^\n]* has 27, this run has 35" "iteration +8/ +8 ")

# A longer run than the corpus reads it again, in another order, and reports it.
expect(RUN ${flat} --train-iters 400 --exit-interval 5 CODE 0 ERR "shuffles the corpus another way")
expect(RUN ${flat} --train-iters 8 --lr-decay-style WSD --lr-wsd-decay-iters 2 CODE 0
       ERR "by this run's schedule: --lr-decay-style: " "iteration +8/ +8 ")

# A new run from a run's weights, with its own options.
expect(RUN ${bare} --train-iters 2 --micro-batch-size 1 --weight-decay 0.5 --finetune --load ${WORK}/run
           --save ${WORK}/tuned CODE 0 ERR "a new run from the weights of .*iteration 6" "iteration +1/ +2 ")
expect(RUN ${bare} --train-iters 2 --finetune --load ${WORK}/run --save ${WORK}/tuned CODE 2
       ERR "already holds a run; give --load [^ ]* without --finetune")
expect(RUN ${bare} --train-iters 2 --finetune --save ${WORK}/other CODE 2 ERR "--finetune: needs --load")
expect(RUN ${bare} --train-iters 2 --load ${WORK}/run --save ${WORK}/tuned CODE 2 ERR "already holds a run")

# A run that ends is saved in --save also where that is not --load, and if nothing was left to do.
expect(RUN ${bare} --train-iters 3 --micro-batch-size 4 --save ${WORK}/ended CODE 0)
expect(RUN ${bare} --train-iters 3 --micro-batch-size 4 --load ${WORK}/ended --save ${WORK}/elsewhere CODE 0
       ERR "nothing left to do" "saved [^\n]*elsewhere/iter_0000003")
expect(RUN ${bare} --train-iters 4 --lr-decay-iters 3 --micro-batch-size 4 --load ${WORK}/ended --save ${WORK}/further
       CODE 0 ERR "saved [^\n]*further/iter_0000004")
expect_same_state(ended elsewhere "nothing was left to do, and another state was saved")
# There it continues.
expect(RUN ${bare} --train-iters 4 --lr-decay-iters 3 --micro-batch-size 4 --load ${WORK}/elsewhere
           --save ${WORK}/elsewhere CODE 0 ERR "resumed [^\n]*elsewhere/iter_0000003" "iteration +4/ +4 ")

# Multiples of --save-retain-interval stay, and the newest.
expect(RUN ${bare} --train-iters 5 --micro-batch-size 4 --save-interval 1 --save-retain-interval 2 --save ${WORK}/retained
       CODE 0)
file(GLOB kept RELATIVE ${WORK}/retained ${WORK}/retained/iter_*)
if(NOT kept STREQUAL "iter_0000002;iter_0000004;iter_0000005")
  message(FATAL_ERROR "--save-retain-interval 2 kept ${kept}")
endif()
expect(RUN ${bare} --train-iters 5 --micro-batch-size 4 --save-interval 2 --save-retain-interval 3 --save ${WORK}/no CODE 2
       ERR "--save-retain-interval: got 3, wanted a multiple of --save-interval, which is 2")

# A folder that cannot be written to is refused before the first step, in one line.
foreach(folder /sys/piton /sys/kernel /proc/piton)
  execute_process(COMMAND ${PITON} ${bare} --train-iters 3 --micro-batch-size 4 --load ${WORK}/ended --save ${folder}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE error)
  if(NOT code EQUAL 3 OR NOT error MATCHES "^piton pretrain: [^\n]*${folder}[^\n]*\n$" OR out MATCHES "iteration +1/")
    message(FATAL_ERROR "${folder}: exit ${code}\n${error}\n${out}")
  endif()
endforeach()

# The run keeps its tokenizer: another working directory, and the files are gone.
set(tokenizer ${SOURCE}/../shared/data/tokenizers/llama2)
if(EXISTS ${tokenizer})
  file(COPY ${tokenizer} DESTINATION ${WORK})
  execute_process(COMMAND ${PITON} preprocess --input text.txt --tokenizer-name-or-path llama2 --output-prefix words
                  WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  execute_process(COMMAND ${PITON} pretrain --model llama-tiny --data-path words_text_document --split 100,0,0
                          --tokenizer-name-or-path llama2 --seq-length 16 --train-iters 1 --save words_run
                  WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${error}")
  endif()
  file(REMOVE_RECURSE ${WORK}/llama2)
  expect(RUN generate --load ${WORK}/words_run --prompt "To be" --max-new-tokens 2 CODE 0)
else()
  message(STATUS "skipped: ${tokenizer} is not here")
endif()
