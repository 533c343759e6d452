set(libraries piton_pickle)
