# pretrain --model-family t5: a run, its resume to the bit, evaluation, types of numbers, two ranks, Hugging Face folders, and
# the messages for what is not for models of an encoder and a decoder.
include(${SOURCE}/tests/support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/masked)
set(words --tokenizer-type BertWordPieceLowerCase --vocab-file ${golden}/vocab.txt --vocab-extra-ids 100)
set(data --data-path ${golden}/x --split 80,15,5 --encoder-seq-length 64 --decoder-seq-length 40)
set(tiny pretrain --model t5-tiny ${data} ${words} --micro-batch-size 4 --lr 1e-3)

# Flags of Megatron-LM's examples/t5/train_t5_220m_distributed.sh.
expect(RUN pretrain --model-family t5 --encoder-num-layers 2 --decoder-num-layers 1 --num-layers 2 --hidden-size 32
  --num-attention-heads 4 --kv-channels 8 --ffn-hidden-size 96 --max-position-embeddings 64 --micro-batch-size 2
  --global-batch-size 4 --lr 0.0001 --train-iters 3 --lr-decay-style linear --min-lr 0.00001 --weight-decay 1e-2
  --lr-warmup-fraction .01 --clip-grad 1.0 --bf16 ${data} ${words} --log-interval 1 --eval-iters 1 --mask-prob 0.15 CODE 0
  ERR "x: train set: [0-9]+ samples of 96 documents" "iteration +3/ +3 " "validation loss")

# A run in one piece, and in two with evaluation, both with dropout.
expect(RUN ${tiny} --train-iters 8 --save ${WORK}/whole CODE 0 ERR "next: piton generate")
file(READ ${WORK}/whole/samples.txt shown)
if(NOT shown MATCHES "--- sample 0: .*<extra_id_0>")
  message(FATAL_ERROR "samples.txt: ${shown}")
endif()
expect(RUN ${tiny} --train-iters 8 --exit-interval 3 --save ${WORK}/parts CODE 0)
expect(RUN ${tiny} --train-iters 8 --eval-interval 4 --eval-iters 2 --save ${WORK}/parts --load ${WORK}/parts CODE 0
  ERR "resumed .*iteration 3," "validation loss")
expect_same_state(whole parts)
expect(RUN ${tiny} --train-iters 8 --decoder-seq-length 44 --save ${WORK}/whole --load ${WORK}/whole CODE 2
  ERR "--decoder-seq-length: ")
expect(RUN ${tiny} --train-iters 2 --fp16 --recompute-granularity full --recompute-method uniform CODE 0
  ERR "iteration +2/ +2 ")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tiny} --train-iters 9 --tensor-model-parallel-size 2 --sequence-parallel
  --load ${WORK}/whole --save ${WORK}/split --override-opt_param-scheduler RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0 OR NOT error MATCHES "iteration +9/ +9 ")
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()

# The published form: from a folder, to Hugging Face and back.
set(folder ${SOURCE}/tests/golden/encoders/t5-v1.1)
expect(RUN convert --load ${folder} --save ${WORK}/native --to piton CODE 0)
expect(RUN convert --load ${WORK}/native --save ${WORK}/hf --to hf CODE 0)
set(published --position-embedding-type relative --normalization RMSNorm --disable-bias-linear --activation geglu)
expect(RUN ${tiny} ${published} --ffn-hidden-size 100 --train-iters 2 --save ${WORK}/relative CODE 0 ERR "iteration +2/ +2 ")
expect(RUN convert --load ${WORK}/relative --save ${WORK}/written --to hf CODE 0)
file(READ ${WORK}/written/config.json config)
if(NOT config MATCHES "T5ForConditionalGeneration" OR NOT config MATCHES "gated-gelu"
   OR NOT config MATCHES "\"decoder_start_token_id\": 300,?\n" OR NOT config MATCHES "\"eos_token_id\": 301,?\n")
  message(FATAL_ERROR "${config}")
endif()
expect(RUN pretrain --load ${WORK}/written ${data} ${words} --max-position-embeddings 128 --train-iters 1 --micro-batch-size 4
  --lr 1e-3 CODE 0 ERR "iteration +1/ +1 ")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/none --to hf CODE 3 ERR "no family of Hugging Face holds this model")
