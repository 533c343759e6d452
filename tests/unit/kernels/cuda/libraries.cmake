# Uses the cases and the runner of tests/ops.
set(part_of_build ${PITON_CUDA})
list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/ops/call_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/attention_cases.cpp
     ${CMAKE_SOURCE_DIR}/tests/ops/decoding_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/expert_cases.cpp
     ${CMAKE_SOURCE_DIR}/tests/ops/float8_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/latent_cases.cpp
     ${CMAKE_SOURCE_DIR}/tests/ops/recurrent_cases.cpp
     ${CMAKE_SOURCE_DIR}/tests/ops/sampling_cases.cpp ${CMAKE_SOURCE_DIR}/tests/ops/sink_cases.cpp
     ${CMAKE_SOURCE_DIR}/tests/ops/call_runner.cpp)
list(APPEND libraries piton_kernels_reference)
