set(libraries piton_megatron)
