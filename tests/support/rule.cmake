# rule() of tests/commands/*_rules.cmake: a rule of the options, with a command line that keeps it and one that breaks it.
set(model --num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 64 --max-position-embeddings 16)
# A corpus of bytes below 64. The order of mock data in samples of 16 tokens is 200 times as long to draw as such a run.
set(data --data-path ${WORK}/rules_text_document --tokenizer-type NullTokenizer)
function(make_rules_corpus)
  string(REPEAT "0 12 345 6789\n" 400 text)
  file(WRITE ${WORK}/rules.txt "${text}")
  execute_process(COMMAND ${PITON} preprocess --input ${WORK}/rules.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/rules
    RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "preprocess: exit ${code}\n${err}")
  endif()
endfunction()

# rule(NAME [RANKS n] [PLAN]   pretrain of n ranks, or plan, of the model above
#      ACCEPTS words...         exit 0; may be left out where another rule's line is the same
#      REJECTS words...         exit 2
#      SAYS regex)              what the message has
function(rule name)
  set(ENV{PITON_GRACE_SECONDS} 0)  # no rank has more to say than the line that is looked for
  cmake_parse_arguments(arg "PLAN" "RANKS;SAYS" "ACCEPTS;REJECTS" ${ARGN})
  set(command ${PITON} pretrain --threads 1 ${data})
  if(arg_RANKS)
    set(command ${LAUNCH} ${arg_RANKS} ${command})
  elseif(arg_PLAN)
    set(command ${PITON} plan)
  endif()
  foreach(case ACCEPTS REJECTS)
    if(NOT DEFINED arg_${case})
      continue()
    endif()
    set(words ${model} ${arg_${case}})
    if(NOT "${arg_${case}}" MATCHES "--train-(samples|iters)")
      list(APPEND words --train-iters 1)
    endif()
    execute_process(COMMAND ${command} ${words} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
    if(case STREQUAL "ACCEPTS" AND NOT code EQUAL 0)
      message(SEND_ERROR "${name}: wanted to run: ${words}\nexit ${code}\n${out}")
    endif()
    if(case STREQUAL "REJECTS" AND NOT (code EQUAL 2 AND out MATCHES "${arg_SAYS}"))
      message(SEND_ERROR "${name}: wanted a refusal that says ${arg_SAYS}: ${words}\nexit ${code}\n${out}")
    endif()
  endforeach()
endfunction()
