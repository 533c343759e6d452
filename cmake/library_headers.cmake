# piton_precompile(target set): Clang, which compiles the sanitized tests of a day, has the headers of libraries
# precompiled for `target`.
#
# To read them takes two to four of the ten to thirty seconds that a source takes. They are read once for each set:
# targets that have the same flags. Headers of Piton are not among them, so a change of one compiles what includes it
# and no more. A source includes all that it needs all the same: GCC and builds without PITON_UNITY see to that.
#
# Not GCC: it gains half as much, warns of its own library's code when that is precompiled, and ccache then finds
# nothing that another folder has compiled.
set(piton_library_headers <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <filesystem> <fstream>
    <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <stdexcept> <string>
    <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>
    <nlohmann/json.hpp>)
set(piton_headers_of_tests <gmock/gmock.h> <gtest/gtest.h>)

# A set's flags: `OPTIMIZED`, what CMAKE_CXX_FLAGS have; `QUICK`, -O0 in a debug build; `TESTS`, programs with gtest.
function(piton_precompile target set)
  if(NOT PITON_UNITY OR PITON_FUZZ OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  set(headers piton_headers_${set})
  if(NOT TARGET ${headers})
    set(source ${CMAKE_BINARY_DIR}/generated/${headers}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(${headers} OBJECT ${source})
    target_link_libraries(${headers} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    # ccache compares what a header holds, not when it was written.
    target_compile_options(${headers} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    set(names ${piton_library_headers})
    if(set STREQUAL "TESTS")
      list(APPEND names ${piton_headers_of_tests})
      target_link_libraries(${headers} PRIVATE GTest::gtest GTest::gmock)
      set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${headers} PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
    endif()
    if(NOT set STREQUAL "OPTIMIZED")
      target_compile_options(${headers} PRIVATE $<$<CONFIG:Debug>:-O0>)
    endif()
    target_precompile_headers(${headers} PRIVATE ${names})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()
