/* Write one line per event to ALIQUOT_HOOK_LOG, as key=value. Without that variable nothing is
 * formatted or opened; nothing ever goes to the user's stdout or stderr. */
#ifndef ALIQUOT_LOG_H
#define ALIQUOT_LOG_H

#include "base/settings.h"

#define LOG(...)                            \
    do {                                    \
        if (__builtin_expect(settings()->log_path != NULL, 0)) \
            log_write(__VA_ARGS__);         \
    } while (0)

void log_write(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
