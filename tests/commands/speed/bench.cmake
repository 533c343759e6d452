# Every bench prints the fields that scripts read. Sizes are tiny and times are not compared: only the
# presence of each figure, and counts.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

set(timed "\"best_seconds\":[0-9.e-]+" "\"spread\":[0-9.e-]+")
set(tiny --model llama-tiny --rounds 2 --threads 1 --micro-batch-size 2 --seq-length 32 --json)
expect(RUN bench train ${tiny} --profile CODE 0
  OUT "^{\"bench\":\"train\"" "\"tokens_per_second\":[0-9]" "\"share_of_peak\":[0-9]" "\"over_product_floor\":[0-9]"
      "\"peak_memory_bytes\":[0-9]" "\"reserved_memory_bytes\":[0-9]" "\"peak_resident_bytes\":[0-9]" "\"tokens_per_step\":64.0" "\"by_name\":"
      "\"what\":\"attention backward\",\"calls\":4," "\"what\":\"linear backward weight" ${timed})
# In words too, of each kind that can be profiled.
set(words ${tiny})
list(REMOVE_ITEM words --json)
foreach(kind "train>one step" "decode>one token" "prefill>one pass")
  string(REGEX MATCH "^([a-z]+)>(.*)$" both "${kind}")
  expect(RUN bench ${CMAKE_MATCH_1} ${words} --context 8 --tokens 2 --profile CODE 0 OUT "${CMAKE_MATCH_2}, call by call: [0-9.]+ ms")
endforeach()
expect(RUN bench train ${tiny} --no-floor CODE 0 OUT "\"tokens_per_second\":")
# What the arena held at most is what plan says.
execute_process(COMMAND ${PITON} bench train ${tiny} --no-floor --quiet OUTPUT_VARIABLE out)
string(JSON held GET "${out}" peak_memory_bytes)
string(JSON planned GET "${out}" planned_memory_bytes)
if(NOT held EQUAL planned)
  message(FATAL_ERROR "the step held ${held} bytes and the plan says ${planned}")
endif()
string(JSON rounds LENGTH "${out}" seconds)
if(NOT rounds EQUAL 2)
  message(FATAL_ERROR "${rounds} times were recorded in 2 rounds")
endif()

expect(RUN bench gemm ${tiny} CODE 0 OUT "\"share_of_peak\":" "fp32 64 x 64 -> 128 forward" "backward weight" ${timed})
expect(RUN bench gemm --rows 8 --in 16 --out 32 --rounds 1 --bf16 --json CODE 0 OUT "bf16 8 x 16 -> 32 backward input")
# A call's share of the peak, in its time, is the operations of its product: 2 x 8 x 16 x 32.
execute_process(COMMAND ${PITON} bench gemm --rows 8 --in 16 --out 32 --rounds 2 --json --quiet OUTPUT_VARIABLE out)
string(JSON peak GET "${out}" peak_gflops)
foreach(call 0 1 2)
  string(JSON share GET "${out}" calls ${call} share_of_peak)
  string(JSON seconds GET "${out}" calls ${call} best_seconds)
  execute_process(COMMAND awk "BEGIN { n = ${share} * ${seconds} * ${peak} * 1e9; exit !(n > 8191 && n < 8193) }" RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${share} of ${peak} Gflop/s in ${seconds} s are not 8192 operations\n${out}")
  endif()
endforeach()
expect(RUN bench attention ${tiny} CODE 0 OUT "\"share_of_peak\":" "4/2 heads of 16, causal backward")
foreach(order SBH BSH BSND BNSD TND)
  expect(RUN bench attention ${tiny} --shape-order ${order} CODE 0 OUT "\"share_of_peak\":" "causal backward")
endforeach()
expect(RUN bench attention ${tiny} --pre-tockens 8 --position-embedding-type alibi --triangle-attn --triangle-block-size 16 CODE 0
  OUT "causal, 8 before, triangle of 16 forward")
expect(RUN bench attention ${tiny} --shape-order HSB CODE 2 ERR "--shape-order: got \"HSB\"")
expect(RUN bench optimizer --elements 1000 --rounds 2 --bf16 --json CODE 0
  OUT "\"share_of_bandwidth\":" "\"mb_per_second\":" "\"elements\":1000")
expect(RUN bench decode ${tiny} --context 16 --tokens 3 CODE 0
  OUT "\"share_of_bandwidth\":" "\"tokens_per_second\":" "\"peak_memory_bytes\":")
# Collectives: of one process, which only copy, and of two ranks, whose elements are divided.
expect(RUN bench comm --elements 1000 --rounds 2 --json CODE 0 OUT "\"ranks\":1," "\"what\":\"all-reduce of fp32\",\"bytes\":4000,")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} bench comm --elements 1001 --rounds 2 --json OUTPUT_VARIABLE out RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT out MATCHES "\"ranks\":2,")
  message(FATAL_ERROR "bench comm on two ranks: exit ${code}\n${out}")
