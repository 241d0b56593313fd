/* Runs a command under Landlock, which the kernel offers to any process: no namespace, no privilege.
 *
 *   confine_exec [--ro PATH]... [--rw PATH]... -- COMMAND [ARGUMENT]...
 *
 * The command sees no file but those below the paths given; it cannot connect or listen by TCP, reach
 * abstract sockets or signal processes outside (as far as the kernel's Landlock goes). It dies with
 * the process that started it. Where the kernel has no Landlock the command runs without, and
 * "confine_exec --probe" prints 0, else the version of the interface. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The numbers of the interface: distributions' headers lag behind their kernels. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
struct ruleset {
  uint64_t files, network, scoped;
};
struct path_rule {
  uint64_t allowed;
  int32_t folder;
} __attribute__((packed));
enum { VERSION_ONLY = 1, RULE_PATH = 1 };
enum {
  EXECUTE = 1 << 0, WRITE_FILE = 1 << 1, READ_FILE = 1 << 2, READ_DIR = 1 << 3, REMOVE_DIR = 1 << 4,
  REMOVE_FILE = 1 << 5, MAKE_DIR = 1 << 7, MAKE_REG = 1 << 8, TRUNCATE = 1 << 14,
};
static const uint64_t of_files = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

static long interface_version(void) {
  long version = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_ONLY);
  return version < 0 ? 0 : version;
}

static uint64_t all_file_rights(long version) {
  uint64_t rights = (1 << 13) - 1;    /* first version: up to MAKE_SYM */
  if (version >= 2) rights |= 1 << 13; /* REFER */
  if (version >= 3) rights |= TRUNCATE;
  if (version >= 5) rights |= 1 << 15; /* IOCTL_DEV */
  return rights;
}

static int allow(int rules, const char* path, uint64_t rights) {
  int folder = open(path, O_PATH | O_CLOEXEC);
  if (folder < 0) return errno == ENOENT ? 0 : -1; /* what is not there needs no rule */
  struct stat what;
  if (fstat(folder, &what) != 0) return -1;
  if (!S_ISDIR(what.st_mode)) rights &= of_files;
  struct path_rule rule = {rights, folder};
  long failed = syscall(SYS_landlock_add_rule, rules, RULE_PATH, &rule, 0);
  close(folder);
  return failed ? -1 : 0;
}

static int restrict_self(int count, char** options, long version) {
  uint64_t all = all_file_rights(version);
  struct ruleset set = {all, version >= 4 ? 3 : 0, version >= 6 ? 3 : 0};
  size_t size = version >= 6 ? sizeof set : version >= 4 ? 16 : 8;
  int rules = (int)syscall(SYS_landlock_create_ruleset, &set, size, 0);
  if (rules < 0) return -1;
  const uint64_t read = EXECUTE | READ_FILE | READ_DIR;
  const uint64_t write = WRITE_FILE | TRUNCATE | REMOVE_FILE | REMOVE_DIR | MAKE_REG | MAKE_DIR;
  for (int i = 0; i + 1 < count; i += 2) {
    uint64_t rights = strcmp(options[i], "--rw") == 0 ? read | write : read;
    if (allow(rules, options[i + 1], rights & all) != 0) return -1;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  long failed = syscall(SYS_landlock_restrict_self, rules, 0);
  close(rules);
  return failed ? -1 : 0;
}

int main(int count, char** arguments) {
  long version = interface_version();
  if (count == 2 && strcmp(arguments[1], "--probe") == 0) return printf("%ld\n", version) < 0;
  int command = 1;
  while (command < count && strcmp(arguments[command], "--") != 0) command++;
  if (command + 1 >= count) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (version > 0 && restrict_self(command - 1, arguments + 1, version) != 0) {
    perror("confine_exec");
    return 126;
  }
  execv(arguments[command + 1], arguments + command + 1);
  perror(arguments[command + 1]);
  return 127;
}
