# piton convert on the command line: other commands use its output, and a refused conversion leaves no files.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/huggingface)

expect(RUN convert --load ${golden}/qwen2 --save ${WORK}/run CODE 0
  OUT "run: piton from hf: 20800 parameters, " "\nverified: 26 tensors equal to the bit; 16 tokens through both: logits differ by 0 at most, KL 0\n")
expect(RUN generate --load ${WORK}/run --prompt-ids 5,6,7 --greedy --max-new-tokens 5 --json CODE 0 OUT "\"ids\":")
expect(RUN inspect ${WORK}/run CODE 0 OUT "\n20800 parameters\n")
# The names of the flags in MindSpeed's converter.
expect(RUN convert --load-dir ${WORK}/run --load-model-type piton --save-dir ${WORK}/again --save-model-type hf --json CODE 0
  OUT "^{\"from\":\"piton\",\"to\":\"hf\",\"parameters\":20800," "\"verified\":{\"tensors\":26,\"tokens\":16,\"largest_difference\":0.0,\"kl\":0.0}}\n$")
expect(RUN inspect ${WORK}/again CODE 0 OUT "Hugging Face, qwen2, F32 in 1 file" "tied head")
expect(RUN convert --load ${WORK}/again --save ${WORK}/half --to hf --params-dtype bf16 --max-shard-size 20k --no-verify CODE 0
  OUT "\nnot verified\n")
expect(RUN inspect ${WORK}/half CODE 0 OUT "qwen2, BF16 in [2-9] files")

# A run that was trained: its tokenizer goes with it, its optimizer stays behind.
string(REPEAT "To be, or not to be, that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --split 90,10,0 --seq-length 32 --train-iters 2
  --lr 1e-3 --tokenizer-type ByteTokenizer --save ${WORK}/trained CODE 0)
expect(RUN convert --load ${WORK}/trained --save ${WORK}/trained-hf CODE 0 ERR "the optimizer's state stays behind")
expect(RUN score --load ${WORK}/trained-hf ${WORK}/text.txt CODE 0 OUT "^loss ")
file(READ ${WORK}/trained-hf/config.json config)
if(NOT config MATCHES "\"eos_token_id\": 256")
  message(FATAL_ERROR "config.json of a run lacks its tokenizer's ids: ${config}")
endif()

# NullTokenizer has one id more than --vocab-size says.
expect(RUN pretrain --model llama-tiny --mock-data --tokenizer-type NullTokenizer --vocab-size 100 --seq-length 128 --micro-batch-size 1
  --train-iters 1 --lr 1e-3 --save ${WORK}/null CODE 0)
foreach(to hf mg piton)
  expect(RUN convert --load ${WORK}/null --save ${WORK}/null-${to} --to ${to} CODE 0 OUT "verified: ")
  expect(RUN generate --load ${WORK}/null-${to} --prompt-ids 5,100 --greedy --max-new-tokens 2 CODE 0)
endforeach()

# A tokenizer of another model is reported, and is not that of a checkpoint.
file(COPY ${golden}/llama/ DESTINATION ${WORK}/of-another)
file(WRITE ${WORK}/of-another/vocab.json "{\"a\": 0, \"b\": 500}")
file(WRITE ${WORK}/of-another/merges.txt "#version: 0.2\n")
foreach(to hf mg piton)
  expect(RUN convert --load ${WORK}/of-another --save ${WORK}/another-${to} --to ${to} CODE 0
    ERR "its tokenizer cannot be used here: [^ ]*/of-another: the tokenizer has [0-9]+ ids, the model's table 131 rows")
endforeach()
expect(RUN generate --load ${WORK}/another-piton --prompt-ids 5 --greedy --max-new-tokens 2 CODE 0)

# A model's folder is not one for a run: neither to resume from, nor to begin in.
file(COPY ${golden}/qwen2/ DESTINATION ${WORK}/qwen2)
set(mock pretrain --mock-data --tokenizer-type NullTokenizer --seq-length 16 --micro-batch-size 1 --train-iters 1 --lr 1e-3)
expect(RUN ${mock} --load ${WORK}/qwen2 --save ${WORK}/qwen2 CODE 2 ERR "--save: [^ ]*/qwen2 holds a Hugging Face model; give another folder")
expect(RUN ${mock} --model llama-tiny --vocab-size 100 --save ${WORK}/qwen2 CODE 2 ERR "--save: [^ ]*/qwen2 holds a Hugging Face model")

