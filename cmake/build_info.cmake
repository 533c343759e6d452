# What `piton --version` prints: build_info.cpp is written at each build, and touched only when the
# commit changes, so that nothing else is compiled again.
#   piton_build_info(target)   adds the file to `target`
function(piton_build_info target)
  set(back_ends "")
  foreach(name reference cpu cuda meta)
    if(TARGET piton_kernels_${name})
      list(APPEND back_ends ${name})
    endif()
  endforeach()
  foreach(name mpi sockets nccl virtual)
    if(TARGET piton_comm_${name})
      list(APPEND back_ends ${name})
    endif()
  endforeach()
  string(REPLACE ";" ", " back_ends "${back_ends}")
  set(file ${CMAKE_BINARY_DIR}/generated/build_info.cpp)
  set(write ${CMAKE_COMMAND} -DFILE=${file} -DSOURCE=${CMAKE_SOURCE_DIR}
    -DVERSION=${PROJECT_VERSION} "-DBACK_ENDS=${back_ends}"
    "-DBUILD=${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -P ${CMAKE_SOURCE_DIR}/cmake/write_build_info.cmake)
  add_custom_target(${target}_build_info BYPRODUCTS ${file} COMMAND ${write}
    COMMENT "Looking up the commit" VERBATIM)
  target_sources(${target} PRIVATE ${file})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  add_dependencies(${target} ${target}_build_info)
endfunction()
