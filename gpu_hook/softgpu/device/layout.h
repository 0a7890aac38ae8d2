/* The layout of the machine: one file under /dev/shm that every process of the node maps, with the
 * devices, their memory and engines, and a slot for each process. The bytes of the slots are the
 * truth. `used_bytes` of a device caches their sum; the lock guards it, and a process rebuilds it
 * when a holder of the lock died. A change of the layout needs a new MACHINE_VERSION. */
#ifndef SOFTGPU_LAYOUT_H
#define SOFTGPU_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MACHINE_MAGIC 0x31465541514c4141ull
#define MACHINE_VERSION 10u
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
    uint32_t slot;             /* the slot of its process */
    int32_t priority;          /* a stream's: less goes first */
    _Atomic uint32_t is_given_up; /* its process goes on without it and will not collect it */
};

/* The compute engine of a device; under the lock, but for the atomics. Times are
 * CLOCK_MONOTONIC. */
struct engine {
    uint64_t clock;         /* up to here the engine's time is given out */
    uint64_t slice_left;    /* the rest of the time slice of the slot `turn` */
    /* the slot that has the time slice; the slot whose state the engine holds */
    uint32_t turn, ran;
    uint32_t last;          /* the request that ran last */
    uint32_t awaited;       /* the slot whose next launch the engine waits for */
    uint64_t awaited_since; /* since when; 0: the engine waits for none */
    uint64_t swept;         /* when a process last checked that the owners of requests live */
    /* posts of the awaited slot: a thread that waits for one sleeps on this word */
    _Atomic uint32_t posts;
    _Atomic uint32_t expecting; /* the sum of `expected` */
    uint64_t queued[MACHINE_REQUESTS / 64];   /* a bit for each request in REQUEST_QUEUED */
    /* launches that follow a running one in its stream */
    _Atomic uint32_t expected[MACHINE_SLOTS];
    /* the engine waited for it in vain, and does not wait again before it posts */
    uint8_t is_absent[MACHINE_SLOTS];
    struct request requests[MACHINE_REQUESTS];
};

/* The numbers of CUDA and NVML; 1, exclusive by thread, is gone from both. */
enum compute_mode { COMPUTE_MODE_DEFAULT = 0, COMPUTE_MODE_PROHIBITED = 2, COMPUTE_MODE_EXCLUSIVE_PROCESS = 3 };

struct device {
    uint8_t uuid[16];
    uint64_t used_bytes;    /* under the lock */
    uint64_t copy_until[2]; /* host to device, device to host; under the lock */
    _Atomic uint64_t launches;
    _Atomic uint32_t is_lost;
    _Atomic uint32_t compute_mode; /* enum compute_mode: set through NVML, obeyed by the driver */
    struct bin bins[MACHINE_BINS];
    struct engine engine;
};

/* A control group by its folder's identity: that is the same in every mount and namespace. */
struct cgroup {
    uint64_t device, inode;
};

struct limit { /* written under the lock */
    struct cgroup cgroup; /* inode 0: free */
    /* as the caller gave it; tells whether the cgroup still exists */
    char path[MACHINE_LIMIT_PATH];
    uint64_t soft[MACHINE_DEVICES];
    uint64_t hard[MACHINE_DEVICES]; /* MACHINE_NO_LIMIT: none */
};

struct slot_device {
    _Atomic uint64_t bytes;
    _Atomic uint64_t busy_nanoseconds;
    /* of managed memory: part of `bytes`; the room that other processes took of it, which its own
     * process has not noticed; when the oldest of its blocks came. Written under the lock, the
     * last by its process alone */
    _Atomic uint64_t managed_bytes, managed_owed, managed_oldest;
    uint64_t saved_bytes; /* in the process's own memory while it is checkpointed; under the lock */
    _Atomic uint32_t contexts;
    uint32_t saved_contexts;
    struct bin bins[MACHINE_BINS];
};

enum slot_unsaveable { SLOT_HAS_MANAGED = 1, SLOT_HAS_IPC = 2 };

struct slot {
    _Atomic int32_t pid; /* as the process sees itself; 0: free */
    uint32_t reserved;
    /* when a process first saw that this one is dead; 0: alive. Its memory is torn down from then
     * on */
    _Atomic uint64_t died;
    /* the number of its joining: it names the process in all namespaces and is never reused */
    _Atomic uint64_t joined;
    uint64_t pid_namespace;  /* inode; 0: not known */
    uint64_t start_ticks;
    char name[32];
    /* its own first, as of its joining; inode 0: no more */
    struct cgroup cgroups[MACHINE_CGROUPS];
    /* CUprocessState: written under the lock; not 0: its calls wait on this word */
    _Atomic uint32_t process_state;
    _Atomic uint32_t work_items;    /* queued and not yet done */
    _Atomic uint32_t unsaveable;    /* bits of enum slot_unsaveable: what a checkpoint refuses */
    uint32_t reserved_word;
    /* the device of the machine behind each that the process knows: itself, until a restore puts
     * another in its place. Written while the process is checkpointed */
    _Atomic uint8_t places[MACHINE_DEVICES];
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
    uint64_t slice_nanoseconds;  /* the time slice of a process while others want the engine */
    uint64_t switch_nanoseconds; /* from one process to another */
    uint64_t teardown_nanoseconds; /* how long the memory of a dead process stays in use */
    pthread_mutex_t lock; /* robust, shared between processes */
    _Atomic uint32_t releases; /* releases of the lock: a waiting thread sleeps on this word */
    _Atomic uint32_t has_waiters;
    uint64_t joinings; /* under the lock */
    _Atomic uint32_t limit_count; /* 0: a charge need not look at the limits */
    uint32_t domain_devices; /* of each NVLink domain; 0: all devices are in one */
    struct limit limits[MACHINE_LIMITS];
    struct device devices[MACHINE_DEVICES];
    struct slot slots[MACHINE_SLOTS];
};

/* The attachment of this process to the machine: the mapped file, and its slot. */
struct attachment {
    struct machine *machine;
    int descriptor; /* of the state file; holds the slot's liveness lock */
    int slot;       /* -1: an observer */
    struct cgroup cgroups[MACHINE_CGROUPS]; /* as in a slot */
};

#endif
