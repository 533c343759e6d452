list(APPEND libraries piton_kernels_reference nlohmann_json::nlohmann_json)
