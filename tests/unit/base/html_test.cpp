// Text inside of an HTML page.
#include "base/html.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(HtmlEscaped, LeavesNoTagAndNoQuote) {
  EXPECT_EQ(html_escaped("<b a='\"'>&"), "&lt;b a=&#39;&#34;&#39;&gt;&amp;");
}

}  // namespace
}  // namespace piton
