// What the process may still ask of the kernel, once the candidate's code is about to be loaded.
#pragma once
#include <csignal>

namespace host {
// From here on the process has memory, the channel and its log, and nothing of its machine: no file,
// clock, user, processor, other process, thread or pause. Who asks for more ends the process by the
// name of what was asked for. module: the one file that dlopen may still open, once; it need not be
// there. Returns false where the kernel cannot filter.
bool confine(const char* module, bool for_python);
extern bool shut, python;  // since `confine`
// Ends the process where the fault of a signal handler comes of an instruction or page that is shut.
void name_shut_instruction(const siginfo_t& fault, const void* machine_context);
}  // namespace host
