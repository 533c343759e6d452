list(APPEND libraries piton_data_preprocess piton_data_samples piton_data_labels PkgConfig::compression BZip2::BZip2)
