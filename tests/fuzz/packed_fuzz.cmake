list(APPEND libraries piton_data)
