#pragma once

namespace host {

// A copy of a process has its addresses and random bytes: from here on, others.
void vary_process();

// What a process knows of its machine without asking the kernel (environment, auxiliary vector, name,
// the processor that it runs on) goes; names that usual machines have come by chance.
void forget_machine();

}  // namespace host
