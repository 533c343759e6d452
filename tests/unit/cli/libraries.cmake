# The program is not a library: its source is compiled here, with a table of commands for the test.
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/cli/command.cpp)
list(APPEND libraries piton_cli_terminal piton_cli_compatibility piton_train)
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/cli/commands/dialogue.cpp)
