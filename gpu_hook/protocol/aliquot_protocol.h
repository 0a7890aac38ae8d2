/* The protocol between the hook and the node agent: messages on the socket, and shared pages.
 *
 * The one definition of the protocol. Its Python twin is gpu_hook/protocol/codec.py; tests/gpu_hook/test_protocol.py
 * compiles this header and compares every size, offset and constant. A change here bumps the version, and
 * changes the twin and its test in the same commit. Hook and agent speak this one version: the agent refuses another
 * with ALIQUOT_REFUSED_VERSION and a text.
 *
 * Residency: a kernel's memory leaves the device and comes back at the same addresses. The agent alone decides which
 * kernel holds the lease of its devices; a process moves its bytes when the agent orders it, and reports it.
 *
 *     agent                                     hook
 *     SEGMENT … (one descriptor each)      →    maps them: where the host copy goes, in order
 *     SWAP_OUT                             →    stops calls, drains, copies out, unmaps
 *                                          ←    MOVED (same sequence): done; or why not, and then all is as before
 *                                          ←    WAKE: a call waits (once for each time that it is out)
 *     SWAP_IN                              →    maps at the same addresses, copies in, lets calls on
 *                                          ←    MOVED; the segments are the agent's again
 *
 * Calls wait while the page's lease is ended, in a process that has nothing to move, too. Credit that has to wait for
 * room is answered late: CREDIT_WAIT, at least once a second, keeps the hook patient.
 *
 * Compute shares: on a third shared page, the activity page, a process shows its work on each
 * device, in short intervals of measured time. ACTIVITY_PAGE hands a process its own. It also hands
 * opportunistic processes those of their peers, the production processes on the same device, for
 * reading only: they stop at once when production's work comes, and use its pauses. The agent
 * writes in its page how much time a process may use before it waits, in the hook's own measure of
 * time.
 *
 * Transport: a Unix SEQPACKET socket, `hook.sock` in the kernel's own directory, which the agent listens on.
 * A process belongs to the kernel whose socket it connects to. All integers are in host byte order (both ends
 * are on one machine). Pages are size-sealed memfds of one page each, passed with ALIQUOT_WELCOME.
 */
#ifndef ALIQUOT_PROTOCOL_H
#define ALIQUOT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_PROTOCOL_VERSION 5u
#define ALIQUOT_MESSAGE_MAGIC 0x314d5141u /* "AQM1" */
#define ALIQUOT_PAGE_MAGIC 0x31505141u    /* "AQP1" */
#define ALIQUOT_PAGE_BYTES 4096u
#define ALIQUOT_MAX_DEVICES 16u /* of one kernel */
#define ALIQUOT_HOST_MEMORY ALIQUOT_MAX_DEVICES /* as aliquot_credit.device: page-locked host memory */
#define ALIQUOT_HELLO_ENTRIES (ALIQUOT_MAX_DEVICES + 1u) /* the last is for host memory */
#define ALIQUOT_MAX_PROCESSES 64u /* in the agent page's table */
#define ALIQUOT_TEXT_BYTES 192u
#define ALIQUOT_FUNCTION_BYTES 60u /* of a driver function, with the zero at its end */
#define ALIQUOT_ACTIVITY_PAGE_MAGIC 0x31425141u /* "AQB1" */
#define ALIQUOT_ACTIVITY_PAGE_BYTES 12288u
#define ALIQUOT_ACTIVITY_INTERVALS 40u
#define ALIQUOT_MAX_PEERS 32u /* activity pages of others that one process reads */
#define ALIQUOT_SOCKET_NAME "hook.sock"

