# The program is not a library: its sources are compiled here, with a table of commands for the test.
foreach(part command stop_signals terminal text_plot megatron_flags megatron_table environment descriptors)
  list(APPEND sources ${CMAKE_SOURCE_DIR}/src/cli/${part}.cpp)
endforeach()
list(APPEND libraries piton_train spdlog::spdlog)
