# Whatever the umask, each file that a command makes is 0640 and each folder 0750.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "{\"text\": \"All work and no play makes a dull text, all play and no work another.\"}\n" 60 lines)
file(WRITE ${WORK}/text.jsonl "${lines}")

# under(mask folder words...): runs piton there
function(under mask folder)
  execute_process(COMMAND sh -c "umask ${mask} && exec \"$@\"" sh ${ARGN} WORKING_DIRECTORY ${folder}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE error)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "umask ${mask}: ${ARGN}: exit ${code}\n${out}${error}")
  endif()
endfunction()

set(run pretrain --model llama-tiny --tokenizer-name-or-path words/tokenizer --data-path corpora/c_text_document --seq-length 16
        --split 90,10,0 --train-iters 4 --eval-iters 1 --eval-interval 2 --save-interval 1 --data-cache-path orders/cache)
foreach(mask 000 022 077)
  set(here ${WORK}/umask-${mask}/here)
  file(MAKE_DIRECTORY ${here})
  under(${mask} ${here} ${PITON} train-tokenizer --input ${WORK}/text.jsonl --vocab-size 280 --save words/tokenizer)
  under(${mask} ${here} ${PITON} preprocess --input ${WORK}/text.jsonl --tokenizer-name-or-path words/tokenizer --append-eod
        --output-prefix corpora/c)
  under(${mask} ${here} ${PITON} preprocess --merge corpora/c_text_document corpora/c_text_document --output-prefix corpora/both)
  under(${mask} ${here} ${PITON} ${run} --save runs/one --tensorboard-dir events/one --trace traces/one.json --keep 2
        --timing-log-level 2 --log-timers-to-tensorboard)
  under(${mask} ${here} ${PITON} ${run} --save runs/waited --no-async-save --remote-device ./state --offload-activations ./kept)
  under(${mask} ${here} ${LAUNCH} 2 ${PITON} ${run} --save runs/two --trace traces/two.json --zero-stage 3)
  under(${mask} ${here} ${PITON} report runs/one runs/two --output pages/report.html)
  under(${mask} ${here} ${PITON} report runs/one)
  under(${mask} ${here} ${PITON} convert --load runs/one --save converted/hf --to hf --max-shard-size 100K)
  under(${mask} ${here} ${PITON} convert --load runs/one --save converted/mg --to mg)
  under(${mask} ${here} ${PITON} convert --load runs/one --save converted/model.gguf)
  under(${mask} ${here} ${PITON} convert --load converted/hf --save converted/run --to piton)
  # What a run that fails says of it.
  execute_process(COMMAND sh -c "umask ${mask} && exec \"$@\"" sh ${PITON} ${run} --lr 1e30 --max-consecutive-skips 1
                          --save runs/failed WORKING_DIRECTORY ${here} OUTPUT_QUIET ERROR_QUIET)
  file(GLOB_RECURSE made LIST_DIRECTORIES true ${here}/*)
  list(LENGTH made count)
  execute_process(COMMAND find . -mindepth 1 -type f -not -perm 0640 -o -mindepth 1 -type d -not -perm 0750
                          -o -mindepth 1 -not -type f -not -type d WORKING_DIRECTORY ${here} OUTPUT_VARIABLE others)
  if(others OR count LESS 60)
    message(FATAL_ERROR "umask ${mask}: of ${count}, not 0640 or 0750:\n${others}")
  endif()
  foreach(name runs/one/metrics.jsonl runs/failed/failure.json traces/two.json pages/report.html events/one converted/model.gguf)
    if(NOT EXISTS ${here}/${name})
      message(FATAL_ERROR "umask ${mask}: there is no ${name}")
    endif()
  endforeach()
endforeach()
