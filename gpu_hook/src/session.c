#include "session.h"

#include "cancellation.h"
#include "log.h"
#include "page.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10) /* static TLS of the program comes out of it */
#define TICK_MILLISECONDS 50
#define LOOK_MILLISECONDS 1000 /* how long the program may have closed our descriptors unnoticed */
#define FIRST_BACKOFF_MILLISECONDS 100
#define LAST_BACKOFF_MILLISECONDS 1000
#define WELCOME_MILLISECONDS 2000
#define START_MILLISECONDS 1000
#define FIRST_REQUEST_MILLISECONDS 2000
#define REQUEST_MILLISECONDS 5000

const uint8_t SESSION_HOST_MEMORY[16];

struct waiter { /* lives on the requester's stack, linked while it waits */
    struct waiter *next;
    uint32_t sequence;
    bool is_answered;
    uint64_t granted;
};

/* Guarded by the mutex, save `owner` (set before the thread starts). */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const struct session_owner *owner;
    struct waiter *waiters;
    struct socket_owned connection; /* none unless registered */
    struct socket_owned candidate;  /* a connection that is not registered yet; kept for session_leave */
    struct socket_owned wake[2];    /* a pipe; an eventfd has no identity of its own */
    uint16_t version;               /* of the connection */
    uint32_t sequence;
    uint32_t connections; /* number of registrations so far; read without the mutex too */
    bool is_running;
    bool has_attempted; /* read without the mutex too */
    bool has_waited; /* the one long wait of a process that never registered is over */
    int last_failure;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .connection = {.descriptor = -1},
           .candidate = {.descriptor = -1},
           .wake = {{.descriptor = -1}, {.descriptor = -1}}};

static struct timespec deadline_after(unsigned milliseconds)
{
    struct timespec when;
    clock_gettime(CLOCK_MONOTONIC, &when);
    when.tv_sec += milliseconds / 1000;
    when.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (when.tv_nsec >= 1000000000) {
        when.tv_sec++;
        when.tv_nsec -= 1000000000;
    }
    return when;
}

static void note_failure(int failure)
{
    pthread_mutex_lock(&state.mutex);
    bool is_news = failure != state.last_failure;
    state.last_failure = failure;
    __atomic_store_n(&state.has_attempted, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.mutex);
    if (is_news)
        LOG("event=not_registered socket=%s/%s reason=\"%s\"", settings()->kernel_dir, ALIQUOT_SOCKET_NAME,
            strerror(failure));
}

/* Returns 0 or an errno. */
static int register_as(uint16_t version)
{
    int descriptor = socket_connect(settings()->kernel_dir);
    if (descriptor < 0)
        return -descriptor;
    struct socket_owned connection = socket_own(descriptor);
    pthread_mutex_lock(&state.mutex);
    state.candidate = connection;
    pthread_mutex_unlock(&state.mutex);
    union socket_message hello;
    socket_fill_hello(&hello.hello, ALIQUOT_ROLE_PROCESS);
    hello.hello.device_count = state.owner->describe(hello.hello.devices);
    int failure = socket_register(descriptor, version, &hello, WELCOME_MILLISECONDS);
    pthread_mutex_lock(&state.mutex);
    state.candidate = SOCKET_NONE;
    if (!failure) {
        state.connection = connection;
        state.version = version;
        __atomic_fetch_add(&state.connections, 1, __ATOMIC_RELEASE);
        state.last_failure = 0;
    }
    pthread_mutex_unlock(&state.mutex);
    if (failure)
        socket_close(&connection);
    return failure;
}

static bool register_once(void)
{
    uint16_t version = ALIQUOT_PROTOCOL_VERSION;
    int failure = register_as(version);
    while (failure == EPROTONOSUPPORT && version > ALIQUOT_OLDEST_VERSION)
        failure = register_as(--version);
    if (failure) {
        note_failure(failure);
        return false;
    }
    state.owner->registered();
    pthread_mutex_lock(&state.mutex);
    __atomic_store_n(&state.has_attempted, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.mutex);
    LOG("event=registered version=%u", version);
    return true;
}

static void answer_waiter(const struct aliquot_credit *grant)
{
    pthread_mutex_lock(&state.mutex);
    for (struct waiter *waiter = state.waiters; waiter; waiter = waiter->next)
        if (waiter->sequence == grant->header.sequence && !waiter->is_answered) {
            waiter->is_answered = true;
            waiter->granted = grant->bytes;
        }
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.mutex);
}

