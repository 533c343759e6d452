# libpiton as programs get it: a shared library that has only the symbols of piton_c.h.
list(APPEND libraries piton_shared)
