# Common to all commands: help, version, unknown names, exit codes.
include(${SOURCE}/tests/support/expect.cmake)

expect(RUN --version CODE 0
  OUT "^piton [0-9]+\\.[0-9]+\\.[0-9]+\n" "\ncommit: [0-9a-f]+|\ncommit: unknown" "\nback ends: ")
expect(RUN --help CODE 0 OUT "usage: piton COMMAND" "\n  help  +shows how to use a command\n")
expect(RUN CODE 2 ERR "usage: piton COMMAND")
expect(RUN helpp CODE 2 ERR "^piton helpp: unknown command, did you mean help")
expect(RUN help CODE 0 OUT "^Trains language models[^\n]*\n\nusage: piton COMMAND " "\n  pretrain ")
expect(RUN help helpp CODE 2 ERR "^piton help: unknown command, did you mean help")
expect(RUN help --thread 2 CODE 2 ERR "^piton help: --thread: unknown option, did you mean --threads")
expect(RUN help --threads two CODE 2 ERR "^piton help: --threads: got \"two\", wanted integer\n$")
expect(RUN help --config no-such-file.toml CODE 3
  ERR "^piton help: no-such-file.toml: cannot open: No such file or directory\n$")

# Every command that the overview lists explains itself.
execute_process(COMMAND ${PITON} --help OUTPUT_VARIABLE overview)
string(REGEX MATCHALL "\n  [a-z-]+  +" names "${overview}")
foreach(name IN LISTS names)
  string(STRIP "${name}" name)
  expect(RUN ${name} --help CODE 0 OUT "^usage: piton ${name}" "\n  piton ${name} ")
  expect(RUN ${name} --help all CODE 0 OUT "--config FILE" "--kernels reference.cpu.cuda")
endforeach()

# Results that cannot be written are an error.
if(EXISTS /dev/full)
  execute_process(COMMAND sh -c "\"${PITON}\" --help > /dev/full" RESULT_VARIABLE code ERROR_VARIABLE err)
  if(NOT code EQUAL 3 OR NOT err MATCHES "No space left on device")
    message(FATAL_ERROR "on a full disk: exit ${code}, ${err}")
  endif()
endif()

# An unwind entry of an empty function hides that of the function at the same address: CMakeLists.txt, x.cold.
find_program(readelf readelf)
if(readelf)
  file(MAKE_DIRECTORY ${WORK})
  execute_process(COMMAND sh -c "\"${readelf}\" --debug-dump=frames \"${PITON}\" | grep ' FDE ' > unwind_entries.txt
      grep -c . unwind_entries.txt; grep -cE 'pc=([0-9a-f]+)\\.\\.\\1$' unwind_entries.txt"
    WORKING_DIRECTORY ${WORK} OUTPUT_VARIABLE entries)
  if(NOT entries MATCHES "^[0-9][0-9][0-9][0-9]+\n0\n$")
    message(FATAL_ERROR "unwind entries of ${PITON}, and of empty functions (wanted 0): ${entries}")
  endif()
endif()

# docs/cli.md is what the program says of itself.
expect(RUN help --markdown CODE 0 OUT "^# Commands and options\n" "\n## piton help\n" "`--threads`")
if(EXISTS ${SOURCE}/docs/cli.md)
  execute_process(COMMAND ${PITON} help --markdown OUTPUT_VARIABLE page)
  file(READ ${SOURCE}/docs/cli.md stored)
  if(NOT page STREQUAL stored)
    message(FATAL_ERROR "docs/cli.md differs from `piton help --markdown`; run make docs")
  endif()
endif()

