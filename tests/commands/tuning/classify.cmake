# piton finetune --stage classify and piton classify: from records to a classifier, whole and with adapters, of a decoder and
# of an encoder; its labels from every form of the model, and on two ranks.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(base ${WORK}/base)
write_base_model()

# Texts of one letter or of another.
set(records "")
foreach(i RANGE 1 24)
  math(EXPR length "3 + ${i} % 5")
  string(REPEAT "a" ${length} first)
  string(REPEAT "z" ${length} second)
  string(APPEND records "{\"text\": \"${first}\", \"label\": \"low\"}\n{\"text\": \"${second}\", \"label\": 1}\n")
endforeach()
file(WRITE ${WORK}/texts.jsonl "${records}")
file(WRITE ${WORK}/lines.txt "aaaa\nzz\naaa\nzzzzzz\n")
set(labels "\"label\":\"low\".*\"label\":\"high\".*\"label\":\"low\".*\"label\":\"high\"")

set(tune finetune --stage classify --split 80,20,0 --seq-length 16 --micro-batch-size 2 --global-batch-size 8 --lr 1e-2
         --tokenizer-type ByteTokenizer --train-iters 12 --data-path ${WORK}/texts.jsonl)
set(two --label-names low,high)

# The output of classify.
function(labels_of out)
  execute_process(COMMAND ${PITON} classify ${ARGN} ${WORK}/lines.txt OUTPUT_VARIABLE text ERROR_VARIABLE errors
                  RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT text MATCHES "${labels}")
    message(FATAL_ERROR "classify ${ARGN}: exit ${code}\n${text}${errors}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# A new head is 0: the first loss is that of two equal probabilities.
expect(RUN ${tune} --load ${base} ${two} --save ${WORK}/whole --full-validation --eval-interval 12 CODE 0
  ERR "texts.jsonl: train set: 38 texts with labels\n" "lm loss value: [^|]* . accuracy: " "next: piton classify --load ")
file(STRINGS ${WORK}/whole/metrics.jsonl lines)
list(GET lines 0 first)
list(GET lines 11 last)
if(NOT first MATCHES "\"lm_loss\":0.69314718.*\"accuracy\":0[.]" OR NOT last MATCHES
   "\"accuracy\":1.0.*\"validation_accuracy\":1.0,\"validation_macro_f1\":1.0,\"validation_matthews\":1.0")
  message(FATAL_ERROR "the figures of a classifier: ${first}\n${last}")
endif()
labels_of(wanted --load ${WORK}/whole)
if(NOT wanted MATCHES "^{\"label\":\"low\",\"probabilities\":{\"low\":0.9[0-9]*,\"high\":0.[0-9e-]*}}\n")
  message(FATAL_ERROR "labels: ${wanted}")
endif()
expect(RUN classify --load ${WORK}/whole ${WORK}/texts.jsonl CODE 0
  ERR "texts.jsonl: accuracy 1.0000, macro F1 1.0000, Matthews' correlation 1.0000 of 48 texts with labels\n")
expect(RUN classify --load ${WORK}/whole --metrics ${WORK}/texts.jsonl CODE 0
  OUT "^{\"texts\":48,\"accuracy\":1.0,\"macro_f1\":1.0,\"matthews\":1.0}\n$")
expect(RUN classify --load ${WORK}/whole - INPUT ${WORK}/lines.txt CODE 0 OUT "${labels}")

# The same labels from a folder, which has their names, and a run from it that needs no options.
expect(RUN convert --load ${WORK}/whole --save ${WORK}/hf --to hf CODE 0)
file(READ ${WORK}/hf/config.json config)
if(NOT config MATCHES "LlamaForSequenceClassification" OR NOT config MATCHES "\"label2id\": {[ \n]+\"low\": 0,[ \n]+\"high\": 1"
   OR NOT config MATCHES "\"single_label_classification\"")
  message(FATAL_ERROR "no classifier: ${config}")
endif()
labels_of(got --load ${WORK}/hf --tokenizer-type ByteTokenizer)
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "labels of the folder are ${got}, of the run ${wanted}")
endif()
expect(RUN inspect ${WORK}/hf CODE 0 OUT "head of 2 labels")
expect(RUN ${tune} --load ${WORK}/hf --save ${WORK}/again CODE 0 ERR "accuracy: 1.00")

