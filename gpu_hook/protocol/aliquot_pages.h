/* The three shared pages of a process: the agent's, the hook's and the activity page. They are
 * part of the protocol, whose version counts for them too. Only aliquot_protocol.h includes this
 * file. */
#ifndef ALIQUOT_PAGES_H
#define ALIQUOT_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Written by the agent alone; the hook's mapping is read-only. Each word is read with acquire, written with
 * release; words are independent of each other. */
struct aliquot_agent_device {
    uint8_t uuid[16];
    uint64_t quota_bytes;             /* the limit in force now; the kernel's whole quota on this device */
    uint64_t charged_elsewhere_bytes; /* by the kernel's other processes; sampled */
    uint64_t charged_bytes;           /* by all of the kernel's processes; sampled */
    uint32_t share_hundredths;        /* of this device: 25 means 0.25 */
    uint32_t enforcer;                /* enum aliquot_enforcer */
    uint64_t busy_nanoseconds; /* GPU time of the kernel on this device; sampled */
    uint32_t utilization_percent; /* by the kernel, in the last sample */
    uint32_t pace; /* enum aliquot_pace */
    /* A batch may begin while `occupied_nanoseconds` (hook's page), together with the expected
     * time of the batches in flight, is less than this. */
    uint64_t allowed;
    /* The same, where a peer's activity page shows work, or a pause in which no work may begin: at
     * most this. */
    uint64_t allowed_with_busy_peers;
    /* batches begun and not done; 0: no limit. 1: of long ones, see pace_rule.h */
    uint32_t in_flight_cap;
    uint32_t batch_microseconds; /* of device time that one batch should take */
    /* Work may begin in a pause of all peers that has lasted at least `idle_window_min` and
     * less than `idle_window_max` microseconds, or at least `idle_resume` microseconds. 0, 0, 0:
     * in every pause. */
    uint32_t idle_window_min;
    uint32_t idle_window_max;
    uint32_t idle_resume;
    uint32_t solo_window; /* odd while no opportunistic work is on the device; another number each time */
    /* 1: under MEASURE, only samples of the work need to be measured exactly. No opportunistic process
     * is on the device then */
    uint32_t is_sampled;
    uint32_t reserved_word;
    uint64_t reserved[2];
};

/* One process of the kernel on one device, as far as the agent knows it. */
struct aliquot_agent_process {
    int32_t pid;     /* as the node sees it */
    int32_t own_pid; /* as the process sees itself */
    uint32_t device; /* index into the agent page's devices */
    uint32_t reserved;
    uint64_t charged_bytes;
};

struct aliquot_agent_page {
    uint32_t magic;
    uint32_t version;
    uint64_t generation;     /* of the grant in force */
    uint32_t gate; /* enum aliquot_gate. A closed one holds production only while the agent is there; opportunistic
                      work waits whenever the agent is gone */
    uint32_t workload_class; /* enum aliquot_workload_class */
    uint32_t device_count;
    uint32_t reserved_word;
    /* 0: the agent does not lend host memory, and the hook requests none; UINT64_MAX: lent
     * without a limit */
    uint64_t host_quota_bytes;
    uint64_t host_charged_elsewhere_bytes; /* by the kernel's other processes; sampled */
    uint64_t host_charged_bytes;           /* by all of the kernel's processes; sampled */
    /* Entries of the table change together: odd while they do. Read the sequence, the count and the entries, and the
     * sequence again; it was even and is the same, or read once more. */
    uint32_t process_sequence;
    uint32_t process_count;
    uint32_t lease;          /* enum aliquot_lease */
    uint32_t residency_mode; /* enum aliquot_residency_mode; does not change */
    uint64_t least_swappable_bytes; /* smaller allocations stay plain */
    uint64_t chunk_bytes;         /* of physical memory behind a swappable allocation, at most */
    uint64_t ring_bytes;          /* page-locked, of each process that copies */
    uint32_t copy_threads;        /* between ring and segments */
    uint32_t copy_streams;
    /* of the kernel, as reported to the agent; another number: waits of its calls may be given
     * up */
    uint32_t interrupts;
    uint32_t reserved_half;
    uint64_t reserved[2];
    struct aliquot_agent_device devices[ALIQUOT_MAX_DEVICES];
    struct aliquot_agent_process processes[ALIQUOT_MAX_PROCESSES];
};

/* Written by the hook alone; untrusted by the agent. */
struct aliquot_hook_device {
    uint64_t charged_bytes;
    uint64_t peak_bytes;
    uint64_t credit_bytes;
    uint64_t allocations; /* live */
    uint64_t launches; /* the agent divides the time on the GPU by their number, to learn how long one is */
    uint64_t refusals; /* out-of-memory answers because of the quota */
    uint64_t swappable_bytes; /* of the charged ones: those that can leave */
    uint64_t swapped_bytes; /* of these: those on the host now */
    /* Measured while `pace` is not OFF. */
    /* during which work of this process was on the device, the slices of other processes included */
    uint64_t occupied_nanoseconds;
    uint64_t throttled_nanoseconds; /* during which a launch waited for gate or pace */
    uint32_t in_flight;             /* batches begun and not done */
    uint32_t waiting_launches;      /* threads that wait for gate or pace */
    uint64_t longest_nanoseconds;   /* of one launch or graph, as measured in the last seconds */
    /* Sampled launches outside solo windows whose function and grid class have a solo baseline: their time, and what
     * they take alone. */
    uint64_t sampled_nanoseconds;
    uint64_t sampled_solo_nanoseconds;
    uint32_t samples;        /* launches that were measured alone in their batch */
    uint32_t without_baseline; /* pairs of function and grid class in use that lack one; sampled */
    uint64_t reserved;
};

