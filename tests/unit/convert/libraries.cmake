list(APPEND libraries piton_kernels_cpu nlohmann_json::nlohmann_json)