# Megatron's files, in both trees and for two ranks; a run starts from them.
expect(RUN convert --load ${WORK}/whole --save ${WORK}/mg --to mg --target-tensor-parallel-size 2 --megatron-args CODE 0)
expect(RUN convert --load ${WORK}/mg --save ${WORK}/core --to mg --use-mcore-models CODE 0)
expect(RUN convert --load ${WORK}/core --save ${WORK}/again --to piton CODE 0)
expect(RUN inspect ${WORK}/again CODE 0)
expect(RUN pretrain --load ${WORK}/core ${data} ${words} --train-iters 1 --micro-batch-size 4 --lr 1e-3 CODE 0 ERR "iteration +1/ +1 ")
expect(RUN convert --load ${WORK}/again --save ${WORK}/dist --to mg --ckpt-format torch_dist --target-tensor-parallel-size 2 CODE 0)
expect(RUN convert --load ${WORK}/dist --save ${WORK}/from-dist --to piton CODE 0)
foreach(folder again from-dist)
  execute_process(COMMAND ${PITON} inspect --hash ${WORK}/${folder} RESULT_VARIABLE code OUTPUT_VARIABLE hash-${folder})
endforeach()
string(REGEX MATCH "weights +[0-9a-f]+" one "${hash-again}")
string(REGEX MATCH "weights +[0-9a-f]+" other "${hash-from-dist}")
if(NOT one OR NOT one STREQUAL other)
  message(FATAL_ERROR "torch_dist changed the weights: ${hash-again} ${hash-from-dist}")
endif()
expect(RUN convert --load ${WORK}/whole --save ${WORK}/none --to mg --deepspeed CODE 2 ERR "--deepspeed: is written of decoders alone")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/none --to mg --target-pipeline-parallel-size 2 CODE 2
  ERR "--target-pipeline-parallel-size: got 2, wanted 1: a model of an encoder and a decoder")
expect(RUN convert --load ${WORK}/relative --save ${WORK}/none --to mg CODE 3 ERR "cannot be expressed in the format mg")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/none.gguf --to gguf CODE 3 ERR "an encoder .t5. cannot be expressed in the format gguf")
expect(RUN plan --model t5-220m --micro-batch-size 4 --decoder-seq-length 128 CODE 0)

# Texts: by one rank and by two, with beams.
foreach(how "--greedy" "--num-beams;3" "--seed;5;--num-samples;2")
  execute_process(COMMAND ${PITON} generate --load ${WORK}/whole --prompt "w1 w2 w3" --max-new-tokens 12 ${how} --json
    RESULT_VARIABLE code OUTPUT_VARIABLE alone ERROR_VARIABLE error)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} generate --load ${WORK}/whole --prompt "w1 w2 w3" --max-new-tokens 12 ${how}
    --json --tensor-model-parallel-size 2 RESULT_VARIABLE code2 OUTPUT_VARIABLE both ERROR_VARIABLE error2)
  string(REGEX MATCH "\"ids\": ?\\[[0-9, ]*\\]" alone_ids "${alone}")
  string(REGEX MATCH "\"ids\": ?\\[[0-9, ]*\\]" both_ids "${both}")
  if(NOT code EQUAL 0 OR NOT code2 EQUAL 0 OR alone_ids STREQUAL "" OR NOT alone_ids STREQUAL both_ids)
    message(FATAL_ERROR "generate ${how}: ${code} ${alone} ${error}\n${code2} ${both} ${error2}")
  endif()
endforeach()

# What does not fit.
expect(RUN score --load ${WORK}/whole ${WORK}/whole/samples.txt CODE 3 ERR "score: [^ ]*/whole: has an encoder and a decoder .t5.")
expect(RUN generate --load ${WORK}/whole --prompt "w1 w2" --prompt-lookup 2 --greedy CODE 3 ERR "has an encoder and a decoder .t5.")
file(WRITE ${WORK}/question.txt "w1 w2\n")
expect(RUN chat --load ${WORK}/whole INPUT ${WORK}/question.txt CODE 3
  ERR "--load: [^ ]*/whole has an encoder and a decoder .t5., wanted a decoder; piton generate --load [^ ]*/whole --prompt TEXT gives its texts\n")
