# The CUDA language and toolkit, for preset `cuda`: nvcc on PATH (or in CMAKE_CUDA_COMPILER).
# Compiled for compute capabilities 8.0 (A100), 9.0 (H100, H200), 10.0 (B200) and 12.0 (RTX 50); newer devices
# take the PTX of the last one.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "PITON_CUDA: no nvcc on PATH; install the CUDA toolkit, or use the preset cpu")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION --std=c++20)
endif()
if(PITON_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PITON_CCACHE})
endif()
find_package(CUDAToolkit REQUIRED)
