# piton finetune: whole models and adapters, from a Hugging Face folder to text, PEFT and back.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(base ${WORK}/base)
set(data ${WORK}/chats)

# A model of bytes in the form of Hugging Face, and conversations about it.
write_base_model()
set(rows "")
foreach(i RANGE 1 24)
  string(APPEND rows "{\"instruction\": \"What is ${i} and 1?\", \"input\": \"\", \"output\": \"It is ${i}1.\"}\n")
endforeach()
file(WRITE ${WORK}/chats.jsonl "${rows}")
expect(RUN preprocess --input ${WORK}/chats.jsonl --handler-name AlpacaStyleInstructionHandler --prompt-type default
  --tokenizer-type ByteTokenizer --output-prefix ${data} CODE 0)

set(tune finetune --load ${base} --data-path ${data} --split 100,0,0 --seq-length 64 --micro-batch-size 1
         --global-batch-size 2 --lr 1e-2 --tokenizer-type ByteTokenizer --train-iters 4)
set(lora --lora-target-modules all-linear --lora-r 4 --lora-alpha 8)

# Whole, packed by default.
expect(RUN ${tune} --save ${WORK}/whole CODE 0 ERR "a new run from the weights of [^ ]*/base " "saved ")

# A run as the model: a new run from its weights, which the same command continues.
set(onward finetune --load ${WORK}/start --data-path ${data} --split 100,0,0 --seq-length 64 --micro-batch-size 1
           --global-batch-size 2 --lr 1e-2 --tokenizer-type ByteTokenizer --train-iters 4)
set(from_start "a new run from the weights of [^ ]*/start/iter_0000002, iteration 2\n")
expect(RUN ${onward} CODE 0 ERR "${from_start}" "iteration +4/ +4 ")
expect(RUN ${onward} --dry-run --save ${WORK}/onward CODE 0 ERR "it would start from the weights of [^ ]*/start/iter_0000002\n")
expect(RUN ${onward} --save ${WORK}/onward CODE 0 ERR "${from_start}" "saved ")
expect(RUN ${onward} --save ${WORK}/onward-parts --exit-interval 2 CODE 0 ERR "${from_start}")
expect(RUN ${onward} --save ${WORK}/onward-parts CODE 0
  ERR "onward-parts holds iteration 2 of the run that started from [^ ]*/start: continuing from that\n" "resumed [^\n]*iteration 2,")
expect_same_state(onward onward-parts)
# Its own folder as --load resumes, if the experiment is the same.
expect(RUN ${onward} --finetune --save ${WORK}/onward CODE 0 ERR "onward holds iteration 4 of the run that started from [^ ]*/start: ")
expect(RUN ${tune} --load ${WORK}/onward --save ${WORK}/whole CODE 2 ERR "whole already holds a run; give --load [^ ]*/whole to continue it, or another folder\n")
expect(RUN ${onward} --load ${WORK}/onward --save ${WORK}/onward CODE 0 ERR "resumed [^\n]*iteration 4,")
expect(RUN ${onward} --save ${WORK}/start CODE 2
  ERR "start/iter_0000002 is another experiment: [^;]+; [^;]+; [^;]+; and [0-9]+ more; use its values, or start again with another --save")
expect(RUN resume ${WORK}/onward-parts CODE 0 ERR "resumed [^\n]*iteration 4,")

# The recipes of known models, on a small one: all that they set is taken, and what is given wins.
file(GLOB recipes ${SOURCE}/recipes/tune-*.toml)
list(LENGTH recipes count)
if(count LESS 3)
  message(FATAL_ERROR "recipes of fine-tuning: ${recipes}")
endif()
foreach(recipe IN LISTS recipes)
  get_filename_component(name ${recipe} NAME_WLE)
  string(REPLACE "." "-" name ${name})
  expect(RUN finetune ${recipe} --load ${base} --data-path ${data} --split 100,0,0 --seq-length 64 --global-batch-size 4
    --tokenizer-type ByteTokenizer --train-iters 2 --save ${WORK}/${name} CODE 0 ERR "iteration +2/ +2 ")
endforeach()

# --num-train-epochs counts records or packed rows, also of several files; --padded-samples makes each epoch whole batches, as
# Hugging Face counts steps.
set(epochs finetune --load ${base} --train-data-path ${data} --seq-length 64 --micro-batch-size 1 --lr 1e-2
           --tokenizer-type ByteTokenizer --num-train-epochs 3 --dry-run)
expect(RUN ${epochs} --no-pack --global-batch-size 7 CODE 0 ERR ": 72 samples, 11 updates of 7; 5 of the next epoch complete the last batch\n")
expect(RUN ${epochs} --no-pack --global-batch-size 7 --padded-samples CODE 0 ERR ": 84 samples, 12 updates of 7\n")
expect(RUN ${epochs} --global-batch-size 4 CODE 0 ERR "packed into 24 rows of 64 tokens an epoch" ": 72 samples, 18 updates of 4\n")
expect(RUN ${epochs} --no-pack --global-batch-size 7 --full-shuffle-instruction-dataset CODE 0
  ERR ": 72 samples, 10 updates of 7; 2 do not fill a batch and are left out\n")