foreach(weights "int8;q8" "q8_0;q8.gguf")
  list(GET weights 0 type)
  list(GET weights 1 to)
  expect(RUN quantize --load ${WORK}/relative --weights ${type} --save ${WORK}/${to} CODE 2
    ERR "quantize: [^ ]*/relative/iter_0000002 is an encoder with a decoder .t5.; wanted a decoder\n")
  if(EXISTS ${WORK}/${to})
    message(FATAL_ERROR "quantize left ${to}")
  endif()
endforeach()
expect(RUN embed --load ${WORK}/whole --output ${WORK}/v.npy ${folder}/config.json CODE 3 ERR "wanted an encoder .bert.")
expect(RUN pretrain --model t5-tiny --data-path ${golden}/x --seq-length 64 ${words} --train-iters 1 CODE 2
  ERR "--decoder-seq-length: is not given; wanted the tokens that the decoder of T5 reads")
expect(RUN ${tiny} --decoder-seq-length 200 --train-iters 1 CODE 2
  ERR "--decoder-seq-length: got 200, wanted at most --max-position-embeddings, which is 128")
expect(RUN ${tiny} --vocab-extra-ids 2 --train-iters 8 CODE 3 ERR "and the tokenizer has 2 sentinels")
expect(RUN ${tiny} --decoder-seq-length 8 --train-iters 8 CODE 3 ERR "--decoder-seq-length")
expect(RUN ${tiny} --vocab-extra-ids 0 --train-iters 1 CODE 2 ERR "the tokenizer has no sentinels .<extra_id_0>, ....; give --vocab-extra-ids 100")

# Stages: 1F1B and ZB-H1 on two ranks, from the checkpoint of one; and back on one rank.
foreach(schedule 1f1b zb-h1)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tiny} --train-iters 9 --pipeline-model-parallel-size 2
    --pipeline-model-parallel-split-rank 1 --pipeline-schedule ${schedule} --global-batch-size 8 --eval-interval 9 --eval-iters 1
    --load ${WORK}/whole --finetune --save ${WORK}/${schedule} RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
  if(NOT code EQUAL 0 OR NOT error MATCHES "iteration +9/ +9 " OR NOT error MATCHES "validation loss")
    message(FATAL_ERROR "two stages, ${schedule}: exit ${code}\n${error}")
  endif()
endforeach()
expect(RUN ${tiny} --train-iters 10 --global-batch-size 8 --load ${WORK}/1f1b --override-opt_param-scheduler CODE 0 ERR "iteration +10/ +10 ")
# The stage of the decoder, which the run has, is not for one stage.
expect(RUN resume ${WORK}/zb-h1 --train-iters 10 --pipeline-model-parallel-size 1 --override-opt_param-scheduler CODE 0
  ERR "resumed [^ ]* iteration 9," "iteration +10/ +10 ")
# Texts of two stages, one of which has the encoder: those of one process, greedy, drawn and with beams.
foreach(how "--greedy" "--temperature;0.8;--top-k;5" "--num-beams;3")
  execute_process(COMMAND ${PITON} generate --load ${WORK}/whole --prompt "w1 w2" --max-new-tokens 9 ${how}
    RESULT_VARIABLE code OUTPUT_VARIABLE alone ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "generate ${how}: exit ${code}\n${error}")
  endif()
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} generate --load ${WORK}/whole --prompt "w1 w2" --max-new-tokens 9 ${how}
    --pipeline-model-parallel-size 2 RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE error)
  if(NOT code EQUAL 0 OR NOT out STREQUAL alone)
    message(FATAL_ERROR "generate ${how} on two stages: exit ${code}\n${out}wanted ${alone}\n${error}")
  endif()
endforeach()
set(stages ${tiny} --train-iters 1 --pipeline-model-parallel-size 2)
set(split --pipeline-model-parallel-split-rank)
# Layers that are alike would have a bubble of 3 / 7, 42.9 %: those of the encoder have more to do here.
expect(RUN plan --model t5-tiny --micro-batch-size 2 --global-batch-size 8 --seq-length 64 --decoder-seq-length 32
  --pipeline-model-parallel-size 4 ${split} 2 --world-size 4 CODE 0
  OUT "pipeline bubble 48.2 % .passes of lengths in proportion to operations of layers x samples")
expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 4 ${split} 3 --world-size 4 CODE 2
  ERR "layout: 2 layers cannot fill 3 pipeline stages of the encoder; change --encoder-num-layers or --pipeline-model-parallel-split-rank")
expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 4 ${split} 2 --world-size 4
  --use-manual-layer-allocation --manual-layers 2,1,0,1 CODE 2
  ERR "--manual-layers: got [^\n]*, whose sum is --encoder-num-layers and --decoder-num-layers together, [0-9]")
expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 3 ${split} 1 --world-size 3
  --use-manual-layer-allocation --manual-layers 1,2,1 CODE 2
  ERR "--manual-layers: the 1 stages before --pipeline-model-parallel-split-rank have 1 layers, wanted the 2 of the encoder")
expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 2 --world-size 2 CODE 2
  ERR "--pipeline-model-parallel-split-rank: is not given; wanted 1, the first of the 2 stages that has the decoder .t5.")
foreach(rank 0 2)
  expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 2 ${split} ${rank} --world-size 2 CODE 2
    ERR "--pipeline-model-parallel-split-rank .the first stage of the decoder.: got ${rank}, wanted 1")
endforeach()
expect(RUN ${stages} ${split} 1 CODE 2 ERR "mesh: 1 process cannot form tensor 1 x pipeline 2")
expect(RUN ${tiny} --train-iters 1 ${split} 1 CODE 2 ERR "--pipeline-model-parallel-split-rank: needs --pipeline-model-parallel-size of 2 or more")
expect(RUN plan --model gpt2-tiny --pipeline-model-parallel-size 2 ${split} 1 --world-size 2 CODE 2
  ERR "--pipeline-model-parallel-split-rank: needs a model of an encoder and a decoder")
foreach(flags "--pipeline-schedule;zb-v" "--num-virtual-stages-per-pipeline-rank;2")
  expect(RUN plan --model t5-tiny --decoder-seq-length 32 --global-batch-size 8 --pipeline-model-parallel-size 2 ${split} 1
    --world-size 2 ${flags} CODE 2 ERR "--pipeline-model-parallel-split-rank: needs stages of one chunk")
endforeach()
expect(RUN plan --model t5-tiny --decoder-seq-length 32 --pipeline-model-parallel-size 2 ${split} 1 --world-size 2 --balance-layers
  CODE 2 ERR "--pipeline-model-parallel-split-rank: needs .*--balance-layers")
expect(RUN ${tiny} --variable-seq-lengths --train-iters 1 CODE 2 ERR "--variable-seq-lengths: is for decoders")
expect(RUN ${tiny} --train-iters 1 --lora-target-modules linear_qkv --load ${WORK}/whole CODE 2 ERR "--lora-target-modules: is for decoders")
expect(RUN pretrain --model gpt2-tiny --decoder-seq-length 8 --mock-data --train-iters 1 CODE 2
  ERR "--decoder-seq-length: is for --model-family t5; leave it out")
expect(RUN pretrain --model gpt2-tiny --position-embedding-type relative --mock-data --train-iters 1 CODE 2
  ERR "--position-embedding-type: relative is for --model-family t5")

# A checkpoint of one kind of model given to another kind.
expect(RUN pretrain --load ${WORK}/whole --finetune --model gpt2-tiny --mock-data --tokenizer-type ByteTokenizer --seq-length 32
  --train-iters 1 CODE 3
  ERR "whole/iter_0000008: is of an encoder with a decoder .t5., and this model is a decoder; give another checkpoint")
expect(RUN pretrain --model gpt2-tiny --mock-data --tokenizer-type ByteTokenizer --seq-length 32 --train-iters 1 --save ${WORK}/decoder CODE 0)
expect(RUN ${tiny} --load ${WORK}/decoder --finetune --train-iters 1 CODE 3
  ERR "decoder/iter_0000001: is of a decoder, and this model is an encoder with a decoder .t5.")
# The same sizes, and on from where it was.
expect(RUN pretrain --model gpt2-tiny --num-layers 2 --vocab-size 402 --mock-data --seq-length 32 --load ${WORK}/whole --save ${WORK}/whole
  --train-iters 20 CODE 2 ERR "--model-family|another experiment")
expect(RUN pretrain --model-family gpt2 --load ${folder} ${data} ${words} --train-iters 1 CODE 2
  ERR "--model-family: got gpt2, but the model of [^\n]* is an encoder with a decoder .t5.; leave the flag out")
