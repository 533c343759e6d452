list(APPEND libraries piton_text_files)
