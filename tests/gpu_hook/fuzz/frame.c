#include "frame.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define WINDOW_BYTES (1ull << 41) /* device addresses lie within so many of the first */

struct object objects[KINDS][SLOTS];

static const char *const kind_names[KINDS] = {
    "context", "pointer", "host",    "registered", "stream",   "event",   "pool",  "handle", "reservation", "mapping",
    "array",   "mipmap",  "texture", "surface",    "module",   "function", "library", "graph", "node",      "exec",
    "user_object"};

static struct {
    uint64_t hash;
    unsigned code, out_of_memory;
    bool has_quota, is_verbose, is_modest, is_paced, has_threads, has_managed;
    uint64_t calls;
    uint64_t window; /* the first device address */
    bool is_dirty;   /* a stream may have work left */
    CUstream dirty;
    pthread_t thread;
    sem_t request, answer;
    void (*call)(void *);
    void *argument;
} frame;

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ value >> 27) * 0x94D049BB133111EBull;
    return value ^ value >> 31;
}

bool has_managed(void)
{
    return frame.has_managed;
}

/* --- objects --- */

struct object *room(enum kind kind)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[kind][i].state != LIVE)
            return &objects[kind][i];
    return NULL;
}

struct object *live(enum kind kind)
{
    struct object *found[SLOTS];
    unsigned count = 0;
    for (int i = 0; i < SLOTS; i++)
        if (objects[kind][i].state == LIVE)
            found[count++] = &objects[kind][i];
    return count ? found[draw_bits() % count] : NULL;
}

/* A handle's value may be used again, in another order on another machine: a gone one is offered only while no live
 * object has its value. Of some kinds the driver has more than we know. Device addresses are used again in the same order
 * everywhere. */
static bool is_safe(enum kind kind, uint64_t value)
{
    if (kind == STREAM || kind == ARRAY || kind == MODULE || kind == FUNCTION || kind == GRAPH || kind == NODE ||
        kind == USER_OBJECT)
        return false;
    if (kind == EVENT && frame.is_paced)
        return false; /* may be one of the hook's by now */
    if (kind == HOST || (kind == POINTER && value - frame.window >= WINDOW_BYTES))
        return false; /* was the host's: may be in the midst of other memory, and a copy would touch it */
    for (int i = 0; i < SLOTS; i++)
        if (objects[kind][i].state == LIVE && objects[kind][i].value == value)
            return false;
    return true;
}

static void say(enum kind kind, const struct object *one, const char *what)
{
    if (frame.is_verbose)
        printf(" <%s%s %d>", what, kind_names[kind], one ? (int)(one - objects[kind]) : -1);
}

uint64_t pick(enum kind kind, struct object **at)
{
    static _Alignas(16) char foreign[2 * BUFFER_BYTES]; /* a copy between any two addresses may reach it */
    uint64_t way = draw(100);
    *at = way < 91 ? live(kind) : NULL;
    if (*at) {
        say(kind, *at, "");
        return (*at)->value;
    }
    if (way % 3 == 0) {
        const struct object *gone = &objects[kind][draw(SLOTS)];
        if (gone->state == GONE && is_safe(kind, gone->value)) {
            say(kind, gone, "gone ");
            return gone->value;
        }
    }
    say(kind, NULL, way % 3 == 1 ? "foreign " : "no ");
    return way % 3 == 1 ? (uint64_t)foreign : 0;
}

void keep(struct object *slot, uint64_t value, uint64_t bytes)
{
    *slot = (struct object){.value = value, .bytes = bytes, .state = LIVE, .uses = 1};
}

void keep_owned(struct object *slot, uint64_t value, uint64_t bytes)
{
    keep(slot, value, bytes);
    slot->owner = (uint64_t)current_context();
}

void drop(struct object *object)
{
    object->state = GONE;
}

void drop_owned(uint64_t context)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < SLOTS; i++)
            if (kind != CONTEXT && objects[kind][i].state == LIVE && objects[kind][i].owner == context)
                drop(&objects[kind][i]);
}

CUcontext current_context(void)
{
    CUcontext context = NULL;
    return cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

CUdeviceptr pick_memory(uint64_t *bytes)
{
    struct object *at;
    enum kind kind = chance(85) ? POINTER : MAPPING;
    uint64_t address = pick(kind, &at);
    *bytes = at ? at->bytes : draw(4096);
    if (at && chance(40)) {
        uint64_t offset = draw(at->bytes + (chance(5) ? 4096 : 0));
        offset &= ~(uint64_t)(chance(80) ? 15 : 0);
        *bytes = offset < at->bytes ? at->bytes - offset : 1;
        address += offset;
    }
    return address;
}

CUstream pick_stream(void)
{
    struct object *at;
    uint64_t way = draw(10);
    if (way < 3)
        return NULL;
    return way == 3 ? CU_STREAM_LEGACY : way == 4 ? CU_STREAM_PER_THREAD : (CUstream)pick(STREAM, &at);
}

CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* --- notes --- */

void note(const char *what, uint64_t value)
{
    frame.hash = mix(frame.hash + value + 0x9E3779B97F4A7C15ull);
    if (frame.is_verbose)
        printf(" %s=%llx", what, (unsigned long long)value);
}

CUresult note_code(const char *call, CUresult code)
{
    frame.calls++;
    if (!frame.code)
        frame.code = code;
    frame.out_of_memory |= code == CUDA_ERROR_OUT_OF_MEMORY;
    if (frame.is_verbose) {
        printf(" %.*s:", (int)strcspn(call, "("), call);
        fflush(stdout); /* the next call may be the last */
    }
    note("", code);
    return code;
}

void note_size(const char *what, uint64_t value)
{
    if (!frame.has_quota)
        note(what, value);
}

void note_bytes(const char *what, const void *bytes, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ull;
    note(what, hash);
}

void note_address(const char *what, uint64_t address)
{
    static const enum kind on_host[] = {HOST, REGISTERED, POINTER};
    if (address - frame.window < WINDOW_BYTES) {
        note(what, address - frame.window);
        return;
    }
    for (size_t kind = 0; kind < sizeof on_host / sizeof *on_host; kind++)
        for (int i = 0; i < SLOTS; i++) {
            const struct object *one = &objects[on_host[kind]][i];
            if (one->state == LIVE && address - one->value < one->bytes) {
                note(kind_names[on_host[kind]], ((uint64_t)i << 56) + address - one->value);
                return;
            }
        }
    note(what, address == 0 ? 0 : ~0ull);
}

void note_handle(const char *what, enum kind kind, uint64_t value)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (objects[kind][i].state == LIVE && objects[kind][i].value == value) {
            note(kind_names[kind], i);
            return;
        }
    note(what, value == 0 ? 100 : value == UNTOUCHED ? 101 : 102);
}

