// A request that cannot be answered: a status of HTTP and an error object of OpenAI's form.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "base/json.h"

namespace piton {

class RequestError : public std::runtime_error {
 public:
  // `field`: of the request, "" if none is at fault.
  RequestError(int status, std::string field, const std::string& message)
      : std::runtime_error(message), status_(status), field_(std::move(field)) {}

  int status() const { return status_; }
  const std::string& field() const { return field_; }

  // {"error": {"message", "type", "param", "code"}}
  nlohmann::ordered_json json() const {
    const char* type = "invalid_request_error";
    nlohmann::ordered_json code;
    if (status_ == 401) code = "invalid_api_key";
    if (status_ == 404) code = "not_found";
    if (status_ == 429) {
      type = "rate_limit_error";
      code = "queue_full";
    }
    if (status_ >= 500) type = "server_error";
    nlohmann::ordered_json param;
    if (!field_.empty()) param = field_;
    return {{"error",
             {{"message", what()}, {"type", type}, {"param", param}, {"code", std::move(code)}}}};
  }

 private:
  int status_;
  std::string field_;
};

}  // namespace piton
