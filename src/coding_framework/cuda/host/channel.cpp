#include "channel.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace host {

static int channel = -1;

void open_channel() {
  channel = fcntl(0, F_DUPFD_CLOEXEC, 100);
  int null = open("/dev/null", O_RDWR);
  if (channel < 0 || null < 0) _exit(120);
  dup2(null, 0);
  close(null);
}

static void read_all(void* into, size_t size) {
  auto* at = static_cast<char*>(into);
  while (size > 0) {
    ssize_t n = read(channel, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(121);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

static void write_all(const void* from, size_t size) {
  auto* at = static_cast<const char*>(from);
  while (size > 0) {
    ssize_t n = send(channel, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(121);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

Message receive() {
  uint32_t head[2];
  read_all(head, sizeof head);
  Message m{head[0], std::string(head[1], '\0')};
  read_all(m.payload.data(), m.payload.size());
  return m;
}

// A bad pointer of the candidate's must fault here, not halfway through a message.
static void touch(const void* from, size_t size) {
  auto* at = static_cast<const volatile char*>(from);
  for (size_t i = 0; i < size; i += 4096) (void)at[i];
  if (size > 0) (void)at[size - 1];
}

void post(Kind kind, const std::string& payload, const void* tail, size_t tail_size) {
  uint32_t head[2] = {static_cast<uint32_t>(kind),
                      static_cast<uint32_t>(payload.size() + tail_size)};
  std::string bytes(reinterpret_cast<char*>(head), sizeof head);
  bytes += payload;
  touch(tail, tail_size);
  write_all(bytes.data(), bytes.size());
  if (tail_size > 0) write_all(tail, tail_size);
}

Message request(Kind kind, const Writer& payload, const void* tail, size_t tail_size) {
  post(kind, payload.bytes, tail, tail_size);
  return receive();
}

void finish(Kind kind, const std::string& text) {
  post(kind, text.substr(0, 2000));
  _exit(0);
}

void finish_at_once(Kind kind, const void* payload, size_t size) {
  uint32_t head[2] = {static_cast<uint32_t>(kind), static_cast<uint32_t>(size)};
  write_all(head, sizeof head);
  write_all(payload, size);
  _exit(0);
}

}  // namespace host
