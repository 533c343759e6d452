set(places 1)  # most jobs sleep
set(shards 2)
