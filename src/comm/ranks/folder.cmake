# The sums under vector/ are compiled once for each instruction set, each in a separate namespace,
# and chosen at run time (sum.cpp). Additions in order and nothing else: every set gives the same bits.
file(GLOB sum_sources CONFIGURE_DEPENDS ${path}/vector/*.cpp)
function(piton_sum_set isa)
  add_library(${target}_${isa} OBJECT ${sum_sources})
  target_include_directories(${target}_${isa} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target}_${isa} PRIVATE PITON_ISA=${isa})
  target_compile_options(${target}_${isa} PRIVATE -O3 -ffp-contract=off -fno-trapping-math ${ARGN})
  target_link_libraries(${target}_${isa} PRIVATE fmt::fmt)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
endfunction()
piton_sum_set(v2 -march=x86-64-v2)
piton_sum_set(v3 -march=x86-64-v3)
piton_sum_set(v4 -march=x86-64-v4 -mprefer-vector-width=512)
