// libraries: piton_serve piton_comm piton_device
// Any bytes as what a client of the server sends before it closes its half of the connection: the
// server answers with HTTP, or closes; no request is an internal error, and all of them end.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "device/host_device.h"
#include "serve/text_service.h"
#include "support/scripted_served_model.h"

namespace {

// The whole server with a model of bytes.
class FuzzedServer {
 public:
  FuzzedServer() {
    model_.adapter_names = {"dialect"};
    model_.engine_of_it.by_adapter = {"da"};
    const piton::ServiceOptions options{.limits = {.new_tokens = 20, .texts = 8}};
    service_ = std::make_unique<piton::TextService>(model_, loop_, options);
    http_ = std::make_unique<piton::HttpServer>(
        piton::HttpOptions{.host = "127.0.0.1", .port = 0, .limits = {.body_bytes = 1 << 16}},
        [this](const piton::HttpRequest& request, const piton::HttpClient& client) {
          return service_->answer(request, client);
        },
        &piton::TextService::error_body);
    engine_ = std::thread([this] { loop_.run(); });
    http_->start([] {});
  }
  ~FuzzedServer() {
    http_->stop();
    loop_.finish();
    engine_.join();
  }
  FuzzedServer(const FuzzedServer&) = delete;
  FuzzedServer& operator=(const FuzzedServer&) = delete;

  // A client that sends `bytes`, and no more; what it gets.
  std::string ask(std::string_view bytes) {
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    PITON_ASSERT(client >= 0);
    // Closed connections keep their port for a minute: the clients have many addresses.
    sockaddr_in from{.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(0x7F000002U + clients_++ % 65000);
    PITON_ASSERT(::bind(client, reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(static_cast<std::uint16_t>(http_->port()))};
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    PITON_ASSERT(::connect(client, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    // The server may have answered and closed before all was sent.
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t some = ::send(client, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (some < 0) break;
      sent += static_cast<std::size_t>(some);
    }
    ::shutdown(client, SHUT_WR);
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(client, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
    ::close(client);
    return answer;
  }

 private:
  piton::HostDevice device_;
  std::unique_ptr<piton::World> world_ = piton::make_single_world(device_);
  std::unique_ptr<piton::Communicator> ranks_ = piton::make_group_of_all(*world_, "fuzz");
  piton::test::ScriptedServedModel model_;
  piton::DecodingLoop loop_{model_, *ranks_, {}};
  std::unique_ptr<piton::TextService> service_;
  std::unique_ptr<piton::HttpServer> http_;
  std::thread engine_;
  std::uint32_t clients_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static FuzzedServer server;
  const std::string answer = server.ask({reinterpret_cast<const char*>(data), size});
  PITON_ASSERT(answer.empty() || answer.starts_with("HTTP/1."), "the answer is {}", answer);
  PITON_ASSERT(!answer.starts_with("HTTP/1.1 500"), "{}", answer);
  return 0;
}
