/* Preloaded into a process, writes a line to the file TRACE for each write and sync of a file below FOLDER, once it is
 * done, and for each send to a socket, before it is done:
 *
 *     write PATH HEX     sync PATH     send HEX
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void trace(const char *what, int fd, const unsigned char *bytes, size_t count) {
    char link[64], path[PATH_MAX] = "";
    if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 0 || strncmp(path, getenv("FOLDER"), strlen(getenv("FOLDER"))) != 0)
            return;
    }
    char *line = malloc(2 * count + PATH_MAX + 64);
    int end = sprintf(line, fd >= 0 ? "%s %s" : "%s", what, path);
    line[end++] = ' ';
    for (size_t i = 0; i < count; i++)
        end += sprintf(line + end, "%02x", bytes[i]);
    line[end++] = '\n';
    int file = open(getenv("TRACE"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    syscall(SYS_write, file, line, end); /* one call, so that lines of threads do not mix */
    close(file);
    free(line);
}

int fsync(int fd) {
    int result = NEXT(fsync)(fd);
    trace("sync", fd, NULL, 0);
    return result;
}

int fdatasync(int fd) {
    int result = NEXT(fdatasync)(fd);
    trace("sync", fd, NULL, 0);
    return result;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t written = NEXT(write)(fd, bytes, count);
    if (written > 0)
        trace("write", fd, bytes, written);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    ssize_t written = NEXT(pwrite)(fd, bytes, count, at);
    if (written > 0)
        trace("write", fd, bytes, written);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    ssize_t written = NEXT(pwrite64)(fd, bytes, count, at);
    if (written > 0)
        trace("write", fd, bytes, written);
    return written;
}

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    trace("send", -1, bytes, count);
    return NEXT(send)(fd, bytes, count, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    if (message->msg_iovlen > 0)
        trace("send", -1, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
    return NEXT(sendmsg)(fd, message, flags);
}
