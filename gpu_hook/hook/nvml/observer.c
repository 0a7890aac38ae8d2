#include "nvml/observer.h"

#include "base/cancellation.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "agent_link/socket.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WELCOME_MILLISECONDS 1000
#define FIRST_PAUSE_SECONDS 1
#define SLOW_PAUSE_SECONDS 4 /* after an attempt that had to wait; four times more each time */
#define LONGEST_PAUSE_SECONDS 64
#define TABLE_ATTEMPTS 1000

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_once_t once;
    struct socket_owned connection;
    pid_t owner;    /* the process that connected; 0: none */
    time_t next_attempt_seconds;
    time_t pause_seconds;
    int last_failure;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .once = PTHREAD_ONCE_INIT,
           .connection = {.descriptor = -1}};

/* The inherited socket would keep the parent's registration alive. */
static void leave_in_child(void)
{
    socket_close(&state.connection);
    state.owner = 0;
    state.next_attempt_seconds = 0;
    state.pause_seconds = 0;
    page_forget();
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, leave_in_child);
}

/* Called with the mutex: drain messages of the agent, and notice that it is gone. */
static void check_connection(void)
{
    struct socket_received received;
    int failure = socket_is_ours(&state.connection) ? 0 : EBADF;
    while (!failure) {
        failure = socket_receive(state.connection.descriptor, &received);
        for (int i = 0; !failure && i < 2; i++)
            if (received.descriptors[i] >= 0)
                close(received.descriptors[i]);
    }
    if (failure != EAGAIN)
        socket_close(&state.connection);
}

/* Called with the mutex. Returns 0 or an errno. */
static int connect_once(void)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor < 0)
        return -descriptor;
    state.connection = socket_own(descriptor);
    union socket_message hello;
    socket_fill_hello(&hello.hello, ALIQUOT_ROLE_OBSERVER);
    int failure = socket_register(descriptor, &hello, WELCOME_MILLISECONDS);
    if (failure)
        socket_close(&state.connection);
    return failure;
}

static time_t now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Called with the mutex. An agent that does not listen refuses at once; a stopped one costs the
 * whole wait. */
static void plan_next_attempt(int failure)
{
    time_t longer =
        state.pause_seconds < SLOW_PAUSE_SECONDS ? SLOW_PAUSE_SECONDS : state.pause_seconds * 4;
    state.pause_seconds = failure != ETIMEDOUT            ? FIRST_PAUSE_SECONDS
                          : longer < LONGEST_PAUSE_SECONDS ? longer
                                                           : LONGEST_PAUSE_SECONDS;
    state.next_attempt_seconds = now_seconds() + state.pause_seconds;
}

/* Called with the mutex. */
static void connect_again(void)
{
    if (now_seconds() < state.next_attempt_seconds)
        return;
    int failure = connect_once();
    plan_next_attempt(failure);
    if (!failure) {
        state.owner = getpid();
        LOG("event=observing");
    } else if (failure != state.last_failure) {
        LOG("event=not_observing reason=\"%s\"", strerror(failure));
    }
    state.last_failure = failure;
}

void observer_begin(void)
{
    if (!settings()->is_on)
        return;
    DEFER_CANCELLATION;
    pthread_once(&state.once, watch_forks); /* before the lock: a fork may come at any time */
    pthread_mutex_lock(&state.mutex);
    check_connection();
    if (state.connection.descriptor < 0)
        connect_again();
    pthread_mutex_unlock(&state.mutex);
}

/* Called with the mutex. */
static void read_device(int index, struct observer_view *view)
{
    const struct aliquot_agent_device *words = &page_agent()->devices[index];
    view->is_granted = true;
    view->index = (uint32_t)index;
    view->quota_bytes = page_read(&words->quota_bytes);
    view->charged_bytes = page_read(&words->charged_bytes);
    view->enforcer = __atomic_load_n(&words->enforcer, __ATOMIC_ACQUIRE);
    view->utilization_percent = __atomic_load_n(&words->utilization_percent, __ATOMIC_ACQUIRE);
}

bool observer_view(const uint8_t uuid[16], struct observer_view *view)
{
    observer_begin();
    pthread_mutex_lock(&state.mutex);
    /* After the agent's death its last words still hold: quotas do not change without it. */
    bool is_known = state.owner != 0;
    int index = is_known ? page_device_index(uuid) : -1;
    memset(view, 0, sizeof *view);
    if (index >= 0)
        read_device(index, view);
    pthread_mutex_unlock(&state.mutex);
    return is_known;
}

bool observer_only_device(uint8_t uuid[16])
{
    observer_begin();
    pthread_mutex_lock(&state.mutex);
    uint8_t other[16];
    bool is_only = state.owner != 0 && page_device_uuid(0, uuid) && !page_device_uuid(1, other);
    pthread_mutex_unlock(&state.mutex);
    return is_only;
}

/* False: the agent changed the table in the meantime. */
static bool read_table(const struct aliquot_agent_page *page,
                       struct aliquot_agent_process *processes, unsigned *count)
{
    uint32_t before = __atomic_load_n(&page->process_sequence, __ATOMIC_ACQUIRE);
    uint32_t entries = __atomic_load_n(&page->process_count, __ATOMIC_RELAXED);
    *count = entries < ALIQUOT_MAX_PROCESSES ? entries : ALIQUOT_MAX_PROCESSES;
    const uint64_t *from = (const uint64_t *)page->processes;
    uint64_t *to = (uint64_t *)processes;
    for (unsigned i = 0; i < *count * (sizeof *processes / sizeof *to); i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return before % 2 == 0 && before == __atomic_load_n(&page->process_sequence, __ATOMIC_RELAXED);
}

unsigned observer_processes(struct aliquot_agent_process processes[ALIQUOT_MAX_PROCESSES])
{
    unsigned count = 0;
    pthread_mutex_lock(&state.mutex);
    bool is_whole = !state.owner;
    for (int i = 0; i < TABLE_ATTEMPTS && !is_whole; i++)
        is_whole = read_table(page_agent(), processes, &count);
    pthread_mutex_unlock(&state.mutex);
    return is_whole ? count : 0; /* not whole: the agent was stopped in the middle of a change */
}