# A checkpoint of Piton as the base, in parts; a corpus in place of the file.
expect(RUN ${tune} --load ${WORK}/start ${two} --save ${WORK}/parts --exit-interval 6 --full-validation --eval-interval 12 CODE 0)
expect(RUN resume ${WORK}/parts CODE 0 ERR "resumed [^ ]*/iter_0000006: iteration 6,")
hash_of(${WORK}/whole uninterrupted)
hash_of(${WORK}/parts resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "${resumed}, uninterrupted ${uninterrupted}")
endif()
expect(RUN preprocess --tokenizer-type ByteTokenizer --input ${WORK}/texts.jsonl --handler-name TextLabelHandler ${two}
  --output-prefix ${WORK}/texts CODE 0 ERR "first sample: 4 tokens, label 0: \"aaaa\"")
expect(RUN ${tune} --load ${base} ${two} --data-path ${WORK}/texts --save ${WORK}/corpus --full-validation --eval-interval 12 CODE 0)
hash_of(${WORK}/corpus resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "of a corpus ${resumed}, of its file ${uninterrupted}")
endif()

# Adapters: the head is trained with them.
expect(RUN ${tune} --load ${base} ${two} --lora-target-modules all-linear --lora-r 4 --lora-alpha 8 --save ${WORK}/adapters CODE 0)
expect(RUN convert --load ${WORK}/adapters --save ${WORK}/peft --to peft CODE 0)
file(READ ${WORK}/peft/adapter_config.json config)
if(NOT config MATCHES "\"SEQ_CLS\"" OR NOT config MATCHES "\"score\"")
  message(FATAL_ERROR "no adapter of a classifier: ${config}")
endif()
labels_of(wanted --load ${WORK}/adapters)
execute_process(COMMAND ${PITON} classify --load ${base} --lora-load ${WORK}/peft --tokenizer-type ByteTokenizer ${WORK}/lines.txt OUTPUT_VARIABLE got)
string(REPLACE "LABEL_0" "low" got "${got}")  # PEFT has no names
string(REPLACE "LABEL_1" "high" got "${got}")
if(NOT got STREQUAL wanted)
  message(FATAL_ERROR "labels with the adapter of PEFT are ${got}, of the run ${wanted}")
endif()

