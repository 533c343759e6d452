list(APPEND libraries piton_text)
