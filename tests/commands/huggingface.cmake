# Hugging Face folders on the command line: inspect, score, generate, train, and refused folders.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/huggingface)

expect(RUN inspect ${golden}/llama CODE 0 OUT "Hugging Face, llama, F32 in 1 file"
  "\n24864 parameters, 2 layers of width 32, 4 heads .2 groups. of 8, vocabulary 131, 128 positions, separate head"
  "\n  model.layers.1.mlp.up_proj.weight +F32 +.53, 32.\n")
expect(RUN inspect ${golden}/gpt2 --json CODE 0 OUT "^{\"format\":\"huggingface\",\"model_type\":\"gpt2\"" "\"tied\":true"
  "\"name\":\"transformer.h.0.attn.c_attn.weight\",\"dtype\":\"F32\",\"shape\":.36,108.")
expect(RUN generate --load ${golden}/qwen3 --prompt-ids 5,6,7 --greedy --max-new-tokens 5 --json CODE 0 OUT "\"ids\":")
file(WRITE ${WORK}/ids.json "[[5, 6, 7, 8, 9]]")
expect(RUN score --load ${golden}/mistral --ids-file ${WORK}/ids.json CODE 0 OUT "^loss [0-9.]+ nats a token")
expect(RUN score --load ${golden}/llama3 --ids-file ${WORK}/ids.json --gradients ${WORK}/g.safetensors CODE 0)

# Training from it: the ids of a byte corpus fit below 131 where the text is ASCII, but the tokenizer does not.
string(REPEAT "To be, or not to be, that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
set(run pretrain --data-path ${WORK}/corpus_text_document --split 90,10,0 --seq-length 32 --micro-batch-size 2
        --train-iters 3 --lr 1e-3 --tokenizer-type NullTokenizer --eval-iters 1 --eval-interval 3)
foreach(model gpt2 llama3 qwen2 qwen3 mistral bloom internlm2 baichuan-13b baichuan2 phi3 gemma2 gemma3 stablelm)
  expect(RUN ${run} --load ${golden}/${model} --save ${WORK}/${model} CODE 0
    ERR "a new run from the weights of [^ ]*/${model} " "validation loss at iteration 3" "saved ")
  # What was saved knows its model, and can be used.
  expect(RUN generate --load ${WORK}/${model} --prompt-ids 5,6 --greedy --max-new-tokens 3 --json CODE 0)
endforeach()
expect(RUN ${run} --load ${WORK}/llama3 --save ${WORK}/llama3 --train-iters 4 CODE 2 ERR "--lr-decay-iters")
# The stored recipe counts the ids of the null tokenizer as --vocab-size does.
expect(RUN pretrain ${WORK}/llama3/config.toml --load ${WORK}/llama3 --save ${WORK}/llama3 --train-iters 4
  --override-opt_param-scheduler CODE 0
  ERR "resumed .*iteration 3,")
expect(RUN pretrain ${WORK}/gemma3/config.toml --vocab-size 130 --load ${WORK}/gemma3 --save ${WORK}/gemma3 --train-iters 4
  --override-opt_param-scheduler CODE 0
  ERR "resumed .*iteration 3,")
# No step: what is saved is what was read.
expect(RUN ${run} --load ${golden}/llama3 --save ${WORK}/again CODE 0)
execute_process(COMMAND ${PITON} inspect ${WORK}/again --hash OUTPUT_VARIABLE again)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --load ${golden}/llama3 --save ${WORK}/two
                        --tensor-model-parallel-size 2 RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()

# Every layout saves where the weights come from.
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${run} --load ${golden}/internlm2 --save ${WORK}/divided --tensor-model-parallel-size 2
                RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()
expect(RUN convert --load ${WORK}/divided --save ${WORK}/divided-hf CODE 0)
expect(RUN inspect ${WORK}/divided-hf CODE 0 OUT "Hugging Face, internlm2, F32 in 1 file")

# Flags that contradict the folder, and those that may differ.
expect(RUN ${run} --load ${golden}/llama --num-layers 3 CODE 2 ERR "--num-layers: got 3, but the model of [^ ]*/llama has 2; leave")
expect(RUN ${run} --load ${golden}/llama --normalization LayerNorm CODE 2 ERR "--normalization: contradicts the model of ")
expect(RUN ${run} --load ${golden}/llama --model llama-tiny CODE 2 ERR "--model: got llama-tiny, but [^ ]*/llama says what the model is")
expect(RUN ${run} --load ${golden}/llama --num-layers 2 --bf16 --rotary-base 20000 --pre-tockens 7 --hidden-dropout 0.1 CODE 0)

# What no flag says is named: such a model is no run, and no checkpoint of Piton.
file(COPY ${golden}/llama DESTINATION ${WORK}/relu)
file(READ ${golden}/llama/config.json config)
string(REPLACE "\"silu\"" "\"relu\"" config "${config}")
file(WRITE ${WORK}/relu/llama/config.json "${config}")
expect(RUN generate --load ${WORK}/relu/llama --prompt-ids 5,6 --greedy --max-new-tokens 3 --json CODE 0)
expect(RUN ${run} --load ${WORK}/relu/llama CODE 3 ERR "relu/llama: no flag of pretrain expresses its activation; use the model with piton score")
expect(RUN convert --load ${WORK}/relu/llama --save ${WORK}/relu-piton CODE 3
  ERR "relu/llama: no flag of pretrain expresses its activation, so it cannot be a checkpoint of Piton")

# A tokenizer of more ids than the model has rows, where nobody named a size.
expect(RUN ${run} --load ${golden}/llama --tokenizer-type ByteTokenizer CODE 3
  ERR "[^ ]*/llama: the tokenizer has 257 ids, the model's table 131 rows; name the model's own tokenizer\n")

# A download that is not whole, and no model at all.
file(COPY ${golden}/llama DESTINATION ${WORK}/short)
file(REMOVE ${WORK}/short/llama/model.safetensors)
foreach(command generate score)
  expect(RUN ${command} --load ${WORK}/short/llama --ids-file ${WORK}/ids.json --prompt-ids 1 CODE 2)
endforeach()
expect(RUN generate --load ${WORK}/short/llama --prompt-ids 1 CODE 3 ERR "no weights: wanted model.safetensors or ")
file(WRITE ${WORK}/short/llama/model.safetensors "short")
expect(RUN score --load ${WORK}/short/llama --ids-file ${WORK}/ids.json CODE 3 ERR "model.safetensors: not a valid safetensors file")
expect(RUN inspect ${WORK}/short/llama CODE 3 ERR "is the copy complete")
file(WRITE ${WORK}/short/llama/config.json "{\"model_type\": \"mamba\"}")
expect(RUN ${run} --load ${WORK}/short/llama CODE 3 ERR "model_type: got \"mamba\", wanted ")
