// Python pickles of protocols 0 to 5, read without executing anything.
//
// A pickle is a program for a stack machine that can call whatever it names. This reader has the
// instructions, and of the names only a list (pickle/globals.h): tensors, their storages and types,
// containers, and classes that hold arguments of a run. A call of those makes plain data; any other
// name is Error(kData) that says it. Memory is in proportion to the pickle's bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "pickle/pickle_value.h"

namespace piton {

// `where` names the file in messages. `end`: how many of the bytes the pickle had, where not null;
// else more bytes after it are an error.
PickleDocument read_pickle(std::string_view bytes, const std::string& where,
                           std::size_t* end = nullptr);

}  // namespace piton