# What --load names, if no model can be there.
expect(RUN ${mock} --load ${WORK}/text.txt CODE 3 ERR "text.txt: is a file, wanted the folder of a run or of a model")
expect(RUN generate --load ${WORK}/absent --prompt-ids 1 CODE 3 ERR "absent: there is no such folder, wanted the folder of a run")

# Refused, and nothing is left.
expect(RUN convert --load ${golden}/qwen2 --save ${WORK}/run CODE 2 ERR "piton convert: --save: [^ ]*/run: is not empty" "or empty\n$")
foreach(name x.ggufx x.safetensors)
  expect(RUN convert --load ${golden}/qwen2 --save ${WORK}/${name} CODE 2
         ERR "--save: got [^ ]*/${name}, which looks like the name of a file [^\n]* or --to hf, mg, piton or gguf\n$")
endforeach()
expect(RUN convert --save ${WORK}/x CODE 2 ERR "--load: no model is named")
expect(RUN convert --load ${golden}/qwen2 CODE 2 ERR "--save: no folder is named")
expect(RUN convert --load ${WORK}/text.txt --save ${WORK}/x CODE 3 ERR "text.txt: wanted the folder of a model, or a GGUF file")
expect(RUN convert --load ${WORK} --save ${WORK}/x CODE 3 ERR "no checkpoint")
expect(RUN convert --load ${golden}/qwen2 --save ${WORK}/x --max-shard-size 0 CODE 2 ERR "--max-shard-size: got 0")
expect(RUN convert --load ${golden}/qwen2 --load-model-type piton --save ${WORK}/x CODE 2 ERR "--load-model-type: got piton, but [^ ]*/qwen2 is hf")
file(GLOB left ${WORK}/x*)
if(left)
  message(FATAL_ERROR "left behind: ${left}")
endif()

