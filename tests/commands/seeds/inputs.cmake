# What the lines of table.cmake read: models and data as small as they get, under the names of the documents.

string(REPEAT "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")

# llama-7b-hf: LLaMA of four layers with a tokenizer of bytes. It comes by a GGUF file, which has a vocabulary for bytes.
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/bytes CODE 0)
expect(RUN pretrain --model llama-tiny --num-query-groups 4 --data-path ${WORK}/bytes_text_document --split 100,0,0 --seq-length 32 --train-iters 1
  --lr 1e-3 --tokenizer-type ByteTokenizer --save ${WORK}/run CODE 0)
expect(RUN convert --load ${WORK}/run --save ${WORK}/run.gguf CODE 0)
expect(RUN convert --load ${WORK}/run.gguf --save ${WORK}/llama-7b-hf --to hf CODE 0)

set(rows "")
foreach(number RANGE 1 20)
  string(APPEND rows "{\"instruction\": \"Name number ${number}\", \"input\": \"\", \"output\": \"It is ${number}\", \"text\": \"Number ${number} it is\"}\n")
endforeach()
file(WRITE ${WORK}/alpaca_data.jsonl "${rows}")
string(REPLACE "}\n{" "},\n{" list "[${rows}]")
file(WRITE ${WORK}/alpaca_data.json "${list}")
file(WRITE ${WORK}/wikipedia/20220301.en/articles.jsonl "${rows}")
file(WRITE ${WORK}/hf_config_json.json "{\"path\": \"${WORK}/wikipedia\", \"name\": \"20220301.en\", \"streaming\": true, \"split\": \"train\"}")
# The document's own text of that file, which is no JSON.
file(WRITE ${WORK}/hf_config_as_printed.json "{\n\"path\": \"WORKSPACE/wikipedia\",\n\"name\": \"20220301.en\",\n\"streaming: True,\n\"split\": \"train\"\n}")

# Questions of BoolQ, as published, under the document's path.
file(COPY ${SOURCE}/tests/golden/evaluation/data/boolq/validation.jsonl DESTINATION ${WORK}/dataset/boolq/test)

# Wiki text as WikiExtractor leaves it, and a vocabulary of BERT.
file(MAKE_DIRECTORY ${WORK}/text/AA)
set(pages "")
foreach(number RANGE 1 40)
  string(APPEND pages "{\"id\": \"${number}\", \"url\": \"u\", \"title\": \"t\", \"text\": \"to be is to do. to do is to be. do be do.\"}\n")
endforeach()
file(WRITE ${WORK}/text/AA/wiki_00 "${pages}")
file(WRITE ${WORK}/bert-large-uncased-vocab.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nto\nbe\nis\ndo\n.\n")
