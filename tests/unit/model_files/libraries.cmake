list(APPEND libraries piton_convert piton_kernels_cpu nlohmann_json::nlohmann_json)
