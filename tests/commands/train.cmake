# From raw text to a scored model, with a resume in between: the commands of a new user.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")

expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(run pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
        --seq-length 48 --micro-batch-size 2 --global-batch-size 4 --train-iters 12 --lr 1e-3
        --split 90,10,0 --eval-iters 1 --hidden-dropout 0.1)

# Twelve steps at once, and twelve with a stop after six.
expect(RUN ${run} --save ${WORK}/whole CODE 0 ERR "validation loss at iteration 12" "saved ")
expect(RUN ${run} --save ${WORK}/parts --exit-interval 6 CODE 0)
expect(RUN ${run} --save ${WORK}/parts --load ${WORK}/parts CODE 0 ERR "resumed .*iteration 6,")
foreach(folder whole parts)
  execute_process(COMMAND ${PITON} inspect ${WORK}/${folder} --hash --json OUTPUT_VARIABLE hash_${folder})
endforeach()
if(NOT hash_whole MATCHES "weights" OR NOT hash_whole STREQUAL hash_parts)
  message(FATAL_ERROR "a resumed run ends elsewhere: ${hash_whole} ${hash_parts}")
endif()
file(STRINGS ${WORK}/parts/metrics.jsonl lines)
list(LENGTH lines count)
if(NOT count EQUAL 12)
  message(FATAL_ERROR "metrics.jsonl has ${count} lines, wanted 12")
endif()

# A run whose tokenizer was named by its folder alone.
set(tokenizer ${SOURCE}/../shared/data/tokenizers/llama2)
if(EXISTS ${tokenizer})
  expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-name-or-path ${tokenizer} --output-prefix ${WORK}/words CODE 0)
  expect(RUN pretrain --model llama-tiny --data-path ${WORK}/words_text_document --split 100,0,0
             --tokenizer-name-or-path ${tokenizer} --seq-length 16 --train-iters 1 --save ${WORK}/words_run CODE 0)
  expect(RUN generate --load ${WORK}/words_run --prompt "To be" --max-new-tokens 2 CODE 0)
else()
  message(STATUS "skipped: ${tokenizer} is not here")
endif()

# Four ranks give the same losses, and the checkpoint of four is read by one.
execute_process(COMMAND ${LAUNCH} 4 ${PITON} ${run} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
                        --save ${WORK}/four RESULT_VARIABLE code OUTPUT_VARIABLE error ERROR_VARIABLE error)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "four ranks: exit ${code}\n${error}")
endif()
expect(RUN score --load ${WORK}/four ${WORK}/text.txt CODE 0 OUT "^loss [0-9.]+ nats a token")
expect(RUN score --load ${WORK}/whole ${WORK}/text.txt --json --logits ${WORK}/logits.safetensors
           --gradients ${WORK}/gradients.safetensors CODE 0 OUT "\"log_likelihood\"")
if(NOT EXISTS ${WORK}/logits.safetensors OR NOT EXISTS ${WORK}/gradients.safetensors)
  message(FATAL_ERROR "score wrote no logits or gradients")
endif()

expect(RUN generate --load ${WORK}/whole --prompt "To be" --greedy --max-new-tokens 8 CODE 0 OUT ".")
expect(RUN generate --load ${WORK}/whole --prompt-ids 84,111 --max-new-tokens 4 --json CODE 0 OUT "\"ids\":" "\"log_probabilities\":")
# Two ranks write and score what one does; only the first prints.
foreach(layout --tensor-model-parallel-size=2 --pipeline-model-parallel-size=2 --zero-stage=3)
  foreach(words "generate;--prompt-ids;84,111;--max-new-tokens;8;--greedy;--json"
                "score;${WORK}/text.txt")
    execute_process(COMMAND ${PITON} ${words} --load ${WORK}/whole OUTPUT_VARIABLE alone)
    execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${words} --load ${WORK}/whole ${layout}
                    RESULT_VARIABLE code OUTPUT_VARIABLE together ERROR_VARIABLE error)
    # Ids are equal; log-probabilities may differ in their last digits.
    string(REGEX REPLACE "\"log_probabilities.*" "" alone "${alone}")
    string(REGEX REPLACE "\"log_probabilities.*" "" together "${together}")
    if(NOT code EQUAL 0 OR NOT alone STREQUAL together OR alone STREQUAL "")
      message(FATAL_ERROR "two ranks with ${layout}: exit ${code}\n${words}\n${alone}\n${together}\n${error}")
    endif()
  endforeach()
endforeach()
execute_process(COMMAND ${LAUNCH} 2 ${PITON} generate --load ${WORK}/whole --prompt a
                RESULT_VARIABLE code ERROR_VARIABLE error)
if(NOT code EQUAL 2 OR NOT error MATCHES "2 processes, and tensor 1 x pipeline 1 has work for 1")
  message(FATAL_ERROR "two ranks without a layout: exit ${code}\n${error}")
