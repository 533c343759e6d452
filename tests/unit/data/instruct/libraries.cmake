list(APPEND libraries piton_data_preprocess)
