set(libraries piton_checkpoint)