/* The charge that the process would have reached on a device without its quota, all of the
 * kernel's processes included. 0: no quota refused a request. */
struct aliquot_hook_need {
    uint64_t needed_bytes;           /* the most, of refusals that stand */
    /* of the last refusal, while the process may yet manage without */
    uint64_t refused_needed_bytes;
    /* CLOCK_MONOTONIC; coarse. Of the last refusal; once it is decided, of the last that stands */
    uint64_t refused_at_nanoseconds;
};

struct aliquot_hook_page {
    uint32_t magic;
    uint32_t version;
    uint64_t last_call_nanoseconds; /* CLOCK_MONOTONIC of the last call through the gate; coarse */
    uint64_t unknown_symbols;       /* queries that the driver answered with a function the table lacks */
    /* memory that is charged to no process: of another API, or of a graph beyond the quota */
    uint64_t unaccounted_calls;
    uint64_t host_charged_bytes;    /* page-locked host memory, from here on */
    uint64_t host_refusals;
    uint64_t host_peak_bytes;
    uint32_t residency;     /* enum aliquot_residency */
    uint32_t pin_reasons;       /* bits of enum aliquot_pin_reason: the reasons why memory stays */
    uint32_t waiting_calls; /* threads that wait for the gate or the lease */
    uint32_t calls_inside;  /* threads in a call that touches the device; sampled */
    uint64_t copied_bytes; /* so far in all moves, both ways; also while one is under way */
    uint64_t reserved[6];
    struct aliquot_hook_device devices[ALIQUOT_MAX_DEVICES];
    struct aliquot_hook_need needs[ALIQUOT_MAX_DEVICES];
    /* The first function that the process called of those that the hook's table lacks: its
     * memory is not swapped. A length of 0: it called none. The length is written last; the name
     * does not change. */
    uint32_t unknown_function_length;
    char unknown_function[ALIQUOT_FUNCTION_BYTES];
};

/* An interval of work of one process on one device. Times are CLOCK_MONOTONIC; device time is mapped to it. */
struct aliquot_interval {
    uint64_t start_nanoseconds;
    uint64_t end_nanoseconds; /* written last; of the newest one it may still grow */
};

struct aliquot_activity_device {
    uint32_t is_active; /* 1 from before a batch begins until all have ended */
    uint32_t reserved_word;
    uint64_t since_nanoseconds; /* when is_active last changed */
    /* so far; number n lies at n modulo ALIQUOT_ACTIVITY_INTERVALS, the newest is count - 1 */
    uint64_t interval_count;
    uint64_t lost_nanoseconds;  /* occupied time that no interval shows */
    uint64_t reserved[4];
    struct aliquot_interval intervals[ALIQUOT_ACTIVITY_INTERVALS];
};

/* Written by the hook alone; untrusted by every reader. */
struct aliquot_activity_page {
    uint32_t magic;
    uint32_t version;
    int32_t pid; /* as the process sees itself */
    uint32_t reserved_word;
    uint64_t reserved[6];
    struct aliquot_activity_device devices[ALIQUOT_MAX_DEVICES]; /* as in the process's agent page */
};

_Static_assert(sizeof(struct aliquot_agent_device) == 128, "agent device");
_Static_assert(offsetof(struct aliquot_agent_page, devices) == 128, "agent page's devices");
_Static_assert(sizeof(struct aliquot_agent_process) == 24, "agent process");
_Static_assert(sizeof(struct aliquot_hook_device) == 128, "hook device");
_Static_assert(offsetof(struct aliquot_hook_page, devices) == 128, "hook page's devices");
_Static_assert(sizeof(struct aliquot_hook_need) == 24, "hook need");
_Static_assert(offsetof(struct aliquot_hook_page, needs) == 2176, "hook page's needs");
_Static_assert(offsetof(struct aliquot_hook_page, unknown_function) == 2564, "hook page's unknown function");
_Static_assert(sizeof(struct aliquot_activity_device) == 704, "activity page device");
_Static_assert(offsetof(struct aliquot_activity_page, devices) == 64, "activity page's devices");
_Static_assert(sizeof(struct aliquot_activity_page) <= ALIQUOT_ACTIVITY_PAGE_BYTES,
               "activity page");
_Static_assert(sizeof(struct aliquot_agent_page) <= ALIQUOT_PAGE_BYTES, "agent page");
_Static_assert(sizeof(struct aliquot_hook_page) <= ALIQUOT_PAGE_BYTES, "hook page");

#endif