enum aliquot_message_type {
    /* hook to agent */
    ALIQUOT_HELLO = 1,          /* first message; also after the agent came back, then with the whole table */
    ALIQUOT_CREDIT_REQUEST = 2, /* answered by ALIQUOT_CREDIT_GRANT with the same sequence */
    ALIQUOT_CREDIT_RETURN = 3,  /* no answer */
    ALIQUOT_SELF_CHECK = 4,     /* result of the check at kernel start; no answer */
    ALIQUOT_WAKE = 5,           /* a call waits for the lease, or (`waiting_calls` 0) an interrupt ended the last one that
                                   did; no answer but what follows from it */
    ALIQUOT_MOVED = 6,          /* answer to SWAP_OUT and SWAP_IN, same sequence; after a WELCOME also unasked, with
                                   sequence 0: this process is swapped out since before */
    /* agent to hook */
    ALIQUOT_WELCOME = 64, /* with two descriptors: the agent's page (read-only), the hook's page */
    ALIQUOT_REFUSE = 65,  /* with a reason; the agent then closes the connection */
    ALIQUOT_CREDIT_GRANT = 66,
    ALIQUOT_CREDIT_RECALL = 67, /* answered by ALIQUOT_CREDIT_RETURN (possibly of 0 bytes), same sequence */
    /* the request of this sequence waits for room on the device: wait on */
    ALIQUOT_CREDIT_WAIT = 68,
    ALIQUOT_SEGMENT = 69,       /* with one descriptor: host memory for the next SWAP_OUT; no answer */
    ALIQUOT_SWAP_OUT = 70,
    ALIQUOT_SWAP_IN = 71,
    ALIQUOT_ACTIVITY_PAGE = 72, /* with one descriptor, save for ACTIVITY_PAGE_GONE; no answer */
};

enum aliquot_role {
    ALIQUOT_ROLE_PROCESS = 1,  /* uses CUDA: has allocations and credit */
    ALIQUOT_ROLE_OBSERVER = 2, /* only asks NVML */
    ALIQUOT_ROLE_CHECK = 3,    /* the self-check at kernel start */
};

enum aliquot_workload_class { ALIQUOT_PRODUCTION = 0, ALIQUOT_OPPORTUNISTIC = 1 };

enum aliquot_refusal {
    ALIQUOT_REFUSED_VERSION = 1, /* the agent does not speak this version */
    ALIQUOT_REFUSED_KERNEL = 2,  /* the kernel's grant ended */
    ALIQUOT_REFUSED_MESSAGE = 3, /* malformed */
    ALIQUOT_REFUSED_FULL = 4,    /* too many processes of one kernel */
    ALIQUOT_REFUSED_PEER = 5,    /* in a pid namespace that the agent does not see */
};

/* The means that keeps a kernel within its memory on a device. Under the driver's own limit the
 * hook leaves memory queries to the driver, which shows the limit itself. */
enum aliquot_enforcer { ALIQUOT_ENFORCER_HOOK = 0, ALIQUOT_ENFORCER_MPS = 1, ALIQUOT_ENFORCER_DRIVER = 2 };

/* The way in which a kernel's memory can leave its devices. The agent chooses it, for a kernel's
 * whole life. */
enum aliquot_residency_mode {
    ALIQUOT_RESIDENCY_OFF = 0,     /* it stays */
    ALIQUOT_RESIDENCY_VMM = 1,     /* large allocations are mapped by the virtual-memory API */
    ALIQUOT_RESIDENCY_MANAGED = 2, /* linear allocations are CUDA unified memory */
};

/* The agent page's `gate`. */
enum aliquot_gate {
    ALIQUOT_GATE_OPEN = 0,
    ALIQUOT_GATE_CLOSED = 1, /* no work begins */
    ALIQUOT_GATE_PACED = 2,  /* launches go by the `pace` of their device */
};

/* The way in which the hook measures launches on one device and holds them back. */
enum aliquot_pace {
    ALIQUOT_PACE_OFF = 0,     /* the hook measures nothing */
    ALIQUOT_PACE_MEASURE = 1, /* measured, never held back */
    ALIQUOT_PACE_TIME = 2,    /* held back by measured time, and by the peers' activity pages */
};

enum aliquot_activity_page_kind {
    ALIQUOT_ACTIVITY_PAGE_OWN = 0,  /* writable: this process's own */
    ALIQUOT_ACTIVITY_PAGE_PEER = 1, /* read-only: of a production process on the same device */
    /* the peer of that number does not count any more; without a descriptor */
    ALIQUOT_ACTIVITY_PAGE_GONE = 2,
};

enum aliquot_lease { ALIQUOT_LEASE_HELD = 0, ALIQUOT_LEASE_ENDED = 1 };

/* The place of a process's memory, as the hook reports it. */
enum aliquot_residency {
    ALIQUOT_RESIDENT = 0,
    ALIQUOT_SWAPPING_OUT = 1,
    ALIQUOT_SWAPPED = 2,
    ALIQUOT_SWAPPING_IN = 3,
};

