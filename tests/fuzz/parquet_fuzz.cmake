# Without Arrow the reader refuses every file: there is nothing to look for.
get_source_file_property(skip ${CMAKE_SOURCE_DIR}/src/data/records/parquet_arrow.cpp HEADER_FILE_ONLY)