# Experts in folders of Hugging Face, checkpoints of Piton, GGUF files and modules of Megatron-core.
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts CODE 0 OUT "experts: piton from hf" "\nverified: 47 tensors equal to the bit")
expect(RUN convert --load ${WORK}/experts --save ${WORK}/experts-hf --to hf CODE 0 OUT "\nverified: 47 tensors equal to the bit")
expect(RUN inspect ${WORK}/experts-hf CODE 0 OUT "Hugging Face, mixtral, F32 in 1 file")
expect(RUN convert --load ${golden}/qwen2-moe --save ${WORK}/shared CODE 0 OUT "\nverified: [0-9]+ tensors equal to the bit")
expect(RUN convert --load ${WORK}/shared --save ${WORK}/shared-hf --to hf CODE 0 OUT "\nverified: [0-9]+ tensors equal to the bit")
expect(RUN inspect ${WORK}/shared-hf CODE 0 OUT "Hugging Face, qwen2_moe, F32 in 1 file")
expect(RUN quantize --load ${golden}/qwen2-moe --save ${WORK}/shared-int8 --weights int8 CODE 0 OUT "verified")
expect(RUN generate --load ${WORK}/shared-int8 --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
expect(RUN convert --load ${golden}/glm4-moe --save ${WORK}/biased CODE 0 OUT "\nverified: [0-9]+ tensors equal to the bit")
expect(RUN convert --load ${WORK}/biased --save ${WORK}/biased-hf --to hf --params-dtype bf16 CODE 0 OUT "\nverified: ")
expect(RUN inspect ${WORK}/biased-hf CODE 0 OUT "Hugging Face, glm4_moe, BF16" "mlp.gate.e_score_correction_bias +F32 ")
expect(RUN quantize --load ${golden}/glm4-moe --save ${WORK}/biased-int8 --weights int8 CODE 0 OUT "verified")
expect(RUN generate --load ${WORK}/biased-int8 --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
foreach(family glm4-moe ernie4.5-moe deepseek-v2-ranks falcon olmo3)
  expect(RUN convert --load ${golden}/${family} --save ${WORK}/${family}.gguf CODE 0 OUT "\nverified: [0-9]+ tensors equal to the bit")
  expect(RUN convert --load ${WORK}/${family}.gguf --save ${WORK}/${family}-back --to hf CODE 0 OUT "\nverified: [0-9]+ tensors equal to the bit")
  expect(RUN generate --load ${WORK}/${family}.gguf --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
endforeach()
expect(RUN convert --load ${golden}/deepseek-v3 --save ${WORK}/x.gguf CODE 3
  ERR "deepseek-v3: no architecture of llama.cpp holds this model .deepseek_v3.: as \"deepseek2\": there is no word for its rotary positions")
# A line tells what llama.cpp computes differently.
function(changed_config family out)
  file(COPY ${golden}/${family}/ DESTINATION ${WORK}/${out})
  file(READ ${WORK}/${out}/config.json config)
  while(ARGN)
    list(POP_FRONT ARGN from to)
    string(REPLACE "${from}" "${to}" config "${config}")
  endwhile()
  file(WRITE ${WORK}/${out}/config.json "${config}")
endfunction()
changed_config(gpt-oss bound-7 "\"swiglu_limit\": 0.4" "\"swiglu_limit\": 7.0")
expect(RUN convert --load ${WORK}/bound-7 --save ${WORK}/bound-7.gguf CODE 0
  ERR "warning: llama.cpp rounds the ends of the blend of yarn to whole pairs of channels")
changed_config(deepseek-v2 grouped "\"mscale\": 0.8" "\"mscale\": 1.1"
  "\"n_group\": null" "\"n_group\": 2" "\"topk_group\": null" "\"topk_group\": 1"
  "\"greedy\"" "\"group_limited_greedy\"")
expect(RUN convert --load ${WORK}/grouped --save ${WORK}/grouped.gguf CODE 0
  ERR "warning: llama.cpp scores a group of experts by its two best ones, this model by the best one")
expect(RUN convert --load ${golden}/mistral --save ${WORK}/window.gguf CODE 0
  ERR "warning: llama.cpp has no attention window in models of architecture llama: after 9 tokens")
expect(RUN convert --load ${golden}/glm4-moe --save ${WORK}/x --to mg --use-mcore-models CODE 3 ERR "glm4-moe: [^\n]*\n$")
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts.gguf CODE 0 OUT "\nverified: 47 tensors equal to the bit")
expect(RUN inspect ${WORK}/experts.gguf CODE 0 OUT "GGUF, llama, F32 in one file" "blk.1.ffn_gate_exps.weight +F32   .5, 22, 32")
expect(RUN convert --load ${WORK}/experts.gguf --save ${WORK}/experts-back --to hf CODE 0 OUT "\nverified: 47 tensors equal to the bit")
expect(RUN inspect ${WORK}/experts-back CODE 0 OUT "Hugging Face, mixtral, F32 in 1 file")
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts-q8.gguf --outtype q8_0 CODE 0 OUT "verified")
foreach(file experts.gguf experts-q8.gguf)
  expect(RUN generate --load ${WORK}/${file} --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
endforeach()
expect(RUN convert --load ${golden}/qwen3-moe --save ${WORK}/x.gguf CODE 3
  ERR "golden/huggingface/qwen3-moe: no architecture of llama.cpp holds this model .qwen3_moe.: as \"qwen3moe\": there is no word for weights of experts that do not add up to 1")
expect(RUN convert --load ${golden}/qwen2-moe --save ${WORK}/x.gguf CODE 3
  ERR "golden/huggingface/qwen2-moe: no architecture of llama.cpp holds this model [^\n]*: as \"qwen2moe\": llama.cpp has experts in all layers there")
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/x --to mg --deepspeed CODE 3
  ERR "mixtral: is a mixture of experts, which Piton writes in the format mg with --use-mcore-models or --ckpt-format torch_dist alone, not [^\n]*\n$")
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts-dist --ckpt-format torch_dist --target-expert-parallel-size 5
  CODE 0 OUT "\nverified: 47 tensors equal to the bit")
expect(RUN inspect ${WORK}/experts-dist CODE 0 OUT "F32 in torch_dist, 1 x 1 x 5 ranks .tensor x pipeline x expert., version 3")
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts-mg --to mg --use-mcore-models --target-tensor-parallel-size 2
  CODE 0 OUT "\nverified: 47 tensors equal to the bit")
