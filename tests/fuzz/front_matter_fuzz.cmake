list(APPEND libraries piton_data_records)
