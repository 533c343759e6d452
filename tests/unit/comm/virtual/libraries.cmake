list(APPEND libraries piton_test_doubles)
