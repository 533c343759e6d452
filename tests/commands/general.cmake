# Common to all commands: help, version, unknown names, exit codes.
include(${SOURCE}/tests/support/expect.cmake)

expect(RUN --version CODE 0
  OUT "^piton [0-9]+\\.[0-9]+\\.[0-9]+\n" "\ncommit: [0-9a-f]+|\ncommit: unknown" "\nback ends: ")
expect(RUN --help CODE 0 OUT "usage: piton COMMAND" "\n  help  +shows how to use a command\n")
expect(RUN CODE 2 ERR "usage: piton COMMAND")
expect(RUN helpp CODE 2 ERR "^piton helpp: unknown command, did you mean help")
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

# docs/cli.md is what the program says of itself.
expect(RUN help --markdown CODE 0 OUT "^# Commands and options\n" "\n## piton help\n" "`--threads`")
if(EXISTS ${SOURCE}/docs/cli.md)
  execute_process(COMMAND ${PITON} help --markdown OUTPUT_VARIABLE page)
  file(READ ${SOURCE}/docs/cli.md stored)
  if(NOT page STREQUAL stored)
    message(FATAL_ERROR "docs/cli.md differs from `piton help --markdown`; run make docs")
  endif()
endif()
