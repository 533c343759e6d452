include(${CMAKE_SOURCE_DIR}/tests/drills/checkpoint_flips_drill.cmake)
