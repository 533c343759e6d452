# GGUF files as users make and use them.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/huggingface)

# There and back: the same weights, and the same text.
expect(RUN convert --load ${golden}/llama --save ${WORK}/llama.gguf CODE 0
  OUT "llama.gguf: gguf from hf: 24864 parameters, " "\nverified: 21 tensors equal to the bit; 16 tokens through both: logits differ by 0 at most, KL 0\n$")
expect(RUN inspect ${WORK}/llama.gguf CODE 0 OUT "llama.gguf: GGUF, llama, F32 in one file, tokenizer none\n24864 parameters, 2 layers"
  "\n  blk.0.attn_q.weight +F32 +.32, 32.\n")
expect(RUN inspect ${WORK}/llama.gguf --json CODE 0 OUT "^{\"format\":\"gguf\",\"model_type\":\"llama\",\"parameters\":24864,")
expect(RUN convert --load ${WORK}/llama.gguf --save ${WORK}/hf --to hf CODE 0 OUT "hf: hf from gguf")
expect(RUN convert --load ${golden}/llama --save ${WORK}/direct --to hf CODE 0)
file(SHA256 ${WORK}/hf/model.safetensors got)
file(SHA256 ${WORK}/direct/model.safetensors wanted)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "weights changed on the way through a GGUF file")
endif()
# A text without the end that config.json names: a GGUF file has that of its tokenizer, and this one has none.
foreach(place ${golden}/llama ${WORK}/llama.gguf)
  expect(RUN generate --load ${place} --prompt-ids 9,30,50 --greedy --max-new-tokens 12 --json CODE 0 OUT "\"ids\":")
  execute_process(COMMAND ${PITON} generate --load ${place} --prompt-ids 9,30,50 --greedy --max-new-tokens 12 --json OUTPUT_VARIABLE text)
  string(JSON ids GET "${text}" ids)
  list(APPEND texts "${ids}")
endforeach()
list(REMOVE_DUPLICATES texts)
list(LENGTH texts different)
if(NOT different EQUAL 1)
  message(FATAL_ERROR "other text from the GGUF file: ${texts}")
endif()

# Quantized: what that costs is printed, and the file is much smaller.
expect(RUN convert --load ${golden}/llama --save ${WORK}/q8.gguf --outtype q8_0 CODE 0
  OUT "\nverified: 21 tensors equal to the bit to what the source's become in these types; 16 tokens"
  "\nquantization: logits differ by [0-9.e-]+ at most .the largest is [0-9.]+., KL [0-9.e-]+\n$"
  ERR "2 matrices are F16, as their rows are no multiple of 32: blk.0.ffn_down.weight, ...")
expect(RUN inspect ${WORK}/q8.gguf CODE 0 OUT "F16 and F32 and Q8_0 in one file")
expect(RUN convert --load ${WORK}/q8.gguf --save ${WORK}/q4.gguf --outtype q4_0 --json CODE 0 OUT "\"quantization\":{\"largest_difference\":")
expect(RUN convert --load ${WORK}/q4.gguf --save ${WORK}/q4-run CODE 0 OUT "q4-run: piton from gguf")
expect(RUN convert --load ${golden}/qwen2 --save ${WORK}/other --to gguf CODE 2 ERR "--save: got [^ ]*/other, wanted a file NAME.gguf with --to gguf")

# A run with a tokenizer: it goes along, there and back.
string(REPEAT "To be, or not to be, that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --split 90,10,0 --seq-length 32 --train-iters 2
  --lr 1e-3 --tokenizer-type ByteTokenizer --save ${WORK}/trained CODE 0)
expect(RUN convert --load ${WORK}/trained --save ${WORK}/trained.gguf --outtype f16 CODE 0)
expect(RUN inspect ${WORK}/trained.gguf CODE 0 OUT "GGUF, llama, F16 and F32 in one file, tokenizer gpt2, gpt-2")
expect(RUN generate --load ${WORK}/trained.gguf --prompt "To be" --greedy --max-new-tokens 4 CODE 0)
expect(RUN score --load ${WORK}/trained.gguf ${WORK}/text.txt CODE 0 OUT "^loss ")
expect(RUN convert --load ${WORK}/trained.gguf --save ${WORK}/trained-hf --to hf CODE 0)
expect(RUN tokenize --tokenizer-name-or-path ${WORK}/trained-hf ${WORK}/text.txt CODE 0 OUT "^84 111 32 98 101 44")
expect(RUN score --load ${WORK}/trained-hf ${WORK}/text.txt CODE 0 OUT "^loss ")
expect(RUN convert --load ${WORK}/trained.gguf --save ${WORK}/trained-run --to piton CODE 0)
expect(RUN generate --load ${WORK}/trained-run --prompt "To be" --greedy --max-new-tokens 4 CODE 0)

