/* Where handles keep their bytes: a piece of this process's one sparse file, or a file of its own for what other
 * processes may import. Files without a name: they go with the last process that holds them, whatever ended it. */
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
/* The same as a file of its own, whose end carries a note for who imports it. */
int backing_open_shared(uint64_t bytes, const void *note, struct backing *backing);
/* A shared file that came as a descriptor, which stays the caller's: 0 and its note; -1 when it is none. */
int backing_adopt(int descriptor, void *note, struct backing *backing);
/* A new descriptor of a shared file, for another process; -1. */
int backing_duplicate(const struct backing *backing);
void backing_close(struct backing *backing);
/* Lays the first `bytes` over [address, address + bytes) of this process; 0, or -1. */
int backing_map(const struct backing *backing, void *address, uint64_t bytes, int protection);
/* In a forked child: lets go of the parent's memory. */
void backing_forget(void);

#endif
