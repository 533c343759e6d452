list(APPEND libraries piton_comm piton_text_files)
