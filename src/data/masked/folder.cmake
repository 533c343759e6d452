# The order of samples: vector code of its loops is worth more than what compiling it costs.
target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # which have other flags
