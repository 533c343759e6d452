# Models whose matrices are held as small integers: quantized while they are read, or stored so in a GGUF file or in a
# folder of whole numbers, and the base of adapters.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be: that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
set(data --data-path ${WORK}/corpus_text_document --split 100,0,0 --seq-length 64)
expect(RUN pretrain --model llama-tiny --hidden-size 256 --ffn-hidden-size 256 ${data} --tokenizer-type ByteTokenizer
  --train-iters 60 --lr 3e-3 --save ${WORK}/run CODE 0)
file(WRITE ${WORK}/part.txt "To be, or not to be: that is the question.\nTo be, or not")

# The mean loss of a text.
function(loss_of variable)
  execute_process(COMMAND ${PITON} score ${ARGN} ${WORK}/part.txt --json OUTPUT_VARIABLE out RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "piton score ${ARGN}: exit ${code}")
  endif()
  string(JSON loss GET "${out}" loss)
  set(${variable} ${loss} PARENT_SCOPE)
endfunction()
# Fails unless |a - b| < tolerance, all of them decimal numbers.
function(near a b tolerance what)
  execute_process(COMMAND awk "BEGIN { d = ${a} - ${b}; if (d < 0) d = -d; exit d < ${tolerance} ? 0 : 1 }"
    RESULT_VARIABLE far)
  if(far)
    message(FATAL_ERROR "${what}: ${a} instead of ${b}, wanted them within ${tolerance}")
  endif()
endfunction()

loss_of(plain --load ${WORK}/run)
foreach(format int8 int4 q8_0 q4_0 nf4 q4_k q5_k q6_k)
  loss_of(loss --load ${WORK}/run --quantize ${format})
  if(format MATCHES 8)
    near(${loss} ${plain} 0.01 ${format})
  else()
    near(${loss} ${plain} 0.3 ${format})
  endif()
  if(loss STREQUAL plain)
    message(FATAL_ERROR "--quantize ${format} changes nothing")
  endif()
endforeach()
expect(RUN generate --load ${WORK}/run --quantize int8 --prompt "To be, or" --greedy --max-new-tokens 12 CODE 0 OUT "[a-z]")
expect(RUN generate --load ${WORK}/run --quantize q4_0 --prompt "To be, or" --greedy --max-new-tokens 12 CODE 0 OUT "[a-z]")

# Keys and values in 8 bits.
loss_of(cached --load ${WORK}/run --kv-cache-dtype int8)
near(${cached} ${plain} 0.01 "--kv-cache-dtype int8")
if(cached STREQUAL plain)
  message(FATAL_ERROR "--kv-cache-dtype int8 changes nothing")
endif()
expect(RUN score --load ${WORK}/run ${WORK}/part.txt --kv-cache-dtype int4 CODE 2 ERR "--kv-cache-dtype: got .int4., wanted one of auto, int8")
expect(RUN generate --load ${WORK}/run --kv-cache-dtype int8 --prompt "To be, or" --greedy --max-new-tokens 12 CODE 0 OUT "[a-z]")
expect(RUN generate --load ${WORK}/run --kv-cache-dtype int8 --prompt "To be, or" --num-beams 2 --max-new-tokens 12 CODE 0 OUT "[a-z]")

# A GGUF file is used as it is stored: the loss is that of its values.
foreach(type q8_0 q4_0 q4_k q5_k q6_k)
  expect(RUN convert --load ${WORK}/run --save ${WORK}/${type}.gguf --outtype ${type} CODE 0)
  expect(RUN convert --load ${WORK}/${type}.gguf --save ${WORK}/${type}-values --to piton CODE 0)
  loss_of(stored --load ${WORK}/${type}.gguf)
  loss_of(values --load ${WORK}/${type}-values)
  near(${stored} ${values} 0.0001 "a file in ${type}")
endforeach()

# quantize makes the file of convert, and prints what it costs.
expect(RUN quantize ${WORK}/run --to q4_k --save ${WORK}/quantized.gguf --perplexity-text ${WORK}/part.txt CODE 0
  OUT "verified: .*quantization: logits differ by .*perplexity: [0-9.]+ before, [0-9.]+ after \\([+-][0-9.]+ %\\), [0-9]+ tokens")
