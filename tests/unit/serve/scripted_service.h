// A service over a model of bytes (support/scripted_served_model.h), and a client of it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "serve/text_service.h"
#include "support/scripted_served_model.h"

namespace piton::test {

struct Client final : HttpClient {
  std::atomic<bool> connected{true};
  bool is_connected() const override { return connected; }
};

class Service : public ::testing::Test {
 protected:
  void begin(ServiceOptions options = {}, LoopLimits limits = {}) {
    options.limits.new_tokens = model_.longest_sequence();
    loop_ = std::make_unique<DecodingLoop>(model_, *ranks_, limits);
    service_ = std::make_unique<TextService>(model_, *loop_, options);
    thread_ = std::thread([this] {
      try {
        loop_->run();
      } catch (const Error& error) {
        failure_ = error.what();
      }
    });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    loop_->finish();
    thread_.join();
  }

  HttpAnswer ask(const std::string& path, const std::string& body,
                 const std::string& method = "POST") {
    return service_->answer(
        {.method = method, .path = path, .authorization = key_, .api_key = {}, .body = body},
        client_);
  }
  nlohmann::ordered_json post(const std::string& path, const nlohmann::ordered_json& body,
                              int status = 200) {
    const HttpAnswer answer = ask(path, body.dump());
    EXPECT_EQ(answer.status, status) << answer.body;
    return read_json<nlohmann::ordered_json>(answer.body);
  }
  // The objects of a stream, without its end mark.
  std::vector<nlohmann::ordered_json> stream(const std::string& path,
                                             const nlohmann::ordered_json& body) {
    const HttpAnswer answer = ask(path, body.dump());
    EXPECT_TRUE(answer.stream) << answer.body;
    std::string text;
    answer.stream(
        [&](std::string_view part) {
          text += part;
          return client_.connected.load();
        },
        client_);
    std::vector<nlohmann::ordered_json> events;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find("\n\n", at);
      const std::string line = text.substr(at, end - at);
      at = end + 2;
      EXPECT_TRUE(line.starts_with("data: "));
      if (line != "data: [DONE]")
        events.push_back(read_json<nlohmann::ordered_json>(line.substr(6)));
    }
    EXPECT_TRUE(!client_.connected || text.ends_with("data: [DONE]\n\n"));
    return events;
  }

  // The objects of a stream of typed events, each with the type that its event has.
  std::vector<nlohmann::ordered_json> typed_stream(const std::string& path,
                                                   const nlohmann::ordered_json& body) {
    const HttpAnswer answer = ask(path, body.dump());
    EXPECT_TRUE(answer.stream) << answer.body;
    std::string text;
    answer.stream(
        [&](std::string_view part) {
          text += part;
          return client_.connected.load();
        },
        client_);
    std::vector<nlohmann::ordered_json> events;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t line = text.find("\ndata: ", at);
      const std::size_t end = text.find("\n\n", at);
      events.push_back(read_json<nlohmann::ordered_json>(text.substr(line + 7, end - line - 7)));
      EXPECT_EQ(text.substr(at, line - at), "event: " + events.back()["type"].get<std::string>());
      at = end + 2;
    }
    return events;
  }

  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  std::unique_ptr<Communicator> ranks_ = make_group_of_all(*world_, "test");
  ScriptedServedModel model_;
  std::unique_ptr<DecodingLoop> loop_;
  std::unique_ptr<TextService> service_;
  Client client_;
  std::string key_;
  std::string failure_;
  std::thread thread_;
};

}  // namespace piton::test
