#include "gate/threads.h"

#include "base/cancellation.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex; /* guards the list and the key */
    struct thread_record *list;
    pthread_key_t key;
    bool has_key;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

__thread struct thread_record *threads_own;
__thread uint64_t *threads_counter;

/* Set where this thread has no record: it stays without one, so that it leaves a call as it
 * entered it. */
static __thread bool has_none __attribute__((tls_model("initial-exec")));

/* A thread that is cancelled, or ends, inside a call has left it. */
static void give_back(void *record)
{
    struct thread_record *own = record;
    pthread_mutex_lock(&state.mutex);
    __atomic_store_n(&own->inside, 0, __ATOMIC_RELEASE);
    own->is_taken = false;
    pthread_mutex_unlock(&state.mutex);
    threads_own = NULL;
    threads_counter = NULL;
}

/* With the mutex. */
static struct thread_record *find_free(void)
{
    struct thread_record *found = state.list;
    while (found && found->is_taken)
        found = found->next;
    if (!found && (found = calloc(1, sizeof *found))) {
        found->next = state.list;
        state.list = found;
    }
    return found;
}

struct thread_record *threads_take(void)
{
    if (threads_own || has_none)
        return threads_own;
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    if (!state.has_key)
        state.has_key = pthread_key_create(&state.key, give_back) == 0;
    struct thread_record *found = find_free();
    if (found) {
        found->is_taken = true;
        found->id = (int32_t)syscall(SYS_gettid);
    }
    pthread_mutex_unlock(&state.mutex);
    if (found && state.has_key)
        pthread_setspecific(state.key, found);
    has_none = !found;
    threads_own = found;
    return found;
}

uint64_t threads_launches(int device)
{
    uint64_t total = 0;
    pthread_mutex_lock(&state.mutex);
    for (const struct thread_record *record = state.list; record; record = record->next)
        total += __atomic_load_n(&record->launches[device], __ATOMIC_RELAXED);
    pthread_mutex_unlock(&state.mutex);
    return total;
}

/* A thread that ended by the bare system call ran no destructor. If a new thread has its number
 * by now, it stays hidden. */
static bool has_ended(const struct thread_record *record)
{
    return syscall(SYS_tgkill, (long)getpid(), (long)record->id, 0L) != 0 && errno == ESRCH;
}

unsigned threads_inside(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&state.mutex);
    for (struct thread_record *record = state.list; record; record = record->next) {
        if (__atomic_load_n(&record->inside, __ATOMIC_ACQUIRE) == 0)
            continue;
        if (has_ended(record))
            __atomic_store_n(&record->inside, 0, __ATOMIC_RELEASE);
        else
            count++;
    }
    pthread_mutex_unlock(&state.mutex);
    return count;
}

/* Tell of a call to the GPU outside a mark, once. */
void threads_check_marked(const char *function)
{
    static uint32_t has_said;
    if (threads_own && !threads_own->inside && !__atomic_exchange_n(&has_said, 1, __ATOMIC_RELAXED))
        LOG("event=not_marked function=%s note=\"a defect of the hook: a move may wait for ever\"",
            function);
}

/* The one thread of the child goes on with its record, since it may be inside a call: a signal's
 * handler can fork. The other threads' records belong to the parent's counts, so the child does
 * not free them. */
void threads_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    state.list = threads_own;
    threads_counter = NULL;
    if (!threads_own)
        return;
    threads_own->next = NULL;
    threads_own->id = (int32_t)syscall(SYS_gettid);
    for (int device = 0; device < DEVICES_MAX; device++)
        threads_own->launches[device] = 0;
}
