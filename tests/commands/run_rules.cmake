# The rules of batch, length, schedule and optimizer, as in model_rules.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../support/rule.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
make_rules_corpus()

# ---- Batch and length of the run ----
rule(micro-batch PLAN ACCEPTS --micro-batch-size 2 REJECTS --micro-batch-size -1 SAYS "--micro-batch-size: got -1, wanted 1 to")
rule(global-batch PLAN ACCEPTS --micro-batch-size 2 --global-batch-size 4
     REJECTS --micro-batch-size 2 --global-batch-size 3 SAYS "--global-batch-size: got 3, wanted a multiple of 2")
rule(global-batch-of-ranks PLAN REJECTS --world-size 2 --global-batch-size 3 SAYS "wanted a multiple of 2 .--micro-batch-size 1 x 2")
rule(global-batch-zero PLAN REJECTS --global-batch-size 0 SAYS "--global-batch-size: got 0, wanted a multiple of 1")
rule(no-length REJECTS --train-iters 0 SAYS "--train-iters: got 0, wanted 1 or more")
set(samples --train-samples 8)
rule(samples ACCEPTS ${samples} REJECTS ${samples} --train-iters 2 SAYS "--train-iters 2 and --train-samples 8: give one of them")
rule(samples-with-decay ACCEPTS ${samples} --lr-decay-samples 4
     REJECTS ${samples} --lr-decay-iters 4 SAYS "--lr-decay-iters: this run is by --train-samples, .* give --lr-decay-samples")
rule(samples-with-warmup ACCEPTS ${samples} --lr-warmup-samples 2
     REJECTS ${samples} --lr-warmup-iters 2 SAYS "--lr-warmup-iters: this run is by --train-samples, .* give --lr-warmup-samples")
rule(iterations-with-decay ACCEPTS --lr-decay-iters 4
     REJECTS --lr-decay-samples 4 SAYS "--lr-decay-samples: this run is by --train-iters, .* give --lr-decay-iters")
rule(iterations-with-warmup ACCEPTS --lr-decay-iters 4 --lr-warmup-iters 2
     REJECTS --lr-warmup-samples 2 SAYS "--lr-warmup-samples: this run is by --train-iters, .* give --lr-warmup-iters")
rule(tokens ACCEPTS --lr-decay-tokens 64 --lr-warmup-tokens 16
     REJECTS --lr-decay-tokens 64 --lr-warmup-iters 1 SAYS "--lr-warmup-iters and --lr-decay-tokens: lengths of one schedule")
rule(tokens-too-few REJECTS --lr-decay-tokens 16 --lr-warmup-tokens 16 SAYS "a warm-up of 1 steps does not end before the decay of 1")
rule(fraction ACCEPTS --lr-decay-iters 4 --lr-warmup-fraction 0.5
     REJECTS --lr-decay-iters 4 --lr-warmup-fraction 0.5 --lr-warmup-iters 1 SAYS "--lr-warmup-fraction 0.5 and a warm-up of 1 steps exclude")
rule(fraction-of-samples REJECTS ${samples} --lr-warmup-fraction 0.5 --lr-warmup-samples 1 SAYS "--lr-warmup-fraction 0.5 and a warm-up")
rule(ramp ACCEPTS ${samples} --global-batch-size 4 --rampup-batch-size 2 2 4
     REJECTS --global-batch-size 4 --rampup-batch-size 2 2 4 SAYS "--rampup-batch-size: needs --train-samples")
rule(ramp-increment REJECTS ${samples} --global-batch-size 4 --rampup-batch-size 1 2 4 SAYS "wanted a divisor of 3")
rule(save-interval ACCEPTS --save ${WORK}/saved --save-interval 1 REJECTS --save-interval -1 SAYS "--save-interval: got -1")
rule(save-interval-of-none ACCEPTS --save-interval 1)
foreach(flag log-interval eval-interval)
  rule(${flag} ACCEPTS --${flag} 2 REJECTS --${flag} 0 SAYS "--${flag}: got 0, wanted 1 or more")
endforeach()
rule(neftune ACCEPTS --neftune-noise-alpha 5
     REJECTS --neftune-noise-alpha -1 SAYS "--neftune-noise-alpha: got -1, wanted 0 or more")
rule(eval-iters REJECTS --eval-iters -1 SAYS "--eval-iters: got -1, wanted 0 or more")

# ---- Learning rate and optimizer ----
# Numbers that are 0 or infinite in fp32 too.
foreach(value 0 -1 nan inf 1e-320 1e300)
  rule(lr-${value} REJECTS --lr ${value} SAYS "--lr: got [^,]*, wanted (a number above 0|number)")
