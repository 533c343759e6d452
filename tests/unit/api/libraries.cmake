list(APPEND libraries piton_evaluate)
