list(APPEND libraries piton_evaluate piton_convert)
