if(NOT TARGET piton_comm_mpi)
  set(part_of_build OFF)
endif()
