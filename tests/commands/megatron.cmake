# Training with the flags of scripts of Megatron-LM and MindSpeed-LLM; only paths and sizes are changed.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 100 text)
file(WRITE ${WORK}/text.txt "${text}")

# A byte-level BPE without merges: GPT-2's alphabet, which is all that these texts need.
set(letters "")
set(id 0)
foreach(letter IN ITEMS ! ' , - . : ? A B C D E F G H I J K L M N O P Q R S T U V W X Y Z
                        a b c d e f g h i j k l m n o p q r s t u v w x y z Ġ Ċ <|endoftext|>)
  list(APPEND letters "\"${letter}\": ${id}")
  math(EXPR id "${id} + 1")
endforeach()
list(JOIN letters ", " vocabulary)
file(WRITE ${WORK}/gpt2-vocab.json "{${vocabulary}}")
file(WRITE ${WORK}/gpt2-merges.txt "#version: 0.2\n")
set(gpt2 --vocab-file ${WORK}/gpt2-vocab.json --merge-file ${WORK}/gpt2-merges.txt)
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type GPT2BPETokenizer ${gpt2} --append-eod
           --output-prefix ${WORK}/my-gpt2 CODE 0)

# Megatron-LM's examples/pretrain_gpt.sh.
expect(RUN pretrain
       --num-layers 2
       --hidden-size 64
       --num-attention-heads 4
       --micro-batch-size 4
       --global-batch-size 8
       --seq-length 32
       --max-position-embeddings 32
       --train-iters 4
       --lr-decay-iters 3
       --save ${WORK}/gpt
       --load ${WORK}/gpt
       --data-path ${WORK}/my-gpt2_text_document
       --vocab-file ${WORK}/gpt2-vocab.json
       --merge-file ${WORK}/gpt2-merges.txt
       --data-impl mmap
       --split 949,50,1
       --distributed-backend nccl
       --lr 0.00015
       --min-lr 1.0e-5
       --lr-decay-style cosine
       --weight-decay 1e-2
       --clip-grad 1.0
       --lr-warmup-fraction .01
       --checkpoint-activations
       --log-interval 100
       --save-interval 10000
       --eval-interval 1000
       --eval-iters 1
       --fp16
       CODE 0
       ERR "--distributed-backend: no meaning here" "gradients overflow at a loss scale of 4294967296" "validation loss" "saved ")
expect(RUN generate --load ${WORK}/gpt --prompt "To be" --max-new-tokens 2 CODE 0)

# AscendSpeed's examples/llama2/pretrain_llama2_7b_ptd.sh, on two tensor ranks; the tokenizer is GPT-2's.
set(llama pretrain
       --DDP-impl local
       --tensor-model-parallel-size 2
       --pipeline-model-parallel-size 1
       --sequence-parallel
       --num-layers 2
       --hidden-size 64
       --position-embedding-type rope
       --normalization RMSNorm
       --ffn-hidden-size 128
       --num-attention-heads 4
       --attention-dropout 0.0
       --hidden-dropout 0.0
       --init-method-std 0.01
       --micro-batch-size 1
       --global-batch-size 4
       --seq-length 32
       --max-position-embeddings 32
       --data-path ${WORK}/my-gpt2_text_document
       --tokenizer-type GPT2BPETokenizer ${gpt2}
       --tokenizer-not-use-fast
       --split 100,0,0
       --distributed-backend nccl
       --lr 1.25e-5
       --min-lr 1.25e-6
       --lr-decay-style cosine
       --weight-decay 1e-1
       --clip-grad 1.0
       --initial-loss-scale 65536.0
       --adam-beta1 0.9
       --adam-beta2 0.95
       --log-interval 1
       --load ${WORK}/llama
       --save ${WORK}/llama
       --save-interval 10000
       --eval-interval 10000
       --eval-iters 0
       --use-fused-rotary-pos-emb
       --no-masked-softmax-fusion
       --no-load-optim
       --no-load-rng
       --train-iters 3
       --lr-warmup-fraction 0.01
       --mlp-layer-fusion
       --use-flash-attn
       --bf16)
# What later scripts of MindSpeed-LLM say in addition to these.
list(APPEND llama
       --untie-embeddings-and-output-weights
       --disable-bias-linear
       --swiglu
       --make-vocab-size-divisible-by 1
       --use-fused-rmsnorm
       --use-fused-swiglu
       --attention-softmax-in-fp32
       --no-gradient-accumulation-fusion
       --use-distributed-optimizer
       --overlap-grad-reduce)
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${llama} RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0 OR NOT error MATCHES "iteration +3/ +3 ")
  message(FATAL_ERROR "LLaMA's script: exit ${code}\n${error}")
