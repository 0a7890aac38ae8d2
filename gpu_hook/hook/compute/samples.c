#include "compute/samples.h"

#include "compute/baselines.h"
#include "agent_link/page.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#define SETS 256u
/* pairs in a set: the pair that was measured longest ago makes room */
#define WAYS 4u
#define FIRST_SAMPLES 4u    /* launches of a new pair that are all measured */
#define SAMPLED_ONE_IN 64u  /* launches after these, on average */
#define SAMPLES_IN_WINDOW 3u /* launches of a pair that are measured in one solo window */
#define LONGEST_NANOSECONDS 600000000000ull /* a longer time is a wrong number, not a launch */
/* a pair without a measurement for so long needs no baseline */
#define RECENT_NANOSECONDS 10000000000ull
#define REPEATED 8u                         /* launches; nor does one that is hardly used */
#define LOOK_NANOSECONDS 1000000000ull

/* The first five are read without the mutex, the second four written without it: counts by two
 * threads at once may be lost, and a reader may at worst see the pair that was here before. */
struct pair {
    uint64_t key; /* 0: free; written first and last when the pair is another */
    uint64_t expected;
    uint32_t launches;
    uint32_t asked_window; /* the solo window in which it was last to be measured */
    uint32_t asked;        /* so many times */
    /* `expected` is of launches with nothing else of this process beside them */
    bool is_alone;
    bool is_lacking;       /* counted in without_baseline */
    uint64_t stamp;        /* of the table, when it last changed */
    uint64_t sampled_at;
    struct baseline baseline;
};

struct table {
    struct pair pairs[SETS][WAYS];
    uint64_t stamp;
    uint64_t looked_at; /* for pairs that are in use no longer */
    uint64_t sampled_nanoseconds, sampled_solo_nanoseconds; /* as in the hook's page */
    uint32_t samples, without_baseline;
};

