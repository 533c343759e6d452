# Three steps of 2 x 256 of the benchmarked models: one thread and two threads give the same bits of weights
# and optimizer state. Needs 4 GB and a few minutes.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
write_corpus()

foreach(model gpt2-124m llama-134m)
  foreach(threads 1 2)
    expect(RUN pretrain --model ${model} --bf16 --vocab-size 32000 --data-path ${WORK}/corpus_text_document
               --tokenizer-type ByteTokenizer --split 1,0,0 --seq-length 256 --micro-batch-size 2 --train-iters 3 --lr 1e-3
               --threads ${threads} --save ${WORK}/${model}_${threads} CODE 0)
    execute_process(COMMAND ${PITON} inspect ${WORK}/${model}_${threads} --hash --json OUTPUT_VARIABLE hash_${threads})
    file(REMOVE_RECURSE ${WORK}/${model}_${threads})
  endforeach()
  if(NOT hash_1 MATCHES "weights" OR NOT hash_1 STREQUAL hash_2)
    message(FATAL_ERROR "${model}: one thread ends with ${hash_1}, two with ${hash_2}")
  endif()
endforeach()