endif()
# What has no meaning is reported once, not by each rank.
string(REGEX MATCHALL "--overlap-grad-reduce: no meaning here" said "${error}")
list(LENGTH said times)
if(NOT times EQUAL 1)
  message(FATAL_ERROR "said ${times} times\n${error}")
endif()
expect(RUN inspect ${WORK}/llama CODE 0 OUT "iteration 3" "head.weight|output")

# What is wrong with the command line is reported once; without ranks, the message names what starts them.
execute_process(COMMAND ${LAUNCH} 3 ${PITON} ${llama} --lr fast RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
string(REGEX MATCHALL "--lr: got \"fast\"" said "${error}")
list(LENGTH said times)
if(NOT times EQUAL 1 OR code EQUAL 0)
  message(FATAL_ERROR "said ${times} times, exit ${code}\n${error}")
endif()
expect(RUN ${llama} CODE 2 ERR "piton launch 2 COMMAND")
execute_process(COMMAND ${LAUNCH} RESULT_VARIABLE code ERROR_VARIABLE error)
if(NOT code EQUAL 2 OR NOT error MATCHES "usage: tools/launch.sh N piton")
  message(FATAL_ERROR "launch.sh: exit ${code}\n${error}")
endif()

# What scripts of MindSpeed-LLM give though it has no effect: lines, and a run.
expect(RUN pretrain --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32
       --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-4 --data-path ${WORK}/my-gpt2_text_document
       --tokenizer-type GPT2BPETokenizer ${gpt2} --swiglu --no-bias-gelu-fusion --position-embedding-type alibi --rotary-base 10000
       --sequence-parallel --save-interval 1 --split 100,0,0 --eval-iters 10 --eval-interval 1
       --group-query-attention --num-query-groups 2
       --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --num-experts 4 --moe-intermediate-size 32
       --moe-ffn-hidden-size 32 --moe-layer-freq -1 --first-k-dense-replace -1 --moe-router-load-balancing-type softmax_topk
       --moe-aux-loss-coeff 0.001 CODE 0
       ERR "--sequence-parallel: has no effect: --tensor-model-parallel-size is 1"
           "--save-interval: has no effect: nothing is saved, since no --save is given"
           "--eval-iters: the validation split has no samples: nothing is evaluated"
           "--no-bias-gelu-fusion: has no effect" "--rotary-base: has no effect: this model has no rotary positions"
           "--spec: no meaning here" "--moe-aux-loss-coeff: has no effect with --moe-router-load-balancing-type softmax_topk"
           "iteration +2/ +2 ")

# All that is wrong in one message; the last of a repeated flag counts.
expect(RUN pretrain --moe-layer-recompute --mrope-section 16 24 --fp4-format e2m1 --lr fast --thread 2 CODE 2
       ERR "5 options cannot be taken" "--moe-layer-recompute: not yet" "--mrope-section: not yet" "--fp4-format: not yet"
           "--lr: got \"fast\"" "--thread: unknown option, did you mean --threads")
expect(RUN inspect --model llama-tiny --lr 1 --lr 2 ${WORK}/llama CODE 0
       ERR "--lr: given twice, as \"1\" and as \"2\"; the last one counts")
expect(RUN plan --model gpt2-tiny --group-query-attention CODE 2 ERR "--group-query-attention: every head has its own keys")
expect(RUN plan --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 --position-embedding-type alibi CODE 2
       ERR "--max-position-embeddings: not given; wanted the longest sequence in tokens")
# Names of other programs that are far from any option get no hint.
expect(RUN plan --model gpt2-tiny --max-batch-size 1 --epochs 2 CODE 2 ERR "--max-batch-size: unknown option; --help lists all"
       "--epochs: unknown option, did you mean --num-train-epochs")
expect(RUN plan --model gpt2-tiny --seq-length 1e2 --bf16 --no-bf16 --train-iters 2M CODE 0)
file(WRITE ${WORK}/r.toml "num_layers = 2\nhidden_size = 64\nnum_attention_heads = 4\nmax_position_embeddings = 32\n"
                          "vocab_size = 100\ndistributed_backend = \"nccl\"\ntransformer_impl = \"local\"\n")
expect(RUN inspect ${WORK}/r.toml CODE 0 OUT "2 layers of width 64" "tokenizer: none named" ERR "--distributed-backend")

# docs/megatron_flags.md is what the program says.
execute_process(COMMAND ${PITON} help --megatron OUTPUT_VARIABLE page)
file(READ ${SOURCE}/docs/megatron_flags.md stored)
if(NOT page STREQUAL stored)
  message(FATAL_ERROR "docs/megatron_flags.md differs from `piton help --megatron`; run make docs")
endif()