loss_of(quantized --load ${WORK}/quantized.gguf)
loss_of(converted --load ${WORK}/q4_k.gguf)
near(${quantized} ${converted} 0.0000001 "quantize and convert")
expect(RUN quantize ${WORK}/run --to q6_k --save ${WORK}/q6.gguf --perplexity-text ${WORK}/part.txt --json CODE 0
  OUT "\"perplexity\":{\"before\":[0-9.]+,\"after\":[0-9.]+,\"tokens\":[0-9]+}")

# Folders of whole numbers: used as they are stored, the same ids under every layout, and back to values.
set(bytes --tokenizer-type ByteTokenizer)
set(prompt --prompt "To be, or" --greedy --max-new-tokens 16 --quiet ${bytes})
set(int8-tensor --weights int8 --granularity tensor)
set(int8-channel --weights int8 --zero-points)
set(int8-group --weights int8 --granularity group --group-size 32)
set(int4-group --weights int4)
set(int4-channel --weights int4 --granularity channel --zero-points)
set(int4-gptq --weights int4 --group-size 64 --method gptq --calibration ${WORK}/text.txt --calibration-length 64
  --calibration-samples 8 ${bytes})
foreach(kind int8-tensor int8-channel int8-group int4-group int4-channel int4-gptq)
  expect(RUN quantize --load ${WORK}/run --save ${WORK}/${kind} ${${kind}} CODE 0
    OUT "verified: [0-9]+ tensors equal to the bit to what the source's become in these types.*quantization: logits differ")
  expect(RUN convert --load ${WORK}/${kind} --save ${WORK}/${kind}-values --to hf CODE 0 OUT "verified: [0-9]+ tensors equal")
  loss_of(stored --load ${WORK}/${kind} ${bytes})
  loss_of(values --load ${WORK}/${kind}-values ${bytes})
  near(${stored} ${values} 0.0001 "a folder of ${kind}")
  near(${stored} ${plain} 0.3 "a folder of ${kind} and the run")
  execute_process(COMMAND ${PITON} generate --load ${WORK}/${kind} ${prompt} --json OUTPUT_VARIABLE one)
  string(JSON wanted GET "${one}" ids)
  foreach(layout tensor pipeline)
    execute_process(COMMAND ${LAUNCH} 2 ${PITON} generate --load ${WORK}/${kind} ${prompt} --json
      --${layout}-model-parallel-size 2 OUTPUT_VARIABLE two ERROR_VARIABLE err RESULT_VARIABLE code)
    string(JSON ids GET "${two}" ids)
    if(NOT code EQUAL 0 OR NOT ids STREQUAL wanted)
      message(FATAL_ERROR "${kind}, two ${layout} ranks: exit ${code}: ${two}\n${err}\ninstead of ${one}")
    endif()
  endforeach()
endforeach()
file(SIZE ${WORK}/int8-channel/model.safetensors eight)
file(SIZE ${WORK}/int4-group/model.safetensors four)
file(SIZE ${WORK}/int4-group-values/model.safetensors values)
math(EXPR eight_share "100 * ${eight} / ${values}")
math(EXPR four_share "100 * ${four} / ${values}")
if(eight_share GREATER 40 OR four_share GREATER 30)
  message(FATAL_ERROR "int8 takes ${eight_share} %, int4 ${four_share} % of fp32")
endif()
expect(RUN quantize --load ${WORK}/run --weights int8 --save ${WORK}/evaluated --evaluate ${WORK}/part.txt --json CODE 0
  OUT "\"perplexity\":{\"before\":[0-9.]+,\"after\":[0-9.]+,\"tokens\":[0-9]+}")
expect(RUN generate --load ${WORK}/int8-channel --quantize int8 --prompt a ${bytes} CODE 2
  ERR "--quantize: int8-channel is quantized, and used as it is stored")
expect(RUN score --load ${WORK}/int8-channel ${bytes} --kernels reference ${WORK}/part.txt CODE 0 OUT "perplexity")

