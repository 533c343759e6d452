set(places 1)
