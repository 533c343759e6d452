list(APPEND libraries piton_kernels_reference)
