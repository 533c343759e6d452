# Each family calls its facts by the same names.
set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
