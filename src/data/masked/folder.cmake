# The order of samples: vector code of its loops is worth more than what compiling it costs.
target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
