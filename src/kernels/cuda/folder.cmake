# Files with device code; all others here are the C++ compiler's (cmake/cuda.cmake has the language).
file(GLOB device_sources CONFIGURE_DEPENDS ${path}/*.cu ${path}/attention/*.cu ${path}/experts/*.cu ${path}/float8/*.cu
     ${path}/updates/*.cu)
piton_device_sources(device_sources ${CMAKE_BINARY_DIR}/generated/cuda cu ${device_sources})
target_sources(${target} PRIVATE ${device_sources})
# fmt 9 takes nvcc for a compiler without constexpr functions, and is then not consistent.
target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
# As for C++: products and sums are contracted by the source alone.
target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
# A spilled register is slow memory: no kernel has one.
target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-Werror>)
