# piton eval --protocol mindspeed: MMLU as MindSpeed-LLM asks fine-tuned models, and with its alternative prompt; --limit.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(data ${SOURCE}/tests/golden/evaluation/data)
string(REPEAT "Question: To be, or not to be? Answer: B\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 256 --max-position-embeddings 256 --train-iters 10 --micro-batch-size 1 --lr 3e-3
  --save ${WORK}/run CODE 0)
set(eval eval --load ${WORK}/run --task-data-path ${data} --quiet)

function(expect_config folder key wanted)
  file(READ ${folder}/results.json results)
  string(JSON value GET "${results}" configs mmlu ${key})
  if(NOT value STREQUAL wanted)
    message(FATAL_ERROR "${folder}: ${key} is ${value} instead of ${wanted}")
  endif()
endfunction()

# The same answers on one and on two ranks, in both layouts. The flags mean --protocol mindspeed.
foreach(mode alternative chat)
  if(mode STREQUAL alternative)
    set(flags --alternative-prompt --origin-postprocess --max-new-tokens 16 --num-shots 2)
    set(variant "alternative prompt")
  else()
    set(flags --prompt-type empty --eval-language zh --seed 7)
    set(variant "fine-tuned template, zh")
  endif()
  execute_process(COMMAND ${PITON} ${eval} --task mmlu ${flags} --save-results ${WORK}/${mode}1 OUTPUT_VARIABLE one
    ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT one MATCHES "\\|mmlu\\|mindspeed\\|none\\|[25]\\|exact_match\\|")
    message(FATAL_ERROR "${mode}: exit ${code}\n${one}${err}")
  endif()
  expect_config(${WORK}/${mode}1 variant "${variant}")
  foreach(layout "" "--tensor-model-parallel-size;2")
    execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${eval} --task mmlu ${flags} ${layout} --save-results ${WORK}/${mode}2
      OUTPUT_VARIABLE two RESULT_VARIABLE code)
    file(READ ${WORK}/${mode}1/mmlu.jsonl first)
    file(READ ${WORK}/${mode}2/mmlu.jsonl second)
    if(NOT code EQUAL 0 OR NOT one STREQUAL two OR NOT first STREQUAL second)
      message(FATAL_ERROR "${mode} on two ranks ${layout}: exit ${code}\n${two}\ninstead of\n${one}")
    endif()
    file(REMOVE_RECURSE ${WORK}/${mode}2)
  endforeach()
endforeach()
file(STRINGS ${WORK}/alternative1/mmlu.jsonl lines)
list(GET lines 0 line)
string(JSON prompt GET "${line}" prompt)
if(NOT prompt MATCHES "There is a single choice question about anatomy. Answer the question by replying A, B, C or D. \nQuestion: ")
  message(FATAL_ERROR "not the alternative prompt: ${prompt}")
endif()
expect_config(${WORK}/chat1 chat_template ON)

# The command of AscendSpeed's README (BoolQ) and MindSpeed-LLM's script evaluate_qwen15_0point5b_ptd.sh, but for paths and sizes.
expect(RUN eval --task-data-path ${data}/boolq --task boolq --seq-length 128 --max-new-tokens 1 --max-position-embeddings 512
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 4 --hidden-size 64 --ffn-hidden-size 176
  --load ${WORK}/run --num-attention-heads 4 --tokenizer-type ByteTokenizer --tokenizer-not-use-fast --fp16
  --micro-batch-size 1 --seed 42 --protocol mindspeed CODE 0 OUT "boolq.mindspeed.none.0.acc")
expect(RUN eval --task-data-path ${data}/mmlu/test --task mmlu --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1 --seq-length 256 --max-new-tokens 1 --max-position-embeddings 8192 --num-layers 4
  --hidden-size 64 --ffn-hidden-size 176 --num-attention-heads 4 --disable-bias-linear --swiglu --position-embedding-type rope
  --load ${WORK}/run --normalization RMSNorm --tokenizer-type ByteTokenizer --tokenizer-not-use-fast
  --micro-batch-size 1 --exit-on-missing-checkpoint --no-load-rng --no-load-optim --add-qkv-bias
  --make-vocab-size-divisible-by 1 --padded-vocab-size 151936 --rotary-base 1000000 --no-gradient-accumulation-fusion
  --attention-softmax-in-fp32 --seed 42 --no-chat-template --alternative-prompt --origin-postprocess --num-shots 2
  CODE 0 OUT "mmlu.mindspeed.none.2.exact_match")

# needlebench: the same answers on one and on two ranks; the texts are cut by the model's tokenizer.
set(needles --protocol mindspeed --task needlebench --task-data-path ${SOURCE}/tests/golden/evaluation/mindspeed
  --needle-depths 0 50 --needle-languages en --needle-repeats 2 --max-new-tokens 8)
expect(RUN eval --load ${WORK}/run --quiet ${needles} --needle-lengths 90 180 --needle-buffer 20 --save-results ${WORK}/needles1
  CODE 0 OUT "needlebench.mindspeed.none.0.score.*needlebench_PaulGrahamEssays_90_50.mindspeed.none.0.acc")
