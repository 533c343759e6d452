# MPI joins the ranks that mpirun starts. Without it they meet over TCP, as those of `piton launch`, torchrun and srun do
# (comm/sockets). PITON_MPI: ON fails where no MPI is found, AUTO builds without it, OFF does not look.
if(NOT PITON_MPI)
  return()
endif()
if(PITON_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS CXX)
else()
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(MPI_CXX_FOUND)
  set(PITON_MPI ON)  # of this configuration; the cache keeps AUTO
else()
  message(STATUS "Without MPI: none is found; ranks of mpirun meet over TCP")
  set(PITON_MPI OFF)
endif()
