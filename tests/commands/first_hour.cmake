# Runs every command of docs/first_hour.md and compares its output.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
get_filename_component(bin ${PITON} DIRECTORY)
file(COPY ${SOURCE}/recipes DESTINATION ${WORK})
foreach(page docs/first_hour.md)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "PATH=${bin}:$ENV{PATH}"
                          ${SOURCE}/tests/support/transcript.sh ${SOURCE}/${page} ${WORK}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${out}")
  endif()
endforeach()
