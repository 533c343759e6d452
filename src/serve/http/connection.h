// One connection of a client, plain or with TLS, in which every wait has a limit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace piton {

// A server's certificate and key.
class TlsFiles {
 public:
  // `certificate`: the chain in PEM, the server's own first. Throws Error(kData) if a file cannot
  // be read, or the key is not that of the certificate.
  TlsFiles(const std::filesystem::path& certificate, const std::filesystem::path& key);
  ~TlsFiles();
  TlsFiles(const TlsFiles&) = delete;
  TlsFiles& operator=(const TlsFiles&) = delete;

 private:
  friend class Connection;
  struct State;
  std::unique_ptr<State> state_;
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes the socket over, and closes it at the end. `tls`: null for a plain connection; must
  // outlive this one.
  Connection(int socket, const TlsFiles* tls);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The handshake of TLS; true at once for a plain connection.
  bool begin(Clock::time_point before);
  // Bytes that have come, at least one; 0 if the client has closed, -1 after `before` and on
  // errors.
  ssize_t read(char* to, std::size_t size, Clock::time_point before);
  // All of `bytes`; false if the client takes none for `patience`, or is gone.
  bool write(std::string_view bytes, std::chrono::milliseconds patience);
  // As much as the client takes at once, without TLS.
  void write_at_once(std::string_view bytes);

  // Waits until there is something to read; false after `wait`.
  bool wait_readable(std::chrono::milliseconds wait) const;
  bool is_connected() const;
  int socket() const { return socket_; }

 private:
  struct Tls;
  int socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace piton