static struct {
    pthread_mutex_t mutex;                     /* guards the tables, but for the words above */
    struct table *tables[ALIQUOT_MAX_DEVICES]; /* each set once */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct table *find_table(int page_device)
{
    bool is_one = page_device >= 0 && page_device < (int)ALIQUOT_MAX_DEVICES;
    return is_one ? __atomic_load_n(&state.tables[page_device], __ATOMIC_ACQUIRE) : NULL;
}

/* With the mutex. NULL: no such device, or no memory. */
static struct table *take_table(int page_device)
{
    struct table *table = find_table(page_device);
    if (table || page_device < 0 || page_device >= (int)ALIQUOT_MAX_DEVICES)
        return table;
    void *pages =
        mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    __atomic_store_n(&state.tables[page_device], pages, __ATOMIC_RELEASE);
    return pages;
}

/* Handles are addresses of the program's, whose upper bits are no part of them. */
static uint64_t key_of(const void *function, unsigned grid_class)
{
    return (uint64_t)(uintptr_t)function << 5 | (grid_class & 31);
}

static struct pair *set_of(struct table *table, uint64_t key)
{
    return table->pairs[(key * 0x9e3779b97f4a7c15ull >> 32) % SETS];
}

static struct pair *find_pair(struct table *table, uint64_t key)
{
    struct pair *set = set_of(table, key);
    for (unsigned way = 0; way < WAYS; way++)
        if (__atomic_load_n(&set[way].key, __ATOMIC_ACQUIRE) == key)
            return &set[way];
    return NULL;
}

/* With the mutex. */
static void clear(struct table *table, struct pair *pair)
{
    __atomic_store_n(&pair->key, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pair->expected, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pair->launches, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&pair->asked_window, 0, __ATOMIC_RELAXED);
    table->without_baseline -= pair->is_lacking;
    pair->is_alone = pair->is_lacking = false;
    pair->stamp = pair->sampled_at = 0;
    pair->baseline = (struct baseline){0};
}

/* Return the pair of this key; where there is none, take a free one, or the one that was measured
 * longest ago. Called with the mutex. */
static struct pair *take_pair(struct table *table, uint64_t key)
{
    struct pair *found = find_pair(table, key);
    if (found)
        return found;
    struct pair *set = set_of(table, key);
    found = set;
    for (unsigned way = 1; way < WAYS; way++)
        if (set[way].stamp < found->stamp)
            found = &set[way];
    clear(table, found);
    found->stamp = ++table->stamp;
    __atomic_store_n(&found->key, key, __ATOMIC_RELEASE);
    return found;
}

uint64_t samples_expect(int page_device, const void *function, unsigned grid_class)
{
    struct table *table = find_table(page_device);
    struct pair *pair = table && function ? find_pair(table, key_of(function, grid_class)) : NULL;
    return pair ? page_read(&pair->expected) : 0;
}

/* A window must not be missed: it costs the peers time, and is over soon. */
static bool is_wanted_in_window(struct pair *pair, int page_device)
{
    uint32_t window =
        __atomic_load_n(&page_agent()->devices[page_device].solo_window, __ATOMIC_RELAXED);
    if (!(window & 1))
        return false;
    if (__atomic_load_n(&pair->asked_window, __ATOMIC_RELAXED) != window) {
        __atomic_store_n(&pair->asked_window, window, __ATOMIC_RELAXED);
        __atomic_store_n(&pair->asked, 0, __ATOMIC_RELAXED);
    }
    uint32_t asked = __atomic_load_n(&pair->asked, __ATOMIC_RELAXED);
    if (asked >= SAMPLES_IN_WINDOW)
        return false;
    __atomic_store_n(&pair->asked, asked + 1, __ATOMIC_RELAXED);
    return true;
}

/* By the golden section: never in a period of the program's own, whose steps launch a function the
 * same number of times, and whose slices of the device may end at the same launch each time. */
static bool is_its_turn(uint32_t launches)
{
    return launches <= FIRST_SAMPLES || launches * 0x9e3779b9u < UINT32_MAX / SAMPLED_ONE_IN;
}

static struct pair *meet_pair(int page_device, uint64_t key)
{
    if (pthread_mutex_trylock(&state.mutex) != 0)
        return NULL;
    struct table *table = take_table(page_device);
    struct pair *pair = table ? take_pair(table, key) : NULL;
    pthread_mutex_unlock(&state.mutex);
    return pair;
}

bool samples_should_sample(int page_device, const void *function, unsigned grid_class)
{
    if (!function)
        return false;
    uint64_t key = key_of(function, grid_class);
    struct table *table = find_table(page_device);
    struct pair *pair = table ? find_pair(table, key) : NULL;
    if (!pair)
        pair = meet_pair(page_device, key);
    if (!pair)
        return false;
    uint32_t launches = __atomic_load_n(&pair->launches, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&pair->launches, launches, __ATOMIC_RELAXED);
    return is_wanted_in_window(pair, page_device) || is_its_turn(launches);
}

/* Halfway to the newest, so that changes of a program show soon. Overlap can only have made a
 * launch slower. */
static void expect(struct pair *pair, const struct sample *sample)
{
    uint64_t before = pair->expected, expected = sample->nanoseconds;
    if (sample->has_overlapped && before && (pair->is_alone || before < expected))
        return;
    if (!sample->has_overlapped && pair->is_alone)
        expected = before / 2 + expected / 2 + 1;
    pair->is_alone = !sample->has_overlapped;
    page_write(&pair->expected, expected);
}

static void compare(struct table *table, struct pair *pair, const struct sample *sample,
                    uint64_t now)
{
    table->samples++;
    pair->sampled_at = now;
    if ((sample->window_before & 1) && sample->window_before == sample->window_after) {
        baseline_add_solo(&pair->baseline, sample->nanoseconds, now);
        return;
    }
    uint64_t alone = baseline_value(&pair->baseline, now);
    if (alone) {
        table->sampled_nanoseconds += sample->nanoseconds;
        table->sampled_solo_nanoseconds += alone;
    }
    baseline_add_shared(&pair->baseline, sample->nanoseconds);
}

/* Called with the mutex. The agent ends a window as soon as every pair has its baseline. */
static void judge(struct table *table, struct pair *pair, uint64_t now)
{
    bool is_in_use = pair->sampled_at && now < pair->sampled_at + RECENT_NANOSECONDS &&
                     __atomic_load_n(&pair->launches, __ATOMIC_RELAXED) >= REPEATED;
    bool is_lacking = is_in_use && !baseline_is_known(&pair->baseline, now);
    table->without_baseline += (uint32_t)is_lacking - (uint32_t)pair->is_lacking;
    pair->is_lacking = is_lacking;
}

static void judge_all(struct table *table, uint64_t now)
{
    table->looked_at = now;
    for (size_t i = 0; i < SETS * WAYS; i++)
        judge(table, &table->pairs[i / WAYS][i % WAYS], now);
}

/* With the mutex. */
static void publish(int page_device, const struct table *table)
{
    struct aliquot_hook_device *page = &page_hook()->devices[page_device];
    page_write(&page->sampled_nanoseconds, table->sampled_nanoseconds);
    page_write(&page->sampled_solo_nanoseconds, table->sampled_solo_nanoseconds);
    __atomic_store_n(&page->samples, table->samples, __ATOMIC_RELEASE);
    __atomic_store_n(&page->without_baseline, table->without_baseline, __ATOMIC_RELEASE);
}

void samples_take(int page_device, const struct sample *sample, uint64_t now)
{
    if (!sample->function || !sample->nanoseconds || sample->nanoseconds > LONGEST_NANOSECONDS)
        return;
    pthread_mutex_lock(&state.mutex);
    struct table *table = take_table(page_device);
    if (table) {
        struct pair *pair = take_pair(table, key_of(sample->function, sample->grid_class));
        pair->stamp = ++table->stamp;
        expect(pair, sample);
        if (!sample->has_overlapped)
            compare(table, pair, sample, now);
        judge(table, pair, now);
        if (now - table->looked_at > LOOK_NANOSECONDS)
            judge_all(table, now);
        publish(page_device, table);
    }
    pthread_mutex_unlock(&state.mutex);
}

void samples_forget(const void *function)
{
    pthread_mutex_lock(&state.mutex);
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++) {
        struct table *table = find_table(device);
        struct pair *pair = table ? find_pair(table, key_of(function, 0)) : NULL;
        if (pair)
            clear(table, pair);
    }
    pthread_mutex_unlock(&state.mutex);
}

void samples_registered(void)
{
    pthread_mutex_lock(&state.mutex);
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++)
        if (find_table(device))
            publish(device, find_table(device));
    pthread_mutex_unlock(&state.mutex);
}

void samples_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++)
        if (state.tables[device])
            munmap(state.tables[device], sizeof *state.tables[device]);
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++)
        state.tables[device] = NULL;
}
