#include "base/log.h"

#include "base/cancellation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* bytes that other threads and processes may write in the meantime */
#define LIMIT_SLACK_BYTES (64u << 10)

/* A pipe may block or raise SIGPIPE, a file at the limit of its size (RLIMIT_FSIZE) SIGXFSZ. */
static bool may_write(int descriptor)
{
    struct statx found;
    struct rlimit limit;
    return statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &found) == 0 &&
           S_ISREG(found.stx_mode) && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY ||
            found.stx_size + LIMIT_SLACK_BYTES <= limit.rlim_cur);
}

void log_write(const char *format, ...)
{
    DEFER_CANCELLATION;
    int saved_errno = errno;
    char line[512];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int head = snprintf(line, sizeof line, "time=%lld.%03ld pid=%d ", (long long)now.tv_sec,
                        now.tv_nsec / 1000000, (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)head + (body < 0 ? 0 : (size_t)body);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    /* Opened for each line: a descriptor kept open would be inherited, closed or redirected by the
     * user's code. */
    int descriptor = open(settings()->log_path,
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (descriptor >= 0) {
        if (may_write(descriptor) && write(descriptor, line, length) < 0) {
            /* A log that cannot be written is no reason to disturb the kernel. */
        }
        close(descriptor);
    }
    errno = saved_errno;
}
