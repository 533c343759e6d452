# piton doctor: a line for each thing that it looks at; missing only what Piton cannot do without.
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
foreach(about build processor "instruction sets" cores memory "open files" "locked memory" "shared memory" disk MPI GPU
    libraries)
  expect(RUN doctor CODE 0 OUT "(^|\n)(ok|warning) +${about} ")
endforeach()
expect(RUN doctor --json CODE 0 OUT "^{\"findings\":..\"about\":\"build\",\"health\":\"")
expect(RUN doctor now CODE 2 ERR "got \"now\", wanted no argument here")
# What is wrong comes with a fix.
execute_process(COMMAND sh -c "ulimit -n 256; PATH=/nowhere \"${PITON}\" doctor" RESULT_VARIABLE code OUTPUT_VARIABLE out)
if(NOT code EQUAL 0 OR NOT out MATCHES "warning +open files +at most 256 .ulimit -n.\n +-> ulimit -n 4096"
    OR NOT out MATCHES "ok +MPI [^\n]*no mpirun on the path")
  message(FATAL_ERROR "exit ${code}\n${out}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env PITON_ISA=v2 ${PITON} doctor OUTPUT_VARIABLE out)
if(NOT out MATCHES "the kernels use x86-64-v2\n")
  message(FATAL_ERROR "PITON_ISA is not heeded\n${out}")
endif()
