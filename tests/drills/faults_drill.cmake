list(APPEND libraries nlohmann_json::nlohmann_json)
