list(APPEND libraries piton_api)
