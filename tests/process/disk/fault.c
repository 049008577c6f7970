/* Makes the disk fail for the program that this is loaded into (LD_PRELOAD).
 *
 * The file named by HANDOFF_TEST_FAULT holds rules, one a line; without it nothing fails:
 *
 *     CALLS PART ERRNO SKIP TIMES
 *
 * CALLS is "sync", "write", "open" or "all", PART a part of the file's path, ERRNO a number.
 * Of the calls that match, the first SKIP go through and the next TIMES fail; then the next
 * rule holds. Each failure adds one byte to the file of the same name with ".met" added. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stat rules_of;
static int rule, seen;

/* The rule in force, if the call matches it and fails by it: its errno, else 0. */
static int judge(const char *kind, const char *path, const char *text) {
    const char *line = text;
    for (int number = 0; number < rule && line; number++) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    char calls[8], part[64];
    int error, skip, times;
    if (!line || sscanf(line, "%7s %63s %d %d %d", calls, part, &error, &skip, &times) != 5)
        return 0;
    if (strcmp(calls, "all") != 0 && strcmp(calls, kind) != 0) return 0;
    if (!strstr(path, part)) return 0;
    seen++;
    if (seen <= skip) return 0;
    if (seen == skip + times) {
        rule++;
        seen = 0;
    }
    return error;
}

static int fails(const char *kind, const char *path) {
    const char *name = getenv("HANDOFF_TEST_FAULT");
    struct stat now;
    if (!name || stat(name, &now) != 0) return 0;
    int error = 0;
    pthread_mutex_lock(&lock);
    if (now.st_ino != rules_of.st_ino || now.st_mtim.tv_nsec != rules_of.st_mtim.tv_nsec) {
        rules_of = now;
        rule = seen = 0;
    }
    char text[512];
    long length = -1;
    int file = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        length = syscall(SYS_read, file, text, sizeof text - 1);
        syscall(SYS_close, file);
    }
    if (length > 0) {
        text[length] = 0;
        error = judge(kind, path, text);
    }
    if (error) {
        char met[4096];
        snprintf(met, sizeof met, "%s.met", name);
        file = syscall(SYS_openat, AT_FDCWD, met, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (file >= 0) {
            syscall(SYS_write, file, "x", 1);
            syscall(SYS_close, file);
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int fails_at(const char *kind, int fd) {
    int before = errno, error = 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        error = fails(kind, path);
    }
    errno = error ? error : before;
    return error;
}

#define REAL(name, type, ...)                                   \
    static type (*real)(__VA_ARGS__);                           \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int fsync(int fd) {
    REAL("fsync", int, int);
    return fails_at("sync", fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL("fdatasync", int, int);
    return fails_at("sync", fd) ? -1 : real(fd);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL("write", ssize_t, int, const void *, size_t);
    return fails_at("write", fd) ? -1 : real(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    REAL("pwrite", ssize_t, int, const void *, size_t, off_t);
    return fails_at("write", fd) ? -1 : real(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    REAL("pwrite64", ssize_t, int, const void *, size_t, off64_t);
    return fails_at("write", fd) ? -1 : real(fd, bytes, length, at);
}

int ftruncate(int fd, off_t length) {
    REAL("ftruncate", int, int, off_t);
    return fails_at("write", fd) ? -1 : real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    REAL("ftruncate64", int, int, off64_t);
    return fails_at("write", fd) ? -1 : real(fd, length);
}

#define OPEN(name)                                              \
    int name(const char *path, int flags, ...) {                \
        REAL(#name, int, const char *, int, ...);               \
        va_list more;                                           \
        va_start(more, flags);                                  \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more);                                           \
        int error = flags & (O_WRONLY | O_RDWR) ? fails("open", path) : 0; \
        if (error) {                                            \
            errno = error;                                      \
            return -1;                                          \
        }                                                       \
        return real(path, flags, mode);                         \
    }

OPEN(open)
OPEN(open64)
