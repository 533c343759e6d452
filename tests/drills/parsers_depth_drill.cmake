set(processors 1)
