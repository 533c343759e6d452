# inspect samples --model-family bert and t5: samples of masked words from sentences, and the messages for what does not fit.
include(${SOURCE}/tests/support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(golden ${SOURCE}/tests/golden/masked)
set(tokenizer --tokenizer-type BertWordPieceLowerCase --vocab-file ${golden}/vocab.txt)
set(samples inspect samples --data-path ${golden}/x --split 80,15,5 --seed 1234 --train-iters 700)
set(bert ${samples} --model-family bert ${tokenizer} --seq-length 64)
set(t5 ${samples} --model-family t5 ${tokenizer} --vocab-extra-ids 100 --encoder-seq-length 64 --decoder-seq-length 40)

# The line of Megatron-core for the first sample of a case of samples.txt.
file(STRINGS ${golden}/samples.txt lines)
function(first_line task to)
  set(${to} "" PARENT_SCOPE)
  set(state 0)
  foreach(line IN LISTS lines)
    if(line MATCHES "^case ${task} . x . 80,15,5 . 64 [0-9]+ . 1234 ")
      set(state 1)
    elseif(state EQUAL 1 AND line MATCHES "^set train")
      set(state 2)
    elseif(state EQUAL 2)
      set(${to} "${line}\n" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
foreach(task bert t5)
  first_line(${task} wanted)
  execute_process(COMMAND ${PITON} ${${task}} --count 1 --json OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR wanted STREQUAL "" OR NOT out STREQUAL wanted)
    message(FATAL_ERROR "${task}: exit ${code}, ${err}\ngot    ${out}wanted ${wanted}")
  endif()
endforeach()

# In words, and alone: the second sample is the same whichever are shown.
expect(RUN ${bert} --count 1 CODE 0 OUT "--- sample 0: [0-9]+ tokens of 64, [0-9]+ in the loss, parts (in order|swapped)\n.CLS. "
  ".MASK.{-[#w0-9]+-} " ERR "x: train set: [0-9]+ samples of 96 documents, read [0-9]+ times; left out: [0-9]+ with fewer than 2 sentences, 1 with a sentence of more than 512 tokens")
expect(RUN ${t5} --count 1 CODE 0 OUT "\nencoder: .*<extra_id_0> .*\ndecoder: .BOS. <extra_id_0> ")
execute_process(COMMAND ${PITON} ${bert} --count 2 --json OUTPUT_VARIABLE both ERROR_VARIABLE err)
execute_process(COMMAND ${PITON} ${bert} --first 1 --count 1 --json OUTPUT_VARIABLE second ERROR_VARIABLE err)
string(FIND "${both}" "\n${second}" at)
if(NOT second MATCHES "^{\"index\":1," OR at LESS 1)
  message(FATAL_ERROR "the second sample alone: ${second}\nof two: ${both}")
endif()

# The id of padding is 3: rows have 0 there, as in Megatron, and masks hide it.
foreach(task bert t5)
  string(REPLACE /vocab.txt /vocab_pad_3.txt flags "${${task}}")
  expect(RUN ${flags} --short-seq-prob 1 --count 1 --json CODE 0 OUT "ids\":.[0-9,]*[1-9],0,0,0[0,]*." "_mask\":.1,[01,]*,0,0,0[0,]*.")
endforeach()

# From a text to samples.
file(WRITE ${WORK}/vocab.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\nsat\ndog\nran\n##s\n.\n")
set(small --tokenizer-type BertWordPieceLowerCase --vocab-file ${WORK}/vocab.txt)
file(WRITE ${WORK}/texts.jsonl "{\"text\": \"The cats sat. The dog ran. The cat ran.\"}\n{\"text\": \"The dog sat. The cats ran.\"}\n")
expect(RUN preprocess --input ${WORK}/texts.jsonl ${small} --split-sentences --output-prefix ${WORK}/texts CODE 0)
expect(RUN inspect samples --model-family bert --data-path ${WORK}/texts_text_sentence --split 1,0,0 ${small} --seq-length 32
  --bert-no-binary-head --mask-prob 0.3 --short-seq-prob 0 --count 2 CODE 0 OUT "--- sample 1: " ".CLS. " ".SEP. \n$")

# What does not fit.
expect(RUN preprocess --input ${WORK}/texts.jsonl ${small} --output-prefix ${WORK}/texts CODE 0)
expect(RUN inspect samples --model-family bert --data-path ${WORK}/texts_text_document --split 1,0,0 ${small} --seq-length 32 CODE 3
  ERR "texts_text_document: no document can be used: of 2, 2 have fewer than 2 sentences, .* --split-sentences")
expect(RUN ${samples} --model-family bert --seq-length 64 CODE 2 ERR "--model-family bert: masking needs the words of the vocabulary")
expect(RUN ${samples} --model-family bert ${tokenizer} CODE 2 ERR "--seq-length: is not given")
expect(RUN ${samples} --model-family t5 ${tokenizer} --seq-length 64 --decoder-seq-length 40 CODE 2
  ERR "--model-family t5: the tokenizer has no sentinels .*--vocab-extra-ids 100")
expect(RUN ${t5} --decoder-seq-length 3 CODE 3 ERR "masked spans of the sample at sentence [0-9]+ take [0-9]+ tokens of the decoder, wanted at most 3; raise --decoder-seq-length")
expect(RUN ${samples} --seq-length 64 --mask-prob 0.2 CODE 2 ERR "--mask-prob.* are for samples of --model-family bert")
expect(RUN ${samples} --model-family bart ${tokenizer} --seq-length 64 CODE 2 ERR "--model-family: got .bart., wanted gpt2")
file(WRITE ${WORK}/other.txt "[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
expect(RUN ${samples} --model-family bert --tokenizer-type BertWordPieceLowerCase --vocab-file ${WORK}/other.txt --seq-length 64 CODE 2
  ERR "--model-family bert: the tokenizer .WordPiece of 6 ids. has no .PAD.; wanted one with it")
file(WRITE ${WORK}/few.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
expect(RUN ${samples} --model-family bert --tokenizer-type BertWordPieceLowerCase --vocab-file ${WORK}/few.txt --seq-length 64 CODE 3
  ERR "a sentence holds id [0-9]+, and the tokenizer has 8")