expect(RUN quantize --weights q6_k --save ${WORK}/x.gguf CODE 2 ERR "--load: no model is named")
expect(RUN quantize ${WORK}/run --save ${WORK}/x.gguf CODE 2 ERR "--weights: no format is named; wanted int8")
expect(RUN quantize ${WORK}/run --to q6_k --save ${WORK}/x CODE 2 ERR "--save: got .*x, wanted NAME.gguf with --to q6_k")
set(refused quantize --load ${WORK}/run --save ${WORK}/x)
expect(RUN quantize --load ${WORK}/run --weights int8 --save ${WORK}/x.gguf CODE 2 ERR "--save: got .*x.gguf, wanted a folder with --weights int8")
expect(RUN quantize --load ${WORK}/run ${WORK}/run --weights int8 --save ${WORK}/x CODE 2 ERR "run")
expect(RUN ${refused} --weights int3 CODE 2 ERR "--weights: got")
expect(RUN ${refused}.gguf --weights q8_0 --granularity group CODE 2 ERR "--granularity: works only with --weights int8 or int4")
expect(RUN ${refused} --weights int8 --granularity channel --group-size 32 CODE 2 ERR "--group-size: works only with --granularity group")
expect(RUN ${refused} --weights int8 --group-size 48 CODE 2 ERR "--group-size: 48 does not divide the 256 columns of layers.0.")
expect(RUN ${refused} --weights int4 --group-size 7 CODE 2 ERR "--group-size: got 7, wanted an even number with int4")
expect(RUN ${refused} --weights int8 --group-size 0 CODE 2 ERR "--group-size: got 0, wanted 1 to")
# What the model or the target does not allow is refused before --evaluate reads the text.
file(WRITE ${WORK}/short.txt "a")
foreach(option "--weights;int8;--group-size;48" "--weights;int8")
  set(target ${WORK}/x)
  if(option STREQUAL "--weights;int8")
    set(target ${WORK}/run)
  endif()
  execute_process(COMMAND ${PITON} quantize --load ${WORK}/run --save ${target} ${option} --evaluate ${WORK}/short.txt ERROR_VARIABLE err RESULT_VARIABLE code)
  if(code EQUAL 0 OR NOT err MATCHES "--group-size: 48 does not divide|--save: .*/run: is not empty" OR err MATCHES "--evaluate")
    message(FATAL_ERROR "${option}: exit ${code}, wanted a refusal before the evaluation: ${err}")
  endif()
endforeach()
expect(RUN ${refused} --weights int4 --method gptq CODE 2 ERR "--method gptq: no text is named; wanted --calibration FILE")
expect(RUN ${refused} --weights int4 --calibration ${WORK}/text.txt CODE 2 ERR "--calibration: works only with --method gptq")
expect(RUN ${refused} --weights int8 --granularity tensor --method gptq --calibration ${WORK}/text.txt CODE 2
  ERR "--method gptq: has scales of rows or groups; wanted --granularity channel or group")
expect(RUN ${refused} --weights int4 --method gptq --calibration ${WORK}/none.txt CODE 3 ERR "none.txt")
expect(RUN ${refused} --weights int4 --method gptq --calibration ${WORK}/text.txt --damping 0 CODE 2
  ERR "--damping: got 0, wanted a positive number")
if(EXISTS ${WORK}/x OR EXISTS ${WORK}/x.unfinished)
  message(FATAL_ERROR "something is left of what was refused")
endif()

# Adapters over a base of 4 bits.
set(adapters --lora-target-modules all-linear --lora-r 4 --train-iters 4 --lr 1e-3 --no-is-instruction-dataset --no-pack)
expect(RUN finetune --load ${WORK}/run --qlora ${data} ${adapters} --save ${WORK}/adapted CODE 0 OUT "adapters: ")
expect(RUN generate --load ${WORK}/adapted --quantize nf4 --prompt "To be, or" --greedy --max-new-tokens 12 CODE 0 OUT "[a-z]")
expect(RUN finetune --load ${WORK}/run --qlora ${data} --train-iters 1 --no-is-instruction-dataset --no-pack CODE 2
  ERR "--qlora: needs --lora-target-modules")

# What is refused.
expect(RUN generate --load ${WORK}/run --quantize int3 --prompt a CODE 2 ERR "--quantize: got \"?int3\"?, wanted .*nf4")
expect(RUN generate --load ${WORK}/q8_0.gguf --quantize int8 --prompt a CODE 2 ERR "--quantize: q8_0 is quantized, and used as it is stored")
expect(RUN score --load ${WORK}/run --quantize int8 --gradients ${WORK}/g.safetensors ${WORK}/part.txt CODE 2
  ERR "--gradients: are those of the weights as they are stored; leave --quantize out")
