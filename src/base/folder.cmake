# A whole library as one source: most of it is never called, so little time is spent on it.
set_source_files_properties(${path}/json.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
  "$<$<CONFIG:Release>:-O1>;$<$<AND:$<CONFIG:Debug>,$<NOT:$<BOOL:${PITON_FUZZ}>>>:-O0>")
