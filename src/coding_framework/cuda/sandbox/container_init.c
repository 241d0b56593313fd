/* The first process of a Docker sandbox: PID 1 of its container.
 *
 *   container_init SOCKET COMMAND [ARGUMENT]...
 *
 * Connects to the judge, which passes it the command's standard input and output, runs the command,
 * and tells the judge "wait-status cpu-microseconds out-of-memory". When the command ends, or the
 * judge hangs up or dies, this process ends; the kernel then kills every process of its namespace,
 * whatever it did to leave its parent, group or session. The command cannot signal or inspect this
 * process: it is the first of the namespace, and not dumpable. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STREAMS = 2 };

static int connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -1;
  strcpy(address.sun_path, path);
  int judge = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (judge < 0 || connect(judge, (struct sockaddr*)&address, sizeof address) != 0) return -1;
  return judge;
}

static int receive_streams(int judge, int streams[STREAMS]) {
  char byte;
  struct iovec data = {&byte, 1};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(STREAMS * sizeof(int))];
  } control;
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1,
                           .msg_control = &control, .msg_controllen = sizeof control};
  if (recvmsg(judge, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  struct cmsghdr* c = CMSG_FIRSTHDR(&message);
  if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(STREAMS * sizeof(int)))
    return -1;
  memcpy(streams, CMSG_DATA(c), STREAMS * sizeof(int));
  return 0;
}

/* How many processes of this container the kernel killed for its memory limit; both versions of
 * control groups have a line "oom_kill N". */
static long killed_for_memory(void) {
  const char* files[] = {"/sys/fs/cgroup/memory.events",
                         "/sys/fs/cgroup/memory/memory.oom_control"};
  char line[128];
  long count = 0;
  for (int i = 0; i < 2; i++) {
    FILE* file = fopen(files[i], "re");
    if (file == NULL) continue;
    while (fgets(line, sizeof line, file) != NULL)
      if (strncmp(line, "oom_kill ", 9) == 0) count = atol(line + 9);
    fclose(file);
  }
  return count;
}

static void tell(int judge, int status) {
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  long long us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL +
                 used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  char text[96];
  int size = snprintf(text, sizeof text, "%d %lld %ld", status, us, killed_for_memory());
  send(judge, text, (size_t)size, MSG_NOSIGNAL);
}

/* 1 and its status once `command` has ended; reaps orphans on the way. */
static int reap(pid_t command, int* status) {
  int how;
  pid_t pid;
  while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
    if (pid == command) {
      *status = how;
      return 1;
    }
  return 0;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  prctl(PR_SET_DUMPABLE, 0);
  int judge = connect_to(arguments[1]), streams[STREAMS];
  if (judge < 0 || receive_streams(judge, streams) != 0) return 3;
  sigset_t ended, before;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, &before);
  int children = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
  pid_t command = fork();
  if (children < 0 || command < 0) return 4;
  if (command == 0) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    setsid();
    if (dup2(streams[0], 0) < 0 || dup2(streams[1], 1) < 0 || dup2(streams[1], 2) < 0) _exit(126);
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    _exit(127);
  }
  for (int i = 0; i < STREAMS; i++) close(streams[i]);
  struct pollfd watched[] = {{judge, POLLIN, 0}, {children, POLLIN, 0}};
  for (int status;;) {
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return 5;
    if (watched[0].revents != 0) return 0; /* the judge has hung up; it never says more */
    struct signalfd_siginfo ignored;
    while (read(children, &ignored, sizeof ignored) > 0) {}
    if (reap(command, &status)) {
      tell(judge, status);
      return 0;
    }
  }
}
