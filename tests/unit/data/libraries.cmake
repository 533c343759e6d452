list(APPEND libraries piton_data_preprocess piton_data_samples PkgConfig::compression BZip2::BZip2)
