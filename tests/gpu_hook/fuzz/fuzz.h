/* The frame of the differential fuzzer. A sequence is a list of operations, each drawn from (seed, number) alone, so
 * that leaving one out changes none of the others. Every operation notes what the driver answered, in a form that is
 * the same on any two machines of equal shape: handles as (kind, slot), device addresses as offsets into the window,
 * contents as hashes. What depends on the speed of the machine is never noted. */
#ifndef ALIQUOT_FUZZ_H
#define ALIQUOT_FUZZ_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS 10
#define DEVICES 2
#define MIB ((size_t)1 << 20)
#define BUFFER_BYTES ((size_t)1 << 16)
#define UNTOUCHED 0xA5A5A5A5A5A5A5A5ull

enum kind {
    CONTEXT,
    POINTER,
    HOST,
    REGISTERED,
    STREAM,
    EVENT,
    POOL,
    HANDLE,
    RESERVATION,
    MAPPING,
    ARRAY,
    MIPMAP,
    TEXTURE,
    SURFACE,
    MODULE,
    FUNCTION,
    LIBRARY,
    GRAPH,
    NODE,
    EXEC,
    USER_OBJECT,
    KINDS
};

enum state { NEVER, LIVE, GONE };

struct object {
    uint64_t value, bytes;
    uint64_t owner; /* the context that takes it along, or 0 */
    enum state state;
    int device;
    unsigned uses;
};

struct operation {
    const char *name;
    unsigned weight;
    void (*run)(void);
};

struct family {
    const struct operation *operations;
    size_t count;
};

#define FAMILY(list) {list, sizeof(list) / sizeof *(list)}

extern const struct family context_family, memory_family, pointer_family, copy_family, stream_family, capture_family,
    pool_family, vmm_family, sharing_family, array_family, module_family, launch_family, graph_family, node_family,
    query_family;

/* --- chance: drawn from the seed and the operation's number --- */
uint64_t draw_bits(void);
uint64_t draw(uint64_t below);
bool chance(unsigned percent);
size_t draw_bytes(void); /* of an allocation; now and then 0 or far too many */
/* From now on not too many: where a capture forbids to allocate, the driver says so and a quota says its own. */
void draw_modestly(bool is_modest);
bool is_modest(void);
/* From now on no more than the largest quota: refusing that, a hook waits and lets pools release, and a driver that sees
 * at once that it has not as much does not. */
void draw_within_quota(void);
int draw_device(void);   /* now and then one that is not there */

/* A graph that copies to or from managed memory that was freed reads the host's memory where there is none, and one that
 * records a destroyed event may meet another at its address: a sequence has managed memory and such nodes, or launches
 * graphs. */
bool has_managed(void);

/* --- objects --- */
extern struct object objects[KINDS][SLOTS];
struct object *room(enum kind kind);              /* a free slot, or NULL */
struct object *live(enum kind kind);              /* a live object, or NULL */
uint64_t pick(enum kind kind, struct object **at); /* mostly live; else gone, null or foreign, and *at is NULL */
void keep(struct object *slot, uint64_t value, uint64_t bytes);
void keep_owned(struct object *slot, uint64_t value, uint64_t bytes); /* goes with the current context */
void drop(struct object *object);
void drop_owned(uint64_t context);
CUcontext current_context(void);
CUdeviceptr pick_memory(uint64_t *bytes); /* device memory of any sort, often at an offset; *bytes to its end */
CUstream pick_stream(void);               /* also the default ones */
CUstream per_thread(CUstream stream);     /* what a stream is to a _ptsz function */

/* --- notes --- */
CUresult note_code(const char *call, CUresult code);
void note(const char *what, uint64_t value);
void note_size(const char *what, uint64_t value); /* not under a quota, which shows */
void note_bytes(const char *what, const void *bytes, size_t count);
void note_address(const char *what, uint64_t address);
void note_handle(const char *what, enum kind kind, uint64_t value);
void note_untouched(const char *what, uint64_t value); /* what a failed call left in its result */
#define CALL(call) note_code(#call, call)
/* only this gives it back; an injected fault falls once */
#define CALL_TWICE(call) (void)(CALL(call) && CALL(call))

/* --- order: what one stream still has to do never races with what is done elsewhere --- */
void settle(void);                   /* all work is done */
void begin_work(CUstream stream);    /* before work is given to a stream: others have none left */
bool is_captured(CUstream stream);

/* --- what several families use --- */
extern unsigned char buffer[BUFFER_BYTES];
void fill_buffer(size_t bytes);
CUfunction builtin(const char *name); /* of the current context, or NULL */
void end_mappings(uint64_t start, uint64_t bytes);
void clean_up(void);
extern uint64_t left_over; /* bytes of all devices that stayed in use after the last clean_up */

#endif
