// What the runner knows of the device and of the candidate's module, told by the judge at the start.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "channel.hpp"

namespace host {

struct Kernel {
  std::string name;
  std::vector<uint32_t> offsets, sizes;  // of the parameters, in bytes
  uint32_t static_shared = 0, max_threads = 1024, registers = 0;
  uint32_t max_dynamic_shared = 48 * 1024;  // raised by cudaFuncSetAttribute
};

struct Symbol {
  uint64_t address = 0, size = 0;
};

struct Properties {  // of the device that the candidate is told about; in the order of the wire
  int64_t major, minor, multiprocessors, global_memory, l2_bytes, shared_per_multiprocessor,
      shared_per_block_optin, registers_per_multiprocessor, threads_per_multiprocessor,
      blocks_per_multiprocessor, clock_khz, memory_clock_khz, memory_bus_bits, used_memory, event_us;
};

struct State {
  std::string device_name;
  Properties device{};
  std::map<std::string, Kernel> kernels;
  std::map<std::string, Symbol> symbols;
};
extern State state;

void setup(const std::string& payload);

}  // namespace host
