#include "charging/retry.h"

#include "base/cancellation.h"
#include "base/log.h"
#include "gate/residency.h"
#include "agent_link/session.h"
#include "base/times.h"

#include <errno.h>

#define LONGEST_WAIT_NANOSECONDS 2000000000ull
#define FIRST_PAUSE_NANOSECONDS 5000000ull
#define LAST_PAUSE_NANOSECONDS 100000000ull
/* a device that was full for all of a wait stays full */
#define NOT_AGAIN_NANOSECONDS 30000000000ull

static uint64_t not_before; /* no call waits until then; read and written by any thread */

static bool is_short(uint64_t bytes)
{
    size_t free_bytes, total_bytes;
    return driver()->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
           free_bytes < bytes;
}

static bool is_worth_waiting(const struct charge *charge, CUresult result, uint64_t bytes)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && charge->acts && !charge->is_late &&
           charge->is_on_device && session_is_registered() && is_short(bytes);
}

/* The process may move in the meantime, which makes room, too. False: an interrupt ended the
 * wait; the thread is outside. */
static bool sleep_outside(struct retry *retry, struct charge *charge)
{
    int saved_errno = errno;
    DEFER_CANCELLATION;
    residency_leave();
    bool is_given_up = interrupts_sleep(&retry->wait, interrupts_bell(), retry->pause);
    charge->is_on_device = !is_given_up && residency_enter();
    if (!charge->is_on_device)
        LOG("event=wait_ended reason=interrupt what=\"room on device %d\"", charge->device);
    errno = saved_errno;
    return charge->is_on_device;
}

static bool end_wait(const struct retry *retry)
{
    if (retry->until)
        interrupts_end();
    return false;
}

bool retry_is_due(struct retry *retry, struct charge *charge, CUresult result, uint64_t bytes)
{
    if (!is_worth_waiting(charge, result, bytes))
        return end_wait(retry);
    uint64_t now = times_now_nanoseconds();
    if (!retry->until) {
        if (now < __atomic_load_n(&not_before, __ATOMIC_RELAXED))
            return false;
        *retry = (struct retry){.until = now + LONGEST_WAIT_NANOSECONDS,
                                .pause = FIRST_PAUSE_NANOSECONDS};
        interrupts_begin(&retry->wait);
        LOG("event=driver_refused device=%d bytes=%llu waits=yes", charge->device,
            (unsigned long long)bytes);
    }
    if (now >= retry->until) {
        __atomic_store_n(&not_before, now + NOT_AGAIN_NANOSECONDS, __ATOMIC_RELAXED);
        return end_wait(retry);
    }
    if (!sleep_outside(retry, charge))
        return end_wait(retry);
    retry->pause =
        retry->pause * 2 < LAST_PAUSE_NANOSECONDS ? retry->pause * 2 : LAST_PAUSE_NANOSECONDS;
    return true;
}