endif()
expect(RUN inspect ${WORK}/whole --loss CODE 0 OUT "^ +[0-9.]+ \\|" "\n +1 +12\n" "[.] training loss, o validation loss\n")
expect(RUN inspect ${WORK}/nowhere --loss CODE 3 ERR "nowhere")
expect(RUN inspect ${WORK}/whole CODE 0 OUT "iteration 12" "embedding.token.weight")

# Without --save, nothing is kept, and that is reported; with it, what an earlier run left of its failure is removed.
expect(RUN ${run} CODE 0 ERR "nothing of this run will be kept")
file(MAKE_DIRECTORY ${WORK}/failed)
file(WRITE ${WORK}/failed/failure.json "{\"fault\": \"peer\"}")
expect(RUN ${run} --save ${WORK}/failed --seed 4294967297 --train-iters 0 CODE 2)
if(NOT EXISTS ${WORK}/failed/failure.json)
  message(FATAL_ERROR "a command that is refused took away another run's failure.json")
endif()
expect(RUN ${run} --save ${WORK}/failed --seed 4294967297 CODE 0 ERR "low 32 bits, 1,")
if(EXISTS ${WORK}/failed/failure.json)
  message(FATAL_ERROR "failure.json survived a run that ended well")
endif()

# What can go wrong, in one line each.
expect(RUN ${run} --save ${WORK}/whole CODE 2 ERR "already holds a run")
expect(RUN ${run} --load ${WORK}/parts --save ${WORK}/parts --adam-beta1 0.5 CODE 2 ERR "another experiment" "adam-beta1")
expect(RUN ${run} --load ${WORK}/parts --save ${WORK}/parts --weight-decay 0.5 CODE 2
       ERR "another schedule of learning rate or weight decay: --weight-decay")
expect(RUN pretrain --model lama-tiny CODE 2 ERR "did you mean llama-tiny")
expect(RUN pretrain --model llama-tiny --train-iters 1 CODE 2 ERR "--data-path")
set(bare pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer --train-iters 2)
expect(RUN ${bare} --micro-batch-size 2 --global-batch-size 3 --save ${WORK}/x CODE 2 ERR "--global-batch-size: got 3, wanted a multiple of 2")
expect(RUN ${bare} --global-batch-size 4294967296 CODE 2 ERR "--global-batch-size: micro-batches of a step: got 4294967296, wanted 1 to 1048576")
expect(RUN ${bare} --micro-batch-size 2147483647 CODE 2 ERR "--micro-batch-size x --seq-length: got")
expect(RUN ${bare} --exit-interval 0 CODE 2 ERR "--exit-interval: got 0, wanted 1 or more")
expect(RUN ${bare} --max-consecutive-skips 0 CODE 2 ERR "--max-consecutive-skips: got 0, wanted 1 or more")
expect(RUN ${bare} --pad-vocab-size-to 9223372036854775807 CODE 2 ERR "--padded-vocab-size .--pad-vocab-size-to.: got 9223372036854775807, wanted 0 to")
expect(RUN ${bare} --hidden-size 9223372036854775807 CODE 2 ERR "--hidden-size: got 9223372036854775807, wanted 1 to")
expect(RUN ${bare} --distributed-timeout-minutes 0 CODE 2 ERR "--distributed-timeout-minutes: got 0, wanted more than 0")
expect(RUN ${run} --tensor-model-parallel-size 2 --save ${WORK}/x CODE 2 ERR "tensor")
expect(RUN ${run} --sequence-parallel --save ${WORK}/alone CODE 0
  OUT "--sequence-parallel: has no effect: --tensor-model-parallel-size is 1")
expect(RUN ${bare} --seq-length 4096 --save ${WORK}/x CODE 2 ERR "--seq-length: got 4096, wanted at most")
expect(RUN ${bare} --kernels cuda --save ${WORK}/x CODE 2 ERR "cuda")
expect(RUN generate --load ${WORK}/nowhere --prompt x CODE 3 ERR "nowhere")
expect(RUN generate --load ${WORK}/whole --prompt-ids 999 CODE 2 ERR "id 999")
expect(RUN generate --load ${WORK}/whole --prompt x --top-p 2 CODE 2 ERR "--top-p")
expect(RUN score --load ${WORK}/whole CODE 2 ERR "FILE of text")

# A folder that is not there, without a model for a new run.
expect(RUN pretrain --load ${WORK}/nowhere --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
           --seq-length 48 --train-iters 1 CODE 2 ERR "--load: there is no .*nowhere, and no model is named; check the path")

# A model that no host can hold is refused before anything is allocated or written.
expect(RUN ${run} --hidden-size 65536 --num-attention-heads 64 --num-layers 96 --save ${WORK}/too_large CODE 4
           ERR "memory of .*: the run needs [0-9.]+ GB for 1 rank .parameters .* are left; use")
if(EXISTS ${WORK}/too_large)
  message(FATAL_ERROR "a refused run made its folder")
endif()
