# plan: what a layout costs each rank, and sizes that are no layout.
include(${SOURCE}/tests/support/expect.cmake)

expect(RUN plan --model gpt2-124m --micro-batch-size 4 --seq-length 256 --json CODE 0 OUT "\"parameters\":124439808")
expect(RUN plan --model gpt2-124m --zero-stage 1 --world-size 2 CODE 0 OUT "pipeline bubble 0.0" "segments of a rank [0-9.]+ MiB: ")
expect(RUN plan --model llama-tiny --tensor-model-parallel-size 2 --world-size 4 --device-memory 1GB CODE 0
       OUT "[0-9.]+ thousand parameters in fp32; a step is 2 samples of 128 tokens" "4 ranks: tensor 2 x pipeline 1 x data 2"
           "\n0-3 " "fits: [0-9.]+ of 953.7 MiB")
expect(RUN plan --model llama-tiny --device-memory 1MB CODE 0 OUT "does not fit: " "a step is 1 sample of 128 tokens" "\n1 rank: tensor 1 ")
expect(RUN plan --model llama-tiny --layouts 1x1 2x1 1x2x2 CODE 0 OUT "\n1x1 +1 " "\n2x1 +2 " "\n1x2x2 +4 ")
# Whether it fits is said where a limit was given.
expect(RUN plan --model llama-tiny --layouts 1x1 CODE 0 OUT "\n1x1 [^\n]* 0.0 %\n$")
expect(RUN plan --model llama-tiny --layouts 1x1 2x1 --device-memory 1GB CODE 0
       OUT "\n1x1 [^\n]* 0.0 %   fits: [^\n]*\n2x1 [^\n]* 0.0 %   fits: [^\n]*\n$")
expect(RUN plan --model llama-tiny --layouts 1x1 --device-memory 1MB CODE 0 OUT "\n1x1 [^\n]* 0.0 %   does not fit: [^\n]*\n$")
expect(RUN plan --model llama-tiny --layouts 2y1 CODE 2 ERR "--layouts: got \"2y1\"")
expect(RUN plan --model llama-tiny --device-memory much CODE 2 ERR "--device-memory: got \"much\"")
expect(RUN plan --simulate 1f1b --stages 4 --micro-batches 8 CODE 0 OUT "\"bubble\":0.375")
# [stages][passes]: kind, micro-batch, chunk of the model, start, end; a backward pass takes twice as long as a forward one.
set(simulated plan --simulate 1f1b --stages 2 --micro-batches 1)
expect(RUN ${simulated} --passes CODE 0
       OUT "\"passes\":..\\[\"forward\",0,0,0.0,1.0.,.\"backward\",0,0,4.0,6.0..,..\"forward\",0,1,1.0,2.0.,.\"backward\",0,1,2.0,4.0...}\n$")
execute_process(COMMAND ${PITON} ${simulated} OUTPUT_VARIABLE out)
if(NOT out MATCHES "\"bubble\":" OR out MATCHES "passes")
  message(FATAL_ERROR "passes that nobody asked for: ${out}")
endif()

# The time of a step: by rates, by measurement; and the layouts that take least.
set(rates --device-tflops 100 --device-bandwidth 1000 --link-bandwidth 50 --host-link-bandwidth 10 --ranks-per-host 2)
expect(RUN plan --model gpt2-124m --bf16 --world-size 4 --tensor-model-parallel-size 2 --global-batch-size 8 --step-time ${rates} CODE 0
       OUT "\na step takes 0.[0-9]+ s \\([0-9.e+]+ tokens/s\\): [0-9.]+ % work, [0-9.]+ % transfers that nothing hides, 0.0 % idle in the pipeline\n  kernel calls: by the given rates; links: 50 GB/s within a host of 2, 10 between hosts\n")
expect(RUN plan --model llama-tiny --step-time --json CODE 0 OUT "\"step_time\":{\"seconds\":[0-9.e-]+,\"work\":[0-9.e-]+,\"waited\":0.0,\"idle\":0.0}")
# Calls are measured by the threads of a rank: as given, or a rank's share of this machine's cores.
set(measured "\n  kernel calls: each measured alone on this machine, by")
expect(RUN plan --model llama-tiny --world-size 2 --step-time --threads 3 CODE 0
       OUT "${measured} 3 threads; transfers take no time without --link-bandwidth\n")
expect(RUN plan --model llama-tiny --world-size 1024 --ranks-per-host 1024 --step-time CODE 0 OUT "${measured} 1 thread; ")
expect(RUN plan --model gpt2-124m --bf16 --world-size 4 --global-batch-size 16 --device-memory 8GB --search ${rates} CODE 0
       OUT "layout +context +schedule +ZeRO +micro-batch +recompute +peak, MiB +step, s +tokens/s +waited or idle\n[124]x[124]x[124] "
           "\nof [0-9]+ layouts, [0-9]+ fit; the first one: --tensor-model-parallel-size [124] ")
