#include "agent_link/activity_page.h"

#include "agent_link/page.h"
#include "base/times.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    /* held by a thread that writes to the activity page, and while the page moves */
    pthread_mutex_t mutex;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct aliquot_activity_page *own_page(void)
{
    return page_of_activity();
}

/* Called with the mutex: no thread writes between the copy and the change of pages. A kernel's
 * devices keep their numbers as long as it lives, so the words for one agent are true for the
 * next. */
static int continue_on(struct aliquot_activity_page *next, size_t bytes, int descriptor)
{
    memcpy(next->devices, own_page()->devices, sizeof next->devices);
    if (mmap(own_page(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor,
             0) == MAP_FAILED)
        return errno;
    return 0;
}

int activity_page_install(int descriptor)
{
    size_t bytes = page_mapped_bytes(ALIQUOT_ACTIVITY_PAGE_BYTES);
    int failure = page_check_descriptor(descriptor, ALIQUOT_ACTIVITY_PAGE_BYTES);
    if (failure)
        return failure;
    void *next = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (next == MAP_FAILED)
        return errno;
    pthread_mutex_lock(&state.mutex);
    failure = continue_on(next, bytes, descriptor);
    pthread_mutex_unlock(&state.mutex);
    munmap(next, bytes);
    if (failure)
        return failure;
    /* Set last: once the seal is set, no process can map the file for writing. */
    own_page()->version = ALIQUOT_PROTOCOL_VERSION;
    own_page()->pid = (int32_t)getpid();
    __atomic_store_n(&own_page()->magic, ALIQUOT_ACTIVITY_PAGE_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

void activity_page_forget(void)
{
    pthread_mutex_init(&state.mutex, NULL); /* a thread of the parent's may have held it */
    mmap(own_page(), page_mapped_bytes(ALIQUOT_ACTIVITY_PAGE_BYTES), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Lock and return the device's record. NULL, without the lock: the device is not shown. */
static struct aliquot_activity_device *lock_device(int page_device)
{
    if (page_device < 0 || page_device >= (int)ALIQUOT_MAX_DEVICES)
        return NULL;
    pthread_mutex_lock(&state.mutex);
    return &own_page()->devices[page_device];
}

/* Write `since` first: a reader that sees the change also sees its time. A reader that sees the
 * time too early takes an old pause for a new one, which is the careful side.
 *
 * The fence: a release store may wait in this processor's store buffer while the launch behind
 * it is already on its way to the device, since the driver's doorbell is another kind of memory,
 * or a system call; a peer that looks at that moment finds this process idle. After a
 * sequentially consistent fence the store is in the caches, where every processor sees it. The
 * readers need no matching fence: they look at one word, and the bound on interference allows
 * for the work that they began before it changed. */
void activity_page_set_active(int page_device, bool is_active)
{
    struct aliquot_activity_device *device = lock_device(page_device);
    if (!device)
        return;
    if (device->is_active != is_active) {
        page_write(&device->since_nanoseconds, times_now_nanoseconds());
        __atomic_store_n(&device->is_active, is_active, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&state.mutex);
    if (is_active)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Readers look at the count, at the intervals and at the count again: the oldest one may change
 * meanwhile. */
static void begin_interval(struct aliquot_activity_device *device, uint64_t start, uint64_t end)
{
    uint64_t count = device->interval_count;
    struct aliquot_interval *interval = &device->intervals[count % ALIQUOT_ACTIVITY_INTERVALS];
    page_write(&interval->start_nanoseconds, start);
    page_write(&interval->end_nanoseconds, end);
    page_write(&device->interval_count, count + 1);
}

/* Extend the newest interval. A part before its start is not shown, because a reader has passed
 * it. */
static void join_interval(struct aliquot_activity_device *device, struct aliquot_interval *newest,
                          uint64_t start, uint64_t end)
{
    uint64_t shown_from = newest->start_nanoseconds;
    if (start < shown_from)
        page_add(&device->lost_nanoseconds, (end < shown_from ? end : shown_from) - start);
    if (end > newest->end_nanoseconds)
        page_write(&newest->end_nanoseconds, end);
}

void activity_page_add_interval(int page_device, uint64_t start, uint64_t end)
{
    struct aliquot_activity_device *device = start < end ? lock_device(page_device) : NULL;
    if (!device)
        return;
    uint64_t count = device->interval_count;
    struct aliquot_interval *newest = &device->intervals[(count - 1) % ALIQUOT_ACTIVITY_INTERVALS];
    if (count && start < newest->end_nanoseconds + MERGED_NANOSECONDS)
        join_interval(device, newest, start, end);
    else
        begin_interval(device, start, end);
    pthread_mutex_unlock(&state.mutex);
}

