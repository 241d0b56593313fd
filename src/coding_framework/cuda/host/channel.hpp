// The channel to the judge: a stream socket, framed as (u32 kind, u32 size, payload), little endian.
// Every request waits for its reply (u32 cudaError, u32 size, payload). If the judge goes away, so
// does this process.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace host {

enum class Kind : uint32_t {  // the numbers are those of session.py
  Hello = 1,
  Loaded = 2,
  LoadFailed = 3,
  Malloc = 4,
  Free = 5,
  Upload = 6,
  Download = 7,
  Copy = 8,
  Fill = 9,
  Launch = 10,
  Synchronize = 11,
  Result = 12,
  Raised = 13,
  Rejected = 14,
  Unsupported = 15,
  Crashed = 16,
  Extension = 17,
  Order = 18,
  Asked = 19,
  Kernel = 20,
};

class Writer {
 public:
  template <class T>
  Writer& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(const std::string& s) {
    put<uint32_t>(static_cast<uint32_t>(s.size()));
    bytes.append(s);
    return *this;
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& s) : at_(s.data()), end_(s.data() + s.size()) {}
  template <class T>
  T get() {
    T value{};
    if (at_ + sizeof value <= end_) std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    auto n = get<uint32_t>();
    std::string s(at_, at_ + n <= end_ ? n : 0);
    at_ += n;
    return s;
  }

 private:
  const char* at_;
  const char* end_;
};

struct Message {
  uint32_t kind = 0;
  std::string payload;
};

void open_channel();  // takes standard input over, and leaves /dev/null there
Message receive();
void post(Kind kind, const std::string& payload, const void* tail = nullptr, size_t tail_size = 0);
// Sends and waits; the reply's kind is a cudaError.
Message request(Kind kind, const Writer& payload, const void* tail = nullptr, size_t tail_size = 0);
[[noreturn]] void finish(Kind kind, const std::string& text);  // says why, and ends the process
// The same in a signal handler: nothing is allocated.
[[noreturn]] void finish_at_once(Kind kind, const void* payload, size_t size);

}  // namespace host
