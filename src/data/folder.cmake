target_link_libraries(piton_data PUBLIC BZip2::BZip2)