# A run starts from a file as from the folder that is made of it: the same losses, and the file's tokenizer. A corpus is
# made with the tokenizer of that folder.
expect(RUN convert --load ${WORK}/trained --save ${WORK}/start.gguf CODE 0)
expect(RUN convert --load ${WORK}/start.gguf --save ${WORK}/start-hf --to hf CODE 0)
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${WORK}/start-hf --output-prefix ${WORK}/again CODE 0)
set(trains --data-path ${WORK}/again_text_document --split 90,10,0 --seq-length 32 --lr 1e-3
  --lr-decay-style constant)
set(runs "")
foreach(start start.gguf start-hf)
  expect(RUN pretrain --load ${WORK}/${start} ${trains} --train-iters 3 --save ${WORK}/of-${start} CODE 0 OUT "a new run from the weights of [^ ]*/${start} ")
  file(STRINGS ${WORK}/of-${start}/metrics.jsonl steps)
  set(of_start "")
  foreach(step IN LISTS steps)
    string(JSON loss GET "${step}" lm_loss)
    list(APPEND of_start ${loss})
  endforeach()
  list(LENGTH of_start count)
  if(NOT count EQUAL 3)
    message(FATAL_ERROR "${count} steps from ${start}")
  endif()
  list(JOIN of_start " " of_start)
  list(APPEND runs "${of_start}")
endforeach()
list(REMOVE_DUPLICATES runs)
list(LENGTH runs different)
if(NOT different EQUAL 1)
  message(FATAL_ERROR "other losses from the GGUF file: ${runs}")
endif()
expect(RUN pretrain --load ${WORK}/start.gguf ${trains} --train-iters 4 --save ${WORK}/of-start.gguf CODE 0
  OUT "holds iteration 3 of the run that started from" "iteration +4/ +4 ")
file(RENAME ${WORK}/start.gguf ${WORK}/moved.gguf)
expect(RUN resume ${WORK}/of-start.gguf --train-iters 5 CODE 0 OUT "iteration +5/ +5 ")
expect(RUN generate --load ${WORK}/of-start.gguf --prompt "To be" --greedy --max-new-tokens 4 CODE 0)
expect(RUN pretrain --load ${WORK}/moved.gguf ${trains} --train-iters 3 --dry-run CODE 0 OUT "it would start from the weights of [^ ]*/moved.gguf")
expect(RUN pretrain --load ${WORK}/q8.gguf --mock-data --seq-length 16 --train-iters 1 --lr 1e-3 CODE 0
  OUT "warning: [^ ]*/q8.gguf: some of its weights are quantized; the run trains and saves their values")
expect(RUN pretrain --load ${WORK}/q8.gguf --mock-data --num-layers 3 --train-iters 1 --lr 1e-3 CODE 2
  ERR "--num-layers: got 3, but the model of [^ ]*/q8.gguf has 2; leave the flag out")

# Refused, and nothing is left.
expect(RUN convert --load ${golden}/llama --save ${WORK}/llama.gguf CODE 2 ERR "llama.gguf: is there already; wanted a file that is not there yet")
expect(RUN convert --load ${golden}/llama --save ${WORK}/x.gguf --params-dtype bf16 CODE 2 ERR "--params-dtype: is for hf, mg and piton; name the type of a GGUF file by --outtype")
expect(RUN convert --load ${golden}/llama --save ${WORK}/x --outtype f16 --to hf CODE 2 ERR "--outtype: is for gguf; name the type of hf by --params-dtype")
expect(RUN convert --load ${golden}/gemma2 --save ${WORK}/x.gguf CODE 3 ERR "as \"gemma2\": there is no word for the scale of its scores")
expect(RUN convert --load ${golden}/llama --save ${WORK}/x.gguf --target-tensor-parallel-size 2 CODE 2 ERR "--target-tensor-parallel-size: is for --to mg, and this writes gguf")
file(WRITE ${WORK}/broken.gguf "GGUF and nothing else")
expect(RUN inspect ${WORK}/broken.gguf CODE 3 ERR "broken.gguf: version [0-9]+, wanted 2 or 3; is the copy complete, and a GGUF file.\n$")
file(GLOB left ${WORK}/x* ${WORK}/*.unfinished ${WORK}/*.lock)
if(left)
  message(FATAL_ERROR "left behind: ${left}")
endif()
