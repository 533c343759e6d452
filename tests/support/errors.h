// Catching an Error to look at its text and fault.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace piton {

// Runs `action` and returns the message of the Error that it throws; fails the test if it throws
// none, or one of another fault.
template <typename Action>
std::string message_of(Fault fault, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.fault()), name(fault));
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace piton
