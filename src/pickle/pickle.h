// Python pickles of protocols 0 to 5, read without executing anything.
//
// A pickle is a program for a stack machine that can call anything it names. This reader implements
// the instructions but allows only a list of names (pickle/globals.h): tensors, their storages and
// types, containers, and classes of run arguments. Calls of these make plain data; any other name
// is an Error(kData) with the name. Memory is proportional to the bytes of the pickle.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "pickle/pickle_value.h"

namespace piton {

// `where` names the file in messages. `end`: if not null, gets the number of bytes of the pickle;
// if null, more bytes after it are an error.
PickleDocument read_pickle(std::string_view bytes, const std::string& where,
                           std::size_t* end = nullptr);

}  // namespace piton
