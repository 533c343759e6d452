# Files with device code; all others here are the C++ compiler's (cmake/cuda.cmake has the language).
file(GLOB device_sources CONFIGURE_DEPENDS ${path}/*.cu ${path}/attention/*.cu ${path}/experts/*.cu ${path}/float8/*.cu
     ${path}/linear/*.cu ${path}/norm/*.cu ${path}/recurrent/*.cu ${path}/trial/*.cu ${path}/updates/*.cu)
piton_device_sources(device_sources ${CMAKE_BINARY_DIR}/generated/cuda cu ${device_sources})
file(GLOB folder_sources CONFIGURE_DEPENDS ${path}/linear/*.cpp ${path}/trial/*.cpp)
target_sources(${target} PRIVATE ${device_sources} ${folder_sources})
# Products of warpgroups are instructions of compute capability 9.0 alone, in code that no newer GPU runs.
file(GLOB warpgroup_sources CONFIGURE_DEPENDS ${path}/attention/warpgroup/*.cu)
add_library(piton_warpgroups OBJECT ${warpgroup_sources})
set_target_properties(piton_warpgroups PROPERTIES CUDA_ARCHITECTURES 90a-real)
target_link_libraries(piton_warpgroups PRIVATE piton_kernels piton_device_cuda)
target_sources(${target} PRIVATE $<TARGET_OBJECTS:piton_warpgroups>)
foreach(device_code ${target} piton_warpgroups)
  # fmt 9 takes nvcc for a compiler without constexpr functions, and is then not consistent.
  target_compile_definitions(${device_code} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  # As for C++: products and sums are contracted by the source alone.
  target_compile_options(${device_code} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
  # A spilled register is slow memory: no kernel has one.
  target_compile_options(${device_code} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-Werror>)
endforeach()