endif()
foreach(what "all-reduce of fp32\",\"bytes\":4008" "reduce-scatter of bf16\",\"bytes\":2004" "all-gather of bf16" "broadcast of fp32")
  if(NOT out MATCHES "\"what\":\"${what}[^}]*\"bus_gb_per_second\":[0-9.e-]+,\"best_seconds\":[0-9.e-]+")
    message(FATAL_ERROR "bench comm: no ${what} in\n${out}")
  endif()
endforeach()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} bench comm --elements 1000 --rounds 1 OUTPUT_VARIABLE out RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT out MATCHES "GB/s a rank on the bus  all-gather of fp32")
  message(FATAL_ERROR "bench comm in words: exit ${code}\n${out}")
endif()
expect(RUN bench prefill ${tiny} --context 16 CODE 0 OUT "\"share_of_peak\":" "\"tokens_per_second\":")
# For people: a number a line.
expect(RUN bench gemm --rows 8 --in 16 --out 32 --rounds 1 CODE 0 OUT "share_of_peak +[0-9.]+  .of what these cores could" "ms x +1 ")

expect(RUN bench CODE 2 ERR "wanted one of train, gemm, attention")
expect(RUN bench speed CODE 2 ERR "got \"speed\"")
expect(RUN bench gemm --in 16 CODE 2 ERR "--in, --out")
expect(RUN bench train --model gpt2-tiny --rounds 0 CODE 2 ERR "--rounds: got 0")
expect(RUN bench optimizer --elements 0 CODE 2 ERR "--elements: got 0")
expect(RUN bench decode --model llama-tiny --context 4096 CODE 2 ERR "--context")

# Benches of text. A letter is a byte is a token here, so that the counts can be known.
file(MAKE_DIRECTORY ${WORK})
file(WRITE ${WORK}/four.txt "ab\ncdef\n\nghij\n")
set(text --input ${WORK}/four.txt --tokenizer-type ByteTokenizer --rounds 2 --json)
expect(RUN bench tokenizer ${text} --megabytes 0 CODE 0
  OUT "^{\"bench\":\"tokenizer\"" "\"text_bytes\":10,\"tokens\":10" "\"mb_per_second\":[0-9]" "\"spread\":")
expect(RUN bench tokenizer ${text} --megabytes 1 --workers 3 CODE 0 OUT "\"workers\":3" "\"text_bytes\":100000[0-3],\"tokens\":100000[0-3]")
expect(RUN bench preprocess ${text} --workers 2 --quiet CODE 0
  OUT "^{\"bench\":\"preprocess\"" "\"text_bytes\":10,\"tokens\":10" "\"mb_per_second\":[0-9]" "\"share_of_tokenizer\":")
expect(RUN bench tokenizer --tokenizer-type ByteTokenizer CODE 2 ERR "bench tokenizer: no --input")
expect(RUN bench tokenizer ${text} --megabytes 0 --fresh CODE 0 OUT "\"text_bytes\":10,\"tokens\":10" "\"seconds\":.[0-9.e-]+,[0-9.e-]+.}")
expect(RUN bench tokenizer ${text} --made-text one-letter CODE 2 ERR "both --made-text and --input")
foreach(kind one-letter random-letters random-bytes)
  expect(RUN bench tokenizer --made-text ${kind} --megabytes 2 --tokenizer-type ByteTokenizer --rounds 1 --json CODE 0
    OUT "\"documents\":2,\"text_bytes\":2000000,\"tokens\":2000000")
endforeach()
expect(RUN bench tokenizer --made-text zeros --tokenizer-type ByteTokenizer CODE 2 ERR "random-letters")
expect(RUN bench tokenizer ${text} --workers 0 CODE 2 ERR "--workers: got 0, wanted 1 to 1024")
expect(RUN bench preprocess ${text} --output-prefix ${WORK}/kept --quiet CODE 0)
if(NOT EXISTS ${WORK}/kept_text_document.idx)
  message(FATAL_ERROR "the corpus that was asked for is not there")
endif()
file(WRITE ${WORK}/none.txt "\n")
expect(RUN bench tokenizer --input ${WORK}/none.txt --tokenizer-type ByteTokenizer CODE 3 ERR "there is no text in it")
