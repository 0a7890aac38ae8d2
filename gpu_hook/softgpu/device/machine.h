/* The life of the machine's file, its lock, and its clock. */
#ifndef SOFTGPU_MACHINE_H
#define SOFTGPU_MACHINE_H

#include "device/layout.h"
#include "device/settings.h"

enum machine_failure {
    MACHINE_OK = 0,
    MACHINE_BAD_SETTINGS,
    MACHINE_NO_ACCESS,
    MACHINE_NO_SPACE,
    MACHINE_OTHER_VERSION,
    MACHINE_NO_SLOT,
    MACHINE_STUCK, /* a process holds the lock for too long */
};

/* Opens the state file, or creates it with the shape in `settings`. Logs the reason of a failure
 * once (log_failure). */
enum machine_failure machine_open(struct attachment *attachment, const struct settings *settings);
void machine_close(struct attachment *attachment);
/* 0, or ETIMEDOUT when the holder is stopped. */
int machine_lock(struct machine *machine);
int machine_try_lock(struct machine *machine); /* 0, or EBUSY at once */
void machine_unlock(struct machine *machine);
void machine_recount(struct machine *machine); /* under the lock: totals from the slots */
uint64_t machine_now(void); /* CLOCK_MONOTONIC, nanoseconds */

#endif
