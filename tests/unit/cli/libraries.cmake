# The program is no library: its parts are compiled here, with a table of commands of the test's own.
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/cli/command.cpp ${CMAKE_SOURCE_DIR}/src/cli/terminal.cpp)
list(APPEND libraries piton_base spdlog::spdlog)