expect(RUN inspect ${WORK}/experts-mg CODE 0)
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/experts-mg5 --to mg --use-mcore-models --target-tensor-parallel-size 2
  --target-pipeline-parallel-size 2 --target-expert-parallel-size 5 CODE 0 OUT "\nverified: 47 tensors equal to the bit")
if(NOT EXISTS ${WORK}/experts-mg5/release/mp_rank_01_001_004/model_optim_rng.pt)
  message(FATAL_ERROR "no file of the last expert rank")
endif()
expect(RUN inspect ${WORK}/experts-mg5 CODE 0 OUT "F32 in mp_rank, 2 x 2 x 5 ranks .tensor x pipeline x expert., version 3")
expect(RUN convert --load ${WORK}/experts-mg5 --save ${WORK}/experts-mg5-hf --to hf CODE 0)
file(SHA256 ${WORK}/experts-mg5-hf/model.safetensors got)
file(SHA256 ${WORK}/experts-hf/model.safetensors wanted)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "experts changed on the way through the files of expert ranks")
endif()
expect(RUN convert --load ${golden}/mixtral --save ${WORK}/x --to mg --use-mcore-models --target-expert-parallel-size 2 CODE 2
  ERR "--target-expert-parallel-size: got 2, wanted a divisor of the 5 experts of a layer\n$")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --to mg --use-mcore-models --target-expert-parallel-size 2 CODE 2
  ERR "--target-expert-parallel-size: got 2, wanted 1: the model has no experts\n$")
# A run starts from the files of expert ranks, with the losses of those of one process.
set(from_experts pretrain --finetune --mock-data --tokenizer-type NullTokenizer --seq-length 16 --micro-batch-size 1
  --global-batch-size 2 --train-iters 2 --lr 1e-3)
foreach(files plain divided)
  execute_process(COMMAND ${PITON} ${from_experts} --load ${SOURCE}/tests/golden/megatron/experts/${files} RESULT_VARIABLE code
    OUTPUT_VARIABLE out ERROR_VARIABLE err)
  string(REGEX MATCHALL "lm loss: [0-9.E+-]+" ${files} "${out}${err}")
  if(NOT code EQUAL 0 OR NOT plain MATCHES "lm loss" OR NOT plain STREQUAL "${${files}}")
    message(FATAL_ERROR "${files}: exit ${code}, losses ${${files}}, wanted ${plain}\n${out}${err}")
  endif()
endforeach()
expect(RUN quantize --load ${golden}/mixtral --save ${WORK}/x --weights int4 --method gptq --calibration ${WORK}/text.txt CODE 2
  ERR "--method gptq: [^ ]*/mixtral is a mixture of experts, which only --method rtn quantizes yet\n$")
expect(RUN quantize --load ${golden}/qwen3-moe --save ${WORK}/experts-int8 --weights int8 CODE 0 OUT "verified")
file(READ ${WORK}/experts-int8/config.json config)
if(NOT config MATCHES "model.layers.1.mlp.gate\"")
  message(FATAL_ERROR "the router is not among what is no code: ${config}")
endif()
expect(RUN generate --load ${WORK}/experts-int8 --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
file(GLOB left ${WORK}/x*)
if(left)
  message(FATAL_ERROR "left behind: ${left}")
endif()

# A file that may not become so large is like a full disk.
foreach(target x x.gguf)
  execute_process(COMMAND sh -c "ulimit -f 16; exec \"$0\" \"$@\"" ${PITON} convert --load ${golden}/qwen2 --save ${WORK}/${target}
    RESULT_VARIABLE code ERROR_VARIABLE err OUTPUT_QUIET)
  file(GLOB left ${WORK}/x*)
  if(NOT code EQUAL 3 OR NOT err MATCHES "File too large" OR left)
    message(FATAL_ERROR "ulimit -f: exit ${code}, left ${left}\n${err}")
  endif()
endforeach()

# Names in files are shown, not obeyed.
string(ASCII 27 escape)
execute_process(COMMAND ${PITON} convert --load "${WORK}/a${escape}[31mb" --save ${WORK}/x ERROR_VARIABLE err)
string(FIND "${err}" "${escape}" at)
if(NOT at EQUAL -1 OR NOT err MATCHES "x1b.31mb: there is no such folder, wanted the folder of a run or of a model")
  message(FATAL_ERROR "a code of the terminal in a message: ${err}")
endif()

# Megatron's files: divided, divided again, and back to the same bytes.
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/mg22 --to mg --target-tensor-parallel-size 2 --target-pipeline-parallel-size 2
  --make-vocab-size-divisible-by 16 CODE 0 OUT "mg22: mg from hf: " "\nverified: 25 tensors equal to the bit")
