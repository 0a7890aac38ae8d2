/* The page that processes share for an event. Records have numbers. For the latest 64, the page
 * says whether they are done, which process made them, and when they ended. Waiting processes sleep
 * on a futex, and check from time to time which processes are still alive. */
#include "queue/event_shares.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/backing.h"
#include "driver/driver.h"
#include "driver/process_files.h"
#include "device/slots.h"

#define PAGE 4096u
#define RECORDS 64u
#define LOOK_NANOSECONDS 50000000
/* after so many looks, a process that took a number and did not sign it is dead */
#define LOOKS_UNSIGNED 40

struct record {
    _Atomic uint64_t begun, done; /* numbers */
    _Atomic uint64_t clock;
    _Atomic uint64_t joined; /* the joining of the process that made it */
};

struct page {
    _Atomic uint64_t latest;
    _Atomic uint32_t wakes;
    struct record records[RECORDS];
};

_Static_assert(sizeof(struct page) <= PAGE, "one page is enough");

struct event_share {
    struct backing backing;
    struct page *page;
    atomic_int references;
};

static struct event_share *map_share(const struct backing *backing)
{
    struct event_share *share = calloc(1, sizeof *share);
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, backing->descriptor, 0);
    if (share == NULL || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, PAGE);
        free(share);
        return NULL;
    }
    madvise(page, PAGE, MADV_DONTFORK);
    share->backing = *backing;
    share->page = page;
    atomic_init(&share->references, 1);
    return share;
}

struct event_share *event_share_new(struct event_place *place)
{
    unsigned char note[BACKING_NOTE_BYTES] = {0};
    struct backing backing;
    if (backing_open_shared(PAGE, note, &backing) != 0)
        return NULL;
    struct event_share *share = map_share(&backing);
    if (share == NULL)
        backing_close(&backing);
    *place = (struct event_place){backing.identity, backing.descriptor};
    return share;
}

struct event_share *event_share_open(uint64_t joined, const struct event_place *place)
{
    unsigned char note[BACKING_NOTE_BYTES];
    struct backing backing;
    int descriptor = process_file_open(joined, place->descriptor);
    int failed = descriptor < 0 ? -1 : backing_adopt(descriptor, note, &backing);
    if (descriptor >= 0)
        close(descriptor);
    if (failed)
        return NULL;
    int is_same = backing.identity == place->identity && backing.bytes == PAGE;
    struct event_share *share = is_same ? map_share(&backing) : NULL;
    if (share == NULL)
        backing_close(&backing);
    return share;
}

void event_share_drop(struct event_share *share)
{
    if (share == NULL || atomic_fetch_sub_explicit(&share->references, 1, memory_order_acq_rel) != 1)
        return;
    munmap(share->page, PAGE);
    backing_close(&share->backing);
    free(share);
}

uint64_t event_share_record(struct event_share *share)
{
    uint64_t number = 1 + atomic_fetch_add(&share->page->latest, 1);
    struct record *record = &share->page->records[number % RECORDS];
    atomic_store(&record->joined, slots_joined(&driver.attachment));
    atomic_store(&record->begun, number);
    return number;
}

uint64_t event_share_latest(const struct event_share *share)
{
    return atomic_load(&share->page->latest);
}

/* A record that 64 later ones have overwritten counts as done. */
int event_share_is_done(const struct event_share *share, uint64_t number)
{
    const struct record *record = &share->page->records[number % RECORDS];
    return number == 0 || atomic_load(&record->done) >= number || atomic_load(&record->begun) > number;
}

static void finish(struct event_share *share, uint64_t number, uint64_t clock)
{
    struct record *record = &share->page->records[number % RECORDS];
    atomic_store(&record->clock, clock);
    atomic_store(&record->done, number);
    atomic_fetch_add(&share->page->wakes, 1);
    syscall(SYS_futex, &share->page->wakes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int is_abandoned(const struct record *record, uint64_t number, int looks)
{
    if (atomic_load(&record->begun) != number)
        return looks > LOOKS_UNSIGNED;
    return slots_find(&driver.attachment, atomic_load(&record->joined)) < 0;
}

uint64_t event_share_wait(struct event_share *share, uint64_t number)
{
    const struct timespec look = {0, LOOK_NANOSECONDS};
    const struct record *record = &share->page->records[number % RECORDS];
    for (int looks = 0;; looks++) {
        uint32_t wakes = atomic_load(&share->page->wakes);
        if (event_share_is_done(share, number) || is_abandoned(record, number, looks))
            return number ? atomic_load(&record->clock) : 0;
        syscall(SYS_futex, &share->page->wakes, FUTEX_WAIT, wakes, &look, NULL, 0);
    }
}

struct mark {
    struct event_share *share;
    uint64_t number;
};

static CUresult run_end(struct work_item *work, uint64_t *clock)
{
    const struct mark *mark = (const struct mark *)work->payload;
    finish(mark->share, mark->number, *clock);
    event_share_drop(mark->share);
    return CUDA_SUCCESS;
}

static CUresult run_await(struct work_item *work, uint64_t *clock)
{
    const struct mark *mark = (const struct mark *)work->payload;
    uint64_t ended = event_share_wait(mark->share, mark->number);
    if (ended > *clock)
        *clock = ended;
    event_share_drop(mark->share);
    return CUDA_SUCCESS;
}

/* Runs whatever became of the context: others wait for it, and it holds a reference. */
static struct work_item *work_of(struct event_share *share, uint64_t number,
                                 CUresult (*run)(struct work_item *, uint64_t *))
{
    struct work_item *work = work_new(run, sizeof(struct mark));
    if (work == NULL)
        return NULL;
    atomic_fetch_add_explicit(&share->references, 1, memory_order_relaxed);
    *(struct mark *)work->payload = (struct mark){share, number};
    work->runs_after_failure = 1;
    return work;
}

struct work_item *event_share_end(struct event_share *share, uint64_t number)
{
    return work_of(share, number, run_end);
}

struct work_item *event_share_await(struct event_share *share, uint64_t number)
{
    return work_of(share, number, run_await);
}

void event_share_give_up(struct event_share *share, uint64_t number)
{
    finish(share, number, machine_now());
}
