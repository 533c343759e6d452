# Standard headers and fmt, compiled once for all folders, with the flags of the lowest one. A file
# that is compiled for another instruction set reads them as usual.
function(piton_precompile target)
  if(target STREQUAL piton_base)
    target_precompile_headers(piton_base PRIVATE <algorithm> <filesystem> <functional> <map> <memory> <optional>
                              <span> <string> <vector> <fmt/format.h>)
  elseif(NOT target MATCHES "^piton_(kernels_|comm_mpi)")  # those have flags of their own
    target_precompile_headers(${target} REUSE_FROM piton_base)
  endif()
endfunction()

# piton_folder(folder DEPENDS lower folders... LIBS libraries...)
#
# Makes the static library piton_<folder> from src/<folder>/*.cpp (headers alone: an interface
# library). A folder that does not exist yet is skipped, and so are dependencies on it.
function(piton_folder folder)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBS" ${ARGN})
  set(path ${CMAKE_SOURCE_DIR}/src/${folder})
  if(NOT IS_DIRECTORY ${path})
    return()
  endif()
  string(REPLACE "/" "_" target piton_${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${path}/*.cpp)
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_SOURCE_DIR}/src)
  foreach(lower IN LISTS arg_DEPENDS)
    string(REPLACE "/" "_" lower_target piton_${lower})
    if(TARGET ${lower_target})
      target_link_libraries(${target} ${scope} ${lower_target})
    endif()
  endforeach()
  target_link_libraries(${target} ${scope} ${arg_LIBS})
  if(PITON_PRECOMPILE AND sources)
    piton_precompile(${target})
  endif()
  if(EXISTS ${path}/folder.cmake)
    include(${path}/folder.cmake)  # sources compiled with flags of their own, generated files
  endif()
endfunction()
