#pragma once

namespace host {

// A copy of a process has its addresses, random bytes and clock: from here on, others.
void vary_process();

}  // namespace host