endforeach()
rule(min-lr ACCEPTS --lr 1e-3 --min-lr 1e-3 REJECTS --lr 1e-3 --min-lr 2e-3 SAYS "--min-lr: got 0.002, wanted 0 to --lr, which is 0.001")
rule(warmup-too-long ACCEPTS --lr-decay-iters 4 --lr-warmup-iters 3
     REJECTS --lr-decay-iters 4 --lr-warmup-iters 4 SAYS "a warm-up of 4 steps does not end before the decay of 4")
rule(decay-style ACCEPTS --lr-decay-style cosine REJECTS --lr-decay-style square SAYS "--lr-decay-style: got .square.")
rule(wsd ACCEPTS --lr-decay-iters 4 --lr-decay-style WSD --lr-wsd-decay-iters 2
     REJECTS --lr-decay-style WSD SAYS "WSD: needs --lr-wsd-decay-iters")
rule(schedulers REJECTS --override-lr-scheduler --use-checkpoint-lr-scheduler SAYS "exclude each other; give one")
rule(optimizer ACCEPTS --optimizer sgd REJECTS --optimizer adagrad SAYS "--optimizer: got .adagrad.")
foreach(flag adam-beta1 adam-beta2 sgd-momentum)
  rule(${flag} ACCEPTS --${flag} 0.5 REJECTS --${flag} 1 SAYS "--${flag}: got 1, wanted at least 0 and below 1")
endforeach()
foreach(value 0 inf 1e-320)
  rule(adam-eps-${value} REJECTS --adam-eps ${value} SAYS "--adam-eps: got [^,]*, wanted a number above 0, 1e-30 to 1e.30")
endforeach()
rule(decoupled-lr ACCEPTS --decoupled-lr 1e-4 --decoupled-min-lr 1e-5 --lr-decay-iters 4 --lr-warmup-iters 1 --lr-warmup-init 1e-6
     REJECTS --decoupled-min-lr 1e-5 SAYS "--decoupled-min-lr: needs --decoupled-lr")
rule(warmup-init REJECTS --lr-warmup-init 1e-6 SAYS "--lr-warmup-init: got 1e-06 without a warm-up; give --lr-warmup-iters")
rule(lora-plus REJECTS --lora-plus-lr-ratio 16 SAYS "--lora-plus-lr-ratio: needs --lora-target-modules")
rule(embedding-std ACCEPTS --embedding-init-method-std 0 REJECTS --embedding-init-method-std -1 SAYS "--embedding-init-method-std: got -1")
rule(no-clipping ACCEPTS --clip-grad 0 --weight-decay 0)
foreach(value -1 nan inf 1e-320 1e300)
  rule(clip-grad-${value} REJECTS --clip-grad ${value} SAYS "--clip-grad: got [^,]*, wanted (0 or more|0, or 1e-30 or more|number)")
  rule(weight-decay-${value} REJECTS --weight-decay ${value} SAYS "--weight-decay: got [^,]*, wanted (0 or more|0, or 1e-30 or more|number)")
endforeach()
rule(decay-increase ACCEPTS --weight-decay-incr-style linear --start-weight-decay 0 --end-weight-decay 0.1
     REJECTS --start-weight-decay 0 SAYS "--start-weight-decay: needs --weight-decay-incr-style linear or cosine")
rule(decay-increase-of-none REJECTS --weight-decay-incr-style cosine SAYS "needs --start-weight-decay and")
rule(decay-groups ACCEPTS --weight-decay-groups ascendspeed REJECTS --weight-decay-groups all SAYS "--weight-decay-groups: got .all.")
rule(loss-scale ACCEPTS --fp16 --loss-scale 64 REJECTS --fp16 --loss-scale 0 SAYS "--loss-scale: got 0, wanted more than 0")
rule(least-scale ACCEPTS --fp16 --initial-loss-scale 64 --min-loss-scale 64
     REJECTS --fp16 --initial-loss-scale 64 --min-loss-scale 65 SAYS "--min-loss-scale: got 65, wanted at most --initial-loss-scale")
foreach(flag loss-scale-window hysteresis)
  rule(${flag} ACCEPTS --fp16 --initial-loss-scale 64 --${flag} 1 REJECTS --${flag} 0 SAYS "--${flag}: got 0, wanted 1 or more")
endforeach()

# A corpus that would be read more often than its orders can be held.
string(REPEAT "to be or not\n" 40 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod --output-prefix ${WORK}/corpus CODE 0)
set(read pretrain --model llama-tiny --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document --split 100,0,0 --seq-length 16)
expect(RUN ${read} --train-iters 1 CODE 0)
expect(RUN ${read} --train-iters 4000000000000 CODE 3 ERR "tokens would read its [0-9]+ tokens [0-9]+ times over; use a larger corpus or fewer")