# An encoder, with pairs.
file(WRITE ${WORK}/vocab.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nz\n##a\n##z\n")
string(REGEX REPLACE "\"text\": (\"[az]*\")" "\"sentence1\": \"a\", \"sentence2\": \\1" pairs "${records}")
file(WRITE ${WORK}/pairs.jsonl "${pairs}")
set(words --tokenizer-type BertWordPieceLowerCase --vocab-file ${WORK}/vocab.txt)
expect(RUN pretrain --stage classify --is-instruction-dataset --variable-seq-lengths --model bert-tiny ${words} ${two}
  --data-path ${WORK}/pairs.jsonl --split 80,20,0 --seq-length 16 --micro-batch-size 4 --train-iters 30 --lr 1e-2
  --save ${WORK}/encoder CODE 0 ERR "accuracy: 1.00")
expect(RUN classify --load ${WORK}/encoder --metrics ${WORK}/pairs.jsonl CODE 0 OUT "\"accuracy\":1.0,")
expect(RUN convert --load ${WORK}/encoder --save ${WORK}/encoder-hf --to hf CODE 0)
expect(RUN classify --load ${WORK}/encoder-hf ${words} --metrics ${WORK}/pairs.jsonl CODE 0 OUT "\"accuracy\":1.0,")

# Adapters of an encoder, whose base has no pooler: PEFT's files have the new one. A run in two parts is the same run.
set(masked ${SOURCE}/tests/golden/encoders/bert-masked)
set(tune-encoder finetune --stage classify --load ${masked} ${words} ${two} --data-path ${WORK}/pairs.jsonl --split 80,20,0
  --seq-length 16 --micro-batch-size 4 --train-iters 8 --lr 1e-2 --lora-target-modules all-linear --lora-r 4)
expect(RUN ${tune-encoder} --save ${WORK}/encoder-lora CODE 0
  ERR "bert-masked: has no pooler; a new one is trained in full with the adapters .--lora-modules-to-save pooler.")
expect(RUN ${tune-encoder} --save ${WORK}/encoder-parts --exit-interval 4 CODE 0)
expect(RUN resume ${WORK}/encoder-parts CODE 0 ERR "resumed [^ ]*/iter_0000004: iteration 4,")
hash_of(${WORK}/encoder-lora uninterrupted)
hash_of(${WORK}/encoder-parts resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "adapters of an encoder: ${resumed}, uninterrupted ${uninterrupted}")
endif()
expect(RUN convert --load ${WORK}/encoder-lora --save ${WORK}/encoder-peft --to peft CODE 0)
expect(RUN convert --load ${WORK}/encoder-lora --save ${WORK}/encoder-merged --to hf CODE 0)
string(REGEX REPLACE ", \"label\": [^}]*" "" unlabeled "${pairs}")  # PEFT has no names
file(WRITE ${WORK}/unlabeled.jsonl "${unlabeled}")
execute_process(COMMAND ${PITON} classify --load ${WORK}/encoder-lora ${WORK}/unlabeled.jsonl OUTPUT_VARIABLE wanted)
string(REGEX MATCHALL "\"high\":[0-9][.][0-9][0-9][0-9]" wanted "${wanted}")
list(LENGTH wanted count)
if(NOT count EQUAL 48)
  message(FATAL_ERROR "labels of ${count} texts")
endif()
foreach(form "${masked};--lora-load;${WORK}/encoder-peft" "${WORK}/encoder-merged")
  execute_process(COMMAND ${PITON} classify --load ${form} ${words} ${WORK}/unlabeled.jsonl OUTPUT_VARIABLE got)
  string(REPLACE "LABEL_1" "high" got "${got}")
  string(REGEX MATCHALL "\"high\":[0-9][.][0-9][0-9][0-9]" got "${got}")
  if(NOT got STREQUAL wanted)
    message(FATAL_ERROR "labels of ${form} are ${got}, of the run ${wanted}")
  endif()
endforeach()
expect(RUN ${tune-encoder} --save ${WORK}/x --lora-modules-to-save head CODE 2 ERR "--lora-modules-to-save: got head, wanted some of ")

# Numbers: of a decoder, and of an encoder with pairs as STS-B has them. The loss of a validation is its mean squared error.
set(numbers "")
foreach(i RANGE 1 48)
  math(EXPR length "1 + ${i} % 7")
  string(REPEAT "a" ${length} text)
  string(APPEND numbers "{\"sentence1\": \"z\", \"sentence2\": \"${text}\", \"score\": ${length}.5}\n")
endforeach()
file(WRITE ${WORK}/numbers.jsonl "${numbers}")
set(number --data-path ${WORK}/numbers.jsonl --train-iters 60 --full-validation --eval-interval 60)
expect(RUN ${tune} --load ${base} --problem-type regression ${number} --save ${WORK}/number CODE 0
  ERR "lm loss value: [^|]* . mse: [^|]*. pearson: 9[^|]*E-01 . spearman: " "next: piton classify --load ")
file(STRINGS ${WORK}/number/metrics.jsonl lines)
list(GET lines 59 last)
if(NOT last MATCHES "\"validation_loss\":([0-9.]+).*\"validation_mse\":([0-9.]+),\"validation_pearson\":0.[89]" OR NOT last MATCHES
   "\"validation_spearman\":(0.[89]|1.0)")
  message(FATAL_ERROR "the figures of numbers: ${last}")
endif()
expect(RUN classify --load ${WORK}/number --metrics ${WORK}/numbers.jsonl CODE 0
  OUT "^{\"texts\":48,\"mse\":[0-9.]+,\"pearson\":0.[89][0-9]+,\"spearman\":(0.[89][0-9]*|1.0)}\n$")
expect(RUN convert --load ${WORK}/number --save ${WORK}/number-hf --to hf CODE 0)
file(READ ${WORK}/number-hf/config.json config)
if(NOT config MATCHES "\"problem_type\": \"regression\"" OR NOT config MATCHES "\"pad_token_id\"")
  message(FATAL_ERROR "no model of numbers: ${config}")
endif()
expect(RUN inspect ${WORK}/number-hf CODE 0 OUT "head of a number")
execute_process(COMMAND ${PITON} classify --load ${WORK}/number ${WORK}/numbers.jsonl OUTPUT_VARIABLE wanted ERROR_VARIABLE errors)
execute_process(COMMAND ${PITON} classify --load ${WORK}/number-hf --tokenizer-type ByteTokenizer ${WORK}/numbers.jsonl OUTPUT_VARIABLE got)
if(NOT wanted MATCHES "^{\"number\":[0-9.]+}\n" OR NOT got STREQUAL wanted OR NOT errors MATCHES "Spearman's [01].[0-9]* of 48 texts with numbers")
  message(FATAL_ERROR "numbers of the folder are ${got}, of the run ${wanted}${errors}")
endif()
expect(RUN ${tune} --load ${WORK}/number-hf ${number} --train-iters 1 --save ${WORK}/number-again CODE 0 ERR "mse: ")
expect(RUN preprocess --tokenizer-type ByteTokenizer --input ${WORK}/numbers.jsonl --handler-name TextLabelHandler --num-labels 1
  --output-prefix ${WORK}/numbers CODE 0 ERR "first sample: 3 tokens, label 2.5: ")
expect(RUN ${tune} --load ${base} --num-labels 1 ${number} --data-path ${WORK}/numbers --save ${WORK}/number-corpus CODE 0)
hash_of(${WORK}/number uninterrupted)
hash_of(${WORK}/number-corpus resumed)
if(NOT resumed STREQUAL uninterrupted)
  message(FATAL_ERROR "numbers of a corpus ${resumed}, of its file ${uninterrupted}")
endif()
expect(RUN finetune --stage classify --load ${masked} ${words} --problem-type regression ${number} --split 80,20,0 --seq-length 16
  --micro-batch-size 4 --lr 1e-2 --save ${WORK}/encoder-number CODE 0 ERR "pearson: [89][^|]*E-01")
# An adapter of numbers is one in PEFT's form too, with a base that does not say it.
expect(RUN ${tune} --load ${base} --problem-type regression ${number} --lora-target-modules all-linear --lora-r 4 --save ${WORK}/number-lora
  CODE 0 ERR "pearson: [1-9][^|]*E-01")
expect(RUN convert --load ${WORK}/number-lora --save ${WORK}/number-peft --to peft CODE 0)
execute_process(COMMAND ${PITON} classify --load ${WORK}/number-lora ${WORK}/numbers.jsonl OUTPUT_VARIABLE wanted)
execute_process(COMMAND ${PITON} classify --load ${base} --lora-load ${WORK}/number-peft --tokenizer-type ByteTokenizer ${WORK}/numbers.jsonl OUTPUT_VARIABLE got)
if(NOT wanted MATCHES "^{\"number\":[0-9.]+}\n" OR NOT got STREQUAL wanted)
  message(FATAL_ERROR "numbers with the adapter of PEFT are ${got}, of the run ${wanted}")
endif()
# One that says nothing is of what config.json of its base says, else of rewards.
file(READ ${WORK}/number-peft/adapter_config.json config)
string(REPLACE "\"task_type\": \"SEQ_CLS\"" "\"task_type\": \"SEQ_CLS\", \"problem_type\": \"single_label_classification\"" config "${config}")
file(WRITE ${WORK}/number-peft/adapter_config.json "${config}")
expect(RUN classify --load ${base} --lora-load ${WORK}/number-peft --tokenizer-type ByteTokenizer ${WORK}/lines.txt CODE 3
  ERR "number-peft: problem_type is single_label_classification, and its head has 1 row; wanted regression or multi_label_classification\n")
expect(RUN ${tune} --load ${base} --problem-type regression --data-path ${WORK}/texts.jsonl CODE 3 ERR "the label is \"low\", wanted a number")
expect(RUN ${tune} --load ${base} --problem-type regression ${two} CODE 2 ERR "--problem-type: got regression, which is of one number without a name")
expect(RUN ${tune} --load ${WORK}/hf --problem-type regression CODE 2 ERR "--problem-type: got regression, but the model of [^ ]*hf gives labels; leave it out")
expect(RUN ${tune} --load ${base} ${two} --data-path ${WORK}/numbers CODE 3 ERR "has label [0-9]+, and the model has labels 0 to 1")
expect(RUN ${tune} --load ${base} --num-labels 1 --data-path ${WORK}/texts CODE 3 ERR "sample [0-9]+ has 1, which is a label, wanted the bits of a number")

# Two ranks.
labels_of(one --load ${WORK}/whole)
string(REGEX MATCHALL "0[.][0-9][0-9][0-9][0-9]" wanted "${one}")
foreach(flag tensor-model-parallel-size pipeline-model-parallel-size)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} --load ${base} ${two} --save ${WORK}/${flag} --${flag} 2
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0 OR NOT text MATCHES "accuracy: 1.00")
    message(FATAL_ERROR "two ranks, --${flag}: exit ${code}\n${text}")
  endif()
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} classify --load ${WORK}/whole --${flag} 2 ${WORK}/lines.txt
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE errors)
  string(REGEX MATCHALL "0[.][0-9][0-9][0-9][0-9]" got "${text}")
  if(NOT code EQUAL 0 OR NOT got STREQUAL wanted)
    message(FATAL_ERROR "classify on two ranks, --${flag}: exit ${code}\n${text}${errors}\nwanted ${one}")
  endif()
