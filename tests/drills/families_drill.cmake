list(APPEND libraries piton_huggingface nlohmann_json::nlohmann_json)
