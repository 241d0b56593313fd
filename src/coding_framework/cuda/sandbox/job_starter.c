/* Starts a command over and over, each time as a fresh process: see job_starter.h.
 *
 *   job_starter COMMAND [ARGUMENT]... */
#define _GNU_SOURCE
#include "job_starter.h"

int main(int count, char** arguments) { return count < 2 ? 2 : serve_jobs(arguments + 1); }
