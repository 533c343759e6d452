# pretrain --model-family bert: a run, its resume to the bit, evaluation, types of numbers, two ranks, Hugging Face folders,
# and the messages for what is not for encoders.
include(${SOURCE}/tests/support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/masked)
set(words --tokenizer-type BertWordPieceLowerCase --vocab-file ${golden}/vocab.txt)
set(data --data-path ${golden}/x --split 80,15,5 --seq-length 64)
set(tiny pretrain --model bert-tiny ${data} ${words} --micro-batch-size 4 --lr 1e-3)

# Flags of Megatron-LM's examples/bert/train_bert_340m_distributed.sh.
expect(RUN pretrain --model-family bert --num-layers 2 --hidden-size 32 --num-attention-heads 4 --max-position-embeddings 64
  --micro-batch-size 2 --global-batch-size 4 --train-iters 3 --weight-decay 1e-2 --clip-grad 1.0 --fp16 --lr 0.0001
  --lr-decay-style linear --min-lr 1.0e-5 --lr-warmup-fraction .01 --mask-prob 0.15 --short-seq-prob 0.1
  --init-method-std 0.02 --vocab-file ${golden}/vocab.txt --initial-loss-scale 65536 --log-interval 1 --eval-iters 1 ${data}
  --attention-dropout 0.1 --hidden-dropout 0.1 CODE 0
  ERR "x: train set: [0-9]+ samples of 96 documents" "masked lm loss: " "sop loss: " "validation loss")

# A run in one piece, and in two with evaluation, both with dropout.
expect(RUN ${tiny} --train-iters 8 --save ${WORK}/whole CODE 0 ERR "masked lm loss: " "sop loss: ")
file(READ ${WORK}/whole/samples.txt shown)
if(NOT shown MATCHES "--- sample 0: .*\\[MASK\\]{-")
  message(FATAL_ERROR "samples.txt: ${shown}")
endif()
expect(RUN ${tiny} --train-iters 8 --exit-interval 3 --save ${WORK}/parts CODE 0)
expect(RUN ${tiny} --train-iters 8 --eval-interval 4 --eval-iters 2 --save ${WORK}/parts --load ${WORK}/parts CODE 0
  ERR "resumed .*iteration 3," "validation loss.*sop loss")
expect_same_state(whole parts)
expect(RUN ${tiny} --train-iters 8 --mask-prob 0.2 --save ${WORK}/whole --load ${WORK}/whole CODE 2 ERR "--mask-prob: ")
expect(RUN ${tiny} --train-iters 2 --bf16 --apply-residual-connection-post-layernorm CODE 0 ERR "iteration +2/ +2 ")
expect(RUN ${tiny} --train-iters 2 --bert-no-binary-head --recompute-granularity full --recompute-method uniform CODE 0
  ERR "iteration +2/ +2 ")
execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tiny} --train-iters 9 --tensor-model-parallel-size 2 --sequence-parallel
  --load ${WORK}/whole --save ${WORK}/split --override-opt_param-scheduler RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0 OR NOT error MATCHES "iteration +9/ +9 ")
  message(FATAL_ERROR "two ranks: exit ${code}\n${error}")
endif()

# To Hugging Face and back; the folder starts a run.
expect(RUN convert --load ${WORK}/whole --save ${WORK}/hf --to hf CODE 0)
file(READ ${WORK}/hf/config.json config)
if(NOT config MATCHES "MegatronBertForPreTraining")
  message(FATAL_ERROR "${config}")
endif()
expect(RUN convert --load ${WORK}/hf --save ${WORK}/back --to piton CODE 0)
expect(RUN pretrain --load ${WORK}/hf ${data} ${words} --train-iters 1 --micro-batch-size 4 --lr 1e-3 CODE 0 ERR "sop loss: ")
# To Megatron's files, for two tensor ranks and two stages, and back; they start a run.
expect(RUN convert --load ${WORK}/whole --save ${WORK}/mg --to mg --target-tensor-parallel-size 2 --target-pipeline-parallel-size 2 CODE 0
  ERR "has a head with the GELU of its layers, which Megatron-LM does not know")
