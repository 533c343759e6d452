// Commands in messages, as they may be pasted into a shell.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// `text` as one word of a POSIX shell: as it is, or 'in quotes' if it has a character that a shell
// would read.
std::string shell_word(std::string_view text);

}  // namespace piton
