# tests/unit/<folder>/*_test.cpp   one executable a folder, label "unit"
# tests/ops/*.cpp                  one executable, label "ops"
# tests/repo/*_test.cpp            one executable, label "repo"
# tests/ranks/*_test.cpp           one executable, a test of CTest for each file, run under mpirun and by piton launch,
#                                  label "ranks"; of comm/ an executable a file
# tests/commands/*.cmake           the binary from outside, label "commands"; *_nightly.cmake nightly only;
#                                  those of texts, tokenizers and corpora in data/
# tests/drills/*_drill.cpp         one executable, a test of CTest for each file, label "drills": misfortunes by the
#                                  dozen, drawn from seeds; a few rounds a day, all where PITON_NIGHTLY is set
find_package(GTest REQUIRED)
include(GoogleTest)
add_library(piton_test_support INTERFACE)
target_include_directories(piton_test_support INTERFACE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(piton_test_support INTERFACE
  PITON_SOURCE_DIR="${CMAKE_SOURCE_DIR}" PITON_BINARY_DIR="${CMAKE_BINARY_DIR}")
target_link_libraries(piton_test_support INTERFACE GTest::gtest GTest::gmock)

# Devices and kernels that only tests use (tests/support/*.cpp): for tests whose libraries name it.
file(GLOB double_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.cpp)
add_library(piton_test_doubles STATIC ${double_sources})
target_include_directories(piton_test_doubles PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(piton_test_doubles PUBLIC piton_kernels piton_kernels_meta PRIVATE piton_test_support)
piton_compile_together(piton_test_doubles 32)

# A test is compiled more often than it runs long: half of the time of -O3, which the libraries have. With sanitizers
# -O0 halves it again.
function(piton_test_compilation name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:Debug>:-O0>)
  target_link_options(${name} PRIVATE ${piton_link_quickly})
  piton_precompile(${name} TESTS)
  piton_compile_together(${name} 16)
endfunction()
target_compile_options(piton_test_doubles PRIVATE $<$<CONFIG:Release>:-O1>)

# All test programs but the unit tests.
add_custom_target(whole_tests)

# By day tests do not wait for disks (tests/no_sync). A sanitizer wants to be the first library of a program.
add_library(piton_no_sync OBJECT ${CMAKE_SOURCE_DIR}/tests/no_sync/no_sync.cpp)
set(no_sync_environment "")
if(NOT PITON_SANITIZE)
  add_library(no_sync SHARED ${CMAKE_SOURCE_DIR}/tests/no_sync/no_sync.cpp)
  set_target_properties(no_sync PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(whole_tests no_sync)
  set(no_sync_environment LD_PRELOAD=$<TARGET_FILE:no_sync>)
  if(TARGET piton)
    add_dependencies(piton no_sync)  # tests of commands need no other target
  endif()
endif()

# piton_test_program(name label SOURCES files... LIBS libraries...)
function(piton_test_program name label)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} $<TARGET_OBJECTS:piton_no_sync>)
  target_link_libraries(${name} PRIVATE piton_test_support GTest::gtest_main ${arg_LIBS})
  piton_test_compilation(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT label STREQUAL "unit")
    add_dependencies(whole_tests ${name})
  endif()
endfunction()

# The same, and a test of CTest that runs all of the program.
function(piton_test name label)
  piton_test_program(${name} ${label} ${ARGN})
  add_test(NAME ${label}/${name} COMMAND ${name})
  set_tests_properties(${label}/${name} PROPERTIES LABELS ${label})
endfunction()

# A program of "ops" whose tests are divided into parts, of which a commit runs some by day (tools/left-out.sh).
function(piton_test_in_parts name parts)
  piton_test_program(${name} ops ${ARGN})
  foreach(part RANGE 1 ${parts})
    math(EXPR index "${part} - 1")
    add_test(NAME ops/${name}_${part} COMMAND ${name})
    set_tests_properties(ops/${name}_${part} PROPERTIES LABELS ops COST 1000
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# piton_tests_of(file result): the option with which a program runs the tests that are in `file` alone. CMake reads the
# file again when it changes.
function(piton_tests_of file result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} tests REGEX "^TEST(_F|_P)?\\(")
  set(filter "")
  foreach(test IN LISTS tests)
    if(NOT test MATCHES "^TEST[_FP]*\\(([A-Za-z0-9_]+), *([A-Za-z0-9_]+)\\)")
      message(FATAL_ERROR "${file}: ${test}: wanted TEST(Suite, Name) on one line")
    endif()
    set(test ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
    string(APPEND filter "${test}:*/${test}/*:")
  endforeach()
  set(${result} "--gtest_filter=${filter}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE folder_marks CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/*_test.cpp)
set(unit_folders "")
foreach(file IN LISTS folder_marks)
  get_filename_component(folder ${file} DIRECTORY)
  list(APPEND unit_folders ${folder})
endforeach()
list(REMOVE_DUPLICATES unit_folders)
add_custom_target(unit_tests)
foreach(folder IN LISTS unit_folders)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests/unit ${folder})
  string(REPLACE "/" "_" name ${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  piton_of_processor(sources)
  set(libraries "")
  if(TARGET piton_${name})
    set(libraries piton_${name})
  endif()
  set(part_of_build ON)
  if(EXISTS ${folder}/libraries.cmake)
    include(${folder}/libraries.cmake)  # may append to `libraries` and `sources`, or set `part_of_build` to OFF
  endif()
  if(NOT part_of_build)
    continue()
  endif()
  piton_test(unit_${name} unit SOURCES ${sources} LIBS ${libraries})
  add_dependencies(unit_tests unit_${name})
  # The longest start first, so that no processor waits for one of them at the end. They alone are divided where
  # GTEST_TOTAL_SHARDS is set (.ci/run).
  if(name MATCHES "^(api|checkpoint|convert|data|data_instruct|kernels_cpu|optim|parallel|session|text|train)$")
    set_tests_properties(unit/unit_${name} PROPERTIES COST 1000)
  else()
    set_tests_properties(unit/unit_${name} PROPERTIES ENVIRONMENT "GTEST_TOTAL_SHARDS=1;GTEST_SHARD_INDEX=0")
  endif()
endforeach()

file(GLOB ops_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/ops/*.cpp)
if(ops_sources)
  set(libraries "")
  foreach(library piton_test_doubles piton_ops piton_kernels_reference piton_kernels_cpu piton_kernels_meta)
    if(TARGET ${library})
      list(APPEND libraries ${library})
    endif()
  endforeach()
  piton_test_in_parts(ops_all 4 SOURCES ${ops_sources} LIBS ${libraries})
endif()

include(cmake/cuda_emulator.cmake)

file(GLOB repo_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/repo/*_test.cpp)
if(repo_sources)
  piton_test(repo_all repo SOURCES ${repo_sources} ${CMAKE_SOURCE_DIR}/tools/mutate/faults.cpp
             ${CMAKE_SOURCE_DIR}/tools/mutate/weave.cpp LIBS piton_base_options)
endif()
if(NOT PITON_SANITIZE)
  include(cmake/headers_alone.cmake)
endif()

# A test of `name` with `labels`; the command follows. Uses `count` and `second` of the loop below.
function(piton_rank_test name labels)
  add_test(NAME ${name} COMMAND ${ARGN})
  # `make test` has two places for each core, as most tests wait. On two cores a test of three places leaves one for
  # a test that waits, so those of three start first. The longest takes four minutes on two free cores. Machines that
  # build meanwhile are three times as slow.
  set(places 3)
  if(count EQUAL 1)
    set(places 2)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" PROCESSORS ${places} COST 1000 TIMEOUT 1200
    ENVIRONMENT PITON_GRACE_SECONDS=1)
  # A test of failures, which mostly waits, says on its second line what the survivors must print, and how soon:
  #   // within 15 s: REGULAR EXPRESSION
  if(second MATCHES "^// within ([0-9]+) s: (.*)")
    set_tests_properties(${name} PROPERTIES PROCESSORS 1 COST 0 TIMEOUT ${CMAKE_MATCH_1}
      PASS_REGULAR_EXPRESSION "${CMAKE_MATCH_2}" FAIL_REGULAR_EXPRESSION "NOT AS IT SHOULD BE")
  endif()
endfunction()

# To compile a file takes mostly what it has in common with the others: so the files of a folder are one program.
file(GLOB rank_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/ranks/*_test.cpp)
file(GLOB comm_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/ranks/comm/*_test.cpp)
set(rank_libraries piton_test_doubles piton_api)
piton_test_program(ranks_all ranks SOURCES ${rank_sources} ${CMAKE_SOURCE_DIR}/tests/ranks/main.cpp
                   LIBS ${rank_libraries})

# A rank test names its process counts in its first line:  // ranks: 2 4
# Counts after the word "nightly" run in `make nightly` only:  // ranks: 2 4 nightly 8
foreach(file IN LISTS rank_sources comm_sources)
  get_filename_component(name ${file} NAME_WE)
  if(file IN_LIST comm_sources)
    piton_test_program(ranks_${name} ranks SOURCES ${file} LIBS ${rank_libraries})
    set(program $<TARGET_FILE:ranks_${name}>)
  else()
    piton_tests_of(${file} filter)
    set(program $<TARGET_FILE:ranks_all> ${filter})
  endif()
  file(STRINGS ${file} head LIMIT_COUNT 2)
  list(GET head 0 first)
  list(GET head 1 second)
  string(REGEX REPLACE "nightly.*" "" daily "${first}")
  string(REGEX MATCHALL "[0-9]+" daily "${daily}")
  string(REGEX MATCHALL "[0-9]+" counts "${first}")
  foreach(count IN LISTS counts)
    set(labels ranks)
    if(NOT count IN_LIST daily)
      list(APPEND labels nightly)
    endif()
    if(PITON_MPI)
      piton_rank_test(ranks${count}/${name} "${labels}" ${CMAKE_SOURCE_DIR}/tools/launch.sh ${count} ${program})
    endif()
    # By sockets: daily what tests the ranks themselves, and all of them where there is no MPI.
    if(TARGET piton AND count GREATER 1)
      if(PITON_MPI AND NOT name MATCHES "^comm_" AND NOT "nightly" IN_LIST labels)
        list(APPEND labels nightly)
      endif()
      piton_rank_test(sockets${count}/${name} "${labels}" $<TARGET_FILE:piton> launch ${count} ${program})
    endif()
  endforeach()
endforeach()

file(GLOB command_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/commands/*.cmake
     ${CMAKE_SOURCE_DIR}/tests/commands/data/*.cmake ${CMAKE_SOURCE_DIR}/tests/commands/evaluation/*.cmake
     ${CMAKE_SOURCE_DIR}/tests/commands/speed/*.cmake ${CMAKE_SOURCE_DIR}/tests/commands/traces/*.cmake ${CMAKE_SOURCE_DIR}/tests/commands/tuning/*.cmake)
# Without MPI those that start mpirun are left out.
function(piton_needs_mpirun file result)
  file(STRINGS ${file} found REGEX "LAUNCH|launch[.]sh|launcher[(]|mpirun|comm/mpi" LIMIT_COUNT 1)
  if(found AND NOT PITON_MPI)
    set(${result} ON PARENT_SCOPE)
  else()
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()
if(TARGET piton)
  add_dependencies(whole_tests piton piton_shared)
  foreach(file IN LISTS command_tests)
    piton_needs_mpirun(${file} left_out)
    if(left_out)
      continue()
    endif()
    get_filename_component(name ${file} NAME_WE)
    add_test(NAME commands/${name}
      COMMAND ${CMAKE_COMMAND} -DPITON=$<TARGET_FILE:piton> -DSOURCE=${CMAKE_SOURCE_DIR}
              -DLAUNCH=${CMAKE_SOURCE_DIR}/tools/launch.sh
              -DWORK=${CMAKE_BINARY_DIR}/commands/${name} -P ${file})
    # After a rank has failed, mpirun waits for this long, twice.
    set_tests_properties(commands/${name} PROPERTIES LABELS commands TIMEOUT 600
      ENVIRONMENT "PITON_GRACE_SECONDS=1;${no_sync_environment}")
    if(name MATCHES "_rules$")  # a hundred runs each
      set_tests_properties(commands/${name} PROPERTIES TIMEOUT 1200)
    endif()
    if(name MATCHES "_nightly$")
      set_tests_properties(commands/${name} PROPERTIES LABELS "commands;nightly" TIMEOUT 1800)
    endif()
  endforeach()
endif()

# A drill may start the binary (PITON_PROGRAM) and call the library. tests/drills/NAME_drill.cmake may set `places` to 1
# where it starts one process at a time or mostly waits (tests of ranks, above), and `shards` to the number of parts that
# may run at the same time.
file(GLOB drill_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/drills/*_drill.cpp)
if(TARGET piton AND TARGET piton_api)
  set(drills "")
  foreach(file IN LISTS drill_sources)
    piton_needs_mpirun(${file} left_out)
    if(NOT left_out)
      list(APPEND drills ${file})
    endif()
  endforeach()
  piton_test_program(drills_all drills SOURCES ${drills} ${CMAKE_SOURCE_DIR}/tests/drills/main.cpp
                     LIBS piton_api piton_huggingface piton_kernels_reference)
  target_compile_definitions(drills_all PRIVATE PITON_PROGRAM="$<TARGET_FILE:piton>")
  add_dependencies(drills_all piton)
  foreach(file IN LISTS drills)
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "_drill$" "" name ${name})
    set(places 3)
    set(shards 1)
    if(EXISTS ${CMAKE_SOURCE_DIR}/tests/drills/${name}_drill.cmake)
      include(${CMAKE_SOURCE_DIR}/tests/drills/${name}_drill.cmake)
    endif()
    piton_tests_of(${file} filter)
    # Each drill ends what it started by itself; this limit is for the nights.
    foreach(shard RANGE 1 ${shards})
      set(part drills/${name})
      if(shard GREATER 1)
        string(APPEND part _${shard})
      endif()
      add_test(NAME ${part} COMMAND drills_all ${filter})
      math(EXPR index "${shard} - 1")
      set_tests_properties(${part} PROPERTIES LABELS drills PROCESSORS ${places} COST ${places} TIMEOUT 14400
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};${no_sync_environment}")
    endforeach()
  endforeach()
endif()

# What tools/mutate.sh makes its faults with.
add_executable(mutants EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/mutate/main.cpp
               ${CMAKE_SOURCE_DIR}/tools/mutate/faults.cpp ${CMAKE_SOURCE_DIR}/tools/mutate/weave.cpp)
target_link_libraries(mutants PRIVATE piton_test_support piton_base_options)
set_target_properties(mutants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