expect(RUN convert --load ${WORK}/mg --save ${WORK}/core --to mg --use-mcore-models CODE 0)
expect(RUN convert --load ${WORK}/core --save ${WORK}/hf-again --to hf CODE 0)
file(SHA256 ${WORK}/hf/model.safetensors one)
file(SHA256 ${WORK}/hf-again/model.safetensors other)
if(NOT one STREQUAL other)
  message(FATAL_ERROR "Megatron's files changed the weights")
endif()
expect(RUN pretrain --load ${WORK}/core ${data} ${words} --train-iters 1 --micro-batch-size 4 --lr 1e-3 CODE 0 ERR "sop loss: ")
expect(RUN ${tiny} --exact-gelu-head --train-iters 1 --save ${WORK}/exact CODE 0)
expect(RUN convert --load ${WORK}/exact --save ${WORK}/mg-exact --to mg --megatron-args CODE 0)
expect(RUN convert --load ${WORK}/mg-exact --save ${WORK}/exact-again --to piton CODE 0)
expect(RUN convert --load ${WORK}/exact --save ${WORK}/none --to hf CODE 3 ERR "no family of Hugging Face holds this model")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/dist --to mg --ckpt-format torch_dist CODE 0)
expect(RUN convert --load ${WORK}/dist --save ${WORK}/hf-dist --to hf CODE 0)
file(SHA256 ${WORK}/hf-dist/model.safetensors other)
if(NOT one STREQUAL other)
  message(FATAL_ERROR "torch_dist changed the weights")
endif()
expect(RUN pretrain --load ${WORK}/dist ${data} ${words} --train-iters 1 --micro-batch-size 4 --lr 1e-3 CODE 0 ERR "sop loss: ")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/none.gguf --to gguf CODE 3 ERR "an encoder .bert. cannot be expressed in the format gguf")

