# The same tests would run on a GPU only.
set(part_of_build ${PITON_CUDA})
