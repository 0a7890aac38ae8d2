#include "agent_link/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The largest page of the machine's kernels: so far apart the four lie, to be mapped over. */
#if defined(__x86_64__)
#define PAGE ((uintptr_t)4096)
#else
#define PAGE ((uintptr_t)65536)
#endif
#define ACTIVITY_PAGES ((ALIQUOT_ACTIVITY_PAGE_BYTES + PAGE - 1) / PAGE)

enum place { AGENT, HOOK, ACTIVITY, WIPED = ACTIVITY + ACTIVITY_PAGES, PLACES };

/* A common symbol lies behind all other data, and is aligned at run time: so what every start
 * touches stays together in two pages. */
char page_room[(PLACES + 1) * PAGE] __attribute__((common, visibility("hidden")));

static inline void *at(enum place place)
{
    return (void *)((((uintptr_t)page_room + PAGE - 1) & ~(PAGE - 1)) + place * PAGE);
}

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

void *page_of_activity(void)
{
    return at(ACTIVITY);
}

/* Not the counts in the hook's page: a child goes on with those of before cuInit. */
uint32_t *page_wiped_word(void)
{
    bool is_wiped = madvise(at(WIPED), (size_t)getpagesize(), MADV_WIPEONFORK) == 0;
    return is_wiped ? at(WIPED) : NULL;
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
    struct aliquot_hook_page *hook = page_hook();
    uint64_t unknown_symbols = page_read(&hook->unknown_symbols);
    uint64_t unaccounted_calls = page_read(&hook->unaccounted_calls);
    if (mmap(hook, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, hook_descriptor,
             0) == MAP_FAILED)
        return errno;
    if (mmap(at(AGENT), mapped_bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, agent_descriptor, 0) ==
        MAP_FAILED)
        return errno;
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
    for (enum place place = AGENT; place <= HOOK; place++)
        mmap(at(place), mapped_bytes(), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

const struct aliquot_agent_page *page_agent(void)
{
    return at(AGENT);
}

struct aliquot_hook_page *page_hook(void)
{
    return at(HOOK);
}

bool page_device_uuid(int index, uint8_t uuid[16])
{
    const struct aliquot_agent_page *page = page_agent();
    uint32_t count = __atomic_load_n(&page->device_count, __ATOMIC_ACQUIRE);
    if (index < 0 || (uint32_t)index >= count || index >= (int)ALIQUOT_MAX_DEVICES)
        return false;
    memcpy(uuid, page->devices[index].uuid, 16);
    return true;
}

int page_device_index(const uint8_t uuid[16])
{
    const struct aliquot_agent_page *page = page_agent();
    uint32_t count = __atomic_load_n(&page->device_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && i < ALIQUOT_MAX_DEVICES; i++)
        if (memcmp(page->devices[i].uuid, uuid, 16) == 0)
            return (int)i;
    return -1;
}