endforeach()

# What is wrong is said in a line. A blank line is a text without tokens where the tokenizer adds none.
string(REPEAT "a\n" 1100 many)
file(WRITE ${WORK}/many.txt "${many}\nz\n")
execute_process(COMMAND ${PITON} classify --load ${WORK}/whole ${WORK}/many.txt OUTPUT_VARIABLE text ERROR_VARIABLE errors
                RESULT_VARIABLE code)
if(NOT code EQUAL 3 OR NOT text STREQUAL "" OR NOT errors MATCHES "many.txt: text 1101: the text is empty\n")
  message(FATAL_ERROR "a blank line: exit ${code}\n${errors}")
endif()
expect(RUN ${tune} --load ${base} --data-path ${WORK}/texts CODE 2 ERR "--stage classify: [^ ]*base has no labels; name them by --label-names, or give --num-labels N, or --problem-type regression for a number\n")
expect(RUN ${tune} --load ${base} --num-labels 1 --problem-type single_label_classification CODE 2 ERR "--problem-type: got single_label_classification, of one label")
expect(RUN ${tune} --load ${base} --label-names low low CODE 2 ERR "--label-names: got 2 names, two of them equal")
expect(RUN ${tune} --load ${base} ${two} --num-labels 3 CODE 2 ERR "--num-labels: got 3, and --label-names gives 2")
expect(RUN ${tune} --load ${WORK}/hf --num-labels 3 CODE 2 ERR "--num-labels, --label-names: got 3, but the model of [^ ]*hf has 2; leave them out\n")
expect(RUN finetune --load ${WORK}/hf --data-path ${WORK}/texts.jsonl --seq-length 16 --train-iters 1 --lr 1e-3 CODE 2
  ERR "--stage sft: the head of the model is one of labels, wanted one over the vocabulary; give --stage classify")