enum aliquot_move_outcome {
    ALIQUOT_MOVE_DONE = 0,
    /* the drain's time was over: work keeps the device; all is as before */
    ALIQUOT_MOVE_BUSY = 1,
    ALIQUOT_MOVE_NO_SPACE = 2,   /* the segments are too small: `wanted_bytes` says how much; all is as before */
    ALIQUOT_MOVE_NO_ROOM = 3,    /* SWAP_IN: the device has less room than was promised; still swapped out */
    ALIQUOT_MOVE_REFUSED = 4,    /* this process cannot: its mode is off, or a context is lost; all is as before */
    ALIQUOT_MOVE_FAILED = 5,     /* the driver or the file system failed; the page says where the bytes are */
};

/* The reason why bytes of a process stay on the device when it is swapped out: its pin reason. */
enum aliquot_pin_reason {
    ALIQUOT_PIN_SMALL = 1u << 0,    /* below the least swappable size */
    ALIQUOT_PIN_POOL = 1u << 1,     /* stream-ordered memory in use */
    ALIQUOT_PIN_ARRAY = 1u << 2,
    ALIQUOT_PIN_IPC = 1u << 3,      /* legacy IPC, either side */
    /* a handle or an address range that other processes may hold by a descriptor */
    ALIQUOT_PIN_EXPORTED = 1u << 4,
    ALIQUOT_PIN_GRAPH = 1u << 5,    /* memory nodes of graphs */
    ALIQUOT_PIN_MULTICAST = 1u << 6,
    ALIQUOT_PIN_MANAGED = 1u << 7,  /* unified memory of the user's own: the driver pages it */
    ALIQUOT_PIN_NO_AGENT = 1u << 8, /* allocated while no agent was connected */
    /* the kernel's mode is off, or the device lacks virtual memory management */
    ALIQUOT_PIN_MODE = 1u << 9,
    ALIQUOT_PIN_NCCL = 1u << 10,    /* made by NCCL, for a communicator */
};

/* The checks that ALIQUOT_SELF_CHECK reports. All bits of ALIQUOT_CHECK_ALL set means that
 * interception holds; an absolute path that leads past the hook is reported apart. */
enum aliquot_self_check {
    ALIQUOT_CHECK_CUDA_NAME = 1u << 0,      /* dlopen("libcuda.so.1") gives the hook */
    ALIQUOT_CHECK_CUDA_LINK_NAME = 1u << 1, /* dlopen("libcuda.so") gives the hook */
    ALIQUOT_CHECK_QUERY = 1u << 2,          /* cuGetProcAddress("cuMemAlloc") answers with the hook's */
    ALIQUOT_CHECK_NVML_NAME = 1u << 3,      /* dlopen("libnvidia-ml.so.1") gives the hook */
    ALIQUOT_CHECK_ONE_DRIVER = 1u << 4,     /* the real driver is mapped from its private path only */
    ALIQUOT_CHECK_ABSOLUTE_PATH = 1u << 5,  /* the real driver's usual absolute path gives the hook */
};
#define ALIQUOT_CHECK_ALL 0x1fu

struct aliquot_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;     /* enum aliquot_message_type */
    uint32_t bytes;    /* of the whole message */
    uint32_t sequence; /* chosen by the sender of a request, repeated in its answer */
};

struct aliquot_hello_device {
    uint8_t uuid[16]; /* all zero: page-locked host memory */
    uint64_t charged_bytes;
    uint64_t credit_bytes; /* lent and not charged */
};

struct aliquot_hello {
    struct aliquot_header header;
    uint32_t role;
    int32_t pid;               /* as the process sees itself; the agent takes the peer's from the socket */
    uint64_t start_time_ticks; /* field 22 of /proc/self/stat */
    uint32_t device_count;     /* 0 on a first connection */
    uint32_t residency;        /* enum aliquot_residency */
    char name[32]; /* of the program */
    struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES];
};

/* The purpose of a REQUEST. The agent lends nothing for a context, whose memory no hook charges: it
 * makes room on the device. The request names the least bytes (0: the agent knows how many), and
 * the GRANT, which has the same word, the bytes that are there now. */