# --model names every preset.
execute_process(COMMAND ${PITON} pretrain --model none --mock-data --vocab-size 9 OUTPUT_QUIET ERROR_VARIABLE err)
string(REGEX MATCH "wanted one of ([^\n]*)" presets "${err}")
string(REPLACE ", " ";" presets "${CMAKE_MATCH_1}")
list(LENGTH presets count)
string(REGEX MATCH "\n. `--model` [^\n]*" line "${page}")
foreach(preset IN LISTS presets)
  string(FIND "${line}" "${preset}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "docs/cli.md: --model does not name ${preset}: ${line}")
  endif()
endforeach()
if(count LESS 8)
  message(FATAL_ERROR "--model none: ${err}")
endif()

# A command that writes warns once if it runs as root; a refusal stays one line.
execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
set(wanted 0)
if(user STREQUAL "0")
  set(wanted 1)
endif()
# warnings_of_root(number words...): in all that the command prints
function(warnings_of_root number)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE error)
  string(REGEX MATCHALL "warning: running as root" found "${out}${error}")
  list(LENGTH found count)
  if(NOT count EQUAL number)
    message(FATAL_ERROR "${ARGN}: exit ${code}: ${count} warnings, wanted ${number}\n${out}${error}")
  endif()
endfunction()
file(MAKE_DIRECTORY ${WORK})
string(REPEAT "To be, or not to be, that is the question:\n" 60 text)
file(WRITE ${WORK}/root.txt "${text}")
set(preprocess ${PITON} preprocess --input ${WORK}/root.txt --tokenizer-type ByteTokenizer --overwrite --output-prefix ${WORK}/root)
set(train pretrain --model llama-tiny --mock-data --vocab-size 100 --seq-length 128 --train-iters 1 --global-batch-size 2)
warnings_of_root(${wanted} ${preprocess})
warnings_of_root(0 ${preprocess} --quiet)
warnings_of_root(0 ${PITON} preprocess --input ${WORK}/absent.txt --tokenizer-type ByteTokenizer --output-prefix ${WORK}/root)
warnings_of_root(0 ${PITON} inspect ${WORK}/root_text_document)
file(REMOVE_RECURSE ${WORK}/root-run ${WORK}/root-hf ${WORK}/root-tokenizer)
warnings_of_root(${wanted} ${PITON} train-tokenizer --input ${WORK}/root.txt --vocab-size 260 --save ${WORK}/root-tokenizer)
warnings_of_root(0 ${PITON} ${train})
warnings_of_root(${wanted} ${LAUNCH} 2 ${PITON} ${train} --save ${WORK}/root-run)
warnings_of_root(${wanted} ${PITON} report ${WORK}/root-run)
warnings_of_root(${wanted} ${PITON} convert --load ${WORK}/root-run --save ${WORK}/root-hf --to hf)

# A line break or an escape code in the name of a file adds no line to messages or to the log.
string(ASCII 27 escape)
set(forged "x\nsaved everything\r${escape}c")
file(REMOVE_RECURSE "${WORK}/${forged}")
set(shown "x.nsaved everything.r.x1bc")
expect(RUN inspect ${WORK}/${forged} CODE 3 ERR "^piton inspect: [^\n]*/${shown}: there is no such file[^\n]*\n$")
expect(RUN "he\nlp" CODE 2 ERR "^piton he.nlp: unknown command[^\n]*\n$")
expect(RUN inspect ${WORK} "--a\nb" "--c${escape}" CODE 2
       ERR "^piton inspect: 2 options cannot be taken:\n  --a.nb: [^\n]*\n  --c.x1b: [^\n]*\n$")
execute_process(COMMAND ${PITON} pretrain --model llama-tiny --mock-data --tokenizer-type ByteTokenizer --seq-length 128
                        --train-iters 1 --save ${WORK}/${forged} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
string(REGEX MATCH "\n(saved [^\n]*|[^\n[][^\n]*)\n" line "\n${out}${err}\n")
if(NOT code EQUAL 0 OR NOT line STREQUAL "" OR NOT out MATCHES "/${shown}" OR "${out}${err}" MATCHES "${escape}")
  message(FATAL_ERROR "the name of a folder forged a line: exit ${code}, \"${line}\"\n${out}${err}")
endif()