# 12 heads can't be split over 8 ranks: such layouts are passed over.
expect(RUN plan --model gpt2-124m --bf16 --world-size 8 --global-batch-size 8 --search --device-tflops 100 --device-bandwidth 1000 CODE 0 OUT "\nof [0-9]+ layouts")
# One data rank has no ZeRO. Of a global batch of 2 samples, micro-batches have 1 or 2 of them, or 1 on two data ranks;
# one of two stages is tried in three other schedules, as two layers are not eight chunks.
set(few plan --model llama-tiny --global-batch-size 2 --search --device-tflops 100 --device-bandwidth 1000)
expect(RUN ${few} --world-size 1 CODE 0 OUT "\nof 2 layouts, 2 fit")
expect(RUN ${few} --world-size 2 CODE 0 OUT "\n1x1x2 +1 +- +3 " "\n1x2x1 +1 +zb-h1 +0 +1 " "\n1x2x1 +1 +interleaved x2 "
       "\nof 15 layouts, 15 fit")
# A sample of which a rank has no room for more than a part.
expect(RUN plan --model llama-tiny --bf16 --seq-length 65536 --max-position-embeddings 65536 --world-size 4 --global-batch-size 4
       --device-memory 200MB --search --device-tflops 100 --device-bandwidth 1000 --link-bandwidth 100 --ranks-per-host 4 CODE 0
       OUT "\n[124]x1x[124] +[24] +- " "\n[124]x1x[124] +4 2x2 +- " " --context-parallel-size [24]")
expect(RUN ${few} --world-size 4 --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 CODE 0
       OUT "\n1x1x1 +4 2x2 +- "
           " --context-parallel-size 4 --cp-comm-type a2a\\+p2p --hierarchical-context-parallel-sizes 2 2")
expect(RUN ${few} --world-size 2 --context-parallel-size 2 CODE 0 OUT "\n1x1x1 +2 allgather +- " "\n1x1x1 +2 a2a +- ")
expect(RUN ${few} --world-size 7 CODE 2 ERR "--global-batch-size: got 2, wanted a multiple of 7 ")
expect(RUN plan --model gpt2-124m --bf16 --world-size 2 --global-batch-size 2 --device-memory 1MB --search ${rates} CODE 4
       ERR "--device-memory: got 1.0 MiB, wanted at least [0-9.]+, which the smallest of [0-9]+ layouts needs; give more ranks")
expect(RUN plan --model llama-tiny --world-size 2 --search CODE 2 ERR "--search: steps of equal size are compared; add --global-batch-size")
expect(RUN plan --model llama-tiny --device-tflops 10 --step-time CODE 2 ERR "--device-tflops, --device-bandwidth: got one of them, wanted both")
expect(RUN plan --model llama-tiny --link-bandwidth -1 --step-time CODE 2 ERR "--link-bandwidth: got -1, wanted a number above 0")
expect(RUN plan --model llama-tiny --link-bandwidth 10 CODE 2 ERR "speeds of devices and links need --step-time or --search")

# Numbers of ranks that cannot be: none, and more than 32 bits count.
set(plan plan --model llama-tiny --global-batch-size 8)
foreach(ranks 0 -1 4294967304 9223372036854775807)
  expect(RUN ${plan} --world-size ${ranks} CODE 2 ERR "^piton plan: --world-size: got ${ranks}, wanted 1 to 1048576\n$")
  expect(RUN inspect layout --world-size ${ranks} CODE 2 ERR "^piton inspect: --world-size: got ${ranks}, wanted 1 to 1048576\n$")
endforeach()
set(wide --tensor-model-parallel-size 65536 --pipeline-model-parallel-size 65536)
foreach(command "${plan}" "inspect;layout")
  expect(RUN ${command} ${wide} CODE 2 ERR "tensor 65536 x pipeline 65536 are 4294967296 ranks, wanted 1 to 1048576")
  expect(RUN ${command} --tensor-model-parallel-size 0 CODE 2 ERR "--tensor-model-parallel-size is 0, wanted at least 1")
endforeach()
foreach(layout 65536x65536 1x1048577 2147483647x2147483647x2147483647 99999999999x1)
  expect(RUN ${plan} --layouts ${layout} CODE 2 ERR "--layouts: got \"${layout}\", wanted .* of at most 1048576 ranks")
endforeach()
expect(RUN ${plan} --layouts 1x1 --world-size 4294967304 CODE 2 ERR "--world-size: got 4294967304")
expect(RUN plan --model llama-tiny --device-memory 1e300TB CODE 2 ERR "--device-memory: got \"1e300TB\", wanted a size")
expect(RUN plan --simulate 1f1b --stages 2147483647 --micro-batches 2147483647 CODE 2
       ERR "--stages x --micro-batches: got 4611686014132420609, wanted 1 to")

expect(RUN plan --model llama-tiny CODE 0 OUT "\nparameters: the weights, and the packed forms of them")
expect(RUN plan --model llama-tiny --grad-reduce-in-bf16 CODE 0
       ERR "--grad-reduce-in-bf16: no meaning here: gradients are summed over ranks in fp32, which is a higher precision")
