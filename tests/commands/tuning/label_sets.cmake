# Labels of texts that no option names: those of the records. Texts with several labels at once, of a decoder and of an
# encoder, whole and with adapters, on two ranks, in folders and in the server.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(base ${WORK}/base)
write_base_model()

# Texts with one letter, both, or none of them.
set(one "")
set(several "")
foreach(i RANGE 1 12)
  math(EXPR length "2 + ${i} % 4")
  string(REPEAT "a" ${length} a)
  string(REPEAT "z" ${length} z)
  string(REPEAT "m" ${length} m)
  string(APPEND one "{\"text\": \"${z}\", \"label\": \"last\"}\n{\"text\": \"${a}\", \"label\": \"first\"}\n")
  string(APPEND several "{\"text\": \"${z}\", \"labels\": [\"last\"]}\n{\"text\": \"${a}\", \"labels\": [\"first\"]}\n"
                        "{\"text\": \"${a}${z}\", \"labels\": [\"last\", \"first\"]}\n{\"text\": \"${m}\", \"labels\": []}\n")
endforeach()
file(WRITE ${WORK}/one.jsonl "${one}")
file(WRITE ${WORK}/several.jsonl "${several}")
file(WRITE ${WORK}/lines.txt "aaa\nzz\nazz\nmmm\n")

set(tune finetune --stage classify --split 75,25,0 --seq-length 16 --micro-batch-size 2 --global-batch-size 8 --lr 1e-2
         --tokenizer-type ByteTokenizer --full-validation)
set(sets --problem-type multi_label_classification --data-path ${WORK}/several.jsonl --train-iters 80 --eval-interval 80)

# One label of each text: their names are sorted, and those of a run that names them.
set(short --data-path ${WORK}/one.jsonl --train-iters 8 --eval-interval 8)
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/found CODE 0 ERR "labels: 2, those of the records: first, last\n")
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/named --label-names first last CODE 0)
hash_of(${WORK}/found found)
hash_of(${WORK}/named named)
if(NOT found STREQUAL named)
  message(FATAL_ERROR "labels of the records: ${found}, of --label-names: ${named}")
endif()
expect(RUN classify --load ${WORK}/found ${WORK}/lines.txt CODE 0 OUT "\"label\":\"first\",\"probabilities\":{\"first\":")
# A run that goes on has its labels, and no others.
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/parts --exit-interval 4 CODE 0)
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/parts CODE 0 ERR "holds iteration 4 of the run that started from")
hash_of(${WORK}/parts parts)
if(NOT parts STREQUAL found)
  message(FATAL_ERROR "labels of the records in two parts: ${parts}, in one ${found}")
endif()
file(WRITE ${WORK}/other.jsonl "${one}{\"text\": \"b\", \"label\": \"second\"}\n")
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/x --exit-interval 4 CODE 0)
expect(RUN ${tune} ${short} --load ${base} --save ${WORK}/x --data-path ${WORK}/other.jsonl CODE 3
  ERR "other.jsonl: line 25 [^:]*: the label is \"second\", wanted one of first, last")
# Of adapters too, whose base has no labels.
set(lora --lora-target-modules all-linear --lora-r 4 --lora-alpha 8)
expect(RUN ${tune} ${short} --load ${base} ${lora} --save ${WORK}/y --exit-interval 4 CODE 0 ERR "labels: 2, those of the records: first, last\n")
expect(RUN ${tune} ${short} --load ${base} ${lora} --save ${WORK}/y --data-path ${WORK}/other.jsonl CODE 2 ERR "--label-names")
expect(RUN ${tune} ${short} --load ${base} ${lora} --save ${WORK}/y CODE 0 ERR "holds iteration 4 of the run that started from")
file(WRITE ${WORK}/numbers.jsonl "{\"text\": \"a\", \"score\": 1.5}\n{\"text\": \"b\", \"score\": 2}\n")
expect(RUN ${tune} ${short} --load ${base} --data-path ${WORK}/numbers.jsonl CODE 3
  ERR "numbers.jsonl: line 1 [^:]*: the label is 1.5; --problem-type regression learns numbers")

