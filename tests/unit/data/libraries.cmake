list(APPEND libraries PkgConfig::compression BZip2::BZip2 nlohmann_json::nlohmann_json)