if(NOT EXISTS ${WORK}/mg22/release/mp_rank_01_001/model_optim_rng.pt)
  message(FATAL_ERROR "no file of the last rank")
endif()
expect(RUN convert --load ${WORK}/mg22 --load-model-type mg --save ${WORK}/mg11 --save-model-type mg --use-mcore-models CODE 0 OUT "mg11: mg from mg")
expect(RUN convert --load ${WORK}/mg11 --save ${WORK}/mg-hf --to hf CODE 0 OUT "mg-hf: hf from mg")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/direct --to hf CODE 0)
file(SHA256 ${WORK}/mg-hf/model.safetensors got)
file(SHA256 ${WORK}/direct/model.safetensors wanted)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "weights changed on the way through Megatron's files")
endif()
# The folder that the model came from as the target, as MindSpeed-LLM's converter has it: the result is in mg2hf there.
file(COPY ${golden}/qwen3/ DESTINATION ${WORK}/original)
file(WRITE ${WORK}/original/vocab.json "{\"a\": 0, \"b\": 1}")
file(WRITE ${WORK}/original/merges.txt "#version: 0.2\n")
expect(RUN convert --load-dir ${WORK}/mg11 --load-model-type mg --save-dir ${WORK}/original --save-model-type hf --load-checkpoint-loosely
  --source-tensor-parallel-size 1 --source-pipeline-parallel-size 1 --source-expert-parallel-size 1 CODE 0
  OUT "original/mg2hf: hf from mg" ERR "original is a folder of Hugging Face; the result is in [^ ]*/original/mg2hf, with its tokenizer"
      "--load-checkpoint-loosely: no meaning here: a checkpoint that lacks tensors")
file(SHA256 ${WORK}/original/mg2hf/model.safetensors got)
if(NOT got STREQUAL wanted OR NOT EXISTS ${WORK}/original/mg2hf/vocab.json)
  message(FATAL_ERROR "mg2hf has other weights, or no tokenizer")
endif()
expect(RUN convert --load ${WORK}/mg11 --source-expert-parallel-size 2 --save ${WORK}/x CODE 2 ERR "--source-expert-parallel-size: got 2, but [^ ]*/mg11 is of 1; leave the flag out|--src-expert-model-parallel-size: got 2, but")
expect(RUN convert --load ${WORK}/mg11 --save-dir ${WORK}/original/mg2hf CODE 2 ERR "piton convert: --save-dir: [^ ]*mg2hf: is not empty")
expect(RUN convert --load ${WORK}/mg11 --save ${WORK}/x --lora-r 8 CODE 2 ERR "--lora-r: got 8, but there are no adapters; leave it out")
expect(RUN convert --load ${WORK}/mg11 --save ${WORK}/mg-run CODE 0 OUT "mg-run: piton from mg")
expect(RUN generate --load ${WORK}/mg-run --prompt-ids 5,6 --greedy --max-new-tokens 3 --json CODE 0)
# inspect shows the layout.
expect(RUN inspect ${WORK}/mg22 CODE 0 OUT "mg22: Megatron-LM, qwen3, F32 in mp_rank, 2 x 2 ranks .tensor x pipeline., version 3, 160 rows of the table\n")
expect(RUN inspect ${WORK}/mg22 --json CODE 0 OUT "\"layout\":{\"form\":\"mp_rank\",\"tensor\":2,\"pipeline\":2,\"chunks\":1,")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --to mg --target-tensor-parallel-size 4 CODE 2
  ERR "--target-tensor-parallel-size: got 4, wanted a divisor of the 2 groups of heads")

