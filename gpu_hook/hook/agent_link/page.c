#include "agent_link/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Set once, by page_prepare. One mapping holds the agent's page, the hook's, the activity page, and
 * the wiped page, in this order: a program's start pays for each call of mmap. */
static struct {
    struct aliquot_agent_page *agent;
    uint32_t is_wiped; /* the kernel wipes the wiped page at a fork */
    struct aliquot_hook_page *hook; /* set last */
} state;

size_t page_mapped_bytes(size_t bytes)
{
    size_t unit = (size_t)getpagesize();
    return (bytes + unit - 1) / unit * unit;
}

/* Size of each of the first two. */
static size_t mapped_bytes(void)
{
    return page_mapped_bytes(ALIQUOT_PAGE_BYTES);
}

static size_t wiped_at(void)
{
    return 2 * mapped_bytes() + page_mapped_bytes(ALIQUOT_ACTIVITY_PAGE_BYTES);
}

/* Several threads may come at once, since programs ask for symbols before cuInit and beside it:
 * the first one's pages count. */
bool page_prepare(void)
{
    struct aliquot_agent_page *first = NULL;
    if (page_hook())
        return true;
    size_t bytes = wiped_at() + (size_t)getpagesize();
    void *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return false;
    /* Not the counts in the hook's page: a child goes on with those of before cuInit. */
    if (madvise((char *)all + wiped_at(), (size_t)getpagesize(), MADV_WIPEONFORK) == 0)
        __atomic_store_n(&state.is_wiped, 1, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(&state.agent, &first, all, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        first = all;
    else
        munmap(all, bytes);
    __atomic_store_n(&state.hook, (void *)((char *)first + mapped_bytes()), __ATOMIC_RELEASE);
    return true;
}

void *page_of_activity(void)
{
    return (char *)state.agent + 2 * mapped_bytes();
}

uint32_t *page_wiped_word(void)
{
    bool is_wiped = __atomic_load_n(&state.is_wiped, __ATOMIC_RELAXED);
    return is_wiped ? (void *)((char *)state.agent + wiped_at()) : NULL;
}

int page_check_descriptor(int descriptor, size_t bytes)
{
    off_t found = lseek(descriptor, 0, SEEK_END);
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (found < 0 || seals < 0)
        return errno;
    if (found < (off_t)bytes || !(seals & F_SEAL_SHRINK))
        return EINVAL;
    return 0;
}

int page_install(int agent_descriptor, int hook_descriptor)
{
    int failure = page_check_descriptor(agent_descriptor, ALIQUOT_PAGE_BYTES);
    if (!failure)
        failure = page_check_descriptor(hook_descriptor, ALIQUOT_PAGE_BYTES);
    if (failure)
        return failure;
    void *agent = mmap(NULL, mapped_bytes(), PROT_READ, MAP_SHARED, agent_descriptor, 0);
    if (agent == MAP_FAILED)
        return errno;
    const struct aliquot_agent_page *page = agent;
    bool is_ours = page->magic == ALIQUOT_PAGE_MAGIC && page->version == ALIQUOT_PROTOCOL_VERSION &&
                   page->device_count <= ALIQUOT_MAX_DEVICES;
    munmap(agent, mapped_bytes());
    if (!is_ours)
        return EPROTO;
    uint64_t unknown_symbols = page_read(&state.hook->unknown_symbols);
    uint64_t unaccounted_calls = page_read(&state.hook->unaccounted_calls);
    if (mmap(state.hook, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             hook_descriptor, 0) == MAP_FAILED)
        return errno;
    if (mmap(state.agent, mapped_bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, agent_descriptor, 0) ==
        MAP_FAILED)
        return errno;
    struct aliquot_hook_page *hook = state.hook;
    hook->version = ALIQUOT_PROTOCOL_VERSION;
    /* Counters that no other part of the hook keeps go on; every other word has an owner, which
     * writes it again. */
    page_add(&hook->unknown_symbols, unknown_symbols);
    page_add(&hook->unaccounted_calls, unaccounted_calls);
    __atomic_store_n(&hook->magic, ALIQUOT_PAGE_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

void page_forget(void)
{
    if (!state.hook)
        return;
    mmap(state.agent, 2 * mapped_bytes(), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

const struct aliquot_agent_page *page_agent(void)
{
    return __atomic_load_n(&state.agent, __ATOMIC_ACQUIRE);
}

struct aliquot_hook_page *page_hook(void)
{
    return __atomic_load_n(&state.hook, __ATOMIC_ACQUIRE);
}

int page_device_index(const uint8_t uuid[16])
{
    const struct aliquot_agent_page *page = page_agent();
    if (!page)
        return -1;
    uint32_t count = __atomic_load_n(&page->device_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && i < ALIQUOT_MAX_DEVICES; i++)
        if (memcmp(page->devices[i].uuid, uuid, 16) == 0)
            return (int)i;
    return -1;
}
