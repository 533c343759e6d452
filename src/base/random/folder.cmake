# Without these the compiler keeps roots and selections scalar. No bit changes: nothing reads errno or
# the exception flags.
set_source_files_properties(${path}/philox_normals.cpp PROPERTIES COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math")
# Loops over arrays, which GCC turns into vectors at -O3.
set_property(SOURCE ${path}/philox_normals.cpp APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
set_source_files_properties(${path}/philox_normals.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # which have other flags
