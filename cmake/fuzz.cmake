# tests/fuzz/<format>_fuzz.cpp   one reader of foreign bytes a file.
# tests/fuzz/<format>_fuzz.cmake beside it may set `libraries` (piton_base is always there) and `skip`,
#                                where a part that it needs is not built.
# tests/fuzz/corpus/<format>_fuzz/   examples to start from, and what was once found.
#
# With the preset "fuzz" (clang) each is a libFuzzer program; else it is a test that goes through the
# examples, and through every truncation of them.
if(PITON_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "fuzzers need clang: cmake --preset fuzz")
endif()
add_custom_target(fuzzers)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
foreach(file IN LISTS fuzz_sources)
  get_filename_component(name ${file} NAME_WE)
  set(libraries piton_base)
  set(skip OFF)
  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.cmake)
    include(${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.cmake)
  endif()
  if(skip)
    continue()
  endif()
  if(PITON_FUZZ)
    add_executable(${name} EXCLUDE_FROM_ALL ${file})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers ${name})
  else()
    add_executable(${name} ${file} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.cpp)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_dependencies(unit_tests ${name})
    add_test(NAME unit/${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(unit/${name} PROPERTIES LABELS unit)
  endif()
  target_link_libraries(${name} PRIVATE ${libraries})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
endforeach()