# A vocabulary of words with a full stop, before which Megatron's tokenizer writes a space and Transformers' none; with and
# without capitals, which the folder records.
file(WRITE ${WORK}/words.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nto\nTo\nbe\nis\ndo\n.\n")
file(WRITE ${WORK}/words.jsonl "")
foreach(number RANGE 1 40)
  file(APPEND ${WORK}/words.jsonl "{\"text\": \"To be is to do. to do is to be. do be do. is be to. be is. do to be is.\"}\n")
endforeach()
foreach(case LowerCase Case)
  set(words_of --tokenizer-type BertWordPiece${case} --vocab-file ${WORK}/words.txt)
  expect(RUN preprocess --input ${WORK}/words.jsonl --split-sentences ${words_of} --output-prefix ${WORK}/${case} CODE 0)
  expect(RUN pretrain --model bert-tiny --data-path ${WORK}/${case}_text_sentence ${words_of} --split 90,10,0 --seq-length 40
    --micro-batch-size 4 --lr 1e-3 --train-iters 2 --save ${WORK}/run-${case} CODE 0)
  expect(RUN convert --load ${WORK}/run-${case} --save ${WORK}/hf-${case} --to hf CODE 0 OUT "the tokenizers give the same ids")
  file(READ ${WORK}/hf-${case}/tokenizer_config.json config)
  if((case STREQUAL Case AND NOT config MATCHES "\"do_lower_case\": false") OR (case STREQUAL LowerCase AND NOT config MATCHES "\"do_lower_case\": true"))
    message(FATAL_ERROR "BertWordPiece${case}: ${config}")
  endif()
  file(WRITE ${WORK}/lines.txt "To be.\nis to do.\n")
  foreach(model run hf)
    expect(RUN embed --load ${WORK}/${model}-${case} --output ${WORK}/${model}-${case}.npy ${WORK}/lines.txt CODE 0)
    file(SHA256 ${WORK}/${model}-${case}.npy ${model}_vectors)
  endforeach()
  if(NOT run_vectors STREQUAL hf_vectors)
    message(FATAL_ERROR "BertWordPiece${case}: the folder has other vectors than the run")
  endif()
endforeach()

# RoBERTa: the id of padding is 1, positions begin after it, one part.
file(WRITE ${WORK}/roberta.txt "[CLS]\n[PAD]\n[SEP]\n[UNK]\n[MASK]\nto\nbe\nis\ndo\n.\n")
set(pages "")
foreach(number RANGE 1 40)
  string(APPEND pages "{\"text\": \"to be is to do. to do is to be. do be do. is be to. be is. do to be is.\"}\n")
endforeach()
file(WRITE ${WORK}/roberta.jsonl "${pages}")
set(ones --tokenizer-type BertWordPieceLowerCase --vocab-file ${WORK}/roberta.txt)
expect(RUN preprocess --input ${WORK}/roberta.jsonl --split-sentences ${ones} --output-prefix ${WORK}/roberta CODE 0)
set(corpus --data-path ${WORK}/roberta_text_sentence ${ones} --split 90,10,0 --seq-length 40)
set(roberta pretrain --model bert-tiny ${corpus} --apply-residual-connection-post-layernorm --bert-no-binary-head --token-types 1
  --first-position 2 --max-position-embeddings 42 --micro-batch-size 4 --lr 1e-3)
expect(RUN ${roberta} --train-iters 6 --save ${WORK}/roberta-run CODE 0 ERR "iteration +6/ +6 ")
expect(RUN inspect samples --model-family bert ${corpus} --bert-no-binary-head --short-seq-prob 0.9 --json CODE 0
  OUT "\"ids\":.0,[0-9,]*2,0,0,0[0,]*." "\"padding_mask\":.1,[1,]*1,0,0,0[0,]*.")
expect(RUN convert --load ${WORK}/roberta-run --save ${WORK}/roberta-hf --to hf CODE 0)
file(READ ${WORK}/roberta-hf/config.json config)
if(NOT config MATCHES "RobertaForMaskedLM" OR NOT config MATCHES "\"pad_token_id\": 1")
  message(FATAL_ERROR "${config}")
endif()
expect(RUN pretrain --load ${WORK}/roberta-hf ${corpus} --micro-batch-size 4 --lr 1e-3 --train-iters 1 CODE 0 ERR "iteration +1/ +1 ")
# Two parts with that vocabulary.
expect(RUN pretrain --model bert-tiny ${corpus} --micro-batch-size 4 --lr 1e-3 --train-iters 1 CODE 0 ERR "iteration +1/ +1 " "sop loss: ")
expect(RUN plan --model bert-110m --micro-batch-size 4 CODE 0)

# Vectors of lines: one a line, the same from the run and from the folder.
file(WRITE ${WORK}/lines.txt "w1 w2 w3\nw4\n\nw1 w2 w3\n")
foreach(model whole hf)
  expect(RUN embed --load ${WORK}/${model} ${words} --output ${WORK}/${model}.npy ${WORK}/lines.txt CODE 0 ERR "4 vectors of 64")
endforeach()
file(SHA256 ${WORK}/whole.npy one)
file(SHA256 ${WORK}/hf.npy other)
if(NOT one STREQUAL other)
  message(FATAL_ERROR "the vectors of the run and of the folder differ")
endif()
expect(RUN embed --load ${WORK}/hf ${words} --pooling first --normalize --save ${WORK}/v.safetensors ${WORK}/lines.txt CODE 0)
expect(RUN embed --load ${WORK}/hf ${words} --output ${WORK}/v.txt ${WORK}/lines.txt CODE 2 ERR "--output: got .*wanted a file F.safetensors or F.npy")
expect(RUN embed --load ${WORK}/hf --output ${WORK}/v.npy ${WORK}/none.txt CODE 3 ERR "none.txt")
expect(RUN embed --load ${SOURCE}/tests/golden/huggingface/gpt2 --output ${WORK}/v.npy ${WORK}/lines.txt CODE 3
  ERR "is a decoder .gpt2., which continues texts; wanted an encoder")
expect(RUN embed --load ${SOURCE}/tests/golden/encoders/bert --output ${WORK}/v.npy ${WORK}/lines.txt CODE 3 ERR "has no tokenizer")

# What does not fit.
expect(RUN generate --load ${WORK}/whole --prompt "a" CODE 3 ERR "is an encoder .bert., which predicts masked words")
expect(RUN score --load ${WORK}/hf ${WORK}/lines.txt CODE 3 ERR "is an encoder .bert.")
expect(RUN pretrain --model bert-tiny --mock-data --train-iters 1 ${words} CODE 2 ERR "--mock-data: is not for samples of --model-family bert")
expect(RUN pretrain --model bert-tiny ${data} --train-iters 1 CODE 2 ERR "--model-family bert: masking needs the words of the vocabulary")
expect(RUN ${tiny} --train-iters 1 --position-embedding-type rope CODE 2 ERR "--position-embedding-type: an encoder .bert. has learned_absolute positions")
expect(RUN ${tiny} --train-iters 1 --token-types 1 CODE 2 ERR "--token-types: got 1, wanted 2")
expect(RUN ${tiny} --train-iters 1 --lora-target-modules linear_qkv --load ${WORK}/whole CODE 2 ERR "--lora-target-modules without --stage classify: is for decoders")
expect(RUN ${tiny} --train-iters 1 --neftune-noise-alpha 5 CODE 2 ERR "--neftune-noise-alpha: is for decoders")
expect(RUN pretrain --model gpt2-tiny --bert-no-binary-head --mock-data --train-iters 1 CODE 2 ERR "--bert-no-binary-head: is for --model-family bert")
expect(RUN pretrain --model gpt2-tiny --mask-prob 0.2 --mock-data --train-iters 1 --seq-length 32 CODE 2 ERR "--mask-prob, --short-seq-prob: are for")
foreach(token CLS SEP MASK)
  set(pieces "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
  string(REPLACE "[${token}]\n" "" pieces "${pieces}")
  file(WRITE ${WORK}/few.txt "${pieces}")
  expect(RUN pretrain --model bert-tiny ${data} --vocab-file ${WORK}/few.txt --tokenizer-type BertWordPieceLowerCase --train-iters 1
    CODE 2 ERR "the tokenizer .WordPiece of [0-9]+ ids. has no .${token}.; wanted one with it")
endforeach()
expect(RUN embed --load ${WORK}/roberta-hf ${ones} --output ${WORK}/v.npy ${WORK}/lines.txt CODE 0 ERR "4 vectors of 64")
expect(RUN embed --load ${WORK}/hf ${words} --pooling pooler --output ${WORK}/v.npy ${WORK}/lines.txt CODE 0)
expect(RUN embed --load ${WORK}/roberta-hf ${ones} --pooling pooler --output ${WORK}/v.npy ${WORK}/lines.txt CODE 2
  ERR "--pooling pooler: the model has no pooler; wanted mean or first")

# A checkpoint of one kind of model given to another kind.
set(decoder pretrain --model gpt2-tiny --mock-data --tokenizer-type ByteTokenizer --seq-length 32 --train-iters 1)
expect(RUN ${decoder} --load ${WORK}/whole --finetune CODE 3
  ERR "whole/iter_0000008: is of an encoder .bert., and this model is a decoder; give another checkpoint, or the flags of its model")
expect(RUN ${decoder} --save ${WORK}/decoder CODE 0)
expect(RUN ${tiny} --load ${WORK}/decoder --finetune --train-iters 1 CODE 3
  ERR "decoder/iter_0000001: is of a decoder, and this model is an encoder .bert.")
expect(RUN pretrain --model-family gpt2 --load ${WORK}/hf ${data} ${words} --train-iters 1 CODE 2
  ERR "--model-family: got gpt2, but the model of [^\n]* is an encoder .bert.; leave the flag out")
expect(RUN pretrain --model-family bert --load ${SOURCE}/tests/golden/huggingface/gpt2 ${data} ${words} --train-iters 1 CODE 2
  ERR "--model-family: got bert, but the model of [^\n]* is a decoder; leave the flag out")

# Sentences given to a decoder, as by Megatron-LM's script without the name of pretrain_bert.py.
foreach(part bin idx)
  file(COPY_FILE ${golden}/x.${part} ${WORK}/x_text_sentence.${part})
endforeach()
set(sentences ${words} --data-path ${WORK}/x_text_sentence --seq-length 64 --micro-batch-size 2 --train-iters 1 --eval-iters 0)
expect(RUN pretrain --model gpt2-tiny ${sentences} CODE 0
  ERR "warning: [^ ]*/x_text_sentence: is divided into sentences, [^\n]* the model is a decoder; give --model-family bert or t5")
execute_process(COMMAND ${PITON} pretrain --model bert-tiny ${sentences} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT code EQUAL 0 OR text MATCHES "divided into sentences")
  message(FATAL_ERROR "BERT on sentences: exit ${code}\n${text}")
endif()
