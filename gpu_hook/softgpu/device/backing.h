/* The memory behind handles: a piece of this process's one sparse file, or a file of its own for
 * what other processes may import. The files have no name, so they go with the last process that
 * holds them, however it ends. */
#ifndef SOFTGPU_BACKING_H
#define SOFTGPU_BACKING_H

#include <stdint.h>

#define BACKING_NOTE_BYTES 64

struct backing {
    int descriptor; /* of its own; -1: a piece of the process's file */
    uint64_t offset, bytes;
    uint64_t identity; /* of a file of its own: the same in every process */
};

/* 0, or -1 without memory or descriptors. */
int backing_open(uint64_t bytes, struct backing *backing);
/* The same in a file of its own, which ends with a note for the importing process. */
int backing_open_shared(uint64_t bytes, const void *note, struct backing *backing);
/* Takes a shared file that came as a descriptor, which stays the caller's: 0 and its note; -1 when
 * it is none. */
int backing_adopt(int descriptor, void *note, struct backing *backing);
/* A new descriptor of a shared file, for another process; -1. */
int backing_duplicate(const struct backing *backing);
void backing_close(struct backing *backing);
/* Maps the first `bytes` over [address, address + bytes) of this process; 0, or -1. */
int backing_map(const struct backing *backing, void *address, uint64_t bytes, int protection);
/* Called in a forked child: drops the parent's memory. */
void backing_forget(void);

#endif