# Megatron-core's torch_dist and DeepSpeed's files; --load takes what convert does.
set(divided ${SOURCE}/tests/golden/megatron/torch_dist/divided)
expect(RUN inspect ${divided} CODE 0 OUT "llama, F32 in torch_dist, 2 x 2 ranks .tensor x pipeline., version 3, 128 rows of the table\n"
  "the weights are the optimizer's fp32 copies")
expect(RUN convert --load ${divided} --params-dtype bf16 --save ${WORK}/from-dist --to hf CODE 0 OUT "from-dist: hf from mg"
  ERR "the weights are the optimizer's fp32 copies .--params-dtype rounds them to the run's type.; its moments stay behind")
expect(RUN convert --load ${SOURCE}/tests/golden/megatron/torch_dist/plain --save ${WORK}/from-plain --to hf CODE 0)
file(SHA256 ${WORK}/from-dist/model.safetensors got)
file(SHA256 ${WORK}/from-plain/model.safetensors wanted)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "the model of torch_dist is not that of one process")
endif()
expect(RUN convert --load ${divided} --src-tensor-model-parallel-size 4 --save ${WORK}/x CODE 2 ERR "got 4, but [^ ]*/divided is of 2")
expect(RUN generate --load ${divided} --prompt-ids 5,6 --greedy --max-new-tokens 3 CODE 0)
expect(RUN pretrain --load ${divided} --mock-data --tokenizer-type NullTokenizer --seq-length 16 --micro-batch-size 1
  --global-batch-size 2 --train-iters 2 --lr 1e-3 --bf16 --finetune --save ${WORK}/from-core
  CODE 0 OUT "a new run from the weights of [^ ]*/iter_0000005 .checkpoint of Megatron." "iteration +2/ +2 ")
# Any layout starts from the same weights.
set(from_core pretrain --load ${divided} --finetune --mock-data --tokenizer-type NullTokenizer --seq-length 16 --micro-batch-size 1
  --global-batch-size 2 --train-iters 2 --lr 1e-3)
execute_process(COMMAND ${PITON} ${from_core} OUTPUT_VARIABLE out ERROR_VARIABLE err)
string(REGEX MATCHALL "lm loss: [0-9.E+-]+" wanted "${out}${err}")
foreach(layout tensor pipeline)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${from_core} --${layout}-model-parallel-size 2 RESULT_VARIABLE code
    OUTPUT_VARIABLE out ERROR_VARIABLE err)
  string(REGEX MATCHALL "lm loss: [0-9.E+-]+" got "${out}${err}")
  if(NOT code EQUAL 0 OR NOT wanted MATCHES "lm loss" OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "${layout}: exit ${code}, losses ${got}, wanted ${wanted}\n${out}${err}")
  endif()
endforeach()
# Without --finetune the run of Megatron continues; what lacks an optimizer says how it can be used.
set(continues pretrain --mock-data --tokenizer-type NullTokenizer --seq-length 16 --global-batch-size 2 --train-iters 7 --lr 1e-3 --bf16 --no-load-rng)
expect(RUN ${continues} --load ${divided} CODE 0 OUT "resumed [^ ]*/iter_0000005 .checkpoint of Megatron.: iteration 5, 0 samples, 5 updates\n"
  "its random states stay behind" "keeps no opt_param_scheduler" "iteration +7/ +7 ")
expect(RUN ${continues} --load ${SOURCE}/tests/golden/megatron/torch_dist/plain CODE 3
  ERR "torch_dist/plain: keeps no optimizer; --no-load-optim continues at iteration 5 with a new optimizer, --finetune starts a new run from the weights")
expect(RUN ${continues} --load ${SOURCE}/tests/golden/megatron/torch_dist/plain --no-load-optim CODE 0 OUT "iteration 5, 0 samples, 0 updates; the optimizer and its schedule start again")
expect(RUN pretrain --load ${divided} --num-layers 3 --mock-data --tokenizer-type NullTokenizer --train-iters 2 CODE 2
  ERR "--num-layers: got 3, but the model of [^ ]*/divided has 2; leave the flag out")