# Several labels: a new head is 0, so each label has one half.
expect(RUN ${tune} ${sets} --load ${base} --save ${WORK}/sets CODE 0
  ERR "labels: 2, those of the records: first, last\n" "train set: 36 texts with labels\n" "lm loss value: [^|]* . accuracy: [^|]*. micro f1: [^|]*. macro f1: ")
file(STRINGS ${WORK}/sets/metrics.jsonl lines)
list(GET lines 0 first)
list(GET lines 79 last)
if(NOT first MATCHES "\"lm_loss\":0.69314718" OR NOT last MATCHES
   "\"accuracy\":1.0.*\"validation_accuracy\":1.0,\"validation_micro_f1\":1.0,\"validation_macro_f1\":1.0")
  message(FATAL_ERROR "the figures of several labels: ${first}\n${last}")
endif()
set(wanted "^{\"labels\":[[]\"first\"],\"probabilities\":{\"first\":0.[5-9][0-9]*,\"last\":[0-9.e-]+}}
{\"labels\":[[]\"last\"],[^\n]*\n{\"labels\":[[]\"first\",\"last\"],[^\n]*\n{\"labels\":[[]],[^\n]*\n$")
expect(RUN classify --load ${WORK}/sets ${WORK}/lines.txt CODE 0 OUT "${wanted}")
expect(RUN classify --load ${WORK}/sets --threshold 0 ${WORK}/lines.txt CODE 0 OUT "\"labels\":[[]\"first\",\"last\"],[^\n]*\n$")
expect(RUN classify --load ${WORK}/sets ${WORK}/several.jsonl CODE 0
  ERR "several.jsonl: accuracy of exact sets 1.0000, micro F1 1.0000, macro F1 1.0000 of 48 texts with labels\n")
expect(RUN classify --load ${WORK}/sets --metrics ${WORK}/several.jsonl CODE 0
  OUT "^{\"texts\":48,\"accuracy\":1.0,\"micro_f1\":1.0,\"macro_f1\":1.0}\n$")
# One label is a list of one.
expect(RUN classify --load ${WORK}/sets --metrics ${WORK}/one.jsonl CODE 0 OUT "^{\"texts\":24,\"accuracy\":1.0,")

# A folder keeps it, and a run from it needs no options.
expect(RUN convert --load ${WORK}/sets --save ${WORK}/hf --to hf CODE 0)
file(READ ${WORK}/hf/config.json config)
if(NOT config MATCHES "\"problem_type\": \"multi_label_classification\"" OR NOT config MATCHES "\"0\": \"first\"")
  message(FATAL_ERROR "no model of several labels: ${config}")
endif()
expect(RUN inspect ${WORK}/hf CODE 0 OUT "head of 2 labels, several of a text")
expect(RUN classify --load ${WORK}/hf --tokenizer-type ByteTokenizer ${WORK}/lines.txt CODE 0 OUT "${wanted}")
expect(RUN ${tune} --load ${WORK}/hf --data-path ${WORK}/several.jsonl --train-iters 1 --lr 1e-9 --eval-interval 1 --save ${WORK}/again CODE 0
  ERR "micro f1: 1.0")
expect(RUN ${tune} ${sets} --load ${WORK}/hf --problem-type single_label_classification CODE 2
  ERR "--problem-type: got single_label_classification, but the model of [^ ]*hf gives several labels of a text; leave it out")
# A corpus in place of the file.
expect(RUN preprocess --tokenizer-type ByteTokenizer --input ${WORK}/several.jsonl --handler-name TextLabelHandler
  --problem-type multi_label_classification --label-names first,last --output-prefix ${WORK}/several CODE 0 ERR "label 1: ")
expect(RUN ${tune} ${sets} --load ${base} --label-names first,last --data-path ${WORK}/several --save ${WORK}/corpus CODE 0)
hash_of(${WORK}/sets file)
hash_of(${WORK}/corpus corpus)
if(NOT corpus STREQUAL file)
  message(FATAL_ERROR "several labels of a corpus: ${corpus}, of its file ${file}")
endif()

# Adapters; in PEFT's form too, where the labels have no names.
expect(RUN ${tune} ${sets} --load ${base} ${lora} --save ${WORK}/adapters CODE 0)
expect(RUN classify --load ${WORK}/adapters --metrics ${WORK}/several.jsonl CODE 0 OUT "\"micro_f1\":1.0,")
expect(RUN convert --load ${WORK}/adapters --save ${WORK}/merged --to hf CODE 0)
expect(RUN classify --load ${WORK}/merged --tokenizer-type ByteTokenizer ${WORK}/lines.txt CODE 0 OUT "${wanted}")

expect(RUN convert --load ${WORK}/adapters --save ${WORK}/peft --to peft CODE 0)
execute_process(COMMAND ${PITON} classify --load ${WORK}/adapters ${WORK}/lines.txt OUTPUT_VARIABLE of_run)
execute_process(COMMAND ${PITON} classify --load ${base} --lora-load ${WORK}/peft --tokenizer-type ByteTokenizer ${WORK}/lines.txt
                OUTPUT_VARIABLE got)
string(REPLACE "LABEL_0" "first" got "${got}")
string(REPLACE "LABEL_1" "last" got "${got}")
if(NOT got STREQUAL of_run OR NOT got MATCHES "${wanted}")
  message(FATAL_ERROR "labels with the adapter of PEFT are ${got}, of the run ${of_run}")
endif()

# Two ranks.
foreach(flag tensor-model-parallel-size pipeline-model-parallel-size)
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} ${tune} ${sets} --load ${base} --save ${WORK}/${flag} --${flag} 2
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0 OR NOT text MATCHES "labels: 2, those of the records: first, last\n" OR NOT text MATCHES "micro f1: 1.0")
    message(FATAL_ERROR "two ranks, --${flag}: exit ${code}\n${text}")
  endif()
  execute_process(COMMAND ${LAUNCH} 2 ${PITON} classify --load ${WORK}/sets --${flag} 2 ${WORK}/lines.txt
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE errors)
  if(NOT code EQUAL 0 OR NOT text MATCHES "${wanted}")
    message(FATAL_ERROR "classify on two ranks, --${flag}: exit ${code}\n${text}${errors}")
  endif()
