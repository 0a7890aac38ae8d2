/* The plant: one simulated GPU and the processes on it, each with a model of its hook. Integer
 * nanoseconds, one thread, no clock but its own; the same seed gives the same bytes. The hook's
 * own pace_rule.c decides what a batch may do. */
#ifndef ALIQUOT_PLANT_H
#define ALIQUOT_PLANT_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../gpu_hook/hook/compute/pace_rule.h"

#define MOST_PROCESSES 64
#define MOST_FUNCTIONS 16
#define MOST_PIECES 40        /* ALIQUOT_ACTIVITY_INTERVALS */
#define RING 4096             /* of items and of batches; the launch queue keeps both shorter */
#define LAUNCH_QUEUE 1024     /* a process may be so many launches ahead; a driver's queue has about as many */
#define BIN_NANOSECONDS 10000000ull
#define STEP_WORDS 3
#define NEVER UINT64_MAX

enum op_kind {
    OP_LAUNCH, /* `count` launches of `each` device time, issued `host_each` apart */
    OP_GRAPH,  /* the same, each launch a graph: a batch of its own */
    OP_SYNC,   /* wait until all is done */
    OP_HOST,   /* `each` without the device */
    OP_ARRIVE, /* the next request comes `each` after the one before, and begins a step */
    OP_BEGIN,  /* a step begins */
    OP_STEP,   /* a step of the kind `function` ends; the next one begins */
};

struct op {
    uint32_t kind, function;
    uint64_t count, each, host_each, blocks;
};

struct item {
    uint64_t left;       /* device time */
    uint64_t host_until; /* it cannot end earlier: its launches come one by one */
    uint32_t batch, launches;
};

struct batch {
    uint64_t start, end, solo_window, expected;
    uint32_t launches, items_left, function; /* MOST_FUNCTIONS: several functions */
    bool is_closed, has_started, follows, is_sample, is_measured, is_unknown;
};

struct function {
    uint64_t expected; /* 0: never measured */
    uint64_t baseline; /* time alone; 0: none */
    bool was_sampled;
};

enum thread_state { NOT_YET, RUNNING, WAITS_FOR_PACE, WAITS_FOR_DEVICE, WAITS_FOR_QUEUE, ENDED };

struct process {
    const struct op *ops;
    uint32_t op_count, next_op;
    uint64_t done_of_op, ends_at;
    bool is_production;
    enum thread_state state;
    uint64_t random, waits_since, held_since, step_began, due; /* held_since is 0 while nothing is held */
    /* the agent's page */
    uint32_t gate;
    struct pace_order order;
    uint64_t batch_nanoseconds, solo_window;
    /* an order of the plant alone: launches wait while `blocks` is not less */
    uint64_t allowed_blocks;
    /* the hook */
    struct batch batches[RING];
    uint32_t batch_head, batch_tail, until_sample;
    bool has_open, polls, is_active;
    uint64_t since, occupied, expected, unknown, throttled, blocks, launches, in_flight, last_end;
    uint64_t longest[2], longest_since, sampled, sampled_solo, samples;
    struct function functions[MOST_FUNCTIONS];
    uint64_t pieces[MOST_PIECES][2], piece_count, lost;
    /* the device */
    struct item items[RING];
    uint32_t item_head, item_tail, pending_launches;
    uint64_t device_end, own, *bins;
    uint64_t *steps; /* for each: its end, its length, its kind */
    uint64_t step_count, step_room;
};

struct event {
    uint64_t time, number;
    uint32_t kind, process, version;
};

enum event_kind { EV_BEGIN, EV_END, EV_THREAD, EV_LOOK, EV_STALE, EV_NOTICE, EV_DEVICE };

struct settings {
    uint64_t seed, horizon, slice, switch_cost;
    uint64_t notice_least, notice_most; /* how late the hook sees an end */
    uint64_t wake;                      /* of a thread that waited for the device */
    uint64_t sample_every;              /* batches */
    uint64_t side_by_side;              /* 0: time slices. Otherwise 1 + thousandths that each peer slows down */
};

struct plant {
    struct settings settings;
    struct process *processes[MOST_PROCESSES];
    uint32_t process_count;
    struct event *heap;
    uint64_t heap_count, heap_room, numbers, now;
    /* the engine */
    int current, last;
    uint32_t runlist[MOST_PROCESSES], runlist_count, version;
    uint64_t run_from, slice_end, switched;
    bool has_failed; /* a ring or memory ran out */
};

/* The agent's sample of one process. */
struct process_look {
    uint64_t pieces[MOST_PIECES][2], piece_count, lost, occupied, is_active, since, in_flight, waiting_launches;
    uint64_t launches, blocks, longest, throttled, sampled, sampled_solo, samples, without_baseline;
};

void event_add(struct plant *, uint64_t time, enum event_kind, uint32_t process, uint32_t version);
bool event_take(struct plant *, uint64_t until, struct event *);

void engine_submit(struct plant *, uint32_t number);
void engine_event(struct plant *, uint32_t version);
void engine_forget(struct plant *, uint32_t number);
void engine_settle(struct plant *);
void side_submit(struct plant *, uint32_t number);
void side_event(struct plant *, uint32_t version);
void side_forget(struct plant *, uint32_t number);
void side_settle(struct plant *);
void engine_used(struct process *, uint64_t from, uint64_t time);
uint64_t head_end(const struct process *, uint64_t from);

void hook_open(struct plant *, struct process *, bool is_alone, uint32_t function);
void hook_close(struct plant *, struct process *);
void hook_started(struct process *, uint64_t at);
void hook_item_done(struct plant *, uint32_t number);
void hook_notice(struct plant *, struct process *);
void hook_poll(struct plant *, uint32_t number);
uint64_t hook_wait(struct plant *, struct process *);
void hook_longest(struct process *, uint64_t time, uint64_t now);

void host_run(struct plant *, uint32_t number);
void host_wake(struct plant *, uint32_t number, enum thread_state awaited, uint64_t after);
uint64_t random_below(struct process *, uint64_t bound);

#endif