expect(RUN pretrain --load ${divided} --save ${WORK}/mg22 --mock-data --tokenizer-type NullTokenizer --train-iters 2 CODE 2
  ERR "--save: [^ ]*/mg22 holds a checkpoint of Megatron; give another folder")
# Written too: one folder for every layout, back to the same bytes, and into a run.
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/dist --ckpt-format torch_dist --target-tensor-parallel-size 2
  --make-vocab-size-divisible-by 16 CODE 0 OUT "dist: mg from hf: " "\nverified: 25 tensors equal to the bit; 16 tokens through both: logits differ by 0 at most")
foreach(file latest_checkpointed_iteration.txt release/common.pt release/metadata.json release/.metadata release/__0_0.distcp)
  if(NOT EXISTS ${WORK}/dist/${file})
    message(FATAL_ERROR "torch_dist without ${file}")
  endif()
endforeach()
expect(RUN inspect ${WORK}/dist CODE 0 OUT "qwen3, F32 in torch_dist, 2 x 1 ranks .tensor x pipeline., version 3, 160 rows of the table\n")
expect(RUN convert --load ${WORK}/dist --save ${WORK}/dist-run CODE 0 OUT "dist-run: piton from mg")
expect(RUN convert --load ${WORK}/dist-run --save ${WORK}/dist-again --ckpt-format torch_dist --max-shard-size 20k CODE 0 OUT "mg from piton")
expect(RUN convert --load ${WORK}/dist-again --save ${WORK}/dist-hf --to hf CODE 0)
file(SHA256 ${WORK}/dist-hf/model.safetensors got)
file(SHA256 ${WORK}/direct/model.safetensors wanted)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "weights changed on the way through torch_dist")
endif()
expect(RUN convert --load ${golden}/bloom --save ${WORK}/x --ckpt-format torch_dist CODE 3
  ERR "has a norm after the embedding, which Megatron-core's models do not store in torch_dist; wanted --ckpt-format torch\n")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --ckpt-format zarr CODE 2 ERR "--ckpt-format: got \"zarr\", wanted one of torch, torch_dist")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --ckpt-format torch_dist --deepspeed CODE 2
  ERR "--deepspeed: has no meaning with --ckpt-format torch_dist, whose tensors are whole")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --to hf --ckpt-format torch CODE 2 ERR "--ckpt-format: is for --to mg")
if(EXISTS ${WORK}/x OR EXISTS ${WORK}/x.unfinished)
  message(FATAL_ERROR "left behind: ${WORK}/x")
endif()
expect(RUN convert --load ${golden}/bloom --save ${WORK}/ds --deepspeed --target-pipeline-parallel-size 2 CODE 0 OUT "ds: mg from hf")
expect(RUN inspect ${WORK}/ds CODE 0 OUT "bloom, F32 in deepspeed, 1 x 2 ranks")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --deepspeed --target-pipeline-parallel-size 2 CODE 2
  ERR "--deepspeed: got 2 pipeline ranks, but only Bloom is divided into stages there")
expect(RUN convert --load ${golden}/qwen3 --save ${WORK}/x --deepspeed --use-mcore-models CODE 2 ERR "leave out --use-mcore-models")

expect(RUN convert --load ${golden}/gemma2 --save ${WORK}/x --to mg CODE 3 ERR "its activation cannot be expressed in the format mg, as Megatron's arguments have no words for it; use --to piton\n")
expect(RUN convert --load ${golden}/mistral --save ${WORK}/x --to mg CODE 3 ERR "has an attention window, which Piton writes in the format mg with --use-mcore-models or --ckpt-format torch_dist alone, not with older modules; or use --to piton or --to gguf\n")
expect(RUN convert --load ${WORK}/mg11 --num-layers 3 --save ${WORK}/x CODE 2 ERR "--num-layers: got 3, but the model of [^ ]*/mg11 has 2; leave the flag out")
file(GLOB left ${WORK}/x*)
if(left)
  message(FATAL_ERROR "left behind: ${left}")
endif()

# A family goes back into its own names; what only Piton reads of the arguments is reported.
expect(RUN convert --load ${golden}/baichuan2 --save ${WORK}/baichuan-mg --target-tensor-parallel-size 2 CODE 0
  ERR "has a normalized head, which Megatron-LM does not know: its arguments say it to Piton alone, and other programs compute without it\n")
