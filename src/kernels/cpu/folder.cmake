file(GLOB attention_sources CONFIGURE_DEPENDS ${path}/attention/*.cpp ${path}/recurrent/*.cpp ${path}/processor/*.cpp)
piton_of_processor(attention_sources)
target_sources(${target} PRIVATE ${attention_sources})
# Large and slow to compile: one by one.
set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
# The loops under vector/ are compiled once for each instruction set, each in a separate namespace,
# and chosen at run time (processor/isa.cpp). Their floating-point rules: fused multiply-adds may be formed,
# nothing is reordered, infinities and NaN keep their meaning.
file(GLOB vector_sources CONFIGURE_DEPENDS ${path}/vector/*.cpp)
set(vector_options -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fopenmp-simd)
# GCC bug 105593: it warns of the undefined values in its own avx512fintrin.h. Vectors wider than a set's registers are
# passed between inline functions alone.
list(APPEND vector_options -Wno-uninitialized -Wno-psabi $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
# Sanitized by day: with -O3 codes and panels take thirty to forty seconds to compile for each set, with -O1 seven.
# Products and sums are contracted as with -O3.
# Sanitized by Clang nothing is fused: it fuses an expression in one loop and not in the next, and tests compare bits.
if(PITON_SANITIZE)
  list(APPEND vector_options $<$<CXX_COMPILER_ID:Clang>:-ffp-contract=off>)
endif()
if(PITON_SANITIZE AND NOT PITON_SANITIZE_WHOLE)
  set_source_files_properties(${path}/vector/codes.cpp ${path}/dot/codes.cpp ${path}/dot/pack_codes.cpp
                              ${path}/vector/elementwise.cpp ${path}/vector/pack.cpp ${path}/vector/panels.cpp
                              ${path}/dot/product.cpp PROPERTIES COMPILE_OPTIONS "-O1;$<$<CXX_COMPILER_ID:GNU>:-fexpensive-optimizations>")
  # Clang takes forty seconds for the checks of operations in these; GCC makes them (make nightly).
  set_property(SOURCE ${path}/vector/codes.cpp ${path}/dot/codes.cpp ${path}/vector/panels.cpp
               APPEND PROPERTY COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=undefined>")
endif()
# Sanitized by day: the code of sets that this machine lacks cannot run, so it is compiled without checks, in a tenth of
# the time.
set(flags_here "")
if(PITON_SANITIZE AND NOT PITON_SANITIZE_WHOLE AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo flags_here LIMIT_COUNT 1 REGEX "^flags")
endif()
function(piton_check_if_runs target flag)
  if(flags_here AND NOT flags_here MATCHES " ${flag}( |$)")
    target_compile_options(${target} PRIVATE -O0 -fno-sanitize=all)
  endif()
endfunction()
# Of a lower set than this machine's best, tests of other folders run nothing; and Clang's tests of a day leave
# unit_kernels_cpu out (Makefile, KERNEL_BITS).
function(piton_check_unless_runs target better)
  if(flags_here MATCHES " ${better}( |$)" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -O0 -fno-sanitize=all)
  endif()
endfunction()
function(piton_vector_set isa bytes)
  add_library(${target}_${isa} OBJECT ${vector_sources})
  target_include_directories(${target}_${isa} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target}_${isa} PRIVATE PITON_ISA=${isa} PITON_VECTOR_BYTES=${bytes}
    PITON_LANES="kernels/cpu/vector/lanes_${PITON_LANES}.h")
  target_compile_options(${target}_${isa} PRIVATE ${vector_options} ${ARGN})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
endfunction()
if(PITON_PROCESSOR STREQUAL "arm")
  set(PITON_LANES neon)
  piton_vector_set(neon 16 -march=armv8-a)
  return()
endif()
set(PITON_LANES x86)
piton_vector_set(v2 16 -march=x86-64-v2)
piton_vector_set(v3 32 -march=x86-64-v3)
piton_vector_set(v4 64 -march=x86-64-v4 -mprefer-vector-width=512)
piton_check_unless_runs(${target}_v2 avx2)
piton_check_unless_runs(${target}_v3 avx512f)
piton_check_if_runs(${target}_v4 avx512f)
# Micro-kernels that only one set can run.
file(GLOB vector_sources CONFIGURE_DEPENDS ${path}/dot/*.cpp)
set(target_dot ${target}_dot)
add_library(${target_dot} OBJECT ${vector_sources})
target_include_directories(${target_dot} PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(${target_dot} PRIVATE PITON_LANES="kernels/cpu/vector/lanes_x86.h")
target_compile_options(${target_dot} PRIVATE ${vector_options} -march=x86-64-v4 -mavx512bf16
  -mavx512vnni -mprefer-vector-width=512)
piton_check_if_runs(${target_dot} avx512_bf16)
target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target_dot}>)
file(GLOB vector_sources CONFIGURE_DEPENDS ${path}/amx/*.cpp)
set(target_amx ${target}_amx)
add_library(${target_amx} OBJECT ${vector_sources})
target_include_directories(${target_amx} PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(${target_amx} PRIVATE ${vector_options} -march=x86-64-v4 -mavx512bf16
  -mamx-tile -mamx-bf16 -mprefer-vector-width=512)
piton_check_if_runs(${target_amx} avx512_bf16)  # tests of other machines run a mirror of its tiles
target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target_amx}>)