endforeach()

# What is wrong is said in a line.
expect(RUN classify --load ${WORK}/sets --threshold 1.5 ${WORK}/lines.txt CODE 2 ERR "--threshold: got 1.5, wanted a number from 0 to 1\n")
expect(RUN classify --load ${WORK}/found --threshold 0.3 ${WORK}/lines.txt CODE 2 ERR "--threshold: is of a model for several labels of a text")
expect(RUN ${tune} ${sets} --load ${base} --label-names first CODE 3 ERR "line 1 [^:]*: the label is \"last\", wanted one of first; ")
expect(RUN ${tune} ${short} --load ${base} --label-names first,last --data-path ${WORK}/several.jsonl CODE 3
  ERR "line 1 [^:]*: the label is a list, wanted one label; a text has several labels with --problem-type multi_label_classification")
file(WRITE ${WORK}/twice.jsonl "{\"text\": \"a\", \"labels\": [0, 1, 0]}\n")
expect(RUN ${tune} ${sets} --load ${base} --num-labels 2 --data-path ${WORK}/twice.jsonl CODE 3
  ERR "twice.jsonl: line 1 [^:]*: the labels have \"0\" twice; wanted a list of the labels that the text has")
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/../serve/label_sets.sh ${PITON} ${WORK} RESULT_VARIABLE code
                OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "label_sets.sh: exit ${code}\n${out}${err}")
endif()