enum aliquot_request {
    ALIQUOT_REQUEST_NEEDED = 0,
    ALIQUOT_REQUEST_SPARE = 1, /* for more than it needs: it does not wait for room on the device */
    ALIQUOT_REQUEST_CONTEXT = 2,
};

struct aliquot_credit { /* REQUEST, GRANT, RETURN, RECALL */
    struct aliquot_header header;
    uint32_t device; /* index into the agent page's devices, or ALIQUOT_HOST_MEMORY */
    /* RECALL: answer within this time. REQUEST and GRANT: enum aliquot_request. RETURN: not 0 when
     * it withdraws the request of this sequence, which an interrupt ended. */
    uint32_t deadline_milliseconds;
    uint64_t bytes; /* wanted, granted (0: over quota), returned, or wanted back */
};

struct aliquot_segment { /* its descriptor is a memfd, or a private file, of at least `bytes`, populated */
    struct aliquot_header header;
    uint32_t number; /* 0, 1, … of the next SWAP_OUT: the copy fills them in this order */
    uint32_t reserved;
    uint64_t bytes; /* a multiple of 2 MiB */
};

struct aliquot_swap { /* SWAP_OUT, SWAP_IN */
    struct aliquot_header header;
    uint32_t drain_milliseconds; /* SWAP_OUT: how long to wait for the device */
    uint32_t segment_count;      /* SWAP_OUT: those with a number below it hold the copy; others are void */
};

struct aliquot_wake {
    struct aliquot_header header;
    uint32_t waiting_calls;
    uint32_t reserved;
};

/* ACTIVITY_PAGE; its descriptor is a size-sealed memfd of ALIQUOT_ACTIVITY_PAGE_BYTES. */
struct aliquot_activity_page_notice {
    struct aliquot_header header;
    uint32_t kind;   /* enum aliquot_activity_page_kind */
    uint32_t number; /* of a peer: 0 to ALIQUOT_MAX_PEERS - 1, again after it was GONE */
    uint32_t device; /* of a peer: index into the receiver's devices */
    /* of a peer: the same device, as index into the activity page's devices */
    uint32_t page_device;
};

struct aliquot_moved_device {
    uint64_t swapped_bytes; /* on the host now */
    uint64_t unswappable_bytes; /* charged, and on the device whatever happens */
};

struct aliquot_moved {
    struct aliquot_header header;
    uint32_t outcome;   /* enum aliquot_move_outcome */
    uint32_t residency; /* enum aliquot_residency: where it is now */
    uint32_t pin_reasons;   /* bits of enum aliquot_pin_reason */
    uint32_t device_count;
    uint64_t wanted_bytes;      /* of host memory, for NO_SPACE */
    uint64_t drain_nanoseconds; /* of the three phases */
    uint64_t copy_nanoseconds;
    uint64_t map_nanoseconds;
    struct aliquot_moved_device devices[ALIQUOT_MAX_DEVICES]; /* as in the agent's page */
    char text[ALIQUOT_TEXT_BYTES]; /* the findings, when it did not succeed */
};

struct aliquot_self_check_result {
    struct aliquot_header header;
    uint32_t passed; /* bits of enum aliquot_self_check */
    uint32_t reserved;
    char text[ALIQUOT_TEXT_BYTES]; /* the findings, when a check failed */
};

struct aliquot_welcome {
    struct aliquot_header header;
    uint32_t device_count;
    uint32_t reserved;
};

struct aliquot_refuse {
    struct aliquot_header header;
    uint32_t reason; /* enum aliquot_refusal */
    uint32_t reserved;
    char text[ALIQUOT_TEXT_BYTES];
};

#include "aliquot_pages.h"

_Static_assert(sizeof(struct aliquot_header) == 16, "header");
_Static_assert(sizeof(struct aliquot_hello) == 72 + 32 * ALIQUOT_HELLO_ENTRIES, "hello");
_Static_assert(sizeof(struct aliquot_credit) == 32, "credit");
_Static_assert(sizeof(struct aliquot_segment) == 32, "segment");
_Static_assert(sizeof(struct aliquot_swap) == 24, "swap");
_Static_assert(sizeof(struct aliquot_moved) == 64 + 16 * ALIQUOT_MAX_DEVICES + ALIQUOT_TEXT_BYTES, "moved");
_Static_assert(sizeof(struct aliquot_activity_page_notice) == 32, "activity page notice");

#endif
