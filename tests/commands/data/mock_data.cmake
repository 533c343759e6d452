# --mock-data: training without a corpus.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

set(run pretrain --mock-data --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 256
        --max-position-embeddings 256 --vocab-size 100 --tokenizer-type NullTokenizer --global-batch-size 4
        --lr 1e-3 --lr-decay-style constant --log-interval 1 --eval-iters 2 --eval-interval 2 --eod-mask-loss)

# losses(VARIABLE text): of training and validation, in order.
function(losses variable text)
  string(REGEX MATCHALL "(lm loss|loss at iteration [0-9]+[^:]*lm loss value): [0-9.E+-]+" found "${text}")
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()
function(train variable)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit ${code}\n${out}${err}")
  endif()
  losses(found "${out}")
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()
function(same name a b)
  if(NOT a STREQUAL b)
    message(FATAL_ERROR "${name}: got ${a}, wanted ${b}")
  endif()
endfunction()

train(whole ${PITON} ${run} --train-iters 4 --save ${WORK}/whole)
list(LENGTH whole count)
if(count LESS 6)
  message(FATAL_ERROR "wanted four losses and two of validation: ${whole}")
endif()
# The same again, another seed, two ranks, a resume.
train(again ${PITON} ${run} --train-iters 4)
same(again "${again}" "${whole}")
train(other ${PITON} ${run} --train-iters 4 --seed 7)
if(other STREQUAL whole)
  message(FATAL_ERROR "--seed changes nothing")
endif()
# Each dropout takes effect.
train(kept ${PITON} ${run} --train-iters 1 --attention-dropout 0 --hidden-dropout 0)
foreach(dropout attention hidden)
  train(dropped ${PITON} ${run} --train-iters 1 --attention-dropout 0 --hidden-dropout 0 --${dropout}-dropout 0.5)
  if(dropped STREQUAL kept)
    message(FATAL_ERROR "--${dropout}-dropout changes nothing")
  endif()
endforeach()
train(two ${LAUNCH} 2 ${PITON} ${run} --train-iters 4)
same("two ranks" "${two}" "${whole}")
train(first ${PITON} ${run} --train-iters 2 --save ${WORK}/part)
train(rest ${PITON} ${run} --train-iters 4 --load ${WORK}/part --save ${WORK}/part)
list(FILTER first EXCLUDE REGEX "on test set")  # at the end of each run
same(resumed "${first};${rest}" "${whole}")

# The ids of a tokenizer; its end of documents ends the sequences.
expect(RUN inspect samples --mock-data --tokenizer-type ByteTokenizer --seq-length 4000 --count 1 --json CODE 0
  OUT "[0-9],256,1,2,3,4")
expect(RUN inspect samples --mock-data --model gpt2-tiny --vocab-size 40 --seq-length 64 --count 1 --json CODE 0
  OUT "^{\"index\":0,\"ids\":.([0-9],|[123][0-9],)+")

# What does not go together.
expect(RUN ${run} --train-iters 2 --data-path ${WORK}/corpus CODE 2 ERR "--mock-data: corpora are named too; leave out")
expect(RUN ${run} --train-iters 5 --load ${WORK}/part --vocab-size 101 CODE 2 ERR "--vocab-size: ")
expect(RUN pretrain --model llama-tiny --vocab-size 100 --train-iters 2 CODE 2
  ERR "--data-path: no training data is named; .*or --mock-data\n")

# The way on is one without texts.
expect(RUN ${run} --train-iters 2 --save ${WORK}/ids CODE 0 ERR "next: piton generate --load [^ ]*/ids --prompt-ids 1,2,3\n")
expect(RUN generate --load ${WORK}/ids --prompt-ids 1,2,3 --max-new-tokens 2 CODE 0)
expect(RUN generate --load ${WORK}/ids --prompt hello CODE 2
  ERR "--tokenizer-type: the model has no tokenizer; give --tokenizer-name-or-path DIR .*, or ids in place of text\n")
