// Text inside of an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// For text between tags or in quoted attributes: & < > " ' as the entities of markupsafe (Python),
// which chat templates need to the byte.
std::string html_escaped(std::string_view text);

}  // namespace piton
