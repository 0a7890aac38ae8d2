/* Writes each line of the log with one write, so that lines of several processes do not mix. */
#include "device/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    atomic_int descriptor; /* -1: off */
} sink = {-1};

void log_open(const char *destination)
{
    if (destination == NULL || *destination == '\0' || atomic_load(&sink.descriptor) >= 0)
        return;
    if (strcmp(destination, "-") == 0 || strcmp(destination, "stderr") == 0) {
        atomic_store(&sink.descriptor, STDERR_FILENO);
        return;
    }
    int descriptor = open(destination, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (descriptor >= 0)
        atomic_store(&sink.descriptor, descriptor);
}

int log_is_on(void)
{
    return atomic_load_explicit(&sink.descriptor, memory_order_relaxed) >= 0;
}

static void write_line(int descriptor, const char *format, va_list arguments)
{
    char line[1024];
    int length = snprintf(line, sizeof line, "aliquot software gpu: pid=%d ", (int)getpid());
    length += vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    if (length >= (int)sizeof line)
        length = (int)sizeof line - 1;
    line[length++] = '\n';
    if (write(descriptor, line, (size_t)length) < 0)
        return; /* a full disk must not disturb the program */
}

void log_line(const char *format, ...)
{
    int descriptor = atomic_load_explicit(&sink.descriptor, memory_order_relaxed);
    if (descriptor < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(descriptor, format, arguments);
    va_end(arguments);
}

void log_failure(const char *format, ...)
{
    int descriptor = atomic_load_explicit(&sink.descriptor, memory_order_relaxed);
    va_list arguments;
    va_start(arguments, format);
    write_line(descriptor < 0 ? STDERR_FILENO : descriptor, format, arguments);
    va_end(arguments);
}
