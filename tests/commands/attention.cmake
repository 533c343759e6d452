# Windows, ALiBi and activations from the command line: training, resuming, decoding, and refused options.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 20 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --append-eod
           --output-prefix ${WORK}/corpus CODE 0)
set(run pretrain --model gpt2-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
        --seq-length 48 --micro-batch-size 2 --train-iters 4 --split 100,0,0 --position-embedding-type alibi)
set(window --pre-tockens 12 --next-tockens 0 --use-flash-attn)

expect(RUN ${run} ${window} --save ${WORK}/run --exit-interval 2 CODE 0)
expect(RUN ${run} ${window} --save ${WORK}/run --load ${WORK}/run CODE 0 ERR "resumed .*iteration 2,")
expect(RUN ${run} --pre-tockens 13 --next-tockens 0 --save ${WORK}/run --load ${WORK}/run CODE 2 ERR "another experiment" "pre-tockens")
expect(RUN ${run} ${window} --sparse-mode 4 --save ${WORK}/run --load ${WORK}/run CODE 2 ERR "another experiment" "sparse-mode")
expect(RUN generate --load ${WORK}/run --prompt "To be" --greedy --max-new-tokens 40 CODE 0 OUT ".")

# The model has no table of positions.
execute_process(COMMAND ${PITON} inspect ${WORK}/run OUTPUT_VARIABLE out)
if(out MATCHES "embedding.position")
  message(FATAL_ERROR "an ALiBi model has a table of positions:\n${out}")
endif()

# Roots of distances: another experiment than differences, in decoding as in training. Documents of packed rows.
expect(RUN ${run} --alibi-fusion-attn-type 3 --save ${WORK}/roots --exit-interval 2 CODE 0)
expect(RUN ${run} --alibi-fusion-attn-type 3 --save ${WORK}/roots --load ${WORK}/roots CODE 0 ERR "resumed .*iteration 2,")
expect(RUN ${run} --save ${WORK}/roots --load ${WORK}/roots CODE 2 ERR "another experiment" "alibi-fusion-attn-type")
expect(RUN generate --load ${WORK}/roots --prompt "To be" --greedy --max-new-tokens 40 CODE 0 OUT ".")
expect(RUN ${run} --sparse-mode 8 --reset-attention-mask --save ${WORK}/documents CODE 0 ERR "iteration +4/ +4 ")
expect(RUN ${run} --sparse-mode 5 --save ${WORK}/x CODE 2 ERR "mode 5 is for prompts, which running text does not have")

expect(RUN ${run} --sparse-mode 2 --pre-tockens 5 --save ${WORK}/x CODE 2 ERR "mode 2 has no window")
expect(RUN ${run} --pre-tockens -2 --save ${WORK}/x CODE 2 ERR "--pre-tockens: got -2")

# The triangle form may be taken up on the way: it is a form, not another experiment. Not together with the other.
expect(RUN ${run} --pre-tockens 12 --next-tockens 0 --triangle-attn --triangle-block-size 20 --save ${WORK}/run --load ${WORK}/run
       --train-iters 4 CODE 0)
expect(RUN ${run} --triangle-attn --use-flash-attn --save ${WORK}/x CODE 2 ERR "--triangle-attn: cannot be combined with --use-flash-attn")
expect(RUN ${run} --triangle-attn --triangle-block-size -1 --save ${WORK}/x CODE 2 ERR "--triangle-block-size: got -1")

# Activations: GeGLU inside half the width, and the same flags on resume.
expect(RUN ${run} --is-x-model --activation gelu-fast --save ${WORK}/gated CODE 0)
expect(RUN inspect ${WORK}/gated CODE 0 OUT "mlp.gate.weight")
expect(RUN ${run} --is-x-model --save ${WORK}/gated --load ${WORK}/gated CODE 2 ERR "another experiment" "activation")
expect(RUN ${run} --swiglu --activation geglu --save ${WORK}/x CODE 2 ERR "--swiglu: means swiglu, but another flag says geglu")