static void handle_message(const union socket_message *message)
{
    const struct aliquot_header *header = &message->header;
    bool is_credit = header->bytes == sizeof message->credit && message->credit.device <= ALIQUOT_HOST_MEMORY;
    if (header->type == ALIQUOT_CREDIT_GRANT && is_credit) {
        /* Credit first, then the waiter: it looks at the credit, not at the number. */
        if (message->credit.bytes)
            state.owner->granted(message->credit.device, message->credit.bytes);
        answer_waiter(&message->credit);
    } else if (header->type == ALIQUOT_CREDIT_RECALL && is_credit) {
        state.owner->recalled(&message->credit);
    } else {
        LOG("event=unexpected_message type=%u bytes=%u", header->type, header->bytes);
    }
}

/* With the mutex. Makes the pipe, if it is not there (any more). */
static bool keep_wake(void)
{
    int ends[2];
    if (socket_is_ours(&state.wake[0]) && socket_is_ours(&state.wake[1]))
        return true;
    for (int i = 0; i < 2; i++)
        socket_close(&state.wake[i]);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        state.wake[i] = socket_own(socket_move_away(ends[i]));
    return state.wake[0].descriptor >= 0 && state.wake[1].descriptor >= 0;
}

static struct socket_owned find_wake(void)
{
    pthread_mutex_lock(&state.mutex);
    keep_wake();
    struct socket_owned wake = state.wake[0];
    pthread_mutex_unlock(&state.mutex);
    return wake;
}

/* Returns when the connection is of no more use. */
static int serve(const struct socket_owned *connection)
{
    bool is_active = true;
    for (;;) {
        struct socket_owned wake = find_wake();
        struct pollfd wanted[2] = {{.fd = connection->descriptor, .events = POLLIN},
                                   {.fd = wake.descriptor, .events = POLLIN}};
        int ready = poll(wanted, 2, is_active ? TICK_MILLISECONDS : LOOK_MILLISECONDS);
        if (ready < 0 && errno != EINTR)
            return errno;
        if (!socket_is_ours(connection))
            return EBADF;
        char drained[64];
        bool is_woken = ready > 0 && (wanted[1].revents & POLLIN) && socket_is_ours(&wake) &&
                        read(wake.descriptor, drained, sizeof drained) > 0;
        if (ready > 0 && wanted[0].revents) {
            struct socket_received received;
            int failure = socket_receive(connection->descriptor, &received);
            if (failure && failure != EAGAIN)
                return failure;
            for (int i = 0; !failure && i < 2; i++)
                if (received.descriptors[i] >= 0)
                    close(received.descriptors[i]);
            if (!failure)
                handle_message(&received.message);
        }
        if (is_woken || ready == 0)
            is_active = state.owner->tick();
    }
}

static void pause_before_retry(int milliseconds)
{
    struct timespec length = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    while (nanosleep(&length, &length) != 0 && errno == EINTR)
        ;
}

static void *run(void *unused)
{
    int backoff = FIRST_BACKOFF_MILLISECONDS;
    prctl(PR_SET_NAME, "aliquot-hook");
    for (;;) {
        if (!register_once()) {
            pause_before_retry(backoff);
            backoff = backoff * 2 < LAST_BACKOFF_MILLISECONDS ? backoff * 2 : LAST_BACKOFF_MILLISECONDS;
            continue;
        }
        backoff = FIRST_BACKOFF_MILLISECONDS;
        struct socket_owned connection = state.connection;
        int failure = serve(&connection);
        pthread_mutex_lock(&state.mutex);
        state.connection = SOCKET_NONE;
        pthread_cond_broadcast(&state.changed);
        pthread_mutex_unlock(&state.mutex);
        socket_close(&connection);
        LOG("event=agent_lost reason=\"%s\"", strerror(failure));
        pause_before_retry(backoff);
    }
    return unused;
}

/* Returns 0 or an errno. 0 bytes of stack: the program's own default. */
static int create_thread(size_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    int failure = pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    return failure;
}

/* With the mutex held. A guest's thread takes no signal that is meant for the user's own threads. */
static void start_thread(void)
{
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    int failure = create_thread(STACK_BYTES);
    if (failure == EINVAL) /* the program's static TLS alone is larger; its default has room for that */
        failure = create_thread(0);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    state.is_running = failure == 0;
    if (failure)
        LOG("event=no_thread reason=\"%s\"", strerror(failure));
}

