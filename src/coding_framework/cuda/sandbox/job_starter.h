/* Starts a process over and over, each time a fresh one, for one that asks: see reused.py.
 *
 * Standard input is a SOCK_SEQPACKET socket. Requests, each answered by one message:
 *   S, with two descriptors   start it with these as standard input and output: "+"
 *   W MILLISECONDS            wait so long for its end: "STATUS MICROSECONDS" of wait4, or "-"
 *   E                         kill it with its process group: "+"
 * There is one such process at a time; none of them outlives this one. C, and C++ in host/python.cpp.
 */
#pragma once
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t running = -1;

static void end_job(void) {
  if (running <= 0) return;
  kill(-running, SIGKILL);
  kill(running, SIGKILL);
  while (waitpid(running, NULL, 0) != running) {}
  running = -1;
}

/* Copies of one process would have numbers that follow each other: a few are left out, how many
 * nobody knows. */
static void skip_numbers(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (long left = now.tv_nsec / 64 % 4; left > 0; left--) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    while (child > 0 && waitpid(child, NULL, 0) != child) {}
  }
}

/* Whether this is the new process: only where there is no command. */
static int start_job(char** command, int in, int out) {
  end_job();
  if (command == NULL) skip_numbers();
  pid_t starter = getpid(), child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) _exit(126);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(125);
    if (command == NULL) {
      close(in);
      close(out);
      prctl(PR_SET_NAME, "job");
      return 1;
    }
    execv(command[0], command);
    _exit(127);
  }
  if (child > 0) setpgid(child, child);
  running = child;
  close(in);
  close(out);
  return 0;
}

static void wait_for(long milliseconds, char* answer, size_t room) {
  struct timespec pause = {0, 1000000};
  for (;; milliseconds--) {
    int status;
    struct rusage used;
    if (running > 0 && wait4(running, &status, WNOHANG, &used) == running) {
      running = -1;
      long long us = 1000000ll * (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     used.ru_utime.tv_usec + used.ru_stime.tv_usec;
      snprintf(answer, room, "%d %lld", status, us);
      return;
    }
    if (running <= 0 || milliseconds <= 0) break;
    nanosleep(&pause, NULL);
  }
  snprintf(answer, room, "-");
}

/* Until the socket is closed; gives an exit status. command: what is started; NULL: copies of this
 * process as it is, in each of which this gives -1. */
static int serve_jobs(char** command) {
  prctl(PR_SET_NAME, "job_starter");
  for (;;) {
    char text[32] = {0}, answer[64] = "+";
    char space[CMSG_SPACE(2 * sizeof(int))];
    struct iovec piece = {text, sizeof text - 1};
    struct msghdr message = {0};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (recvmsg(0, &message, MSG_CMSG_CLOEXEC) <= 0) break;
    if (text[0] == 'S') {
      struct cmsghdr* given = CMSG_FIRSTHDR(&message);
      if (given == NULL || given->cmsg_len != CMSG_LEN(2 * sizeof(int))) return 3;
      int both[2];
      memcpy(both, CMSG_DATA(given), sizeof both);
      if (start_job(command, both[0], both[1])) return -1;
      if (running < 0) strcpy(answer, "!");
    } else if (text[0] == 'W') {
      wait_for(atol(text + 1), answer, sizeof answer);
    } else {
      end_job();
    }
    if (send(0, answer, strlen(answer), MSG_NOSIGNAL) < 0) break;
  }
  end_job();
  return 0;
}
