/* Turns private pages into shared ones, block by block of what was touched. */
#include "memory/shares.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/machine.h"
#include "device/ranges.h"
#include "memory/accesses.h"
#include "memory/window_state.h"

#define PAGE 4096ull
#define PAGES_AT_ONCE 512ull
#define PAGE_IS_THERE (3ull << 62) /* in memory, or swapped out */

struct share {
    uint64_t start, bytes;
    struct backing backing;
    int is_small; /* other processes have its file */
};

static struct {
    struct ranges map; /* owners are struct share */
    struct backing small;
    int has_small;
} shares; /* under the window's lock */

/* Copies those pages of [from, from + bytes) that exist; a sparse allocation stays sparse. */
static void copy_pages(char *to, const char *from, uint64_t bytes)
{
    uint64_t pages[PAGES_AT_ONCE];
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (uint64_t at = 0; at < bytes; at += PAGES_AT_ONCE * PAGE) {
        uint64_t count = (bytes - at) / PAGE < PAGES_AT_ONCE ? (bytes - at) / PAGE : PAGES_AT_ONCE;
        off_t place = (off_t)(((uint64_t)from + at) / PAGE * sizeof *pages);
        ssize_t wanted = (ssize_t)(count * sizeof *pages);
        int is_known = map >= 0 && pread(map, pages, (size_t)wanted, place) == wanted;
        for (uint64_t i = 0; i < count; i++)
            if (!is_known || pages[i] & PAGE_IS_THERE)
                memcpy(to + at + i * PAGE, from + at + i * PAGE, PAGE);
    }
    if (map >= 0)
        close(map);
}

/* Under the lock, with no use of memory under way. */
static int convert(const struct share *share)
{
    char *copy = mmap(NULL, share->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      share->backing.descriptor, (off_t)share->backing.offset);
    if (copy == MAP_FAILED)
        return -1;
    copy_pages(copy, window_bytes(share->start), share->bytes);
    munmap(copy, share->bytes);
    return backing_map(&share->backing, window_bytes(share->start), share->bytes, PROT_READ | PROT_WRITE);
}

/* Under the lock. */
static int open_backing(struct share *share)
{
    unsigned char note[BACKING_NOTE_BYTES] = {0};
    if (!share->is_small)
        return backing_open_shared(share->bytes, note, &share->backing);
    if (!shares.has_small && backing_open_shared(window_small_bytes(), note, &shares.small) != 0)
        return -1;
    shares.has_small = 1;
    share->backing = shares.small;
    share->backing.offset = window_small_offset(share->start);
    return 0;
}

static void drop(struct share *share)
{
    if (!share->is_small)
        backing_close(&share->backing);
    free(share);
}

/* Under the lock: a share of exactly this range, made if there is none. */
static struct share *obtain(uint64_t start, uint64_t bytes, int is_small)
{
    struct range *range = ranges_find(&shares.map, start);
    if (range)
        return range->owner;
    struct share *share = calloc(1, sizeof *share);
    if (share == NULL)
        return NULL;
    *share = (struct share){.start = start, .bytes = bytes, .is_small = is_small};
    if (open_backing(share) != 0) {
        free(share);
        return NULL;
    }
    if (ranges_insert(&shares.map, start, bytes, share) == 0) {
        if (convert(share) == 0)
            return share;
        ranges_remove(&shares.map, start);
    }
    drop(share);
    return NULL;
}

int shares_make(uint64_t start, uint64_t bytes, struct share_place *place)
{
    const uint64_t unit = MACHINE_LARGE_UNIT;
    uint64_t first = start & ~(unit - 1), end = (start + bytes + unit - 1) & ~(unit - 1);
    accesses_stop();
    window_lock();
    int is_small = window_is_small(start);
    struct share *share = NULL;
    if (is_small)
        for (uint64_t at = end; at > first; at -= unit) { /* the first block comes last */
            share = obtain(at - unit, unit, 1);
            if (share == NULL)
                break;
        }
    else
        share = obtain(first, end - first, 0);
    if (share)
        *place = (struct share_place){share->backing.descriptor, share->backing.identity, share->backing.offset, first,
                                      end - first};
    window_unlock();
    accesses_resume();
    return share ? 0 : -1;
}

/* Under the lock: the share that holds `address` or comes next. */
static struct share *next_share(uint64_t address)
{
    struct range *range = ranges_find(&shares.map, address);
    range = range ? range : ranges_next_owned(&shares.map, address);
    return range ? range->owner : NULL;
}

void shares_release(uint64_t start, uint64_t end, uint64_t free_start, uint64_t free_end)
{
    if (shares.map.root == NULL)
        return;
    struct share *share = next_share(start);
    while (share && share->start < end) {
        uint64_t from = share->start > start ? share->start : start, share_end = share->start + share->bytes;
        if (share->is_small) /* its importers read zeros from now on */
            madvise(window_bytes(from), (share_end < end ? share_end : end) - from, MADV_REMOVE);
        if (share->start >= free_start && share_end <= free_end) {
            window_clear(share->start, share->bytes);
            ranges_remove(&shares.map, share->start);
            drop(share);
        }
        share = next_share(share_end);
    }
}

void shares_forget(void)
{
    if (shares.has_small)
        close(shares.small.descriptor);
    for (const struct share *share = next_share(0); share; share = next_share(share->start + share->bytes))
        if (!share->is_small)
            close(share->backing.descriptor);
}
