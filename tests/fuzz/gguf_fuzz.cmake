list(APPEND libraries piton_gguf)