void session_start(const struct session_owner *owner)
{
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    if (!state.is_running) {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&state.changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        state.owner = owner;
        start_thread();
    }
    pthread_mutex_unlock(&state.mutex);
}

void session_await(void)
{
    if (__atomic_load_n(&state.has_attempted, __ATOMIC_ACQUIRE))
        return;
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    struct timespec deadline = deadline_after(START_MILLISECONDS);
    while (state.is_running && !state.has_attempted)
        if (pthread_cond_timedwait(&state.changed, &state.mutex, &deadline) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&state.mutex);
}

/* With the mutex held: sends the request on the present connection. Returns its number, 0 if there is none. */
static uint32_t send_request(struct waiter *waiter, const uint8_t uuid[16], uint64_t bytes)
{
    int device = uuid == SESSION_HOST_MEMORY ? (int)ALIQUOT_HOST_MEMORY : page_device_index(uuid);
    if (!socket_is_ours(&state.connection) || device < 0)
        return 0;
    union socket_message message = {.credit = {.device = (uint32_t)device, .bytes = bytes}};
    message.header.sequence = waiter->sequence = ++state.sequence;
    int failure = socket_send(state.connection.descriptor, state.version, &message, ALIQUOT_CREDIT_REQUEST,
                              sizeof message.credit);
    return failure ? 0 : state.connections;
}

int session_request_credit(const uint8_t uuid[16], uint64_t bytes, uint64_t *granted)
{
    struct waiter waiter = {0};
    uint32_t asked_on = 0;
    bool is_late = false;
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    bool was_registered = state.connections > 0;
    struct timespec deadline =
        deadline_after(was_registered ? REQUEST_MILLISECONDS : state.has_waited ? 0 : FIRST_REQUEST_MILLISECONDS);
    waiter.next = state.waiters;
    state.waiters = &waiter;
    while (state.is_running && !waiter.is_answered && !is_late) {
        /* A new connection knows nothing of a request that was sent on the old one. */
        if (state.connection.descriptor >= 0 && asked_on != state.connections)
            asked_on = send_request(&waiter, uuid, bytes);
        is_late = pthread_cond_timedwait(&state.changed, &state.mutex, &deadline) == ETIMEDOUT;
    }
    for (struct waiter **link = &state.waiters; *link; link = &(*link)->next)
        if (*link == &waiter) {
            *link = waiter.next;
            break;
        }
    if (state.connections == 0)
        state.has_waited = true;
    int failure = waiter.is_answered ? 0 : state.last_failure ? state.last_failure : ETIMEDOUT;
    *granted = waiter.granted;
    pthread_mutex_unlock(&state.mutex);
    return failure;
}

bool session_send_credit(uint32_t device, uint64_t bytes, uint32_t sequence)
{
    union socket_message message = {.credit = {.device = device, .bytes = bytes}};
    message.header.sequence = sequence;
    DEFER_CANCELLATION;
    pthread_mutex_lock(&state.mutex);
    bool is_sent = socket_is_ours(&state.connection) &&
                   socket_send(state.connection.descriptor, state.version, &message, ALIQUOT_CREDIT_RETURN,
                               sizeof message.credit) == 0;
    pthread_mutex_unlock(&state.mutex);
    return is_sent;
}

bool session_is_registered(void)
{
    return __atomic_load_n(&state.connections, __ATOMIC_ACQUIRE) > 0;
}

bool session_has_lost_agent(void)
{
    pthread_mutex_lock(&state.mutex);
    bool has_lost = state.connections > 0 && state.connection.descriptor < 0 && state.last_failure != 0;
    pthread_mutex_unlock(&state.mutex);
    return has_lost;
}

void session_wake(void)
{
    pthread_mutex_lock(&state.mutex);
    if (socket_is_ours(&state.wake[1]) && write(state.wake[1].descriptor, "", 1) < 0) {
        /* The pipe is full: the thread is awake already. */
    }
    pthread_mutex_unlock(&state.mutex);
}

void session_leave(void)
{
    socket_close(&state.connection);
    socket_close(&state.candidate);
    socket_close(&state.wake[0]);
    socket_close(&state.wake[1]);
}

void session_reset(void)
{
    session_leave();
    pthread_mutex_init(&state.mutex, NULL);
    state.waiters = NULL;
    state.connections = 0;
    state.is_running = state.has_attempted = state.has_waited = false;
    state.last_failure = 0;
}
