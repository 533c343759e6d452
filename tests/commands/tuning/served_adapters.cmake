# --lora-modules: adapters of a run and of PEFT beside one base, chosen by the model of a request or of a prompt.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()
expect(RUN pretrain --model llama-tiny --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document
  --seq-length 64 --split 100,0,0 --micro-batch-size 2 --train-iters 30 --lr 3e-3 --save ${WORK}/start CODE 0)
expect(RUN convert --load ${WORK}/start --save ${WORK}/base CODE 0)
foreach(kind sums words)
  set(rows "")
  foreach(i RANGE 1 24)
    if(kind STREQUAL "sums")
      string(APPEND rows "{\"instruction\": \"What is ${i} and 1?\", \"input\": \"\", \"output\": \"It is ${i}1.\"}\n")
    else()
      string(APPEND rows "{\"instruction\": \"What is ${i} and 1?\", \"input\": \"\", \"output\": \"nothing but words\"}\n")
    endif()
  endforeach()
  file(WRITE ${WORK}/${kind}.jsonl "${rows}")
  expect(RUN preprocess --input ${WORK}/${kind}.jsonl --handler-name AlpacaStyleInstructionHandler --prompt-type empty
    --tokenizer-type ByteTokenizer --output-prefix ${WORK}/${kind} CODE 0)
endforeach()
set(tune finetune --load ${WORK}/base --split 100,0,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2
         --tokenizer-type ByteTokenizer)
expect(RUN ${tune} --data-path ${WORK}/sums --lora-target-modules all-linear --lora-r 4 --train-iters 12 --save ${WORK}/first CODE 0)
expect(RUN ${tune} --data-path ${WORK}/words --lora-target-modules qkv_proj down_proj --lora-r 2 --use-dora --train-iters 12
  --save ${WORK}/dora CODE 0)
expect(RUN convert --load ${WORK}/dora --save ${WORK}/second --to peft CODE 0)
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/../serve/adapters.sh ${PITON} ${LAUNCH} ${WORK}
  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "exit ${code}\n${out}\n${err}")
endif()

# Wrong adapters.
set(serve serve --load ${WORK}/base --tokenizer-type ByteTokenizer --port 0)
expect(RUN ${serve} --lora-modules first CODE 2 ERR "--lora-modules: got .first., wanted NAME=FOLDER")
expect(RUN ${serve} --lora-modules first= CODE 2 ERR "--lora-modules: got .first=., wanted NAME=FOLDER")
expect(RUN ${serve} --lora-modules a=${WORK}/first a=${WORK}/second CODE 2 ERR "--lora-modules: two models have the name a; ")
expect(RUN ${serve} --lora-modules base=${WORK}/first CODE 2 ERR "--lora-modules: two models have the name base; ")
expect(RUN ${serve} --lora-load ${WORK}/first --lora-modules a=${WORK}/second CODE 2 ERR "--lora-load, --lora-modules: an adapter of every text")
expect(RUN serve --load ${WORK}/first --lora-modules a=${WORK}/second CODE 2 ERR "first: are adapters of every text, and \"a\" is one to choose")
expect(RUN ${serve} --lora-modules a=${WORK}/absent CODE 3 ERR "absent")
expect(RUN ${serve} --lora-modules a=${WORK}/start CODE 3 ERR "is a checkpoint of a whole model, wanted one of a run with --lora-target-modules")
expect(RUN ${tune} --data-path ${WORK}/sums --lora-target-modules q_proj --lora-modules-to-save norms --train-iters 1
  --save ${WORK}/with-norms CODE 0)
expect(RUN ${serve} --adapter a=${WORK}/with-norms CODE 2 ERR "with-norms: trains .*norm.* in full, and adapters to choose from share all ")
# Of another base.
expect(RUN pretrain --model llama-tiny --tokenizer-type ByteTokenizer --data-path ${WORK}/corpus_text_document
  --seq-length 64 --split 100,0,0 --micro-batch-size 2 --train-iters 1 --save ${WORK}/other CODE 0)
expect(RUN serve --load ${WORK}/other --port 0 --lora-modules a=${WORK}/first CODE 3
  ERR "first.*: was trained on a model whose weights have the hash ")

# Prompts that choose.
file(WRITE ${WORK}/unknown.jsonl "{\"prompt\": \"a\", \"model\": \"base\"}\n{\"prompt\": \"a\", \"model\": \"third\"}\n")
set(generate generate --load ${WORK}/base --tokenizer-type ByteTokenizer)
expect(RUN ${generate} --prompts ${WORK}/unknown.jsonl --lora-modules first=${WORK}/first CODE 3
  ERR "unknown.jsonl: line 2: model: got .third., wanted one of .base., .first. [(]--lora-modules adds adapters[)]")
file(WRITE ${WORK}/number.jsonl "{\"prompt\": \"a\", \"model\": 1}\n")
expect(RUN ${generate} --prompts ${WORK}/number.jsonl CODE 3 ERR "number.jsonl: line 1: model: got 1, wanted one of .base. ")
expect(RUN ${generate} --prompt a --lora-modules first=${WORK}/first CODE 2
  ERR "--lora-modules: works only with --prompts FILE.jsonl, ")
expect(RUN ${generate} --prompts ${WORK}/unknown.jsonl --num-beams 2 --lora-modules first=${WORK}/first CODE 2
  ERR "--num-beams: cannot be combined with --lora-modules; leave one out")
expect(RUN ${generate} --prompts ${WORK}/unknown.jsonl --lora-modules first CODE 2
  ERR "--lora-modules: got .first., wanted NAME=FOLDER")