file(READ ${WORK}/needles1/needlebench.jsonl first)
file(READ ${WORK}/needles1/results.json results)
string(JSON count GET "${results}" n-samples needlebench)
string(JSON variant GET "${results}" configs needlebench variant)
if(NOT count EQUAL 8 OR NOT variant STREQUAL "texts cut by the model's tokenizer")
  message(FATAL_ERROR "needlebench: ${count} questions, ${variant}")
endif()
foreach(layout "" "--tensor-model-parallel-size;2")
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} eval --load ${WORK}/run --quiet ${needles} --needle-lengths 90 180
    --needle-buffer 20 ${layout} --save-results ${WORK}/needles2 RESULT_VARIABLE code OUTPUT_QUIET)
  file(READ ${WORK}/needles2/needlebench.jsonl second)
  if(NOT code EQUAL 0 OR NOT first STREQUAL second)
    message(FATAL_ERROR "needlebench on two ranks ${layout}: exit ${code}")
  endif()
  file(REMOVE_RECURSE ${WORK}/needles2)
endforeach()
# The script of MindSpeed-LLM, evaluate_qwen2_7b_needle_bench_ptd.sh, but for sizes, paths and the length.
expect(RUN eval --load ${WORK}/run --use-mcore-models --task-data-path ${SOURCE}/tests/golden/evaluation/mindspeed/needlebench
  --task needlebench --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --seq-length 256
  --max-position-embeddings 256 --max-new-tokens 64 --num-layers 4 --disable-bias-linear --swiglu
  --position-embedding-type rope --normalization RMSNorm --micro-batch-size 1 --exit-on-missing-checkpoint --no-load-rng
  --no-load-optim --untie-embeddings-and-output-weights --add-qkv-bias --make-vocab-size-divisible-by 1 --rotary-base 1000000
  --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --seed 42 --group-query-attention --max-tokens-to-oom 131072
  --rope-scaling-beta-fast 32 --rope-scaling-beta-slow 1 --rope-scaling-factor 4 --rope-scaling-type yarn
  --rope-scaling-original-max-position-embeddings 32768 --needle-lengths 100 --needle-buffer 20 --needle-repeats 1
  CODE 0 OUT "needlebench.mindspeed.none.0.score")
expect(RUN eval --load ${WORK}/run --quiet ${needles} CODE 2 ERR "--needle-lengths: not given, and needlebench has lengths")

# --limit of lm-evaluation-harness: questions of each subject, or a share of them.
expect(RUN ${eval} --task mmlu --limit 1 --json CODE 0 OUT "\"n-samples\":{\"mmlu\":2,")
expect(RUN ${eval} --task mmlu --limit 0.5 --json CODE 0 OUT "\"n-samples\":{\"mmlu\":3,")

# Wrong inputs, found before the model is loaded.
set(none eval --load ${WORK}/no-such-run --task-data-path ${data})
expect(RUN ${none} --task mmlu --alternative-prompt --protocol lm-eval CODE 2 ERR "--alternative-prompt: works only with --protocol mindspeed")
expect(RUN ${none} --task mmlu --alternative-prompt --prompt-type qwen CODE 2 ERR "--alternative-prompt: got --prompt-type too")
expect(RUN ${none} --task boolq --alternative-prompt CODE 2 ERR "--alternative-prompt: works only with mmlu; leave it out")
expect(RUN ${none} --task mmlu boolq --prompt-type qwen CODE 2 ERR "--prompt-type: works only with mmlu; evaluate boolq without it")
expect(RUN ${none} --task mmlu --eval-language zh CODE 2 ERR "--eval-language: works only with --prompt-type")
expect(RUN ${none} --task mmlu --prompt-type qwen --eval-language de CODE 2 ERR "--eval-language: got .de., wanted one of en")
expect(RUN ${none} --task mmlu --prompt-type qwen --seed -1 CODE 2 ERR "--seed: got -1, wanted 0 to 4294967295")
expect(RUN ${none} --task mmlu --limit 0 CODE 2 ERR "--limit: got 0, wanted a whole number, or a share above 0 and below 1")
expect(RUN ${none} --task mmlu --limit 1.5 CODE 2 ERR "--limit: got 1.5, wanted a whole number")
expect(RUN ${none} --task mmlu --limit 2 --max-eval-samples 2 CODE 2 ERR "--limit: got --max-eval-samples too")
expect(RUN ${eval} --task mmlu --prompt-type none-such CODE 2 ERR "none-such")
expect(RUN ${none} --protocol lm-eval --task needlebench CODE 2 ERR "--task: needlebench is a task of --protocol mindspeed, and --protocol is lm-eval")
expect(RUN ${none} --task boolq --needle-lengths 100 CODE 2 ERR "--needle-lengths: works only with needlebench; leave it out")
expect(RUN ${none} --task needlebench CODE 2 ERR "needles.jsonl is not in it; wanted needles.jsonl, and Paul")
expect(RUN ${none} --protocol mindspeed --task needlebench --num-shots 2 CODE 2 ERR "--num-shots: got 2, and needlebench has no examples")
