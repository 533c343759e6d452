list(APPEND libraries PkgConfig::compression)
