# piton_device_sources(OUT FOLDER SUFFIX SOURCES...): sets OUT to sources FOLDER/N.SUFFIX that each include four of SOURCES.
#
# CMake compiles sources of C++ together (UNITY_BUILD) but not those of CUDA, where headers are half of what a source
# takes.
function(piton_device_sources out folder suffix)
  set(at_a_time 4)
  if(NOT PITON_UNITY)
    set(at_a_time 1)
  endif()
  set(sources ${ARGN})
  set(together "")
  set(number 0)
  while(sources)
    list(SUBLIST sources 0 ${at_a_time} group)
    list(REMOVE_ITEM sources ${group})
    list(TRANSFORM group REPLACE "(.+)" "#include \"\\1\"\n")
    string(CONCAT text ${group})
    set(file ${folder}/${number}.${suffix})
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}")
    list(APPEND together ${file})
    math(EXPR number "${number} + 1")
  endwhile()
  set(${out} ${together} PARENT_SCOPE)
endfunction()
