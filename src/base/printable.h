// Text from files and command lines, as it may be shown in a log or on a terminal.
//
// The name of a file may hold any byte: a line break would begin what looks like another line of
// the log, and a terminal obeys escape codes.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// `text` on one line: line breaks and other control characters become \n, \r, \x1b, \u2028. Tabs
// and bytes that are not UTF-8 stay.
std::string printable(std::string_view text);

}  // namespace piton
