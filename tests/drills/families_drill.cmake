set(places 1)  # programs of one thread, one after another