void note_untouched(const char *what, uint64_t value)
{
    note(what, value == UNTOUCHED ? 1 : value == 0 ? 2 : 3);
}

void frame_begin_record(const char *name, unsigned number)
{
    frame.hash = frame.code = frame.out_of_memory = 0;
    if (frame.is_verbose)
        printf("%u %s", number, name);
}

uint64_t frame_end_record(void)
{
    if (frame.is_verbose)
        printf("\n");
    unsigned code = frame.out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY : frame.code;
    return frame.hash << 16 | (code & 0xFFFF);
}

uint64_t frame_calls(void)
{
    return frame.calls;
}

/* --- order --- */

bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuStreamIsCapturing(stream, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void settle(void)
{
    if (!frame.is_dirty)
        return;
    frame.is_dirty = false;
    if (is_captured(frame.dirty) || cuStreamSynchronize(frame.dirty) == CUDA_SUCCESS)
        return;
    /* The stream of a broken context is not waited for, but a graph has work in other contexts, too. */
    for (int i = 0; i < SLOTS; i++)
        if (objects[CONTEXT][i].state == LIVE)
            cuCtxSynchronize_v2((CUcontext)objects[CONTEXT][i].value);
}

void begin_work(CUstream stream)
{
    if (frame.dirty != stream)
        settle();
    frame.is_dirty = true;
    frame.dirty = stream;
}

/* --- threads: the second one takes its turn when the first waits --- */

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        sem_wait(&frame.request);
        frame.call(frame.argument);
        sem_post(&frame.answer);
    }
    return NULL;
}

static void run_there(void (*call)(void *), void *argument)
{
    frame.call = call;
    frame.argument = argument;
    sem_post(&frame.request);
    while (sem_wait(&frame.answer) != 0)
        continue;
}

void frame_run(void (*call)(void *), void *argument)
{
    if (frame.has_threads && chance(40)) {
        settle(); /* each thread has a default stream and a context of its own */
        run_there(call, argument);
        run_there((void (*)(void *))settle, NULL);
    } else {
        call(argument);
    }
}

/* --- a sequence --- */

void frame_revive(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[CONTEXT][i].state == LIVE && cuCtxSetCurrent((CUcontext)objects[CONTEXT][i].value) == CUDA_SUCCESS)
            return;
    CUcontext context;
    struct object *slot = room(CONTEXT);
    if (slot && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        keep(slot, (uint64_t)context, 1); /* bytes 1: a primary context */
        slot->device = 0;
    }
}

static void leave_contexts(void *unused)
{
    CUcontext context;
    (void)unused;
    for (int i = 0; i < 1000 && current_context(); i++)
        if (cuCtxPopCurrent_v2(&context) != CUDA_SUCCESS)
            break;
}

static void reset_mode(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    (void)unused;
    if (cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        cuThreadExchangeStreamCaptureMode(&mode);
}

void frame_begin_sequence(uint64_t number)
{
    memset(objects, 0, sizeof objects);
    frame.has_threads = number % 4 == 3;
    frame.has_managed = number % 3 == 1;
    draw_modestly(frame.is_modest);
    frame_revive();
}

void frame_end_sequence(void)
{
    /* Forgotten captures of default streams end with their contexts; meanwhile nothing is forbidden. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    settle();
    cuThreadExchangeStreamCaptureMode(&mode);
    leave_contexts(NULL);
    frame_revive();
    clean_up();
    run_there(leave_contexts, NULL);
    leave_contexts(NULL);
    run_there(reset_mode, NULL);
    reset_mode(NULL);
}

int frame_start(bool has_quota, bool is_modest, bool is_paced, bool is_verbose)
{
    CUcontext context;
    CUdeviceptr first;
    frame.has_quota = has_quota;
    frame.is_modest = is_modest;
    frame.is_paced = is_paced;
    frame.is_verbose = is_verbose;
    sem_init(&frame.request, 0, 0);
    sem_init(&frame.answer, 0, 0);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&first, 1) ||
        cuMemFree_v2(first) || pthread_create(&frame.thread, NULL, serve, NULL))
        return -1;
    frame.window = first;
    return cuCtxSetCurrent(NULL) || cuDevicePrimaryCtxRelease_v2(0) ? -1 : 0;
}
