list(APPEND libraries piton_convert piton_kernels_cpu)
