list(APPEND libraries piton_text_files nlohmann_json::nlohmann_json)
