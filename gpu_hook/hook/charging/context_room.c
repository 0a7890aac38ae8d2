#include "charging/context_room.h"

#include "accounting/devices.h"
#include "agent_link/interrupts.h"
#include "agent_link/session.h"
#include "base/cancellation.h"
#include "base/log.h"
#include "base/times.h"

#include <errno.h>
#include <string.h>

/* The driver frees the bytes of a process that died a moment later than the agent sees. */
#define RETRY_NANOSECONDS 2000000000ull
#define FIRST_PAUSE_NANOSECONDS 5000000ull
#define LAST_PAUSE_NANOSECONDS 100000000ull
/* the second one is for more than the agent knows of contexts */
#define MOST_REQUESTS 2

static bool request(struct context_room *room, CUdevice device)
{
    uint8_t uuid[16];
    uint64_t granted = 0;
    if (room->requests == MOST_REQUESTS || !devices_uuid(device, uuid))
        return false;
    room->requests++;
    LOG("event=driver_refused_context device=%d request=%u", device, room->requests);
    int failure = session_request(uuid, room->bytes, ALIQUOT_REQUEST_CONTEXT, &granted);
    if (failure || !granted) {
        LOG("event=no_room_for_context device=%d reason=\"%s\"", device,
            failure ? strerror(failure) : "the agent has none");
        return false;
    }
    room->bytes = 2 * granted;
    room->until = times_now_nanoseconds() + RETRY_NANOSECONDS;
    room->pause = FIRST_PAUSE_NANOSECONDS;
    return true;
}

/* False: an interrupt ended the wait. */
static bool pause_before_retry(struct context_room *room)
{
    struct interruptible wait;
    interrupts_begin(&wait);
    bool is_given_up = interrupts_sleep(&wait, interrupts_bell(), room->pause);
    interrupts_end();
    room->pause =
        room->pause * 2 < LAST_PAUSE_NANOSECONDS ? room->pause * 2 : LAST_PAUSE_NANOSECONDS;
    return !is_given_up;
}

bool context_room_await(struct context_room *room, CUdevice device)
{
    int saved_errno = errno;
    DEFER_CANCELLATION;
    bool is_retry = times_now_nanoseconds() < room->until;
    bool is_due = is_retry ? pause_before_retry(room) : request(room, device);
    errno = saved_errno;
    return is_due;
}
