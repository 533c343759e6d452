list(APPEND libraries piton_huggingface)
