// The chat page: one HTML file without any other resource.
#pragma once

#include <string_view>

namespace piton {

// Talks with /v1/chat/completions of the server that it comes from.
extern const std::string_view kChatPage;

}  // namespace piton