set(two --train-data-path ${data} ${data} --valid-data-path ${data} --no-pack --global-batch-size 5 --full-validation)
expect(RUN finetune --load ${base} ${two} --seq-length 64 --lr 1e-3 --num-train-epochs 1 --save ${WORK}/epoch CODE 0
  ERR ": 48 samples, 10 updates of 5; 2 of the next" "iteration +10/ +10 " "validation loss at iteration 10 ")

# Adapters: what is saved has them alone, and is used with its base.
expect(RUN ${tune} ${lora} --save ${WORK}/run --save-interval 2 CODE 0
  ERR "adapters: [0-9]+ parameters are trained, [0-9.]+ % of the model's" "new adapters of [^ ]*/base" "saved ")
# LoRA+: B has the same rate, then another.
foreach(ratio 1 16)
  expect(RUN ${tune} ${lora} --lora-plus-lr-ratio ${ratio} --save ${WORK}/plus_${ratio} CODE 0)
endforeach()
# Weights that are not trained, in memory: less of it, and the same numbers.
expect(RUN ${tune} ${lora} --frozen-weights rows --bf16 --save ${WORK}/rows_bf16 CODE 0)
expect(RUN ${tune} ${lora} --frozen-weights packed --bf16 --save ${WORK}/packed_bf16 CODE 0)
expect_same_state(rows_bf16 packed_bf16)
expect(RUN ${tune} ${lora} --frozen-weights both --save ${WORK}/both CODE 2 ERR "--frozen-weights: [^\n]*both")
foreach(folder run plus_1 plus_16)
  execute_process(COMMAND ${PITON} inspect ${WORK}/${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_run MATCHES "weights" OR NOT hash_run STREQUAL hash_plus_1 OR hash_run STREQUAL hash_plus_16)
  message(FATAL_ERROR "--lora-plus-lr-ratio: ${hash_run} ${hash_plus_1} ${hash_plus_16}")
endif()
# The conversation has the form of the data: --prompt-type default, with the run or with its adapters. Others are named.
file(READ ${WORK}/run/tokenizer/chat_template.jinja template)
if(NOT template MATCHES "'Human: ' \\+ content \\+ '.nAssistant:'")
  message(FATAL_ERROR "the run has not the chat template of its data: ${template}")
endif()
file(WRITE ${WORK}/asked.txt "What is 1 and 1?\n")
foreach(from "--load ${WORK}/run" "--load ${base} --lora-load ${WORK}/run" "--load ${WORK}/whole"
        "--load ${base} --tokenizer-type ByteTokenizer --chat-template llama2")
  separate_arguments(from)
  expect(RUN chat ${from} --max-new-tokens 4 --greedy INPUT ${WORK}/asked.txt CODE 0)
endforeach()
# AscendSpeed's prompt is a template too, of runs on its data and by its name.
expect(RUN preprocess --input ${WORK}/chats.jsonl --handler-name GeneralInstructionHandler --tokenizer-type ByteTokenizer
  --output-prefix ${WORK}/general CODE 0)
expect(RUN pretrain --model llama-tiny --num-layers 1 --max-position-embeddings 512 --seq-length 512 --is-instruction-dataset
  --data-path ${WORK}/general --split 100,0,0 --micro-batch-size 1 --train-iters 1 --lr 1e-3 --tokenizer-type ByteTokenizer
  --save ${WORK}/general-run CODE 0 OUT "next: piton chat --load [^ ]*/general-run")
file(READ ${WORK}/general-run/tokenizer/chat_template.jinja template)
if(NOT template MATCHES "### Response:")
  message(FATAL_ERROR "the run has not AscendSpeed's prompt: ${template}")
endif()
expect(RUN chat --load ${WORK}/general-run --max-new-tokens 4 --greedy INPUT ${WORK}/asked.txt CODE 0)
file(WRITE ${WORK}/general.json "[{\"role\": \"user\", \"content\": \"q\"}]")
expect(RUN tokenize --chat ${WORK}/general.json --tokenizer-type ByteTokenizer --chat-template ascendspeed --add-generation-prompt CODE 0
  OUT "text:\n\nBelow is an instruction [^\n]*\n### Instruction:\nq\n### Response:\n")
# Of 128 positions an answer leaves one for the question at least, and the question has to fit.
expect(RUN chat --load ${WORK}/run --max-new-tokens 128 INPUT ${WORK}/asked.txt CODE 2
  ERR "--max-new-tokens: got 128, wanted 1 to 127\n")
expect(RUN chat --load ${WORK}/run --max-new-tokens 127 INPUT ${WORK}/asked.txt CODE 2
  ERR "the question has [0-9]+ tokens, 1 fit; ask a shorter one")
# Questions that no longer fit are said, but for those that were to be left out.
string(REPEAT "again " 12 again)
file(WRITE ${WORK}/talk.txt "${again}\n${again}\n")
expect(RUN chat --load ${WORK}/run --max-new-tokens 4 INPUT ${WORK}/talk.txt CODE 0
  ERR "the model no longer sees the first question\n")
execute_process(COMMAND ${PITON} chat --load ${WORK}/run --max-new-tokens 4 --history-turns 1
  INPUT_FILE ${WORK}/talk.txt RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors)
if(NOT code EQUAL 0 OR errors MATCHES "no longer sees")
  message(FATAL_ERROR "piton chat --history-turns 1: exit ${code}\n${errors}")
endif()
expect(RUN chat --load ${WORK}/run --chat-template alpacca INPUT ${WORK}/asked.txt CODE 2
  ERR "--chat-template: got alpacca, wanted a file in Jinja, or one of default, empty, trl, alpaca, ")
expect(RUN chat --load ${base} --tokenizer-type ByteTokenizer INPUT ${WORK}/asked.txt CODE 2 ERR "has no chat template")
file(WRITE ${WORK}/ids.json "[[5, 6, 7, 8, 9, 10, 11]]")
foreach(pair "base|${base}" "run|${WORK}/run")
  string(REPLACE "|" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 path)
  expect(RUN score --load ${path} --ids-file ${WORK}/ids.json --logits ${WORK}/${name}.safetensors CODE 0 OUT "^loss [0-9.]+")
endforeach()
file(SHA256 ${WORK}/base.safetensors base_logits)
file(SHA256 ${WORK}/run.safetensors run_logits)
if(base_logits STREQUAL run_logits)
  message(FATAL_ERROR "four steps changed no logit")
endif()
expect(RUN score --load ${base} --lora-load ${WORK}/run --ids-file ${WORK}/ids.json --logits ${WORK}/named.safetensors CODE 0)
file(SHA256 ${WORK}/named.safetensors named_logits)
if(NOT named_logits STREQUAL run_logits)
  message(FATAL_ERROR "--lora-load gives other logits than the run itself")
endif()
expect(RUN generate --load ${WORK}/run --prompt-ids 5,6,7 --greedy --max-new-tokens 3 --json CODE 0 OUT "\"ids\":")

# Interrupted, and resumed by the same command and by `piton resume`: the same bits.
hash_of(${WORK}/run uninterrupted)
foreach(way same resume)
  expect(RUN ${tune} ${lora} --save ${WORK}/${way} --exit-interval 2 --save-interval 2 CODE 0)
  if(way STREQUAL same)
    expect(RUN ${tune} ${lora} --save ${WORK}/${way} --save-interval 2 CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
  else()
    expect(RUN resume ${WORK}/${way} CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
  endif()
  hash_of(${WORK}/${way} resumed)
  if(NOT resumed STREQUAL uninterrupted)
    message(FATAL_ERROR "${way}: ${resumed}, uninterrupted ${uninterrupted}")
  endif()
endforeach()

# The base has moved: its new place, once and for the same command later on.
expect(RUN ${tune} ${lora} --save ${WORK}/moving --exit-interval 1 CODE 0)
file(RENAME ${base} ${WORK}/moved)
expect(RUN resume ${WORK}/moving CODE 3
  ERR "moving: trains adapters of [^ ]*/base, which is not there; give its new place: piton resume [^ ]*/moving --load DIR\n")
expect(RUN resume ${WORK}/moving --load ${WORK}/moved --exit-interval 1 CODE 0 ERR "resumed [^ ]*/iter_0000001: iteration 1,")
expect(RUN ${tune} ${lora} --load ${WORK}/moved --lora-load ${WORK}/moving --save ${WORK}/elsewhere CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
expect(RUN ${tune} ${lora} --load ${WORK}/moved --save ${WORK}/moving CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
hash_of(${WORK}/moving resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "with a base that moved: ${resumed}, uninterrupted ${uninterrupted}")
endif()
expect(RUN resume ${WORK}/moving --load ${WORK}/whole CODE 3 ERR "lora.base has changed since the checkpoint: ")
file(RENAME ${WORK}/moved ${base})

# Killed at any step, and started again by the same command.
string(REPLACE "--train-iters;4" "--train-iters;200" long "${tune};${lora}")
list(JOIN long " " words)
expect(RUN ${long} --save ${WORK}/long CODE 0)
execute_process(COMMAND sh -c "${PITON} ${words} --save ${WORK}/killed --save-interval 10 2> /dev/null & \
  until test -e ${WORK}/killed/iter_0000010; do sleep 0.02; done; kill -9 $!")
if(EXISTS ${WORK}/killed/iter_0000200)
  message(FATAL_ERROR "the run was not killed before its end")
endif()
expect(RUN ${long} --save ${WORK}/killed --save-interval 10 CODE 0 ERR "resumed [^ ]*/iter_0000[0-9]+: iteration [0-9]+,")
hash_of(${WORK}/long uninterrupted_long)
hash_of(${WORK}/killed resumed)
if(NOT resumed STREQUAL uninterrupted_long)
  message(FATAL_ERROR "killed: ${resumed}, uninterrupted ${uninterrupted_long}")
endif()

# To PEFT and back, and merged. Each of 4 layers has 4 x (128 + 96 + 96 + 128 + 3 x 240) parameters of adapters.
expect(RUN convert --load ${WORK}/run --save ${WORK}/peft --to peft CODE 0 OUT "peft from hf: [^\n]*18688 parameters" "verified: ")
foreach(file adapter_config.json adapter_model.safetensors)
  if(NOT EXISTS ${WORK}/peft/${file})
    message(FATAL_ERROR "--to peft wrote no ${file}")
  endif()
endforeach()
# What it is, without its base; a run's own folder of PEFT too.
set(summary "adapter of PEFT, rank 4, alpha 8\nbase     [^\n]*\ntargets  down_proj gate_proj k_proj o_proj q_proj up_proj v_proj, 28 modules\n[0-9]+ parameters\n  base_model.model.model.layers.0.mlp.down_proj.lora_A.weight +F32 +.4, 176.\n")
expect(RUN inspect ${WORK}/peft CODE 0 OUT "${summary}")
expect(RUN inspect ${WORK}/run/iter_0000004/adapter CODE 0 OUT "${summary}" "base     [^ ]*/base\n")
expect(RUN inspect ${WORK}/peft --json CODE 0 OUT "^{\"format\":\"peft\",\"base\":\"[^\"]*\",\"rank\":4,\"alpha\":8.0,"
  "\"targets\":.\"down_proj\",\"gate_proj\"," "\"modules\":28,\"trained\":..,\"parameters\":[0-9]+,\"tensors\":.{\"name\":")
expect(RUN score --load ${base} --lora-load ${WORK}/peft --ids-file ${WORK}/ids.json --logits ${WORK}/peft.safetensors CODE 0)
file(SHA256 ${WORK}/peft.safetensors peft_logits)
if(NOT peft_logits STREQUAL run_logits)
  message(FATAL_ERROR "the folder of PEFT gives other logits than the run")
endif()
expect(RUN ${tune} ${lora} --lora-load ${WORK}/peft --save ${WORK}/further CODE 0 ERR "a new run from the adapters of [^ ]*/peft")
expect(RUN convert --load ${WORK}/run --save ${WORK}/merged CODE 0 OUT "hf from hf: " "verified: ")

# What the flags of MindSpeed-LLM's converter say of adapters is compared, and --save-lora-to-hf writes them alone.
set(merged convert --load-dir ${base} --lora-load ${WORK}/peft --save-model-type hf)
expect(RUN ${merged} --save-dir ${WORK}/none --lora-r 16 --lora-alpha 32 CODE 2 ERR "--lora-r: got 16, but the adapters have 4; leave it out")
expect(RUN ${merged} --save-dir ${WORK}/none --lora-r 4 --lora-alpha 32 CODE 2 ERR "--lora-alpha: got 32, but the adapters have 8; leave it out")
expect(RUN ${merged} --save-dir ${WORK}/peft-alone --lora-r 4 --lora-alpha 8 --lora-target-modules linear_qkv --save-lora-to-hf CODE 0
  OUT "peft from hf: [^\n]*18688 parameters" "verified: ")

# Adapters of several ranks, in some layers: PEFT reads them, and another run continues them.
set(several --lora-target-modules q_proj v_proj down_proj --lora-r 4 --lora-alpha 8 --lora-layers-to-transform 1 3
  --lora-rank-pattern v_proj=2 layers.3.down_proj=6 --lora-alpha-pattern q_proj=5)
expect(RUN ${tune} ${several} --save ${WORK}/several CODE 0 ERR "saved ")
file(READ ${WORK}/several/iter_0000004/adapter/adapter_config.json config)
string(JSON value GET "${config}" rank_pattern model.layers.3.mlp.down_proj)
string(JSON alpha GET "${config}" alpha_pattern model.layers.1.self_attn.q_proj)
if(NOT value EQUAL 6 OR NOT alpha EQUAL 5 OR config MATCHES "layers.0")
  message(FATAL_ERROR "ranks and alphas in ${config}")
endif()
expect(RUN ${tune} ${several} --lora-load ${WORK}/several/iter_0000004/adapter --save ${WORK}/several-further CODE 0
  ERR "a new run from the adapters of [^ ]*/adapter")
expect(RUN ${tune} ${several} --lora-rank-pattern v_proj=3 --lora-load ${WORK}/several/iter_0000004/adapter --save ${WORK}/none CODE 2
  ERR "change ")
expect(RUN ${tune} ${several} --lora-rank-pattern k_proj=3 --save ${WORK}/none CODE 2 ERR "--lora-rank-pattern: got k_proj=3, which names no adapter")
expect(RUN score --load ${WORK}/merged --ids-file ${WORK}/ids.json CODE 0)

# As a file of llama.cpp and back.
expect(RUN convert --load ${WORK}/run --save ${WORK}/adapter.gguf --to gguf-lora CODE 0 OUT "gguf-lora from hf: " "verified: ")
expect(RUN score --load ${base} --lora-load ${WORK}/adapter.gguf --ids-file ${WORK}/ids.json --logits ${WORK}/gguf.safetensors CODE 0)
file(SHA256 ${WORK}/gguf.safetensors gguf_logits)
if(NOT gguf_logits STREQUAL run_logits)
  message(FATAL_ERROR "the GGUF file of the adapters gives other logits than the run")
endif()
expect(RUN ${tune} ${lora} --lora-load ${WORK}/adapter.gguf --save ${WORK}/gguf-further CODE 0
  ERR "a new run from the adapters of [^ ]*/adapter.gguf")
# Also if fp32 rounds its alpha: 8 / sqrt(3) times 3.
expect(RUN ${tune} --lora-target-modules q_proj --lora-r 3 --lora-alpha 8 --use-rslora --save ${WORK}/stable CODE 0)
expect(RUN convert --load ${WORK}/stable --save ${WORK}/stable.gguf --to gguf-lora CODE 0 OUT "verified: ")
expect(RUN convert --load ${WORK}/run --save ${WORK}/none --to gguf-lora CODE 2 ERR "--save: got .*/none, wanted NAME.gguf for --to gguf-lora")
expect(RUN convert --load ${base} --save ${WORK}/base.gguf CODE 0)
expect(RUN score --load ${base} --lora-load ${WORK}/base.gguf --ids-file ${WORK}/ids.json CODE 3
  ERR "base.gguf: is no adapter: wanted general.type .adapter. ")

# DoRA: the lengths of rows are trained too. Resumed bits, PEFT and back, merged.
expect(RUN ${tune} ${lora} --use-dora --save ${WORK}/dora CODE 0 ERR "saved ")
expect(RUN ${tune} ${lora} --use-dora --save ${WORK}/dora-resumed --exit-interval 2 --save-interval 2 CODE 0)
expect(RUN resume ${WORK}/dora-resumed CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
hash_of(${WORK}/dora uninterrupted_dora)
hash_of(${WORK}/dora-resumed resumed)
if(NOT resumed STREQUAL uninterrupted_dora)
  message(FATAL_ERROR "DoRA: ${resumed}, uninterrupted ${uninterrupted_dora}")
endif()
expect(RUN convert --load ${WORK}/dora --save ${WORK}/dora-peft --to peft CODE 0 OUT "peft from hf: " "verified: ")
file(READ ${WORK}/dora-peft/adapter_config.json config)
if(NOT config MATCHES "\"use_dora\": true")
  message(FATAL_ERROR "adapter_config.json does not say use_dora: ${config}")
endif()
expect(RUN score --load ${WORK}/dora --ids-file ${WORK}/ids.json --logits ${WORK}/dora.safetensors CODE 0)
expect(RUN score --load ${base} --lora-load ${WORK}/dora-peft --ids-file ${WORK}/ids.json --logits ${WORK}/dora-peft.safetensors
  CODE 0)
file(SHA256 ${WORK}/dora.safetensors dora_logits)
file(SHA256 ${WORK}/dora-peft.safetensors peft_logits)
if(NOT peft_logits STREQUAL dora_logits OR dora_logits STREQUAL run_logits)
  message(FATAL_ERROR "logits of DoRA: in the folder of PEFT ${peft_logits}, in the run ${dora_logits}, of LoRA ${run_logits}")
endif()
expect(RUN ${tune} ${lora} --use-dora --lora-load ${WORK}/dora-peft --save ${WORK}/dora-further CODE 0
  ERR "a new run from the adapters of [^ ]*/dora-peft")
expect(RUN convert --load ${WORK}/dora --save ${WORK}/dora-merged CODE 0 OUT "hf from hf: " "verified: ")
expect(RUN convert --load ${WORK}/dora --save ${WORK}/dora.gguf --to gguf-lora CODE 2 ERR "has magnitudes .DoRA., which a GGUF file ")
expect(RUN ${tune} ${lora} --lora-load ${WORK}/dora-peft --save ${WORK}/none CODE 2
  ERR "one of rank 4 and scale 2 with DoRA, this run has one of rank 4 and scale 2; change .*--use-dora")
# Flags of adapters without adapters would be ignored, also those with their default value.
foreach(flag "--use-dora" "--lora-r;16" "--lora-alpha;8" "--lora-dropout;0.1" "--use-rslora" "--lora-modules-to-save;norms"
        "--lora-adapter-name;mine" "--lora-rank-pattern;q_proj=2" "--lora-layers-to-transform;0")
  list(GET flag 0 name)
  expect(RUN ${tune} ${flag} --save ${WORK}/none CODE 2 ERR "${name}: needs --lora-target-modules, which is not given; ")
endforeach()
expect(RUN ${tune} --lora-target-modules q_proj,v_proj --save ${WORK}/none CODE 2
  ERR "--lora-target-modules: got q_proj,v_proj, wanted names with spaces between them")
# A file with all options of a run that trains the whole model.
expect(RUN finetune ${WORK}/whole/config.toml --save ${WORK}/again CODE 0 ERR "saved ")
# Adapters in the place of a model, and the reverse.
set(reading --prompt-ids 5,6,7 --greedy --max-new-tokens 3)
set(is_adapter "is an adapter[^;]*, wanted a model; give its base by --load, and the adapter by --lora-load")
expect(RUN generate --load ${WORK}/run/iter_0000004/adapter ${reading} CODE 3 ERR "${is_adapter}")
expect(RUN finetune --load ${WORK}/run/iter_0000004/adapter --data-path ${data} --seq-length 64 --train-iters 1 CODE 3 ERR "${is_adapter}")
expect(RUN convert --load ${WORK}/run --save ${WORK}/alone.gguf --to gguf-lora CODE 0)
expect(RUN generate --load ${WORK}/alone.gguf ${reading} CODE 3 ERR "alone.gguf: ${is_adapter}")
expect(RUN inspect ${WORK}/alone.gguf CODE 0 OUT "alone.gguf: adapter in a GGUF file, rank 4, alpha 8\nbase     of the architecture llama\n"
  "targets  attn_k attn_output attn_q attn_v ffn_down ffn_gate ffn_up, 28 modules\n18688 parameters\n  blk.0.attn_[a-z]+.weight.lora_a +F32 ")
expect(RUN inspect ${WORK}/alone.gguf --json CODE 0 OUT "^{\"format\":\"gguf-lora\",\"name\":\"[^\"]*\",\"architecture\":\"llama\",\"alpha\":8.0,"
  "\"ranks\":.4.,\"targets\":.\"attn_k\"," "\"modules\":28,\"parameters\":18688,\"tensors\":.{\"name\":")
expect(RUN generate --load ${base} --lora-load ${base} ${reading} CODE 3 ERR "/base: holds no adapter; wanted a run that trained adapters")
expect(RUN generate --load ${base} --lora-load ${WORK}/absent ${reading} CODE 3 ERR "/absent: there is no such folder or file; wanted a run")
expect(RUN ${tune} ${lora} --lora-load ${base} --save ${WORK}/none CODE 3 ERR "/base: holds no adapter; wanted a run that trained adapters")
expect(RUN generate --load ${WORK}/run --lora-load ${WORK}/same ${reading} CODE 2
  ERR "--load: [^ ]*/run is a run of adapters, and --lora-load names other ones; give its base, --load [^ ]*/base")
foreach(flags "" "${lora}")
  expect(RUN finetune --load ${WORK}/run --data-path ${data} --seq-length 64 --train-iters 1 ${flags} --save ${WORK}/none CODE 2
    ERR "--load: [^ ]*/run is a run of adapters, wanted a whole model; piton resume [^ ]*/run continues it, --load [^ ]*/base --lora-load [^ ]*/run --finetune ")
endforeach()
# Under dropout: the same bits after an interruption.
set(dropped ${tune} ${lora} --use-dora --lora-dropout 0.1)
expect(RUN ${dropped} --save ${WORK}/dropped CODE 0 ERR "saved ")
expect(RUN ${dropped} --save ${WORK}/dropped-resumed --exit-interval 2 --save-interval 2 CODE 0)
expect(RUN resume ${WORK}/dropped-resumed CODE 0)
hash_of(${WORK}/dropped uninterrupted)
hash_of(${WORK}/dropped-resumed resumed)
if(NOT resumed STREQUAL uninterrupted OR resumed STREQUAL uninterrupted_dora)
  message(FATAL_ERROR "DoRA with dropout: ${resumed}, uninterrupted ${uninterrupted}, without dropout ${uninterrupted_dora}")
endif()

# Two ranks save the same adapters.
foreach(layout "tensor-model-parallel-size;2" "pipeline-model-parallel-size;2" "zero-stage;3")
  list(GET layout 0 flag)
  list(GET layout 1 value)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} ${lora} --save ${WORK}/${flag} --${flag} ${value}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "two ranks, --${flag} ${value}: exit ${code}\n${text}")
  endif()
  expect(RUN score --load ${WORK}/${flag} --ids-file ${WORK}/ids.json CODE 0 OUT "^loss [0-9.]+")
endforeach()

# Distillation: the divergence from a teacher of other sizes falls, and is in metrics.jsonl.
expect(RUN pretrain --model llama-tiny --num-layers 3 --tokenizer-type ByteTokenizer --data-path ${WORK}/text_text_document
  --seq-length 32 --micro-batch-size 2 --train-iters 2 --lr 1e-3 --seed 5 --save ${WORK}/teacher CODE 0)
set(distill ${tune} --teacher-model ${WORK}/teacher --distillation-temperature 2 --distillation-weight 0.7)
expect(RUN ${distill} --save ${WORK}/student CODE 0 ERR "the teacher is [^ ]*/teacher: [0-9]+ parameters" "teacher divergence")
file(STRINGS ${WORK}/student/metrics.jsonl lines REGEX "teacher_divergence")
list(LENGTH lines count)
if(NOT count EQUAL 4)
  message(FATAL_ERROR "${count} of 4 steps have teacher_divergence")
endif()
expect(RUN ${distill} --save ${WORK}/student-resumed --exit-interval 2 --save-interval 2 CODE 0)
expect(RUN resume ${WORK}/student-resumed CODE 0 ERR "resumed [^ ]*/iter_0000002: iteration 2,")
hash_of(${WORK}/student uninterrupted)
hash_of(${WORK}/student-resumed resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "distillation: ${resumed}, uninterrupted ${uninterrupted}")
endif()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${distill} --save ${WORK}/student-tp --tensor-model-parallel-size 2
                RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "distillation on two ranks: exit ${code}\n${text}")
endif()
expect(RUN ${distill} --distillation-weight 0 --save ${WORK}/none CODE 2 ERR "--distillation-weight: got 0, wanted more than 0 ")
expect(RUN ${tune} --distillation-weight 0.2 --save ${WORK}/none CODE 2 ERR "--distillation-weight: needs --teacher-model")
expect(RUN ${distill} --distillation-temperature 0 --save ${WORK}/none CODE 2 ERR "--distillation-temperature: got 0, wanted 0.01 to 1000")
expect(RUN ${distill} --teacher-model ${WORK}/nowhere --save ${WORK}/none CODE 3 ERR "nowhere")
expect(RUN ${distill} --stage orpo --save ${WORK}/none CODE 2 ERR "--teacher-model: learns labels and a teacher's distribution, got --stage orpo")

# What is refused, and where to look.
expect(RUN finetune --data-path ${data} --save ${WORK}/none CODE 2 ERR "--load: no model is named; wanted the folder of the model to fine-tune")
expect(RUN ${tune} --lora-target-modules q_prj --save ${WORK}/none CODE 2 ERR "--lora-target-modules: .*q_prj.*q_proj")
expect(RUN ${tune} ${lora} --lora-r 0 --save ${WORK}/none CODE 2 ERR "--lora-r: got 0, wanted ")
foreach(alpha 0 inf 1e-320 1e300)
  expect(RUN ${tune} ${lora} --lora-alpha ${alpha} --save ${WORK}/none CODE 2 ERR "--lora-alpha: got [^,]*, wanted a number above 0, 1e-30 to 1e.30")
endforeach()
expect(RUN ${tune} ${lora} --lora-alpha nan --save ${WORK}/none CODE 2 ERR "--lora-alpha: got .nan., wanted number")
expect(RUN ${tune} --lora-load ${WORK}/run --save ${WORK}/none CODE 2 ERR "--lora-load: needs --lora-target-modules")
expect(RUN ${tune} ${lora} --lora-r 8 --lora-load ${WORK}/peft --save ${WORK}/none CODE 2
  ERR "--lora-load: [^ ]*/peft has for layers.0.attention.[a-z]+ one of rank 4 and scale 2, this run has one of rank 8 and scale 1; change ")
expect(RUN ${tune} ${lora} --save ${base} CODE 2 ERR "--save: ")
expect(RUN convert --load ${base} --save ${WORK}/none --to peft CODE 2 ERR "--to peft: [^ ]*/base has no adapters; ")
# Another base: the same sizes, other weights.
expect(RUN ${tune} --save ${WORK}/trained CODE 0)
expect(RUN convert --load ${WORK}/trained --save ${WORK}/other CODE 0)
expect(RUN score --load ${WORK}/other --lora-load ${WORK}/run --ids-file ${WORK}/ids.json CODE 3
  ERR "was trained on a model whose weights have the hash [0-9a-f]+, got [^ ]*/other with [0-9a-f]+; give ")
if(EXISTS ${WORK}/none)
  message(FATAL_ERROR "a command that was refused left a folder behind")
endif()

# A chat template in a folder of PEFT, as TRL leaves there, is that of the model with the adapter.
file(COPY ${SOURCE}/tests/golden/chat/bpe/tokenizer.json DESTINATION ${WORK}/words)
file(WRITE ${WORK}/words/tokenizer_config.json "{\"eos_token\": \"</s>\"}")
file(WRITE ${WORK}/words/chat_template.jinja "{{ raise_exception('of the base') }}")
file(WRITE ${WORK}/words.jsonl "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\", \"completion\": \"d\"}\n")
expect(RUN pretrain --model llama-tiny --tokenizer-name-or-path ${WORK}/words --mock-data --seq-length 32 --train-iters 1 --eval-iters 0
  --lr 1e-3 --save ${WORK}/words-run CODE 0)
expect(RUN convert --load ${WORK}/words-run --save ${WORK}/words-base CODE 0)
expect(RUN finetune --load ${WORK}/words-base --data-path ${WORK}/words.jsonl --prompt-type default ${lora} --seq-length 32 --train-iters 1
  --split 1,0,0 --eval-iters 0 --lr 1e-3 --save ${WORK}/words-tuned CODE 0)
expect(RUN convert --load ${WORK}/words-tuned --save ${WORK}/words-peft --to peft CODE 0)
file(WRITE ${WORK}/question.txt "a\n")
set(talk chat --load ${WORK}/words-base --lora-load ${WORK}/words-peft --max-new-tokens 2)
# The data had --prompt-type.
expect(RUN ${talk} INPUT ${WORK}/question.txt CODE 0)
file(READ ${WORK}/words-peft/chat_template.jinja template)
if(NOT template MATCHES "Human: ")
  message(FATAL_ERROR "the template of the data is not in the folder of PEFT: ${template}")
endif()
# And in the folder of its checkpoint.
file(READ ${WORK}/words-tuned/iter_0000001/adapter/chat_template.jinja of_checkpoint)
if(NOT of_checkpoint STREQUAL template)
  message(FATAL_ERROR "the template of the data is not in the checkpoint's adapter: ${of_checkpoint}")
endif()
expect(RUN chat --load ${WORK}/words-base --lora-load ${WORK}/words-tuned/iter_0000001/adapter --max-new-tokens 2
  INPUT ${WORK}/question.txt CODE 0)
file(WRITE ${WORK}/words-peft/chat_template.jinja "{{ raise_exception('of the adapter') }}")
expect(RUN ${talk} INPUT ${WORK}/question.txt CODE 3 ERR "of the adapter")
# So it encodes the data of a run that continues the adapter, which keeps it, and is that of the merged model.
set(onward finetune --load ${WORK}/words-base --data-path ${WORK}/words.jsonl ${lora} --lora-load ${WORK}/words-peft --seq-length 32
           --split 1,0,0 --eval-iters 0 --lr 1e-3 --train-iters 2)
expect(RUN ${onward} --save ${WORK}/none CODE 3 ERR "of the adapter")
set(own "{% for m in messages %}{{ m.role }} own {{ m.content }}{{ eos_token }}{% endfor %}")
file(WRITE ${WORK}/words-peft/chat_template.jinja "${own}")
set(note "chat template: that of [^ ]*/words-peft, not the base's")
expect(RUN ${onward} --save ${WORK}/words-onward --exit-interval 1 CODE 0 ERR "${note}" "the model's own prompt.: 2 samples")
expect(RUN ${onward} --save ${WORK}/words-onward CODE 0 ERR "continuing from that" "resumed [^ ]*: iteration 1,")
set(merge convert --load ${WORK}/words-base --lora-load ${WORK}/words-peft)
expect(RUN ${merge} --save ${WORK}/words-merged CODE 0 ERR "words-peft: its chat template is that of the merged model")
expect(RUN ${merge} --save ${WORK}/words-merged-run --to piton CODE 0)
expect(RUN ${merge} --save ${WORK}/words-merged.gguf --no-verify CODE 0)
expect(RUN convert --load ${WORK}/words-merged.gguf --save ${WORK}/words-of-gguf --to piton --no-verify CODE 0)
expect(RUN convert --load ${WORK}/words-onward --save ${WORK}/words-onward-peft --to peft CODE 0)
foreach(folder words-onward/tokenizer words-merged words-merged-run/tokenizer words-of-gguf/tokenizer words-onward-peft)
  set(place ${WORK}/${folder}/chat_template.jinja)
  if(folder STREQUAL "words-of-gguf/tokenizer")
    file(READ ${WORK}/${folder}/tokenizer_config.json config)
    string(JSON template GET "${config}" chat_template)
  else()
    file(READ ${place} template)
  endif()
  if(NOT template STREQUAL own)
    message(FATAL_ERROR "${folder}: the template is ${template}, wanted that of the adapter")
  endif()
endforeach()
file(REMOVE ${WORK}/words-peft/chat_template.jinja)
expect(RUN ${talk} INPUT ${WORK}/question.txt CODE 3 ERR "of the base")
