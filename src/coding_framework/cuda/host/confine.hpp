// What the process may still ask of the kernel, once the candidate's code is about to be loaded.
#pragma once
namespace host {
// System calls are limited to memory, the channel, clocks and reading files; no process or thread can
// be made, no other process signalled, nothing written but the log, and no sleep: a process that
// sleeps has stopped answering. Returns false where the kernel cannot filter.
// tell_of_writing: who opens a file for writing is told of by SIGSYS; else the call fails.
bool confine(bool tell_of_writing);
}  // namespace host
