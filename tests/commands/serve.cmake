# piton serve: requests over HTTP, hundreds of malformed ones, disconnects, limits, signals, two ranks.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be: that is the question.\n" 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/corpus CODE 0)
expect(RUN pretrain --model llama-tiny --data-path ${WORK}/corpus_text_document --tokenizer-type ByteTokenizer
  --split 100,0,0 --seq-length 256 --max-position-embeddings 256 --train-iters 10 --micro-batch-size 1 --lr 3e-3
  --save ${WORK}/run CODE 0)
file(WRITE ${WORK}/chat.jinja "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/serve/requests.sh ${PITON} ${LAUNCH} ${WORK}
  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "exit ${code}\n${out}\n${err}")
endif()

# Flags of run_text_generation_server.py: sizes are compared.
expect(RUN serve --load ${WORK}/run --port 0 --num-layers 3 --hidden-size 64 --temperature 1.0 CODE 2
  ERR "--num-layers: got 3, but the model of [^ ]*/run has 4; leave the flag out")
# Wrong inputs, each before the model is loaded, but for what needs it.
set(none serve --load ${WORK}/no-such-run)
expect(RUN serve CODE 2 ERR "--load: no model is named")
expect(RUN ${none} --port 70000 CODE 2 ERR "--port: got 70000, wanted 0 to 65535")
expect(RUN ${none} --draft-tokens 3 CODE 2 ERR "--draft-tokens: works only with --draft-model; leave it out")
expect(RUN ${none} --max-concurrent-requests 0 CODE 2 ERR "--max-concurrent-requests: got 0, wanted 1 to 4096")
expect(RUN ${none} --request-timeout-seconds 0 CODE 2 ERR "--request-timeout-seconds: got 0, wanted more than 0")
expect(RUN ${none} --max-body-bytes 0 CODE 2 ERR "--max-body-bytes: got 0")
expect(RUN ${none} --api-key-file ${WORK}/absent CODE 3 ERR "absent")
expect(RUN ${none} --ssl-certfile ${WORK}/absent CODE 2 ERR "--ssl-certfile, --ssl-keyfile: one is given")
expect(RUN ${none} --ssl-certfile ${WORK}/absent --ssl-keyfile ${WORK}/absent CODE 3 ERR "absent: no certificate in PEM")
file(WRITE ${WORK}/empty.txt "\n")
expect(RUN ${none} --api-key-file ${WORK}/empty.txt CODE 3 ERR "the first line is no API key")
expect(RUN serve --load ${WORK}/run --host 192.0.2.1 --port 1 CODE 2 ERR "--host, --port: cannot listen on 192.0.2.1:1: Cannot assign requested address; is the port")
