# The CUDA back end for the host: the files of src/device/cuda, src/kernels/cuda and src/comm/nccl with the headers of
# tests/cuda_emulator/include in place of CUDA's, and product.cpp there in place of the library's products.
# Its kernels are compiled with -fsanitize=thread, whose functions are those of tests/cuda_emulator/memory.cpp:
# they see each access. So it is no part of builds with sanitizers.
if(PITON_SANITIZE)
  return()
endif()
set(emulator ${CMAKE_SOURCE_DIR}/tests/cuda_emulator)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${emulator}/*.cpp)
list(FILTER emulator_sources EXCLUDE REGEX "_test.cpp$")
file(GLOB host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cpp
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/kernels/cuda/linear/*.cpp
     ${CMAKE_SOURCE_DIR}/src/comm/nccl/*.cpp)
list(FILTER host_sources EXCLUDE REGEX "kernels/cuda/(product|cublas_lt).cpp$")
file(GLOB device_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/attention/*.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/attention/warpgroup/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/experts/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/float8/*.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/norm/*.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/trial/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/linear/*.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/recurrent/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/updates/*.cu)
add_library(piton_cuda_emulated STATIC EXCLUDE_FROM_ALL ${emulator_sources} ${host_sources})
piton_device_sources(device_sources ${CMAKE_BINARY_DIR}/generated/cuda_emulated cpp ${device_sources}
                     ${emulator}/faulty.cu ${emulator}/fragments.cu)
set_source_files_properties(${device_sources} PROPERTIES COMPILE_OPTIONS "-O1;-fsanitize=thread;-Wno-unknown-pragmas")
target_sources(piton_cuda_emulated PRIVATE ${device_sources})
target_include_directories(piton_cuda_emulated BEFORE PUBLIC ${emulator}/include ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(piton_cuda_emulated PUBLIC piton_kernels piton_comm piton_comm_rendezvous)

file(GLOB sources CONFIGURE_DEPENDS ${emulator}/*_test.cpp)
piton_test_in_parts(cuda_emulated 4 SOURCES ${sources} ${CMAKE_SOURCE_DIR}/tests/ops/call_cases.cpp
           ${CMAKE_SOURCE_DIR}/tests/ops/attention_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/decoding_cases.cpp
           ${CMAKE_SOURCE_DIR}/tests/ops/expert_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/float8_cases.cpp
           ${CMAKE_SOURCE_DIR}/tests/ops/latent_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/recurrent_cases.cpp
           ${CMAKE_SOURCE_DIR}/tests/ops/sampling_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/sink_cases.cpp
           ${CMAKE_SOURCE_DIR}/tests/ops/call_runner.cpp
           LIBS piton_cuda_emulated piton_adapters piton_plan piton_generate piton_kernels_reference piton_kernels_cpu
                piton_kernels_meta piton_comm_virtual)
# In place of NCCL: a library that moves the emulator's memory between processes, and calls its runtime functions.
add_library(fake_nccl SHARED ${CMAKE_SOURCE_DIR}/tests/fake_nccl/nccl.cpp)
target_include_directories(fake_nccl BEFORE PRIVATE ${emulator}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(fake_nccl PRIVATE piton_tensor)
set_target_properties(fake_nccl PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set_target_properties(cuda_emulated PROPERTIES ENABLE_EXPORTS ON)
target_compile_definitions(cuda_emulated PRIVATE PITON_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
add_dependencies(cuda_emulated fake_nccl)
