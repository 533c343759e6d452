# libpiton.so: the C interface of include/piton (src/library) with all lower folders inside. The component "library"
# of `cmake --install` is what a program needs: the library, its headers, the files of find_package(Piton).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB library_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/library/*.cpp)
# The library reads no files of text. So it has the reader of Parquet that refuses, and does not need Arrow, which may
# be in the build folder alone; --as-needed leaves it out.
add_library(piton_shared SHARED ${library_sources} src/data/records/parquet_absent.cpp)
set_target_properties(piton_shared PROPERTIES OUTPUT_NAME piton EXPORT_NAME piton VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR} INSTALL_RPATH_USE_LINK_PATH ON)
target_compile_definitions(piton_shared PRIVATE PITON_VERSION="${PROJECT_VERSION}")
target_link_libraries(piton_shared PRIVATE piton_api)
target_link_options(piton_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/library.map -Wl,--as-needed)
set_target_properties(piton_shared PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/library.map)
piton_compile_together(piton_shared 32)
target_include_directories(piton_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(piton_shared INTERFACE cxx_std_17)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Piton)
install(TARGETS piton_shared EXPORT PitonTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES include/piton/piton.h include/piton/piton_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/piton
  COMPONENT library)
install(EXPORT PitonTargets NAMESPACE Piton:: DESTINATION ${package} COMPONENT library)
file(WRITE ${CMAKE_BINARY_DIR}/PitonConfig.cmake
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/PitonTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/PitonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/PitonConfig.cmake ${CMAKE_BINARY_DIR}/PitonConfigVersion.cmake
  DESTINATION ${package} COMPONENT library)
