# In every build, so that what replaces MPI is compiled where MPI is built too.
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/comm/no_mpi/world.cpp)
list(APPEND libraries piton_comm_ranks)
