/* The machine: one file under /dev/shm that every process of the node maps. Its devices, their memory and engines,
 * and a slot for each process. A slot's bytes are the truth; a device's `used` is a cache of their sum, guarded by
 * the lock and rebuilt when a holder of the lock died. Change the layout: bump MACHINE_VERSION. */
#ifndef SOFTGPU_LAYOUT_H
#define SOFTGPU_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MACHINE_MAGIC 0x31465541514c4141ull
#define MACHINE_VERSION 7u
#define MACHINE_DEVICES 8
#define MACHINE_SLOTS 256
#define MACHINE_BINS 64
#define MACHINE_REQUESTS 256 /* of a device: launches that are at its engine */
#define MACHINE_CGROUPS 16 /* that a process is in: its own, and those above it */
#define MACHINE_LIMITS 64  /* cgroups with memory limits */
#define MACHINE_LIMIT_PATH 512
#define MACHINE_NO_LIMIT UINT64_MAX
#define MACHINE_BIN_NANOSECONDS 100000000ull
#define MACHINE_LARGE_UNIT (2u << 20) /* charges of 1 MiB and more come in this unit */
#define MACHINE_CUDA_VERSION 13000
#define MACHINE_NAME "Aliquot Software GPU"
#define MACHINE_DRIVER "aliquot-softgpu-1"
#define MACHINE_CAPABILITY_MAJOR 8
#define MACHINE_CAPABILITY_MINOR 6
#define MACHINE_PCI_DOMAIN 0xa11cu

struct bin {
    _Atomic uint64_t epoch; /* which 100 ms since boot */
    _Atomic uint64_t busy_nanoseconds;
};

enum request_state { REQUEST_FREE, REQUEST_QUEUED, REQUEST_DONE };

/* A launch at the engine: the head of a stream. */
struct request {
    uint64_t ready, left, end; /* when it may begin, nanoseconds to go, when it was done */
    uint32_t state;            /* enum request_state */
    uint32_t slot;             /* whose it is */
    int32_t priority;          /* a stream's: less goes first */
    uint32_t sms, most_sms;    /* that it can fill; that its process may have */
    _Atomic uint32_t is_given_up; /* its process goes on without it: nobody will collect it */
};

/* The compute engine of a device; under the lock, but for the atomics. Times are CLOCK_MONOTONIC. */
struct engine {
    uint64_t clock;         /* until when the engine's time is given out */
    uint64_t slice_left;    /* of the slot that has its turn */
    uint32_t turn, ran;     /* the slot that has its turn; the one whose state the engine holds */
    uint32_t last;          /* the request that ran last */
    uint32_t awaited;       /* the slot whose next launch is waited for */
    uint64_t awaited_since; /* 0: none is */
    uint64_t swept;         /* when somebody last looked whether the owners of requests live */
    _Atomic uint32_t posts; /* of the awaited: who waits for one sleeps on this word */
    _Atomic uint32_t expecting; /* the sum of `expected` */
    uint64_t queued[MACHINE_REQUESTS / 64];   /* a bit for each request in REQUEST_QUEUED */
    _Atomic uint32_t expected[MACHINE_SLOTS]; /* launches that follow right behind a running one in its stream */
    uint8_t is_absent[MACHINE_SLOTS];         /* was waited for in vain: not again before it posts */
    struct request requests[MACHINE_REQUESTS];
};

struct device {
    uint8_t uuid[16];
    uint64_t used_bytes;    /* under the lock */
    uint64_t copy_until[2]; /* host to device, device to host; under the lock */
    _Atomic uint64_t launches;
    _Atomic uint32_t is_lost;
    uint32_t reserved;
    struct bin bins[MACHINE_BINS];
    struct engine engine;
};

/* A control group by its folder's identity: that is the same in every mount and namespace. */
struct cgroup {
    uint64_t device, inode;
};

struct limit { /* written under the lock */
    struct cgroup cgroup; /* inode 0: free */
    char path[MACHINE_LIMIT_PATH]; /* as it was given: tells whether the cgroup is still there */
    uint64_t soft[MACHINE_DEVICES];
    uint64_t hard[MACHINE_DEVICES]; /* MACHINE_NO_LIMIT: none */
};

struct slot_device {
    _Atomic uint64_t bytes;
    _Atomic uint64_t busy_nanoseconds;
    uint64_t saved_bytes; /* in the process's own memory while it is checkpointed; under the lock */
    _Atomic uint32_t contexts;
    uint32_t saved_contexts;
    struct bin bins[MACHINE_BINS];
};

enum slot_unsaveable { SLOT_HAS_MANAGED = 1, SLOT_HAS_IPC = 2 };

struct slot {
    _Atomic int32_t pid; /* as the process sees itself; 0: free */
    uint32_t reserved;
    _Atomic uint64_t died; /* when its death was first seen; 0: it was not. Its memory is torn down from then on */
    _Atomic uint64_t joined; /* which joining it was: names a process in all namespaces, and forever */
    uint64_t pid_namespace;  /* inode; 0: not known */
    uint64_t start_ticks;
    char name[32];
    struct cgroup cgroups[MACHINE_CGROUPS]; /* its own first; inode 0: no more. Where it was when it joined */
    _Atomic uint32_t process_state; /* CUprocessState: written under the lock; not 0: its calls wait on this word */
    _Atomic uint32_t works;         /* queued and not yet done */
    _Atomic uint32_t unsaveable;    /* bits of enum slot_unsaveable: what a checkpoint refuses */
    uint32_t reserved_word;
    struct slot_device devices[MACHINE_DEVICES];
};

struct machine {
    _Atomic uint64_t magic; /* written last */
    uint32_t version;
    uint32_t bytes;
    uint32_t device_count;
    uint32_t sm_count;
    uint64_t memory_bytes;
    uint64_t link_bytes_per_second;
    uint64_t launch_nanoseconds;
    uint64_t slice_nanoseconds;  /* how long a process has the engine while others want it */
    uint64_t switch_nanoseconds; /* from one process to another */
    uint64_t teardown_nanoseconds; /* how long the memory of a process that died is in use yet */
    uint32_t is_side_by_side;    /* no slices: all processes run at once */
    uint32_t reserved_shape;
    pthread_mutex_t lock; /* robust, shared between processes */
    _Atomic uint32_t releases; /* of the lock: who waits for it sleeps on this word */
    _Atomic uint32_t has_waiters;
    uint64_t joinings; /* under the lock */
    _Atomic uint32_t limit_count; /* 0: nobody has to look */
    uint32_t reserved;
    struct limit limits[MACHINE_LIMITS];
    struct device devices[MACHINE_DEVICES];
    struct slot slots[MACHINE_SLOTS];
};

/* This process's view of the machine. */
struct seat {
    struct machine *machine;
    int descriptor; /* of the state file; holds the slot's liveness lock */
    int slot;       /* -1: an observer */
    uint32_t most_sms; /* that this process may have of a device */
    struct cgroup cgroups[MACHINE_CGROUPS]; /* as in a slot */
};

#endif
