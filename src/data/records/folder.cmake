target_link_libraries(piton_data_records PUBLIC BZip2::BZip2)

# Parquet through Apache Arrow: an installed package, else the headers and libraries inside the PyPI
# wheel: the one that python3 imports, or -DPITON_PYARROW=.../site-packages/pyarrow, which `make` puts into
# build/arrow (tools/fetch-arrow.sh). Without either, the reader that refuses is built.
set(PITON_PYARROW "" CACHE PATH "folder of the pyarrow wheel, where no Arrow package is installed")
find_package(Arrow CONFIG QUIET)
find_package(Parquet CONFIG QUIET)
if(TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
  target_link_libraries(piton_data_records PRIVATE Parquet::parquet_shared Arrow::arrow_shared)
  set(arrow_found ON)
else()
  if(NOT PITON_PYARROW AND NOT CMAKE_CROSSCOMPILING)  # python3 is this machine's
    execute_process(COMMAND python3 -c "import pyarrow; print(pyarrow.__path__[0], end='')"
      RESULT_VARIABLE failed OUTPUT_VARIABLE wheel ERROR_QUIET)
    if(NOT failed)
      set(PITON_PYARROW ${wheel})
    endif()
  endif()
endif()
if(NOT TARGET Parquet::parquet_shared AND PITON_PYARROW)
  file(GLOB arrow_library ${PITON_PYARROW}/libarrow.so.*)
  file(GLOB parquet_library ${PITON_PYARROW}/libparquet.so.*)
  if(NOT arrow_library OR NOT parquet_library)
    message(FATAL_ERROR "PITON_PYARROW=${PITON_PYARROW}: no libarrow.so and libparquet.so there")
  endif()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/data/records/parquet_arrow.cpp PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-isystem;${PITON_PYARROW}/include")
  target_link_libraries(piton_data_records PRIVATE ${parquet_library} ${arrow_library})
  # The wheel's libparquet exports the functions of a libcrypto that it contains. The loader takes the first library
  # that has a name, so the system's comes first: otherwise libssl would work with parts of both.
  target_link_options(piton_data_records INTERFACE -Wl,-rpath,${PITON_PYARROW}
    LINKER:--push-state,--no-as-needed,-lcrypto,--pop-state)
  set(arrow_found ON)
endif()
if(arrow_found)
  # cmake/library.cmake compiles it, so it is no matter of the source.
  get_target_property(sources piton_data_records SOURCES)
  list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/src/data/records/parquet_absent.cpp)
  set_target_properties(piton_data_records PROPERTIES SOURCES "${sources}")
else()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/data/records/parquet_arrow.cpp PROPERTIES HEADER_FILE_ONLY ON)
  message(STATUS "No Apache Arrow: Parquet files will not be read. `make` fetches it if there is pip and a network; "
    "or: apt-get install python3-pip, then make")
endif()