expect(RUN ${tune} --load ${base} --num-labels 2 CODE 3 ERR "texts.jsonl: line 1 [^:]*: the label is \"low\", wanted a number from 0 to 1; --label-names gives names")
expect(RUN ${tune} --load ${base} ${two} --context-parallel-size 2 CODE 2 ERR "piton finetune: ")
expect(RUN classify --load ${base} ${WORK}/lines.txt CODE 2 ERR "classify: the model predicts tokens, wanted a classifier of texts")
expect(RUN classify --load ${WORK}/whole --metrics ${WORK}/lines.txt CODE 3 ERR "--metrics: [^ ]*lines.txt has no labels")
file(WRITE ${WORK}/blank.txt "a\n\nz\n")
execute_process(COMMAND ${PITON} classify --load ${WORK}/encoder ${WORK}/blank.txt OUTPUT_VARIABLE text)
string(REGEX MATCHALL "\n" text "${text}")
list(LENGTH text count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "a blank line is an empty text: ${count} of 3")
endif()
expect(RUN generate --load ${WORK}/whole --prompt a CODE 2 ERR "the model gives labels of texts, [^\n]*piton classify reads it\n")
expect(RUN convert --load ${WORK}/whole --save ${WORK}/x.gguf CODE 2 ERR "is a classifier of texts, which only folders of Hugging Face")
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/../serve/classify.sh ${PITON} ${LAUNCH} ${WORK} RESULT_VARIABLE code
                OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "classify.sh: exit ${code}\n${out}${err}")
endif()
