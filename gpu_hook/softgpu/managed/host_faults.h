/* Faults of the host at managed memory whose bytes a device has. The kernel tells them by
 * userfaultfd, which it lets root use, and all where vm.unprivileged_userfaultfd is 1. Elsewhere the
 * host's use is not seen. */
#ifndef SOFTGPU_HOST_FAULTS_H
#define SOFTGPU_HOST_FAULTS_H

#include <stdint.h>

struct host_fault {
    uint64_t start, bytes; /* to map for the host */
    uint64_t until;        /* the access goes on then */
};

/* Called in a thread of its own, without locks: fills *fault, which holds the page at `address`. */
typedef void (*host_fault_answer)(uint64_t address, int is_write, struct host_fault *fault);

void host_faults_answer_with(host_fault_answer answer); /* called at cuInit */
/* Watches a shared mapping until it is unmapped. Pages that are in the file, but not mapped, fault. */
void host_faults_watch(void *start, uint64_t bytes);
/* Takes pages off the host. Their bytes stay in the file. */
void host_faults_arm(uint64_t start, uint64_t bytes);

#endif
