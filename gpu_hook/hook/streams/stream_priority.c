#include "streams/stream_priority.h"

#include "agent_link/page.h"
#include "agent_link/session.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define REMEMBERED 1024u /* a power of two */
#define TRIES 64u        /* slots in which a stream may stand: in a table that is half full there is one */
#define CHANGED_MOST (REMEMBERED / 2)

struct changed_stream {
    CUstream stream; /* NULL: free */
    struct priority_memory memory;
};

static struct {
    pthread_mutex_t mutex; /* guards the table */
    uint32_t count;        /* atomic: so that programs without such streams look no further */
    struct changed_stream streams[REMEMBERED];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int within(int value, int smallest, int largest)
{
    return value < smallest ? smallest : value > largest ? largest : value;
}

/* Of an odd number of levels the one in the middle is production's. */
int priority_bounded(bool is_production, struct priority_wish wish, struct priority_range range)
{
    int asked = within(wish.asked, range.greatest, range.least);
    int lower_levels = (range.least - range.greatest + 1) / 2;
    if (lower_levels < 1)
        return asked;
    if (is_production)
        return within(asked, range.greatest, range.least - lower_levels);
    return wish.is_explicit ? within(asked, range.least - lower_levels + 1, range.least) : range.least;
}

bool stream_priority_choose(struct priority_wish *wish, int *given)
{
    struct priority_range range;
    session_await();
    const struct aliquot_agent_page *page = page_agent();
    if (__atomic_load_n(&state.count, __ATOMIC_RELAXED) >= CHANGED_MOST ||
        !(__atomic_load_n(&page->actuators, __ATOMIC_RELAXED) & ALIQUOT_ACT_STREAM_PRIORITY) ||
        driver()->cuCtxGetStreamPriorityRange(&range.least, &range.greatest) != CUDA_SUCCESS)
        return false;
    bool is_production = __atomic_load_n(&page->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION;
    *given = priority_bounded(is_production, *wish, range);
    wish->asked = within(wish->asked, range.greatest, range.least);
    return true;
}

static struct changed_stream *slot_of(CUstream stream, unsigned attempt)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)stream >> 4) * 0x9e3779b97f4a7c15u;
    return &state.streams[((mixed >> 32) + attempt) % REMEMBERED];
}

/* With the mutex. NULL as the stream finds a free slot. */
static struct changed_stream *find(CUstream stream, CUstream wanted)
{
    for (unsigned attempt = 0; attempt < TRIES; attempt++)
        if (slot_of(stream, attempt)->stream == wanted)
            return slot_of(stream, attempt);
    return NULL;
}

/* With the mutex. */
static struct priority_memory drop(CUstream stream)
{
    struct changed_stream *found = find(stream, stream);
    if (!found)
        return (struct priority_memory){0};
    found->stream = NULL;
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_RELAXED);
    return found->memory;
}

void stream_priority_restore(CUstream stream, const struct priority_memory *memory)
{
    if (!memory->is_one)
        return;
    pthread_mutex_lock(&state.mutex);
    drop(stream); /* of a stream whose end was not seen */
    struct changed_stream *slot = find(stream, NULL);
    if (slot) {
        *slot = (struct changed_stream){stream, *memory};
        __atomic_fetch_add(&state.count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&state.mutex);
}

void stream_priority_remember(CUstream stream, struct priority_wish wish, int given)
{
    struct priority_memory memory = {.asked = wish.asked, .given = given, .is_one = true};
    driver()->cuCtxGetCurrent(&memory.context);
    stream_priority_forget(stream);
    if (wish.asked != given)
        stream_priority_restore(stream, &memory);
}

struct priority_memory stream_priority_forget(CUstream stream)
{
    struct priority_memory memory = {0};
    if (!stream || __atomic_load_n(&state.count, __ATOMIC_RELAXED) == 0)
        return memory;
    pthread_mutex_lock(&state.mutex);
    memory = drop(stream);
    pthread_mutex_unlock(&state.mutex);
    return memory;
}

void stream_priority_forget_context(CUcontext context)
{
    if (!context || __atomic_load_n(&state.count, __ATOMIC_RELAXED) == 0)
        return;
    pthread_mutex_lock(&state.mutex);
    for (unsigned i = 0; i < REMEMBERED; i++)
        if (state.streams[i].stream && state.streams[i].memory.context == context)
            drop(state.streams[i].stream);
    pthread_mutex_unlock(&state.mutex);
}

/* A stream that ended with its context left its slot behind; its handle may be another's by now, made at a priority of
 * its own. */
int stream_priority_shown(CUstream stream, int given)
{
    if (!stream || __atomic_load_n(&state.count, __ATOMIC_RELAXED) == 0)
        return given;
    pthread_mutex_lock(&state.mutex);
    const struct changed_stream *found = find(stream, stream);
    int shown = found && found->memory.given == given ? found->memory.asked : given;
    pthread_mutex_unlock(&state.mutex);
    return shown;
}

void stream_priority_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    if (state.count)
        memset(state.streams, 0, sizeof state.streams);
    state.count = 0;
}