expect(RUN convert --load ${WORK}/baichuan-mg --save ${WORK}/baichuan-hf --to hf CODE 0)
expect(RUN convert --load ${golden}/baichuan2 --save ${WORK}/baichuan-direct --to hf CODE 0)
file(SHA256 ${WORK}/baichuan-direct/model.safetensors wanted)
expect(RUN convert --load ${golden}/baichuan2 --save ${WORK}/baichuan-run CODE 0)
expect(RUN convert --load ${WORK}/baichuan-run --save ${WORK}/baichuan-again CODE 0)
foreach(way hf again)
  file(SHA256 ${WORK}/baichuan-${way}/model.safetensors got)
  if(NOT got STREQUAL wanted)
    message(FATAL_ERROR "Baichuan's weights changed on the way to baichuan-${way}")
  endif()
endforeach()
file(READ ${WORK}/baichuan-direct/config.json wanted)
file(READ ${WORK}/baichuan-again/config.json got)
if(NOT got STREQUAL wanted OR NOT got MATCHES "\"model_type\": \"baichuan\"")
  message(FATAL_ERROR "config.json of Baichuan changed on the way through a checkpoint: ${got}")
endif()
# Ten steps of training later it still has them.
expect(RUN pretrain --load ${golden}/internlm2 --mock-data --tokenizer-type NullTokenizer --seq-length 16 --micro-batch-size 2
  --train-iters 10 --lr 1e-3 --save ${WORK}/internlm-run CODE 0)
expect(RUN convert --load ${WORK}/internlm-run --save ${WORK}/internlm-hf CODE 0)
expect(RUN inspect ${WORK}/internlm-hf CODE 0 OUT "Hugging Face, internlm2, F32 in 1 file" "model.layers.1.attention.wqkv.weight +F32 +.64, 32.")

# The examples of docs/convert.md, each as it is printed there.
set(examples ${WORK}/examples)
file(MAKE_DIRECTORY ${examples})
file(COPY ${golden}/qwen3/ DESTINATION ${examples}/qwen3-hf)
file(STRINGS ${SOURCE}/docs/convert.md lines REGEX "^piton [a-z]+ (--load )?qwen3")
list(LENGTH lines count)
if(count LESS 12)
  message(FATAL_ERROR "${count} examples in docs/convert.md")
endif()
foreach(line IN LISTS lines)
  string(REGEX REPLACE " *#.*" "" line "${line}")
  separate_arguments(words UNIX_COMMAND "${line}")
  list(REMOVE_AT words 0)
  execute_process(COMMAND ${PITON} ${words} WORKING_DIRECTORY ${examples} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${line}: exit ${code}\n${out}${err}")
  endif()
endforeach()

# Vocabulary files of any name, as flags give them, get the names that Transformers looks for.
file(WRITE ${WORK}/gpt2-vocab.json "{\"a\": 0, \"b\": 1, \"ab\": 2, \"Ġ\": 3, \"c\": 4, \"<|endoftext|>\": 5}")
file(WRITE ${WORK}/gpt2-merges.txt "#version: 0.2\na b\n")
file(WRITE ${WORK}/letters.txt "ab c ab c abc cab ab c ab c abc cab")
set(letters --tokenizer-type GPT2BPETokenizer --vocab-file ${WORK}/gpt2-vocab.json --merge-file ${WORK}/gpt2-merges.txt)
expect(RUN preprocess --input ${WORK}/letters.txt ${letters} --output-prefix ${WORK}/letters CODE 0)
expect(RUN pretrain --model gpt2-tiny ${letters} --data-path ${WORK}/letters_text_document --split 100,0,0 --seq-length 8
  --micro-batch-size 1 --train-iters 1 --lr 1e-3 --save ${WORK}/letters-run CODE 0)
expect(RUN convert --load ${WORK}/letters-run --save ${WORK}/letters-hf --to hf CODE 0 OUT "the tokenizers give the same ids")
foreach(name vocab.json merges.txt)
  if(NOT EXISTS ${WORK}/letters-hf/${name})
    message(FATAL_ERROR "the folder of a run with gpt2-vocab.json and gpt2-merges.txt has no ${name}")
  endif()
endforeach()
