# Pipelines of every schedule by mpirun: the losses of one process, saved and continued to the bit and under another
# schedule, evaluated, planned; and what is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
set(bare pretrain --model gpt2-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
         --seq-length 32 --micro-batch-size 2 --global-batch-size 8 --lr 1e-2 --split 90,10,0 --hidden-dropout 0.1
         --train-iters 6 --eval-interval 3 --eval-iters 2)

run_on(1 one)
set(one "${LOSSES}")
set(two --pipeline-model-parallel-size 2)
set(interleaved ${two} --num-layers-per-virtual-pipeline-stage 1)
set(aiao ${two} --num-virtual-stages-per-pipeline-rank 2 --fold-mode aiao)
set(fifo ${two} --num-layers-per-virtual-pipeline-stage 1 --foldx-mode fifo
         --microbatch-group-size-per-virtual-pipeline-stage 4)
set(zbv ${two} --pipeline-schedule zb-v)
set(dual ${two} --pipeline-schedule dualpipe-v)
set(unequal ${two} --optimized-pipeline --manual-mbs 1 3 3 1 --use-manual-layer-allocation --manual-layers 3,1)
foreach(name interleaved aiao fifo zbv dual unequal)
  run_on(2 ${name} ${${name}})
  expect_losses(${name} "${one}" "${LOSSES}")
  set(hash_${name} "${HASH}")
endforeach()

# Stopped, and continued to the bit.
set(continued zbv)
if(DEFINED ENV{PITON_NIGHTLY})
  set(continued interleaved zbv unequal)
endif()
foreach(name IN LISTS continued)
  run_on(2 ${name}_parts ${${name}} --exit-interval 4)
  run_on(2 ${name}_parts ${${name}} --load ${WORK}/${name}_parts)
  if(NOT HASH STREQUAL hash_${name})
    message(FATAL_ERROR "${name}: a run that continued ends elsewhere: ${hash_${name}} ${HASH}\n${LOG}")
  endif()
endforeach()

# A checkpoint of one schedule resumes under another, and in one process: the same weights are loaded.
run_on(2 moved ${interleaved} --exit-interval 3)
run_on(2 moved ${zbv} --load ${WORK}/moved --exit-interval 5)
run_on(1 moved --load ${WORK}/moved)
expect_losses(moved "${one}" "${LOSSES}")
expect(RUN generate --load ${WORK}/interleaved --prompt "To be" --max-new-tokens 4 CODE 0)

# The bubble: presets against equal micro-batches, closed forms.
expect(RUN plan --simulate 1f1b --stages 4 --manual-mbs example-config-1 CODE 0 OUT "\"bubble\":0.1302" "\"time\":217.0")
expect(RUN plan --simulate 1f1b --stages 8 --manual-mbs example-config-2 CODE 0 OUT "\"bubble\":0.2222" "\"time\":352.0")
expect(RUN plan --simulate opp --stages 4 CODE 0 OUT "\"bubble\":0.1302" "\"time\":217.0")
expect(RUN plan --simulate opp --stages 2 --manual-mbs 1 3 3 1 CODE 0 OUT "\"bubble\":0.")
expect(RUN plan --simulate opp --stages 3 CODE 2 ERR "--simulate opp: no preset has 3 stages; give --manual-mbs")
expect(RUN plan --simulate opp --stages 4 --micro-batches 8 CODE 2
       ERR "--micro-batches: got 8, but the preset of these stages has 16")
expect(RUN plan --simulate fifo --stages 4 --micro-batches 8 CODE 0 OUT "\"bubble\":0.1875")
expect(RUN plan --simulate 1f1c CODE 2 ERR "wanted one of 1f1b, interleaved, opp, aiao, fifo, zb-h1, zb-v, dualpipe-v")
expect(RUN plan --simulate interleaved --chunks 4 --stages 4 --micro-batches 8 CODE 0 OUT "\"bubble\":0.09375")
expect(RUN plan --simulate aiao --stages 2 --micro-batches 4 CODE 0 OUT "\"peak_activations\":.8,8.")
expect(RUN plan --simulate zb-v --stages 4 --micro-batches 8 CODE 0 OUT "\"inner_bubble\":0.0,")
expect(RUN plan --simulate dualpipe-v --stages 2 --micro-batches 4 CODE 0 OUT "\"peak_activations\":.5,5.")
set(plan plan --model llama-tiny --micro-batch-size 1 --global-batch-size 8)
expect(RUN ${plan} ${two} --num-layers-per-virtual-pipeline-stage 1 CODE 0 OUT "pipeline bubble 6.2 %")
expect(RUN ${plan} ${two} --optimized-pipeline --manual-mbs 1 1 1 1 1 1 1 1 CODE 0
       OUT "pipeline bubble 12.5 % .passes of lengths in proportion to layers x samples")
expect(RUN ${plan} ${interleaved} --recompute-granularity auto --memory-limit 4MiB CODE 0 OUT "recompute auto")

# What does not fit: one line that names the flag.
set(pretrain ${LAUNCH} 2 ${PITON} pretrain --model gpt2-tiny --mock-data --tokenizer-type ByteTokenizer --seq-length 16
             --train-iters 1)
set(ENV{PITON_GRACE_SECONDS} 0)  # no rank has more to say than the line that is looked for
function(refused pattern)
  execute_process(COMMAND ${pretrain} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REPLACE ";" "," out "${out}")  # of a message, which else were two elements of a list
  string(REGEX MATCHALL "piton pretrain: [^\n]*" lines "${out}")
  list(LENGTH lines count)
  if(NOT code EQUAL 2 OR NOT count EQUAL 1 OR NOT lines MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN}: exit ${code}, wanted 2 and one line with ${pattern}\n${out}")
  endif()
endfunction()
refused("got 3 micro-batches a step on 2 stages" ${interleaved} --global-batch-size 3)
refused("got 3 micro-batches a step on 2 stages" ${aiao} --global-batch-size 3)
refused("wanted at least 4" ${dual} --global-batch-size 3)
refused("chunks of 3 layers on 2 stages cannot divide 4 layers" ${two} --num-layers-per-virtual-pipeline-stage 3)
refused("6 chunks of a model .3 on each of 2 stages. need a layer each" ${two} --num-virtual-stages-per-pipeline-rank 3 --global-batch-size 4)
refused("--foldx-mode: needs several chunks a stage" ${two} --foldx-mode aiao)
refused("--manual-mbs: got 2 micro-batches of 5 samples together" ${two} --optimized-pipeline --manual-mbs 2 3
        --global-batch-size 4 --micro-batch-size 2)
refused("--optimized-pipeline: --manual-mbs lists" ${two} --optimized-pipeline --manual-mbs 1 3 --micro-batch-size 2
        --global-batch-size 4 --rampup-batch-size 2 2 8 --train-iters 0 --train-samples 16)
refused("--manual-layers: got .4,1." ${two} --use-manual-layer-allocation --manual-layers 4,1)
refused("--enable-recompute-layers-per-pp-rank" ${interleaved} --global-batch-size 4
        --enable-recompute-layers-per-pp-rank)
