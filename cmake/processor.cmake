# PITON_PROCESSOR: the processors of this build, x86 (x86-64) or arm (64 bits). Sources NAME_x86.cpp and NAME_arm.cpp
# (tests: NAME_x86_test.cpp) are compiled for one of them; piton_of_processor() leaves the others out of a list.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(PITON_PROCESSOR x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(PITON_PROCESSOR arm)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsigned-char>)  # as on x86-64
else()
  message(FATAL_ERROR "Piton is built for x86-64 and 64-bit ARM: got ${CMAKE_SYSTEM_PROCESSOR}")
endif()

function(piton_of_processor list)
  foreach(processor x86 arm)
    if(NOT processor STREQUAL PITON_PROCESSOR)
      list(FILTER ${list} EXCLUDE REGEX "_${processor}(_test)?[.]cpp$")
    endif()
  endforeach()
  set(${list} "${${list}}" PARENT_SCOPE)
endfunction()
